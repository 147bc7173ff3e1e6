package gate_test

import (
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestManyAreAskedForTogether: in order, each for itself, with a few calls and looks into the ledger for all.
func TestManyAreAskedForTogether(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := dial(t, "redis://"+server.Addr())
	s := newShelf()
	s.put("A", 1, 150)
	s.put("B", 1, 10)
	g := open(t, client, s, gate.Config{TicketLife: time.Minute, Ample: -1, CallTimeout: 10 * time.Second})
	var wishes []gate.Wish
	for n := range 200 {
		wishes = append(wishes, gate.Wish{Ticket: order(n), Lines: lines(1, "A")})
	}
	wishes = append(wishes,
		gate.Wish{Ticket: order(7), Lines: lines(1, "A")},
		gate.Wish{Ticket: order(1000), Lines: lines(1, "nothing")},
		gate.Wish{Ticket: order(1001), Lines: lines(2, "B", "A")},
		gate.Wish{Ticket: order(1002), Lines: lines(0, "B")},
		gate.Wish{Ticket: order(1003), Lines: lines(3, "B")},
	)
	for round, grants := range []gate.Verdict{gate.Granted, gate.Shared} {
		before := scriptCalls(t, client)
		answers := g.TakeAll(t.Context(), wishes)
		for i, a := range answers[:200] {
			want := grants
			if i >= 150 {
				want = gate.Short
			}
			if a.Verdict != want {
				t.Fatalf("round %d, order %d: %+v", round, i, a)
			}
		}
		want := []gate.Verdict{gate.Shared, gate.UnknownItem, gate.Short, gate.Bypassed, grants}
		for i, a := range answers[200:] {
			if a.Verdict != want[i] {
				t.Errorf("round %d, %d: %+v, want %v", round, 200+i, a, want[i])
			}
		}
		if n := scriptCalls(t, client) - before; n > 10 {
			t.Errorf("round %d took %d calls", round, n)
		}
	}
	s.mu.Lock()
	reads := s.reads
	s.mu.Unlock()
	if reads > 10 {
		t.Errorf("%d looks into the ledger", reads)
	}
}
