package vm

import (
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grafana/sobek"
)

// setGlobals puts in place what a script may use without importing it.
func (vu *VU) setGlobals() {
	rt := vu.rt
	vu.env = rt.NewObject()
	for k, v := range vu.host.Env {
		must(vu.env.Set(k, v))
	}
	must(rt.Set("__ENV", vu.env))
	must(rt.Set("__VU", vu.ID))
	iteration := rt.ToValue(func(sobek.FunctionCall) sobek.Value { return rt.ToValue(vu.iteration.inInstance) })
	must(rt.GlobalObject().DefineAccessorProperty("__ITER", iteration, nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE))
	must(rt.Set("open", vu.open))
	must(rt.Set("console", vu.console()))
	for name, function := range buildTimers(vu) {
		must(rt.Set(name, function))
	}
	rt.SetGetImportMetaProperties(func(record sobek.ModuleRecord) []sobek.MetaProperty {
		return []sobek.MetaProperty{{Key: "resolve", Value: rt.ToValue(func(specifier string) string {
			path, err := vu.host.Script.locate(record, specifier)
			if err != nil {
				panic(rt.NewGoError(err))
			}
			return "file://" + filepath.ToSlash(path)
		})}}
	})
}

func (vu *VU) console() *sobek.Object {
	console := vu.rt.NewObject()
	for name, level := range map[string]string{"log": "INFO", "info": "INFO", "debug": "DEBU", "warn": "WARN", "error": "ERRO"} {
		must(console.Set(name, func(call sobek.FunctionCall) sobek.Value {
			parts := make([]string, len(call.Arguments))
			for i, argument := range call.Arguments {
				parts[i] = describe(argument)
			}
			vu.host.Log.Print(level, strings.Join(parts, " "))
			return sobek.Undefined()
		}))
	}
	return console
}

// open implements the documented init-context function. A relative path is relative to the main script; from a module
// in another directory it would be ambiguous and is refused (use import.meta.resolve).
func (vu *VU) open(call sobek.FunctionCall) sobek.Value {
	if !vu.inInit {
		vu.throw("open() can only be called in the init context")
	}
	name := call.Argument(0).String()
	script := vu.host.Script
	path := name
	switch {
	case strings.HasPrefix(name, "file://"):
		path = filepath.FromSlash(strings.TrimPrefix(name, "file://"))
	case !filepath.IsAbs(name):
		caller, _ := vu.rt.GetActiveScriptOrModule().(sobek.ModuleRecord)
		script.mu.Lock()
		from, ok := script.paths[caller]
		script.mu.Unlock()
		if ok && filepath.Dir(from) != filepath.Dir(script.path) {
			vu.throw("open(%q): relative to which file? Write open(import.meta.resolve(%q))", name, "./"+name)
		}
		path = filepath.Join(filepath.Dir(script.path), filepath.FromSlash(name))
	}
	content, err := script.read(path)
	if err != nil {
		vu.throw("open(%q): %s", name, err)
	}
	switch mode := call.Argument(1); {
	case !given(mode):
		if !utf8.Valid(content) {
			vu.throw("open(%q): the file is not UTF-8; use mode \"b\"", name)
		}
		return vu.rt.ToValue(string(content))
	case mode.String() == "b":
		return vu.rt.ToValue(vu.rt.NewArrayBuffer(append([]byte(nil), content...)))
	default:
		vu.throw("open(%q): mode %q is not \"b\"", name, mode)
		return nil
	}
}

// maxDelay bounds a timer; time.Duration would overflow beyond.
const maxDelay = float64(365*24*time.Hour) / float64(time.Millisecond)

func buildTimers(vu *VU) map[string]any {
	set := func(repeat bool) func(sobek.FunctionCall) sobek.Value {
		return func(call sobek.FunctionCall) sobek.Value {
			function, ok := sobek.AssertFunction(call.Argument(0))
			if !ok {
				vu.throw("a timer needs a function")
			}
			delay := call.Argument(1).ToFloat()
			if !(delay >= 0) {
				delay = 0 // what browsers do with a negative or missing delay
			}
			if delay > maxDelay {
				vu.throw("a timer of %v ms", delay)
			}
			after := time.Duration(delay * float64(time.Millisecond))
			var every time.Duration
			if repeat {
				every = max(after, time.Millisecond)
			}
			return vu.rt.ToValue(vu.loop.set(function, after, every, append([]sobek.Value(nil), rest(call.Arguments, 2)...)))
		}
	}
	unset := func(call sobek.FunctionCall) sobek.Value {
		vu.loop.clear(call.Argument(0).ToInteger())
		return sobek.Undefined()
	}
	return map[string]any{
		"setTimeout": set(false), "setInterval": set(true), "clearTimeout": unset, "clearInterval": unset,
	}
}

func rest(values []sobek.Value, from int) []sobek.Value {
	if len(values) <= from {
		return nil
	}
	return values[from:]
}
