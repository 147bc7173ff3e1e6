package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// items of these names.
func items(skus ...string) []stock.Item {
	var list []stock.Item
	for _, sku := range skus {
		list = append(list, at(sku))
	}
	return list
}

func submit(t *testing.T, q ledger.Queue, skus ...string) *ledger.Queued {
	t.Helper()
	r, err := q.Submit(items(skus...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// takes waits for a batch and checks that it is just these requests, in this order.
func takes(t *testing.T, taker *ledger.Taker, want ...*ledger.Queued) ledger.Batch {
	t.Helper()
	b, ok := taker.Take()
	if !ok {
		t.Fatal("the queue is closed")
	}
	if b.Len() != len(want) {
		t.Fatalf("took %d requests, want %d: %v", b.Len(), len(want), b.Items())
	}
	for i, r := range want {
		if !b.Has(i, r) {
			t.Fatalf("place %d of the batch: %v", i, b.Items())
		}
	}
	return b
}

// TestBatchesShareNoItem lets several takers race for requests on few items and looks at every batch: an item is in
// one at a time, nobody overtakes on an item, and every request is taken once, whole.
func TestBatchesShareNoItem(t *testing.T) {
	t.Parallel()
	const takers, submitters, each = 4, 8, 1500
	q := ledger.NewQueue()
	w := &watch{busy: map[stock.Item]bool{}, order: map[stock.Item][]*ledger.Queued{}, place: map[*ledger.Queued]int{}}
	var taking, submitting sync.WaitGroup
	for range takers {
		taking.Go(func() {
			for taker := q.Taker(); ; {
				b, ok := taker.Take()
				if !ok {
					return
				}
				w.began(t, b)
				b.Answer(nil)
				w.ends(b)
			}
		})
	}
	for n := range submitters {
		submitting.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 4))
			for i := range each {
				queued := w.submits(t, q, randomItems(r))
				if queued == nil || i%7 > 0 { // some wait for the answer, others have more to ask meanwhile
					continue
				}
				if err := queued.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	submitting.Wait()
	q.Close()
	taking.Wait()
	if w.taken != submitters*each {
		t.Errorf("%d requests were submitted, %d taken", submitters*each, w.taken)
	}
	if busy := q.Busy(); len(busy) != 0 {
		t.Errorf("nothing is on its way, but these items are busy: %v", busy)
	}
}

// randomItems are one of ten mostly, sometimes several, and sometimes one twice.
func randomItems(r *rand.Rand) []stock.Item {
	n := 1
	if r.IntN(3) == 0 {
		n += r.IntN(4)
	}
	list := make([]stock.Item, n)
	for i := range list {
		list[i] = at(fmt.Sprint(r.IntN(10)))
	}
	return list
}

// watch sees every submission and every batch.
type watch struct {
	mu    sync.Mutex
	busy  map[stock.Item]bool             // in a batch on its way
	order map[stock.Item][]*ledger.Queued // submitted and not yet taken
	place map[*ledger.Queued]int          // for messages
	taken int
}

func (w *watch) submits(t *testing.T, q ledger.Queue, list []stock.Item) *ledger.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := q.Submit(list...)
	if err != nil {
		t.Error(err)
		return nil
	}
	w.place[r] = len(w.place)
	for _, item := range distinct(list) {
		w.order[item] = append(w.order[item], r)
	}
	return r
}

func distinct(list []stock.Item) []stock.Item {
	list = slices.Clone(list)
	slices.SortFunc(list, stock.Item.Compare)
	return slices.Compact(list)
}

func (w *watch) began(t *testing.T, b ledger.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := map[stock.Item]bool{}
	for i, list := range b.Items() {
		w.taken++
		for _, item := range distinct(list) {
			if w.busy[item] && !mine[item] {
				t.Errorf("%s is in two batches", item)
			}
			w.busy[item], mine[item] = true, true
			first := w.order[item][0]
			if !b.Has(i, first) {
				t.Errorf("request %d was overtaken on %s", w.place[first], item)
			}
			w.order[item] = w.order[item][1:]
		}
	}
}

func (w *watch) ends(b ledger.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range b.Items() {
		for _, item := range list {
			delete(w.busy, item)
		}
	}
}

// TestNobodyOvertakesOnAnItem: a request that has to wait for one of its items keeps the others for itself.
func TestNobodyOvertakesOnAnItem(t *testing.T) {
	t.Parallel()
	q := ledger.NewQueue()
	one, two := q.Taker(), q.Taker()
	first := submit(t, q, "A")
	takes(t, one, first)
	both := submit(t, q, "A", "B")
	after := submit(t, q, "B")
	free := submit(t, q, "C")
	takes(t, two, free)
	takes(t, one, both, after)
	again := submit(t, q, "C")
	takes(t, two, again)
}

// TestBlockedWorkWaitsForItsTaker: work for an item that is on its way wakes nobody, and is not forgotten.
func TestBlockedWorkWaitsForItsTaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := ledger.NewQueue()
		one, two := q.Taker(), q.Taker()
		takes(t, one, submit(t, q, "A"))
		var got ledger.Batch
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ = two.Take()
		}()
		synctest.Wait()
		blocked := submit(t, q, "A")
		synctest.Wait()
		if q.Idle() != 1 {
			t.Error("a taker was woken for an item that is on its way")
		}
		takes(t, one, blocked)
		free := submit(t, q, "B")
		<-done
		if !got.Has(0, free) {
			t.Errorf("took %v", got.Items())
		}
	})
}

// TestWhatDoesNotFitGoesToAnotherTaker: a batch that is full of lines leaves the rest to who is idle.
func TestWhatDoesNotFitGoesToAnotherTaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := ledger.NewQueue()
		one, two := q.Taker(), q.Taker()
		takes(t, one, submit(t, q, "A", "B"))
		var got ledger.Batch
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ = two.Take()
		}()
		synctest.Wait()
		large := func(first string) *ledger.Queued {
			items := []string{first}
			for n := range ledger.MaxBatchLines * 2 / 3 {
				items = append(items, fmt.Sprint(first, n))
			}
			return submit(t, q, items...)
		}
		first, second := large("A"), large("B")
		takes(t, one, first)
		<-done
		if !got.Has(0, second) {
			t.Errorf("took %d requests", got.Len())
		}
	})
}

// TestIdleTakersAreWokenForEachRequest: as many takers as there are free requests work at once.
func TestIdleTakersAreWokenForEachRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := ledger.NewQueue()
		const takers = 3
		got := make(chan ledger.Batch, takers)
		for range takers {
			go func() {
				b, _ := q.Taker().Take()
				got <- b
			}()
		}
		synctest.Wait()
		for i := range takers {
			submit(t, q, fmt.Sprint(i))
			synctest.Wait() // no timer: one request is enough
		}
		for range takers {
			if b := <-got; b.Len() != 1 {
				t.Errorf("took %v", b.Items())
			}
		}
	})
}

func TestOneChangeOfADeductionABatch(t *testing.T) {
	t.Parallel()
	q := ledger.NewQueue()
	id := uuid.New()
	var same [3]*ledger.Queued
	for i := range same {
		var err error
		if same[i], err = q.SubmitAbout(id, at("A")); err != nil {
			t.Fatal(err)
		}
	}
	other, err := q.SubmitAbout(uuid.New(), at("B"))
	if err != nil {
		t.Fatal(err)
	}
	taker := q.Taker()
	takes(t, taker, same[0], other)
	takes(t, taker, same[1])
	takes(t, taker, same[2])
}

func TestBatchesHaveALimit(t *testing.T) {
	t.Parallel()
	t.Run("of requests", func(t *testing.T) {
		t.Parallel()
		q := ledger.NewQueue()
		var all []*ledger.Queued
		for i := range ledger.MaxBatchRequests + 10 {
			all = append(all, submit(t, q, fmt.Sprint(i%700)))
		}
		takes(t, q.Taker(), all[:ledger.MaxBatchRequests]...)
		takes(t, q.Taker(), all[ledger.MaxBatchRequests:]...)
	})
	t.Run("of lines", func(t *testing.T) {
		t.Parallel()
		q := ledger.NewQueue()
		var orders []*ledger.Queued
		for n := range 3 {
			var skus []string
			for i := range stock.MaxLines {
				skus = append(skus, fmt.Sprint(n, "-", i))
			}
			orders = append(orders, submit(t, q, skus...))
		}
		small := submit(t, q, "small")
		behind := submit(t, q, "2-17")
		taker := q.Taker()
		if lines := 2 * stock.MaxLines; lines != ledger.MaxBatchLines {
			t.Fatalf("the limit is %d, this test is for %d", ledger.MaxBatchLines, lines)
		}
		takes(t, taker, orders[0], orders[1])
		takes(t, q.Taker(), orders[2], small, behind)
	})
	t.Run("but one request always fits", func(t *testing.T) {
		t.Parallel()
		q := ledger.NewQueue()
		huge := make([]string, ledger.MaxBatchLines+1)
		for i := range huge {
			huge[i] = fmt.Sprint(i)
		}
		takes(t, q.Taker(), submit(t, q, huge...))
	})
}

func TestQueueHasALimit(t *testing.T) {
	t.Parallel()
	t.Run("of requests", func(t *testing.T) {
		t.Parallel()
		q := ledger.NewQueue()
		for range ledger.MaxWaiting {
			submit(t, q, "A")
		}
		if _, err := q.Submit(at("B")); !errors.Is(err, stock.ErrOverloaded) {
			t.Errorf("one too many: %v", err)
		}
		taker := q.Taker()
		if b, _ := taker.Take(); b.Len() != ledger.MaxBatchRequests {
			t.Fatalf("took %d", b.Len())
		}
		submit(t, q, "B")
	})
	t.Run("of lines", func(t *testing.T) {
		t.Parallel()
		q := ledger.NewQueue()
		wide := make([]string, stock.MaxLines)
		for i := range wide {
			wide[i] = fmt.Sprint(i)
		}
		for range ledger.MaxWaitingLines / stock.MaxLines {
			submit(t, q, wide...)
		}
		if _, err := q.Submit(at("B")); !errors.Is(err, stock.ErrOverloaded) {
			t.Errorf("one too many: %v", err)
		}
		for taker := q.Taker(); ; {
			if n, lines := q.Waiting(); n == 0 {
				if lines != 0 {
					t.Errorf("nothing waits, but %d lines are counted", lines)
				}
				break
			}
			if _, ok := taker.Take(); !ok {
				t.Fatal("closed")
			}
		}
	})
}

// TestWhoLeavesBeforeIsDropped: a request that is in no batch when its caller leaves never will be.
func TestWhoLeavesBeforeIsDropped(t *testing.T) {
	t.Parallel()
	q := ledger.NewQueue()
	stays, leaves, after := submit(t, q, "A"), submit(t, q, "A", "B"), submit(t, q, "B")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := leaves.Wait(ctx); !errors.Is(err, stock.ErrOverloaded) {
		t.Errorf("dropped: %v", err)
	}
	takes(t, q.Taker(), stays, after)
	if n, lines := q.Waiting(); n != 0 || lines != 0 {
		t.Errorf("%d requests, %d lines are counted", n, lines)
	}
}

// TestWhoLeavesLaterDoesNotKnow: a request in a batch runs to its end, whoever waits for it.
func TestWhoLeavesLaterDoesNotKnow(t *testing.T) {
	t.Parallel()
	q := ledger.NewQueue()
	r := submit(t, q, "A")
	b := takes(t, q.Taker(), r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Wait(ctx); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("taken: %v", err)
	}
	b.Answer(nil)
	if err := r.Wait(ctx); err != nil {
		t.Errorf("answered, and the caller has not looked yet: %v", err)
	}
}

func TestCloseRefusesNewAndFinishesOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := ledger.NewQueue()
		one := q.Taker()
		takes(t, one, submit(t, q, "A"))
		var ended sync.WaitGroup
		for range 2 {
			ended.Go(func() {
				if b, ok := q.Taker().Take(); ok {
					t.Errorf("took %v, which was blocked", b.Items())
				}
			})
		}
		synctest.Wait()
		waits := submit(t, q, "A")
		q.Close()
		if _, err := q.Submit(at("B")); !errors.Is(err, stock.ErrLedgerUnavailable) {
			t.Errorf("closed: %v", err)
		}
		synctest.Wait()
		takes(t, one, waits)
		ended.Wait()
		if _, ok := one.Take(); ok {
			t.Error("took from an empty, closed queue")
		}
	})
}

// TestHotItemStarvesNobody: however many wait for one item, a request for another goes as soon as a taker is free.
func TestHotItemStarvesNobody(t *testing.T) {
	t.Parallel()
	q := ledger.NewQueue()
	one, two := q.Taker(), q.Taker()
	for range ledger.MaxScan - 1 {
		submit(t, q, "hot")
	}
	if b, _ := one.Take(); b.Len() != ledger.MaxBatchRequests {
		t.Fatalf("took %d", b.Len())
	}
	cold := submit(t, q, "cold")
	takes(t, two, cold)
	// Beyond what one look covers, it takes as many batches as are ahead, and no more.
	for range ledger.MaxScan {
		submit(t, q, "hot")
	}
	cold = submit(t, q, "another")
	waiting, _ := q.Waiting()
	for turn := 0; ; turn++ {
		b, _ := one.Take()
		if b.Index(cold) >= 0 {
			break
		}
		if turn > waiting/ledger.MaxBatchRequests {
			t.Fatalf("not taken after %d batches", turn)
		}
	}
}

// TestCancelledInTheQueueDoesNothing and the next test are the same with a ledger behind the queue.
func TestCancelledInTheQueueDoesNothing(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Writers: 1})
	stockUp(t, l, "A", 5)
	unblock := blockItem(t, url, "A")
	inBatch := make(chan error, 1)
	go func() { inBatch <- second(l.Deduct(t.Context(), order("in the batch", "A"))) }()
	waitForLock(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- second(l.Deduct(ctx, order("in the queue", "A"))) }()
	eventually(t, "the second request is queued", func() bool { return l.Waiting() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, stock.ErrOverloaded) {
		t.Errorf("left the queue: %v", err)
	}
	unblock()
	if err := <-inBatch; err != nil {
		t.Error(err)
	}
	deduct(t, l, order("after", "A")) // behind the one that left, so that had its turn
	if got := levels(t, l, "A"); got.OnHand != 3 {
		t.Errorf("got %s", figures(got))
	}
	if out, err := l.Recall(t.Context(), order("in the queue", "A")); out != nil || err != nil {
		t.Errorf("recalled %+v, %v", out, err)
	}
}

func TestCancelledInABatchHappensAllTheSame(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 5)
	unblock := blockItem(t, url, "A")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- second(l.Deduct(ctx, order("o", "A"))) }()
	waitForLock(t, url)
	cancel()
	if err := <-left; !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("left a batch: %v", err)
	}
	unblock()
	out, err := l.Deduct(t.Context(), order("o", "A")) // waits its turn behind the first
	if err != nil || !out.Replayed {
		t.Errorf("again: %+v, %v", out, err)
	}
	if got := levels(t, l, "A"); got.OnHand != 4 {
		t.Errorf("got %s", figures(got))
	}
}
