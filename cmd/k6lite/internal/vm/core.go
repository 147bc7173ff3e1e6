package vm

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

func buildCore(vu *VU) map[string]any {
	return map[string]any{
		"check": vu.check, "fail": vu.fail, "group": vu.inGroup, "randomSeed": vu.randomSeed, "sleep": vu.sleep,
	}
}

// needRun refuses what is not available while the init code runs.
func (vu *VU) needRun(what string) {
	if vu.inInit {
		vu.throw("%s is not available in the init context", what)
	}
}

// check implements check(val, sets, [tags]).
func (vu *VU) check(call sobek.FunctionCall) sobek.Value {
	vu.needRun("check()")
	sets, ok := call.Argument(1).(*sobek.Object)
	if !ok {
		vu.throw("check() needs an object of conditions")
	}
	tags := metric.Tags{Own: vu.tagsOf(call.Argument(2)), Below: &vu.system}
	all := true
	for _, name := range sets.Keys() {
		c, err := vu.host.Outline.Check(vu.group, name)
		if err != nil {
			vu.throw("%s", err)
		}
		passed, err := vu.condition(sets.Get(name), call.Argument(0))
		named := metric.Tags{Own: []metric.Tag{{Key: "check", Value: name}}, Below: &tags}
		value := 0.0
		if passed {
			c.Passes.Add(1)
			value = 1
		} else {
			c.Fails.Add(1)
			all = false
		}
		vu.rec.Add(&named, metric.Sample{Metric: vu.host.Builtin.Checks, Value: value})
		if err != nil {
			panic(err)
		}
	}
	return vu.rt.ToValue(all)
}

// condition evaluates one check: a function of the value, or a value. An error it throws goes on to the caller of
// check(), after the check has been counted as failed.
func (vu *VU) condition(condition, value sobek.Value) (bool, error) {
	function, ok := sobek.AssertFunction(condition)
	if !ok {
		return condition.ToBoolean(), nil
	}
	result, err := function(sobek.Undefined(), value)
	if err != nil {
		return false, err
	}
	if _, ok := export[*sobek.Promise](result); ok {
		vu.throw("check(): a condition returned a promise, which is always true; await it before the check")
	}
	return result.ToBoolean(), nil
}

// tagsOf reads an object of tags.
func (vu *VU) tagsOf(v sobek.Value) []metric.Tag {
	if !given(v) {
		return nil
	}
	o, ok := v.(*sobek.Object)
	if !ok {
		vu.throw("tags must be an object")
	}
	keys := o.Keys()
	tags := make([]metric.Tag, 0, len(keys))
	for _, key := range keys {
		tags = append(tags, metric.Tag{Key: key, Value: vu.tagValue(key, o.Get(key))})
	}
	return tags
}

// tagValue turns a string, number or boolean into the string that tags are made of.
func (vu *VU) tagValue(key string, v sobek.Value) string {
	if !given(v) {
		vu.throw("tag %q has no value", key)
	}
	if _, ok := v.(*sobek.Object); ok {
		vu.throw("tag %q: the value must be a string, a number or a boolean", key)
	}
	return v.String()
}

func (vu *VU) fail(call sobek.FunctionCall) sobek.Value {
	reason := "fail() was called"
	if given(call.Argument(0)) {
		reason = call.Argument(0).String()
	}
	thrown, err := vu.rt.New(vu.rt.Get("Error"), vu.rt.ToValue(reason))
	if err != nil {
		panic(err)
	}
	panic(thrown)
}

// inGroup implements group(name, fn).
func (vu *VU) inGroup(call sobek.FunctionCall) sobek.Value {
	vu.needRun("group()")
	function, ok := sobek.AssertFunction(call.Argument(1))
	if !ok {
		vu.throw("group() needs a name and a function")
	}
	if vu.isAsync(call.Argument(1)) {
		vu.throw("group() does not take an async function")
	}
	outer := vu.group
	inner, err := vu.host.Outline.Group(outer, call.Argument(0).String())
	if err != nil {
		vu.throw("%s", err)
	}
	vu.enter(inner)
	began := time.Now()
	result, err := function(sobek.Undefined())
	vu.rec.Add(&vu.system, metric.Sample{Metric: vu.host.Builtin.GroupDuration, Value: milliseconds(time.Since(began))})
	vu.enter(outer)
	if err != nil {
		panic(err)
	}
	return result
}

func (vu *VU) isAsync(function sobek.Value) bool {
	o, ok := function.(*sobek.Object)
	if !ok {
		return false
	}
	constructor, ok := o.Get("constructor").(*sobek.Object)
	return ok && constructor.Get("name").String() == "AsyncFunction"
}

func (vu *VU) sleep(call sobek.FunctionCall) sobek.Value {
	vu.needRun("sleep()")
	seconds := call.Argument(0).ToFloat()
	if math.IsNaN(seconds) || seconds*1000 > maxDelay {
		vu.throw("sleep(%s): not a number of seconds", call.Argument(0))
	}
	if seconds > 0 {
		vu.pause(time.Duration(seconds * float64(time.Second)))
	}
	return sobek.Undefined()
}

func (vu *VU) randomSeed(call sobek.FunctionCall) sobek.Value {
	source := rand.New(rand.NewPCG(uint64(call.Argument(0).ToInteger()), 0)) // reproducible on purpose
	vu.rt.SetRandSource(source.Float64)
	return sobek.Undefined()
}
