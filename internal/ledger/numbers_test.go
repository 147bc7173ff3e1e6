package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// numbered makes n deductions, one after another in each of a few callers, and returns their numbers. Those of one
// caller grow.
func numbered(t *testing.T, l *ledger.Ledger, name string, n int) []int64 {
	t.Helper()
	const callers = 8
	all := make([][]int64, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			last := int64(0)
			for i := range n / callers {
				out, err := l.Deduct(t.Context(), order(fmt.Sprintf("%s %d %d", name, c, i), "A"))
				if err != nil {
					t.Errorf("deduct: %v", err)
					return
				}
				if out.Deduction.Number <= last {
					t.Errorf("number %d after %d", out.Deduction.Number, last)
				}
				last = out.Deduction.Number
				all[c] = append(all[c], last)
			}
		})
	}
	group.Wait()
	return slices.Concat(all...)
}

func mustBeUnique(t *testing.T, numbers []int64) {
	t.Helper()
	slices.Sort(numbers)
	if compact := slices.Compact(slices.Clone(numbers)); len(compact) != len(numbers) {
		t.Errorf("%d numbers, %d of them different", len(numbers), len(compact))
	}
}

func TestDeductionsHaveNumbers(t *testing.T) {
	t.Parallel()
	for name, snowflakes := range map[string]bool{"segments": false, "snowflakes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := ledger.Config{URL: sandbox.Database(t), Snowflakes: snowflakes}
			one, two := start(t, cfg), start(t, cfg)
			stockUp(t, one, "A", 10_000)
			var first, second []int64
			var both sync.WaitGroup
			both.Go(func() { first = numbered(t, one, "one", 400) })
			both.Go(func() { second = numbered(t, two, "two", 400) })
			both.Wait()
			mustBeUnique(t, slices.Concat(first, second))
			if snowflakes && first[0]>>7&31 == second[0]>>7&31 {
				t.Errorf("two instances have one worker: %d, %d", first[0], second[0])
			}
			if !snowflakes && max(first[len(first)-1], second[len(second)-1]) > 10_000 {
				t.Errorf("800 deductions have numbers up to %d and %d", first[len(first)-1], second[len(second)-1])
			}
		})
	}
}

// The number is part of the deduction: whoever asks again, in whatever way, is told the same one.
func TestNumberStaysTheSame(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	l := openAt(t, database)
	stockUp(t, l, "A", 100)
	d := deduct(t, l, order("one", "A"))
	again, err := l.Deduct(t.Context(), order("one", "A"))
	if err != nil || !again.Replayed || again.Deduction.Number != d.Number {
		t.Errorf("asked again: %+v, %v; want number %d", again, err, d.Number)
	}
	if d = deduct(t, l, order("two", "A")); d.Number == 0 {
		t.Error("no number")
	}
	out, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("back"), ID: d.ID})
	if err != nil || out.Deduction.Number != d.Number {
		t.Errorf("returned: %+v, %v", out, err)
	}
	for _, c := range []struct {
		client string
		number int64
		found  int
	}{{"shop", d.Number, 1}, {"other", d.Number, 0}, {"shop", d.Number + 1000, 0}} {
		page, err := l.Deductions(t.Context(), stock.DeductionQuery{Client: c.client, Number: c.number, Limit: 1})
		if err != nil || len(page.Deductions) != c.found {
			t.Fatalf("%+v: %+v, %v", c, page, err)
		}
		if c.found == 1 && (page.Deductions[0].ID != d.ID || page.Deductions[0].Number != d.Number) {
			t.Errorf("found %+v", page.Deductions[0])
		}
	}
	execute(t, database, "UPDATE deductions SET number = NULL") // as those are that were made before there were numbers
	old, err := l.Deduction(t.Context(), "shop", d.ID)
	if err != nil || old.Deduction.Number != 0 {
		t.Errorf("without a number: %+v, %v", old, err)
	}
}

// A batch that is sent again because its answer was lost has the numbers that were written.
func TestNumberOfABatchThatIsSentAgain(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, through := behind(t, database)
	l, observer := openAt(t, through), openAt(t, database)
	stockUp(t, observer, "A", 100)
	deduct(t, l, order("warm", "A"))
	for name, action := range map[string]fault.Action{"request lost": fault.LoseRequest, "reply lost": fault.LoseReply} {
		sent := proxy.OnRequest(contains("order "+name), action)
		r := order("order "+name, "A")
		out, err := l.Deduct(t.Context(), r)
		happens(t, name, sent)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seen, err := observer.Deduction(t.Context(), "shop", out.Deduction.ID)
		if err != nil || seen.Deduction.Number != out.Deduction.Number || seen.Deduction.Number == 0 {
			t.Errorf("%s: answered number %d, written %d, %v", name, out.Deduction.Number, seen.Deduction.Number, err)
		}
	}
}

// A failover or a restored backup sets the counter back: instances draw numbers that others have given out. Nobody is
// refused for it, and no number is given out twice.
func TestCounterOfNumbersIsSetBack(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	one := openAt(t, database)
	stockUp(t, one, "A", 10_000)
	all := numbered(t, one, "before", 160)
	execute(t, database, "UPDATE number_series SET next = 1")
	two := openAt(t, database)
	all = append(all, numbered(t, two, "two", 160)...)
	all = append(all, numbered(t, one, "one", 160)...)
	mustBeUnique(t, all)
}
