package vm

import (
	"math"

	"github.com/grafana/sobek"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

func buildMetrics(vu *VU) map[string]any {
	return map[string]any{
		"Counter": vu.metricClass(metric.Counter), "Gauge": vu.metricClass(metric.Gauge),
		"Rate": vu.metricClass(metric.Rate), "Trend": vu.metricClass(metric.Trend),
	}
}

// metricClass makes the constructor of one kind of custom metric: new Kind(name, [isTime]).
func (vu *VU) metricClass(kind metric.Kind) func(sobek.ConstructorCall) *sobek.Object {
	return func(call sobek.ConstructorCall) *sobek.Object {
		if !vu.inInit {
			vu.throw("a metric can only be made in the init context")
		}
		contains := metric.Default
		if call.Argument(1).ToBoolean() {
			contains = metric.Time
		}
		m, err := vu.host.Registry.Declare(call.Argument(0).String(), kind, contains)
		if err != nil {
			vu.throw("%s", err)
		}
		must(call.This.DefineDataProperty("name", vu.rt.ToValue(m.Name), sobek.FLAG_FALSE, sobek.FLAG_FALSE, sobek.FLAG_TRUE))
		must(call.This.Set("add", func(add sobek.FunctionCall) sobek.Value {
			vu.needRun(m.Name + ".add()")
			value := vu.sampleValue(m, add.Argument(0))
			if tags := add.Argument(1); given(tags) {
				vu.rec.Add(&metric.Tags{Own: vu.tagsOf(tags), Below: &vu.system}, metric.Sample{Metric: m, Value: value})
			} else {
				vu.rec.Add(&vu.system, metric.Sample{Metric: m, Value: value})
			}
			return vu.rt.ToValue(true)
		}))
		return nil
	}
}

// sampleValue reads a number or a boolean.
func (vu *VU) sampleValue(m *metric.Metric, v sobek.Value) float64 {
	if given(v) && !isString(v) {
		if _, isObject := v.(*sobek.Object); !isObject {
			value := v.ToFloat()
			if math.IsNaN(value) || math.IsInf(value, 0) || m.Kind == metric.Counter && value < 0 {
				vu.throw("%s.add(%s): not a value of a %s", m.Name, v, m.Kind)
			}
			return value
		}
	}
	vu.throw("%s.add(): needs a number or a boolean", m.Name)
	return 0
}
