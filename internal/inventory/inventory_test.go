package inventory_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestRetryOfTheLastUnit: the gate says sold out, the ledger knows who bought it.
func TestRetryOfTheLastUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 1)
	first := deduct(t, s, order("o", "A"))
	if _, err := s.Deduct(t.Context(), order("too late", "A")); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("sold out: %v", err)
	}
	again := deduct(t, s, order("o", "A"))
	if !again.Replayed || again.Deduction.ID != first.Deduction.ID {
		t.Errorf("the buyer asks again: %+v", again)
	}
	other := order("o", "A")
	other.Key = "another key"
	var live *stock.OrderError
	if _, err := s.Deduct(t.Context(), other); !errors.As(err, &live) || live.ID != first.Deduction.ID {
		t.Errorf("with another key: %v", err)
	}
	reused := order("o", "A", "A")
	if _, err := s.Deduct(t.Context(), reused); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("with other lines: %v", err)
	}
	w.onHand(t, "A", 0)
}

// TestDuplicatesShareATicket: a hundred times one order, while the ledger has not answered yet.
func TestDuplicatesShareATicket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 3)
	deduct(t, s, order("before", "A")) // the gate knows the item
	unblock := w.block(t, "A")
	var asking sync.WaitGroup
	var done, replays atomic.Int64
	for range 100 {
		asking.Go(func() {
			out, err := s.Deduct(t.Context(), order("o", "A"))
			switch {
			case err != nil:
				t.Error(err)
			case out.Replayed:
				replays.Add(1)
			default:
				done.Add(1)
			}
		})
	}
	eventually(t, "a ticket", 30*time.Second, func() bool { return len(w.tickets(t, "A")) > 0 })
	if got := w.tickets(t, "A"); len(got) != 1 || got[0].Quantity != 1 {
		t.Errorf("got %+v", got)
	}
	unblock()
	asking.Wait()
	if done.Load() != 1 || replays.Load() != 99 {
		t.Errorf("%d did it, %d were replays", done.Load(), replays.Load())
	}
	w.onHand(t, "A", 1)
}

// TestLostReplies breaks the wire at each step of one deduction. One effect, a true answer, and no ticket beyond its
// deadline: the other unit can be sold.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		late     bool // the wire breaks when the ticket is there and the ledger has not answered
		atLedger bool
		how      fault.Action
	}{
		"ticket not taken":           {false, false, fault.LoseRequest},
		"ticket taken, reply lost":   {false, false, fault.LoseReply},
		"ticket taken late":          {false, false, fault.HoldRequest},
		"commit not applied":         {false, true, fault.LoseRequest},
		"commit applied, reply lost": {false, true, fault.LoseReply},
		"settle not applied":         {true, false, fault.LoseRequest},
		"settle applied, reply lost": {true, false, fault.LoseReply},
		"settle late":                {true, false, fault.HoldRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sandbox.RedisAddr(t))
			s := w.serve(t)
			w.stockUp(t, "A", 3)
			deduct(t, s, order("before", "A"))
			ticket := gate.TicketFor("shop", "the order", "")
			wire, mark := w.toGate, ticket[:]
			if step.atLedger {
				wire, mark = w.toLedger, []byte("the order")
			}
			var unblock func()
			var fired <-chan struct{}
			if step.late {
				unblock = w.block(t, "A")
			} else {
				fired = wire.OnRequest(contains(mark), step.how)
			}
			answered := make(chan error, 1)
			go func() {
				out, err := s.Deduct(t.Context(), order("the order", "A"))
				if err == nil && out.Replayed {
					err = errors.New("called a replay")
				}
				answered <- err
			}()
			if step.late {
				eventually(t, "a ticket", 30*time.Second, func() bool { return len(w.tickets(t, "A")) == 1 })
				fired = wire.OnRequest(contains(mark), step.how)
				unblock()
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
			happens(t, name, fired)
			wire.Restore()
			if out := deduct(t, s, order("the order", "A")); !out.Replayed {
				t.Error("done twice")
			}
			eventually(t, "no ticket is left", 2*ticketLife, func() bool { return len(w.tickets(t, "A")) == 0 })
			deduct(t, s, order("the other unit", "A"))
			w.onHand(t, "A", 0)
		})
	}
}

// TestUnknownOutcomeFreesNothing: nobody knows whether the units are gone, so the ticket stays until its deadline.
func TestUnknownOutcomeFreesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	w.patience = ticketLife / 4
	s := w.serve(t)
	w.stockUp(t, "A", 3)
	deduct(t, s, order("before", "A"))
	w.toLedger.DropReplies()
	if _, err := s.Deduct(t.Context(), order("o", "A")); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if got := w.tickets(t, "A"); len(got) != 1 {
		t.Errorf("nobody knows, and the tickets are %+v", got)
	}
	w.toLedger.Restore()
	if out := deduct(t, s, order("o", "A")); !out.Replayed {
		t.Error("done twice")
	}
	w.onHand(t, "A", 1)
}

// TestHoldsEndWithoutASweeper: whoever asks for an item that is short finds what has expired on it, with a gate and
// without.
func TestHoldsEndWithoutASweeper(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gate", "gate gone", "no gate"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sandbox.RedisAddr(t))
			s := w.serve(t)
			if name == "no gate" {
				var err error
				if s, err = inventory.Open(inventory.Config{Ledger: ledger.Config{URL: w.database}}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
			}
			w.stockUp(t, "A", 1)
			hold := order("hold", "A")
			hold.Hold = time.Hour
			held := deduct(t, s, hold)
			if _, err := s.Deduct(t.Context(), order("early", "A")); !errors.Is(err, stock.ErrInsufficientStock) {
				t.Errorf("while it is held: %v", err)
			}
			w.due(t)
			if name == "gate gone" {
				w.toGate.Cut()
			}
			// The gate may say short for as long as it was confirmed before.
			eventually(t, "the units are free", gate.Freshness+2*time.Second, func() bool {
				_, err := s.Deduct(t.Context(), order("late", "A"))
				if err != nil && !errors.Is(err, stock.ErrInsufficientStock) {
					t.Fatal(err)
				}
				return err == nil
			})
			out, err := s.Deduction(t.Context(), "shop", held.Deduction.ID)
			if err != nil || out.Deduction.State != stock.Expired {
				t.Errorf("got %+v, %v", out, err)
			}
			w.onHand(t, "A", 0)
		})
	}
}

func TestSweepReleasesWhatIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	const holds = 600 // more than one round
	w.stockUp(t, "A", holds+1)
	var making sync.WaitGroup
	for i := range holds {
		making.Go(func() {
			r := order(fmt.Sprint(i), "A")
			r.Hold = time.Hour
			if _, err := s.Deduct(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	w.due(t)
	stays := order("stays", "A")
	stays.Hold = time.Hour
	deduct(t, s, stays)
	if n, err := s.Sweep(t.Context(), stock.Fence{}); n != holds || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	item, err := s.Item(t.Context(), at("A"))
	if err != nil || item.Held != 1 || item.OnHand != holds+1 {
		t.Errorf("%d on hand, %d held, %v", item.OnHand, item.Held, err)
	}
}

// TestSoldOutIsNotWrongForLong: stock came back past the gate, as from another installation without one.
func TestSoldOutIsNotWrongForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 1)
	deduct(t, s, order("last", "A"))
	for range 20 {
		if _, err := s.Deduct(t.Context(), order("o", "A")); !errors.Is(err, stock.ErrInsufficientStock) {
			t.Fatalf("sold out: %v", err)
		}
	}
	w.receive(t, "A", "restock", 1)
	restocked := time.Now()
	const slack = 500 * time.Millisecond // of a busy machine
	eventually(t, "the unit is sold", gate.Freshness+slack, func() bool {
		_, err := s.Deduct(t.Context(), order("o", "A"))
		if err != nil && !errors.Is(err, stock.ErrInsufficientStock) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Logf("sold %v after it came", time.Since(restocked))
	w.onHand(t, "A", 0)
}

// TestUnknownItems are all told, and one that was just created past the gate is not among them.
func TestUnknownItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sandbox.RedisAddr(t))
	s := w.serve(t)
	w.stockUp(t, "A", 1)
	var unknown *stock.UnknownItemError
	_, err := s.Deduct(t.Context(), order("o", "X", "A", "Y"))
	if !errors.As(err, &unknown) || len(unknown.Lines) != 2 || unknown.Lines[0].Line != 0 || unknown.Lines[1].Line != 2 {
		t.Errorf("got %v", err)
	}
	w.stockUp(t, "X", 1)
	w.stockUp(t, "Y", 1)
	deduct(t, s, order("o", "X", "A", "Y"))
}

// TestTwentyUnitsWhateverTheGateDoes: two processes sell twenty units to buyers who sometimes ask twice, while the gate
// is flushed, paused, killed, or set back to when there was more.
func TestTwentyUnitsWhateverTheGateDoes(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*testing.T, *sandbox.Redis, map[string]string, redis.UniversalClient, string){
		"flushed": func(t *testing.T, _ *sandbox.Redis, _ map[string]string, c redis.UniversalClient, _ string) {
			if err := c.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		},
		"paused": func(t *testing.T, r *sandbox.Redis, _ map[string]string, _ redis.UniversalClient, _ string) {
			if err := r.Pause(); err != nil {
				t.Error(err)
			}
		},
		"killed": func(_ *testing.T, r *sandbox.Redis, _ map[string]string, _ redis.UniversalClient, _ string) { r.Kill() },
		"set back": func(t *testing.T, _ *sandbox.Redis, old map[string]string, c redis.UniversalClient, key string) {
			if err := c.Do(t.Context(), "FLUSHALL").Err(); err != nil {
				t.Error(err)
			}
			if err := c.HSet(t.Context(), key, old).Err(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
			w := newWorld(t, server.Addr())
			services := []*inventory.Service{w.serve(t), w.serve(t)}
			w.stockUp(t, "hot", 20)
			client, err := gate.Dial("redis://" + server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := services[0].Deduct(t.Context(), order("first", "hot")); err != nil {
				t.Fatal(err)
			}
			var keys []string
			eventually(t, "the gate was told of the item", 30*time.Second, func() bool { // not at once, if it was slow
				keys = client.Keys(t.Context(), "*hot*").Val()
				return len(keys) == 1
			})
			old := client.HGetAll(t.Context(), keys[0]).Val()
			sold := w.sell(t, services, 200, 60, func() { trouble(t, server, old, client, keys[0]) })
			if sold != 19 {
				t.Errorf("%d sold after the first", sold)
			}
			w.onHand(t, "hot", 0)
			if name == "paused" {
				if err := server.Resume(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// sell one unit each to buyers, 8 of 100 of whom ask twice at once, with trouble once so many have been answered. It
// returns how many bought.
func (w *world) sell(t *testing.T, services []*inventory.Service, buyers int, when int64, trouble func()) int64 {
	t.Helper()
	var sold, answered atomic.Int64
	var once sync.Once
	var next atomic.Int64
	var buying sync.WaitGroup
	for range 24 {
		buying.Go(func() {
			for i := next.Add(1); i <= int64(buyers); i = next.Add(1) {
				ids := map[stock.DeductionID]bool{}
				var mu sync.Mutex
				var both sync.WaitGroup
				for n := range 1 + btoi(i%100 < 8) {
					both.Go(func() {
						out, err := services[(int(i)+n)%len(services)].Deduct(t.Context(), order(fmt.Sprint("o-", i), "hot"))
						if err != nil && !errors.Is(err, stock.ErrInsufficientStock) {
							t.Errorf("buyer %d: %v", i, err)
						}
						if err == nil {
							mu.Lock()
							ids[out.Deduction.ID] = true
							mu.Unlock()
						}
					})
				}
				both.Wait()
				sold.Add(int64(len(ids)))
				if answered.Add(1) >= when {
					once.Do(trouble)
				}
			}
		})
	}
	buying.Wait()
	return sold.Load()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
