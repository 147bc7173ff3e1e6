package vm

import (
	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
)

// expectation is what http.expectedStatuses() returns: the statuses that do not count as a failure.
type expectation struct{ ranges [][2]int }

// defaultExpectation is the documented default.
var defaultExpectation = &expectation{[][2]int{{200, 399}}}

func (e *expectation) meets(a *httpclient.Answer) bool {
	if a.Err != nil {
		return false
	}
	for _, r := range e.ranges {
		if r[0] <= a.Status && a.Status <= r[1] {
			return true
		}
	}
	return false
}

func (vu *VU) expectedStatuses(call sobek.FunctionCall) sobek.Value {
	e := new(expectation)
	if len(call.Arguments) == 0 {
		vu.throw("expectedStatuses() needs at least one status")
	}
	for _, argument := range call.Arguments {
		if o, ok := argument.(*sobek.Object); ok {
			low, high := o.Get("min"), o.Get("max")
			if !given(low) || !given(high) || len(o.Keys()) != 2 {
				vu.throw("expectedStatuses() takes numbers and {min, max}")
			}
			e.ranges = append(e.ranges, [2]int{vu.status(low), vu.status(high)})
			continue
		}
		status := vu.status(argument)
		e.ranges = append(e.ranges, [2]int{status, status})
	}
	return vu.rt.ToValue(e)
}

func (vu *VU) status(v sobek.Value) int {
	status := v.ToFloat()
	if isString(v) || status != float64(int(status)) {
		vu.throw("expectedStatuses(): %s is not a status", v)
	}
	return int(status)
}

func (vu *VU) setResponseCallback(call sobek.FunctionCall) sobek.Value {
	vu.expected = vu.expectationOf(call.Argument(0))
	return sobek.Undefined()
}

// expectationOf reads what expectedStatuses() made, or null for none.
func (vu *VU) expectationOf(v sobek.Value) *expectation {
	if sobek.IsNull(v) {
		return nil
	}
	e, ok := export[*expectation](v)
	if !ok {
		vu.throw("a response callback is made by http.expectedStatuses(), or null")
	}
	return e
}
