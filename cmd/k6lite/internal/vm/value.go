package vm

import (
	"errors"
	"math"

	"github.com/grafana/sobek"
	"github.com/tidwall/gjson"
)

// export returns the Go value behind v when it is a T.
func export[T any](v sobek.Value) (T, bool) {
	var none T
	if v == nil {
		return none, false
	}
	t, ok := v.Export().(T)
	return t, ok
}

// given says whether an optional argument is there.
func given(v sobek.Value) bool {
	return v != nil && !sobek.IsUndefined(v) && !sobek.IsNull(v)
}

// isString says whether v is a primitive string.
func isString(v sobek.Value) bool {
	_, ok := v.(sobek.String)
	return ok
}

// describe renders a value for a log line: an error with its stack, an object as JSON.
func describe(v sobek.Value) string {
	if v == nil {
		return "undefined"
	}
	o, ok := v.(*sobek.Object)
	if !ok {
		return v.String()
	}
	if err, ok := o.Export().(error); ok {
		return err.Error()
	}
	if o.ClassName() == "Error" {
		if stack := o.Get("stack"); given(stack) {
			return stack.String()
		}
		return o.String()
	}
	if text, err := o.MarshalJSON(); err == nil && o.ClassName() != "Function" {
		return string(text)
	}
	return o.String()
}

// stringify is JSON.stringify of this runtime, "" for undefined.
func (vu *VU) stringify(v sobek.Value) (string, error) {
	text, err := vu.shape.stringify(sobek.Undefined(), v)
	if err != nil {
		return "", vu.fault(err)
	}
	if sobek.IsUndefined(text) {
		return "", nil
	}
	return text.String(), nil
}

// parse turns JSON into a value of this runtime.
func (vu *VU) parse(text []byte) (sobek.Value, error) {
	if !gjson.ValidBytes(text) {
		return nil, errors.New("invalid JSON")
	}
	return vu.fromJSON(gjson.ParseBytes(text)), nil
}

func (vu *VU) fromJSON(r gjson.Result) sobek.Value {
	switch r.Type {
	case gjson.Null:
		return sobek.Null()
	case gjson.True:
		return vu.rt.ToValue(true)
	case gjson.False:
		return vu.rt.ToValue(false)
	case gjson.String:
		return vu.rt.ToValue(r.Str)
	case gjson.Number:
		if n := int64(r.Num); float64(n) == r.Num && !(n == 0 && math.Signbit(r.Num)) && n > -1<<53 && n < 1<<53 {
			return vu.rt.ToValue(n)
		}
		return vu.rt.ToValue(r.Num)
	}
	if r.IsArray() {
		var items []any
		r.ForEach(func(_, item gjson.Result) bool {
			items = append(items, vu.fromJSON(item))
			return true
		})
		return vu.rt.NewArray(items...)
	}
	o := vu.rt.NewObject()
	r.ForEach(func(key, item gjson.Result) bool {
		if key.Str == "__proto__" { // in JSON a name like any other
			must(o.DefineDataProperty(key.Str, vu.fromJSON(item), sobek.FLAG_TRUE, sobek.FLAG_TRUE, sobek.FLAG_TRUE))
			return true
		}
		must(o.Set(key.Str, vu.fromJSON(item)))
		return true
	})
	return o
}
