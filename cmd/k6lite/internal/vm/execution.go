package vm

import (
	"slices"

	"github.com/grafana/sobek"
)

func buildExecution(vu *VU) map[string]any {
	tags := vu.rt.NewDynamicObject(&tagView{vu})
	metrics := vu.rt.NewObject()
	must(metrics.Set("tags", tags))
	must(metrics.Set("metadata", vu.rt.NewObject())) // k6 sends it to outputs only, and there are none here
	state := vu.host.State
	return map[string]any{
		"scenario": vu.view("exec.scenario", map[string]func() any{
			"name":                func() any { return vu.working().Name },
			"executor":            func() any { return vu.working().Executor },
			"startTime":           func() any { return vu.working().Started.UnixMilli() },
			"progress":            func() any { return vu.working().Progress() },
			"iterationInInstance": func() any { vu.working(); return vu.iteration.inTest },
			"iterationInTest":     func() any { vu.working(); return vu.iteration.inTest },
		}),
		"instance": vu.view("exec.instance", map[string]func() any{
			"iterationsInterrupted":  func() any { return state.Interrupted.Load() },
			"iterationsCompleted":    func() any { return state.Completed.Load() },
			"vusActive":              func() any { return state.Active.Load() },
			"vusInitialized":         func() any { return state.Initialized.Load() },
			"currentTestRunDuration": func() any { return milliseconds(state.Elapsed()) },
		}),
		"vu": vu.view("exec.vu", map[string]func() any{
			"idInInstance":        func() any { return vu.ID },
			"idInTest":            func() any { return vu.ID },
			"iterationInInstance": func() any { vu.working(); return vu.iteration.inInstance },
			"iterationInScenario": func() any { vu.working(); return vu.iteration.inScenario },
			"tags":                func() any { return tags },
			"metrics":             func() any { return metrics },
		}),
		"test": vu.testObject(),
	}
}

// working returns the scenario this virtual user works for; there is none in setup, teardown and handleSummary.
func (vu *VU) working() *Workload {
	if vu.work == nil {
		vu.throw("there is no scenario here")
	}
	return vu.work
}

// view makes an object of read-only properties that are computed when they are read, outside the init context.
func (vu *VU) view(name string, fields map[string]func() any) *sobek.Object {
	o := vu.rt.NewObject()
	for field, read := range fields {
		getter := vu.rt.ToValue(func(sobek.FunctionCall) sobek.Value {
			vu.needRun(name)
			return vu.rt.ToValue(read())
		})
		must(o.DefineAccessorProperty(field, getter, nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE))
	}
	return o
}

func (vu *VU) testObject() *sobek.Object {
	var options sobek.Value
	test := vu.view("exec.test.options", map[string]func() any{"options": func() any {
		if options == nil {
			var err error
			options, err = vu.parse(vu.host.Options.Consolidated)
			must(err) // this program wrote it
		}
		return options
	}})
	must(test.Set("abort", func(call sobek.FunctionCall) sobek.Value {
		reason := ""
		if given(call.Argument(0)) {
			reason = call.Argument(0).String()
		}
		vu.end(&Aborted{reason})
		return sobek.Undefined()
	}))
	must(test.Set("fail", func(call sobek.FunctionCall) sobek.Value {
		vu.needRun("exec.test.fail()")
		reason := ""
		if given(call.Argument(0)) {
			reason = call.Argument(0).String()
		}
		vu.host.Fail(reason)
		return sobek.Undefined()
	}))
	return test
}

// tagView is exec.vu.metrics.tags: all tags of the virtual user to read, its own to write.
type tagView struct{ vu *VU }

var _ sobek.DynamicObject = (*tagView)(nil)

// Get returns a tag.
func (t *tagView) Get(key string) sobek.Value {
	if v, ok := t.vu.system.Get(key); ok {
		return t.vu.rt.ToValue(v)
	}
	return nil
}

// Set sets a tag of the virtual user.
func (t *tagView) Set(key string, v sobek.Value) bool {
	t.vu.needRun("exec.vu.metrics.tags")
	if key == "group" || key == "scenario" {
		t.vu.throw("the system tag %q cannot be set", key)
	}
	t.vu.custom.Set(key, t.vu.tagValue(key, v))
	return true
}

// Has says whether a tag is set.
func (t *tagView) Has(key string) bool {
	_, ok := t.vu.system.Get(key)
	return ok
}

// Delete removes a tag of the virtual user.
func (t *tagView) Delete(key string) bool {
	t.vu.custom.Unset(key)
	return true
}

// Keys lists all tags.
func (t *tagView) Keys() []string {
	var keys []string
	for layer := &t.vu.system; layer != nil; layer = layer.Below {
		for _, tag := range layer.Own {
			if !slices.Contains(keys, tag.Key) {
				keys = append(keys, tag.Key)
			}
		}
	}
	return keys
}
