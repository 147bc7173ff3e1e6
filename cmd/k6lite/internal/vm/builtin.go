package vm

import (
	"slices"

	"github.com/grafana/sobek"
)

// module is one of the k6 modules: what it exports, made anew for each virtual user.
type module struct {
	exports []string
	refused []string // names k6 documents and this runner does not have: using one ends the run
	build   func(vu *VU) map[string]any
}

// modules lists the k6 modules there are.
func modules() map[string]module {
	return map[string]module{
		"k6":           {exports: []string{"check", "fail", "group", "randomSeed", "sleep"}, build: buildCore},
		"k6/crypto":    {exports: cryptoExports, refused: []string{"md4", "ripemd160"}, build: buildCrypto},
		"k6/data":      {exports: []string{"SharedArray"}, build: buildData},
		"k6/execution": {exports: []string{"instance", "scenario", "test", "vu"}, build: buildExecution},
		"k6/http":      {exports: httpExports, refused: httpRefused, build: buildHTTP},
		"k6/metrics":   {exports: []string{"Counter", "Gauge", "Rate", "Trend"}, build: buildMetrics},
		"k6/timers": {
			exports: []string{"clearInterval", "clearTimeout", "setInterval", "setTimeout"}, build: buildTimers,
		},
	}
}

// builtinModule is the record of a k6 module, shared by all runtimes.
type builtinModule struct {
	script *Script
	name   string
	module module
}

var _ sobek.ModuleRecord = (*builtinModule)(nil)

// Link has nothing to do: a k6 module imports nothing.
func (b *builtinModule) Link() error { return nil }

// GetExportedNames reports the names the module exports, without default.
func (b *builtinModule) GetExportedNames(callback func([]string), _ ...sobek.ModuleRecord) bool {
	callback(slices.Concat(b.module.exports, b.module.refused))
	return true
}

// ResolveExport finds a named export, or default.
func (b *builtinModule) ResolveExport(name string, _ ...sobek.ResolveSetElement) (*sobek.ResolvedBinding, bool) {
	if name != "default" && !slices.Contains(b.module.exports, name) && !slices.Contains(b.module.refused, name) {
		return nil, false
	}
	return &sobek.ResolvedBinding{Module: b, BindingName: name}, false
}

// Evaluate builds the module for the virtual user that rt belongs to, once.
func (b *builtinModule) Evaluate(rt *sobek.Runtime) *sobek.Promise {
	vu := b.script.user(rt)
	instance := vu.modules[b.name]
	if instance == nil {
		instance = b.instance(vu)
		vu.modules[b.name] = instance
	}
	promise, resolve, _ := rt.NewPromise()
	must(resolve(instance))
	return promise
}

func (b *builtinModule) instance(vu *VU) *builtinInstance {
	i := &builtinInstance{values: map[string]sobek.Value{}, refuse: map[string]func(){}}
	whole := vu.rt.NewObject()
	for name, value := range b.module.build(vu) {
		v := vu.rt.ToValue(value)
		i.values[name] = v
		must(whole.Set(name, v))
	}
	for _, name := range b.module.refused {
		i.refuse[name] = func() { vu.refuse("%s: %s", b.name, name) }
		getter := vu.rt.ToValue(func(sobek.FunctionCall) sobek.Value {
			i.refuse[name]()
			return sobek.Undefined()
		})
		must(whole.DefineAccessorProperty(name, getter, nil, sobek.FLAG_FALSE, sobek.FLAG_FALSE))
	}
	i.values["default"] = whole
	return i
}

// builtinInstance is a k6 module inside one runtime.
type builtinInstance struct {
	values map[string]sobek.Value
	refuse map[string]func()
}

// GetBindingValue returns an export.
func (i *builtinInstance) GetBindingValue(name string) sobek.Value {
	if refuse := i.refuse[name]; refuse != nil {
		refuse()
		return sobek.Undefined()
	}
	return i.values[name]
}

// must is for calls that fail only when this program is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
