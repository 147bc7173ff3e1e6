//go:build chaos

package robust_test

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// scenario provokes a defect: it breaks what the defect is bad at, and nothing that a sound service would not survive.
type scenario struct {
	defect defect.Name
	config worldConfig
	server bool // needs a Postgres of its own
	breaks bool // something that a sound service must survive: it is run without the defect too
	run    func(w *world, postgres *sandbox.Postgres) *robust.History
}

// TestEverySeededDefectIsFound runs one defect after the other in a build of the service that has them, and what is broken on the way
// without the defect too: the checkers must tell the one from the other.
func TestEverySeededDefectIsFound(t *testing.T) {
	t.Parallel()
	command := withDefects(t)
	found := map[defect.Name]bool{}
	for _, s := range scenarios() {
		found[s.defect] = true
		t.Run(string(s.defect), func(t *testing.T) {
			t.Parallel()
			violations, h := s.violations(t, command, s.defect)
			if len(violations) == 0 {
				t.Errorf("not found in %d operations", len(h.Ops))
				return
			}
			t.Logf("%d violations in %d operations, the first: %v", len(violations), len(h.Ops), violations[0])
		})
		if s.breaks {
			t.Run("without "+string(s.defect), func(t *testing.T) {
				t.Parallel()
				s.violations(t, command, "")
			})
		}
	}
	for _, name := range defect.All() {
		if !found[name] {
			t.Errorf("there is no scenario for %s", name)
		}
	}
}

func (s scenario) violations(t *testing.T, command string, name defect.Name) ([]robust.Violation, *robust.History) {
	var postgres *sandbox.Postgres
	if s.server {
		postgres = sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	}
	cfg := s.config
	cfg.command, cfg.postgres = command, postgres
	cfg.env = append([]string{"HOLDFAST_DEFECT=" + string(name)}, cfg.env...)
	w := newWorld(t, cfg)
	h := s.run(w, postgres)
	found := w.finish(h)
	if name == "" && len(found) > 0 {
		w.keep(h, found)
	}
	return found, h
}

func scenarios() []scenario {
	return []scenario{
		{defect: defect.NoVersionCheck, run: busy(2*time.Second, nil)},
		{defect: defect.IgnoreKey, run: busy(2*time.Second, func(l *load) { l.cut = 0.2 })},
		{defect: defect.ReplayAcrossClients, run: busy(time.Second, nil)},
		{defect: defect.StaleRead, run: busy(2*time.Second, nil)},
		{defect: defect.SweepWithoutGuard, run: busy(4*time.Second, nil)},
		{defect: defect.SettleAdds, run: busy(2*time.Second, nil)},
		{
			defect: defect.CommitIgnoresExpiry, config: worldConfig{env: []string{"HOLDFAST_SWEEP=1m"}},
			breaks: true, run: busy(4*time.Second, func(l *load) { l.late = true }),
		},
		{defect: defect.DoubleApply, breaks: true, run: lostReplies},
		{defect: defect.AnswerBeforeCommit, server: true, breaks: true, run: powerCut},
		{defect: defect.ReleaseOnUnknown, config: worldConfig{env: []string{"HOLDFAST_REQUEST_DEADLINE=1s"}}, breaks: true, run: unknownOutcome},
		{defect: defect.FreeTicketOnUnknown, config: worldConfig{env: []string{"HOLDFAST_REQUEST_DEADLINE=1s"}}, breaks: true, run: ticketAfterUnknown},
		{
			defect: defect.SettleWithoutVersion, config: worldConfig{envOf: [2]string{"HOLDFAST_GATE_AMPLE=1", "HOLDFAST_GATE_AMPLE=-1"}},
			breaks: true, run: lateNews,
		},
	}
}

// busy is load for a while.
func busy(d time.Duration, change func(*load)) func(*world, *sandbox.Postgres) *robust.History {
	return func(w *world, _ *sandbox.Postgres) *robust.History {
		l := w.prepare()
		if change != nil {
			change(l)
		}
		l.release()
		l.awaitAnswers(400, d)
		return l.end()
	}
}

// lostReplies applies statements and loses the word of it, again and again.
func lostReplies(w *world, _ *sandbox.Postgres) *robust.History {
	l := w.begin()
	for range 10 {
		for _, s := range w.services {
			l.awaitAnswers(10, 0)
			w.atWrite(s, fault.LoseReply)
		}
	}
	return l.end()
}

// atWrite does something to the wire at the next statement that writes a movement of a single deduction or of a mixed batch.
func (w *world) atWrite(s *service, action fault.Action) {
	w.t.Helper()
	select {
	case <-s.postgres.OnRequest(writesDeduction, action):
	case <-time.After(patience):
		w.t.Fatal("no statement to break the wire at")
	}
}

// powerCut ends Postgres at once, under load, and starts it again.
func powerCut(w *world, postgres *sandbox.Postgres) *robust.History {
	l := w.begin()
	for range 3 {
		l.awaitAnswers(100, 500*time.Millisecond)
		postgres.Kill()
		if err := postgres.Restart(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
	l.awaitAnswers(50, 0)
	return l.end()
}

// unknownOutcome has statements applied whose replies are lost for as long as a request may take.
func unknownOutcome(w *world, _ *sandbox.Postgres) *robust.History {
	l := w.begin()
	for range 3 {
		l.awaitAnswers(50, 0)
		w.services[0].postgres.DropReplies()
		l.awaitAnswers(0, 1500*time.Millisecond)
		w.services[0].postgres.Restore()
	}
	return l.end()
}

// ticketAfterUnknown looks for the ticket of a deduction whose outcome nobody knows. The history says what the answer was; that the ticket
// is gone is a violation of its own.
func ticketAfterUnknown(w *world, _ *sandbox.Postgres) *robust.History {
	t := w.t
	l := w.prepare()
	l.cut = 0
	c := l.customer(0)
	s := w.services[0]
	c.once(0, "POST", "/v1/deductions", "warm", map[string]any{"order_id": "o-warm", "lines": wire(of(hot, 1))}, patience)
	lost := s.postgres.OnRequest(writesDeduction, fault.LoseReply)
	go func() {
		<-lost
		s.postgres.Cut() // so that it cannot be asked either
	}()
	op := robust.Op{Client: c.client, Kind: robust.Deduct, Key: "lost", Lines: of(hot, 1), Call: w.now(), Outcome: robust.Unknown}
	status, _, text := c.once(0, "POST", "/v1/deductions", op.Key, map[string]any{"order_id": "o-lost", "lines": wire(op.Lines)}, patience)
	if status != http.StatusServiceUnavailable || !containsAll(text, "outcome-unknown") {
		t.Fatalf("answered %d %s", status, text)
	}
	fields, err := w.redisClient().HLen(context.Background(), w.gateKey(hot)).Result()
	if err != nil {
		t.Fatal(err)
	}
	s.postgres.Restore()
	warm := robust.Op{Client: c.client, Kind: robust.Deduct, Key: "warm", Lines: of(hot, 1), Outcome: robust.Unknown}
	l.ops = append(l.ops, warm, op)
	h := l.end()
	if fields < 2 { // the base, and the ticket
		h.Ops = append(h.Ops, robust.Op{Client: c.client, Kind: robust.Deduct, Key: "the ticket is gone", Outcome: robust.Done, Deduction: "none"})
	}
	return h
}

func of(sku string, n int64) []robust.Line { return []robust.Line{{SKU: sku, Quantity: n}} }

// gateKey finds the key of an item in the world's Redis.
func (w *world) gateKey(sku string) string {
	w.t.Helper()
	pattern := strings.ReplaceAll(w.prefix, ":", "%3A") + ":*:" + sku + ":default"
	keys, err := w.redisClient().Keys(context.Background(), pattern).Result()
	if err != nil || len(keys) != 1 {
		w.t.Fatalf("keys like %s: %q, %v", pattern, keys, err)
	}
	return keys[0]
}

// lateNews: the news of a sale that emptied an item arrive when others have long stocked it up again.
func lateNews(w *world, _ *sandbox.Postgres) *robust.History {
	l := w.prepare()
	l.cut = 0
	seller, stocker := l.customer(0), l.customer(2)
	for i := range 3 {
		sku := skuOf(1 + i)
		s := w.services[0]
		seller.at(0, robust.Receive, of(sku, 10)) // process 0 knows that there is plenty: it will take no ticket
		w.awaitBase(sku, 2)
		held := s.redis.OnRequest(func(b []byte) bool { return containsAll(b, "evalsha", ":"+sku+":") }, fault.HoldRequest)
		sold := seller.at(0, robust.Deduct, of(sku, 50))
		if sold.Outcome != robust.Done {
			w.t.Fatalf("not sold: %+v", sold)
		}
		select {
		case <-held:
		case <-time.After(patience):
			w.t.Fatal("no news to hold back")
		}
		stocker.at(1, robust.Receive, of(sku, 50))
		time.Sleep(freshEnough) // what the gate believed at the sale is too old to say short now
		stocker.at(1, robust.Deduct, of(sku, 1))
		w.awaitBase(sku, 5)
		s.redis.Restore()
		for deadline := time.Now().Add(500 * time.Millisecond); w.base(sku) == 5 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // a sound gate stays as it is
		}
		stocker.at(1, robust.Deduct, of(sku, 1))
	}
	return l.end()
}

// freshEnough is more than a refusal's figures may be old, and units may stay refused after their request.
const freshEnough = 2600 * time.Millisecond

// awaitBase until the gate was told of a version.
func (w *world) awaitBase(sku string, version int64) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); w.base(sku) < version; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("the gate is not told of %s@%d", sku, version)
		}
	}
}

// base is the version that the gate has of an item; -1: it knows nothing of it.
func (w *world) base(sku string) int64 {
	w.t.Helper()
	if found := w.readGate(sku); len(found) > 0 {
		return found[0].Version
	}
	return -1
}

// writesDeduction tells a statement that writes a deduction from those that look one up.
func writesDeduction(request []byte) bool { return containsAll(request, "deduct", "o-") }

func containsAll(b []byte, texts ...string) bool {
	for _, text := range texts {
		if !bytes.Contains(b, []byte(text)) {
			return false
		}
	}
	return true
}

// at does an operation at one process only.
func (c *customer) at(process int, kind robust.Kind, lines []robust.Line) robust.Op {
	c.keys++
	op := robust.Op{Kind: kind, Key: "at-" + strconv.Itoa(c.number) + "-" + strconv.Itoa(c.keys), Lines: lines}
	c.only = &process
	defer func() { c.only = nil }()
	if kind == robust.Receive {
		c.do(&op, "POST", "/v1/stock/"+lines[0].SKU+"/adjustments?location=default", map[string]any{"kind": "receive", "delta": lines[0].Quantity})
	} else {
		c.do(&op, "POST", "/v1/deductions", map[string]any{"order_id": "o-" + op.Key, "lines": wire(lines)})
	}
	return op
}
