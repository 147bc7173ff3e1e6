package metric_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/metric"
)

func TestSubMetricsGetTheValuesWhoseTagsMatch(t *testing.T) {
	t.Parallel()
	r := metric.NewRegistry()
	m, err := r.Declare("sold", metric.Counter, metric.Default)
	if err != nil {
		t.Fatal(err)
	}
	specs := []string{"sold{kind:hot}", "sold{kind:hot,region:eu}", "sold{ kind : \"cold\" }", "sold{group:::a::b}", "sold{url:http://x/y?z=1}"}
	subs := map[string]*metric.Metric{}
	for _, spec := range specs {
		if subs[spec], err = r.Select(spec); err != nil {
			t.Fatal(err)
		}
	}
	r.Freeze()
	rec := r.Recorder()
	run := &metric.Tags{Own: []metric.Tag{{Key: "region", Value: "eu"}, {Key: "kind", Value: "below"}}}
	add := func(value float64, below *metric.Tags, pairs ...string) {
		tags := &metric.Tags{Below: below}
		for i := 0; i < len(pairs); i += 2 {
			tags.Set(pairs[i], pairs[i+1])
		}
		rec.Add(tags, metric.Sample{Metric: m, Value: value})
	}
	add(1, nil, "kind", "hot")
	add(2, run, "kind", "hot") // hides the kind below; the region shows through
	add(4, run, "kind", "hot", "region", "us")
	add(8, nil, "kind", "cold")
	add(16, nil, "group", "::a::b", "url", "http://x/y?z=1")
	add(32, run)
	add(64, nil)
	want := map[string]float64{specs[0]: 7, specs[1]: 2, specs[2]: 8, specs[3]: 16, specs[4]: 16}
	for spec, sum := range want {
		if got := r.Read(subs[spec]).Sum; got != sum {
			t.Errorf("%s: got %v, want %v", spec, got, sum)
		}
	}
	if got := r.Read(m).Sum; got != 127 {
		t.Errorf("the metric itself: got %v, want 127", got)
	}
}

func TestSelectRefusesWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	r := metric.NewRegistry()
	if _, err := r.Declare("sold", metric.Counter, metric.Default); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"slod", "slod{a:b}", "sold{", "sold{}", "sold{a}", "sold{:b}", "sold{a:b", ""} {
		if _, err := r.Select(spec); err == nil {
			t.Errorf("%q was accepted", spec)
		}
	}
}

func TestDeclareRefusesConflictsBadNamesAndLateness(t *testing.T) {
	t.Parallel()
	r := metric.NewRegistry()
	for range 2 { // every virtual user declares its metrics anew
		if _, err := r.Declare("a", metric.Trend, metric.Time); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Declare("a", metric.Counter, metric.Default); err == nil {
		t.Error("the same name as another kind was accepted")
	}
	if _, err := r.Declare("a", metric.Trend, metric.Default); err == nil {
		t.Error("the same name with other values was accepted")
	}
	for _, name := range []string{"", "1a", "a b", "a-b", "ä", strings.Repeat("a", 129)} {
		if _, err := r.Declare(name, metric.Counter, metric.Default); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
	r.Freeze()
	if _, err := r.Declare("late", metric.Counter, metric.Default); !errors.Is(err, metric.ErrFrozen) {
		t.Errorf("after Freeze: got %v", err)
	}
	if _, err := r.Declare("a", metric.Trend, metric.Time); err != nil {
		t.Errorf("a known metric after Freeze: %v", err)
	}
}

func TestRecordersLoseNothingUnderConcurrency(t *testing.T) {
	t.Parallel()
	r := metric.NewRegistry()
	m, _ := r.Declare("n", metric.Counter, metric.Default)
	g, _ := r.Declare("g", metric.Gauge, metric.Default)
	r.Freeze()
	const writers, each = 20, 1000
	var wg sync.WaitGroup
	for range writers {
		rec := r.Recorder()
		wg.Go(func() {
			for range each {
				rec.Add(nil, metric.Sample{Metric: m, Value: 1})
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			_ = r.Read(m)
		}
	})
	wg.Wait()
	if got := r.Read(m).Sum; got != writers*each {
		t.Errorf("got %v, want %d", got, writers*each)
	}
	for i := range 10 { // different recorders: the last in time counts, not the last in order
		r.Recorder().Add(nil, metric.Sample{Metric: g, Value: float64(i)})
	}
	if got := r.Read(g); got.Last != 9 || got.Min != 0 || got.Max != 9 {
		t.Errorf("gauge: got %+v, want the last value 9", got)
	}
}

func TestOutlineKeepsGroupsAndChecksApartAndBounded(t *testing.T) {
	t.Parallel()
	o := metric.NewOutline()
	outer, err := o.Group(o.Root(), "outer")
	if err != nil {
		t.Fatal(err)
	}
	inner, _ := o.Group(outer, "inner")
	again, _ := o.Group(outer, "inner")
	if inner != again || inner.Path != "::outer::inner" {
		t.Errorf("got %q and another %t", inner.Path, inner != again)
	}
	one, _ := o.Check(outer, "ok")
	other, _ := o.Check(inner, "ok")
	if one == other || other.Path != "::outer::inner::ok" {
		t.Errorf("checks of the same name in two groups: %q, %q", one.Path, other.Path)
	}
	if _, err := o.Check(o.Root(), "a::b"); err == nil {
		t.Error("a name with :: was accepted")
	}
	for i := range 20_000 {
		if _, err = o.Check(o.Root(), fmt.Sprint(i)); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("20,000 checks were accepted")
	}
}
