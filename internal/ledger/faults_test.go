package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// behind puts a wire that can be broken before a database, and returns the database's URL through it.
func behind(t testing.TB, database string) (*fault.Proxy, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := fault.NewProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	u.Host = proxy.Addr()
	return proxy, u.String()
}

func contains(text string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

func happens(t testing.TB, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

// write is an operation of a kind, and a text that is in the statement that writes it and in nothing else that the
// session sends before.
type write struct {
	name  string
	mark  func(d *stock.Deduction) string
	state string // of the deduction it is about; empty: none
	do    func(ctx context.Context, p play, d *stock.Deduction) (replayed bool, err error)
	moved string // the movements it makes
}

func writes() []write {
	guard := func(text string) func(*stock.Deduction) string { return func(*stock.Deduction) string { return text } }
	onDeduction := func(action, state, mark string) write {
		return write{action, guard(mark), state, func(ctx context.Context, p play, d *stock.Deduction) (bool, error) {
			out, err := p.do(ctx, action, "", d)
			return err == nil && out.Replayed, err
		}, transitions[state][action]}
	}
	ordering := func(name string, moved string, change func(*stock.DeductRequest)) write {
		return write{name, func(d *stock.Deduction) string { return "key of " + d.OrderID }, "", func(ctx context.Context, p play, d *stock.Deduction) (bool, error) {
			r := order(d.OrderID, "A "+d.OrderID)
			r.Key = "key of " + d.OrderID
			change(r)
			out, err := p.Deduct(ctx, r)
			return err == nil && out.Replayed, err
		}, moved}
	}
	back := onDeduction("return", "committed", "")
	back.mark = guard("\x00\x00\x00\x06return") // the kind of its movements: its key, which is longer, is looked up before
	return []write{
		ordering("deduct", "A deduct -1 0", func(*stock.DeductRequest) {}),
		ordering("deduct two lines", "A deduct -1 0, B deduct -1 0", func(r *stock.DeductRequest) {
			r.Lines = append(r.Lines, stock.WantedLine{Item: at("B " + r.OrderID), Quantity: 1})
		}),
		ordering("hold", "A hold 0 1", func(r *stock.DeductRequest) { r.Hold = time.Hour }),
		onDeduction("commit", "held", "live"),
		onDeduction("commit some", "part held", "live"),
		onDeduction("commit some keep", "held", "live"),
		onDeduction("release", "held", "live"),
		onDeduction("extend", "held", "live"),
		onDeduction("reacquire", "expired", "hold"),
		onDeduction("expire", "due", "due"),
		back,
		{"adjust", func(d *stock.Deduction) string { return "key of " + d.OrderID }, "", func(ctx context.Context, p play, d *stock.Deduction) (bool, error) {
			out, err := p.Adjust(ctx, &stock.AdjustRequest{
				Keyed: keyed("key of " + d.OrderID), Item: at("A " + d.OrderID), Kind: stock.Adjust, Delta: 5,
			})
			return err == nil && out.Replayed, err
		}, "A adjust 5 0"},
	}
}

// prepare what the write is about: a deduction in its state, or just items and the name of an order.
func (w *write) prepare(t *testing.T, p play, name string) *stock.Deduction {
	t.Helper()
	if w.state != "" {
		return p.make(t, name, w.state)
	}
	stockUp(t, p.Ledger, "A "+name, 10)
	stockUp(t, p.Ledger, "B "+name, 10)
	return &stock.Deduction{OrderID: name}
}

// TestWireBreaksAtAWrite breaks the wire at the very statement that writes: before it arrives, and after it was applied
// with the reply lost. The ledger finds out by itself, whatever was written.
func TestWireBreaksAtAWrite(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	t.Run("all", func(t *testing.T) {
		for _, w := range writes() {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				proxy, p := w.play(t, database, 10*time.Second)
				for how, action := range map[string]fault.Action{
					"request lost": fault.LoseRequest, "reply lost": fault.LoseReply, "disconnected": fault.Disconnect,
				} {
					t.Run(how, func(t *testing.T) {
						d, before := w.arm(t, p, how)
						fired := proxy.OnRequest(contains(w.mark(d)), action)
						replayed, err := w.do(t.Context(), p, d)
						if err != nil {
							t.Fatal(err)
						}
						happens(t, how, fired)
						if replayed {
							t.Error("this very request did it, but is called a replay")
						}
						w.happenedOnce(t, p, d, before)
					})
				}
			})
		}
	})
	mustHold(t, database)
}

// TestWriteArrivesLate holds the statement back until its caller has been told that nobody knows, and lets it arrive
// together with the caller's retry.
func TestWriteArrivesLate(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	t.Run("all", func(t *testing.T) {
		for _, w := range writes() {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				proxy, p := w.play(t, database, 2*time.Second)
				d, before := w.arm(t, p, "late")
				fired := proxy.OnRequest(contains(w.mark(d)), fault.HoldRequest)
				// The session that would find out is cut off: its greeting is lost again and again.
				for range 100 {
					proxy.OnRequest(contains("application_name\x00holdfast\x00"), fault.LoseRequest)
				}
				if _, err := w.do(t.Context(), p, d); !errors.Is(err, stock.ErrUnknownOutcome) {
					t.Errorf("sent, not answered: %v", err)
				}
				happens(t, "the hold", fired)
				proxy.Restore()
				eventually(t, "the retry is done", func() bool {
					_, err := w.do(t.Context(), p, d)
					if err != nil && !errors.Is(err, stock.ErrUnknownOutcome) && !errors.Is(err, stock.ErrLedgerUnavailable) {
						t.Fatal(err)
					}
					return err == nil
				})
				w.happenedOnce(t, p, d, before)
			})
		}
	})
	mustHold(t, database)
}

// play is a ledger with one session, over a wire that can be broken.
func (w *write) play(t *testing.T, database string, patience time.Duration) (*fault.Proxy, play) {
	t.Helper()
	proxy, url := behind(t, database)
	return proxy, play{start(t, ledger.Config{URL: url, Writers: 1, Patience: patience}), database}
}

// arm does the write once on something else, so that the session has prepared the statement and the next time sends
// nothing but the values.
func (w *write) arm(t *testing.T, p play, name string) (*stock.Deduction, map[string]int64) {
	t.Helper()
	name = w.name + " " + name
	if _, err := w.do(t.Context(), p, w.prepare(t, p, "warm "+name)); err != nil {
		t.Fatal(err)
	}
	d := w.prepare(t, p, name)
	return d, p.versions(t, name)
}

func (w *write) happenedOnce(t *testing.T, p play, d *stock.Deduction, before map[string]int64) {
	t.Helper()
	_, want, found := strings.Cut(w.moved, ": ")
	if !found {
		want = w.moved
	}
	if got := p.history(t, d.OrderID, before); got != want {
		t.Errorf("moved %q, want %q", got, want)
	}
	if w.name == "extend" {
		out, err := p.Deduction(t.Context(), "shop", d.ID)
		if err != nil || time.Until(out.Deduction.ExpiresAt) < 90*time.Minute {
			t.Errorf("expires at %v, %v", out.Deduction.ExpiresAt, err)
		}
	}
}

// TestOutOfReach: nothing was sent, so nothing was done, and the caller is told so in time.
func TestOutOfReach(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	direct := openAt(t, database)
	stockUp(t, direct, "A", 5)
	d := deduct(t, direct, order("before", "A"))
	proxy, url := behind(t, database)
	proxy.Cut() // before there is a session: on an open one that is dead nobody knows what was sent
	l := start(t, ledger.Config{URL: url, Patience: 2 * time.Second})
	var asking sync.WaitGroup
	for name, ask := range map[string]func() error{
		"deduct": func() error { return second(l.Deduct(t.Context(), order("during", "A"))) },
		"adjust": func() error {
			return second(l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed("k"), Item: at("A"), Kind: stock.Adjust, Delta: 1}))
		},
		"return": func() error { return second(l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("r"), ID: d.ID})) },
		"configure": func() error {
			return second(l.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at("A"), SafetyStock: 1}))
		},
		"recall": func() error { return second(l.Recall(t.Context(), order("during", "A"))) },
		"read":   func() error { return second(l.Item(t.Context(), at("A"))) },
		"ready":  func() error { return l.Ready(t.Context()) },
	} {
		asking.Go(func() {
			started := time.Now()
			if err := ask(); !errors.Is(err, stock.ErrLedgerUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(started); took > 20*time.Second { // of which most are for a busy machine
				t.Errorf("%s: took %v", name, took)
			}
		})
	}
	asking.Wait()
	proxy.Restore()
	if got := levels(t, direct, "A"); got.OnHand != 4 || got.Version != 2 {
		t.Errorf("got %s", figures(got))
	}
	eventually(t, "the ledger is back", func() bool {
		out, err := l.Deduct(t.Context(), order("during", "A"))
		return err == nil && !out.Replayed
	})
	mustHold(t, database)
}

// TestOutOfReachAfterSending: the statement was sent, and nobody can find out what became of it until the time is
// over. It is the caller's to find out, with the same key.
func TestOutOfReachAfterSending(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	for name, c := range map[string]struct {
		fail    func(*fault.Proxy)
		applied bool
	}{
		"applied, replies lost":      {(*fault.Proxy).DropReplies, true},
		"swallowed, nothing applied": {(*fault.Proxy).Swallow, false},
	} {
		t.Run(name, func(t *testing.T) {
			proxy, url := behind(t, database)
			l := start(t, ledger.Config{URL: url, Writers: 1, Patience: 2 * time.Second})
			stockUp(t, l, name, 5)
			deduct(t, l, order("before "+name, name))
			c.fail(proxy)
			if _, err := l.Deduct(t.Context(), order("o "+name, name)); !errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("sent, not answered: %v", err)
			}
			proxy.Restore()
			out, err := l.Deduct(t.Context(), order("o "+name, name))
			if err != nil || out.Replayed != c.applied {
				t.Errorf("with the same key: replayed %v, want %v; %v", out != nil && out.Replayed, c.applied, err)
			}
			if got := levels(t, l, name); got.OnHand != 3 {
				t.Errorf("got %s", figures(got))
			}
		})
	}
	mustHold(t, database)
}

// TestConfigureWithLostReply: it has no second try of its own, so its caller must hear that it may have happened.
func TestConfigureWithLostReply(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, url := behind(t, database)
	l := openAt(t, url)
	for _, item := range []string{"new", "known"} {
		t.Run(item, func(t *testing.T) {
			if item == "known" {
				stockUp(t, l, item, 5)
			}
			r := &stock.ConfigureRequest{Client: "shop", Item: at(item), Label: "the new label"}
			if item == "known" { // else the first statement would find the item and do nothing
				version := int64(1)
				r.IfVersion = &version
			}
			fired := proxy.OnRequest(contains(r.Label), fault.LoseReply)
			if _, err := l.Configure(t.Context(), r); !errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("applied, reply lost: %v", err)
			}
			happens(t, "the loss", fired)
			got, err := l.Item(t.Context(), at(item))
			if err != nil || got.Label != r.Label {
				t.Errorf("got %+v, %v", got, err)
			}
			mustHold(t, database)
		})
	}
}

// TestFoundButNotRead: what was done is found under its key, and then cannot be read. It was done all the same, so
// nobody may be told that nothing was.
func TestFoundButNotRead(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, url := behind(t, database)
	l := openAt(t, url)
	stockUp(t, l, "A", 5)
	receive := &stock.AdjustRequest{Keyed: keyed("r"), Item: at("A"), Kind: stock.Receive, Delta: 1}
	if _, err := l.Adjust(t.Context(), receive); err != nil {
		t.Fatal(err)
	}
	deduct(t, l, order("o", "A"))
	for _, c := range []struct {
		query string
		again func() error
	}{
		{"ReadDeductions", func() error { return second(l.Deduct(t.Context(), order("o", "A"))) }},
		{"GetMovement", func() error { return second(l.Adjust(t.Context(), receive)) }},
	} {
		fired := proxy.OnRequest(contains("-- name: "+c.query), fault.LoseRequest)
		if err := c.again(); !errors.Is(err, stock.ErrUnknownOutcome) || errors.Is(err, stock.ErrLedgerUnavailable) {
			t.Errorf("%s is lost: %v", c.query, err)
		}
		happens(t, "the loss", fired)
	}
	mustHold(t, database)
}

// rush sends orders and sends each again, with the same key, until it is answered for good.
type rush struct {
	orders    int
	answered  atomic.Int64
	unsure    atomic.Int64 // answers that said that nobody knows, or nothing was done
	milestone func(answered int64)
}

// run returns when every order was answered.
func (r *rush) run(t *testing.T, l ...*ledger.Ledger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	var next atomic.Int64
	for n := range 32 {
		callers.Go(func() {
			for i := next.Add(1); i <= int64(r.orders); i = next.Add(1) {
				// Most want the hot item, many another one too, in no order.
				skus := [][]string{{"hot"}, {"hot", "A"}, {"B", "hot"}, {"A", "B"}}[i%4]
				r.insist(ctx, t, l[n%len(l)], order(fmt.Sprint("o-", i), skus...))
			}
		})
	}
	callers.Wait()
}

func (r *rush) insist(ctx context.Context, t *testing.T, l *ledger.Ledger, req *stock.DeductRequest) {
	for {
		_, err := l.Deduct(ctx, req)
		switch {
		case err == nil:
			r.milestone(r.answered.Add(1))
			return
		case ctx.Err() != nil:
			t.Errorf("order %s: not answered in time: %v", req.OrderID, err)
			return
		case errors.Is(err, stock.ErrUnknownOutcome), errors.Is(err, stock.ErrLedgerUnavailable), errors.Is(err, stock.ErrOverloaded):
			r.unsure.Add(1)
		default:
			t.Errorf("order %s: %v", req.OrderID, err)
			return
		}
	}
}

// check that every order is there once, and nothing else.
func (r *rush) check(t *testing.T, l *ledger.Ledger, url string) {
	t.Helper()
	if got := r.answered.Load(); got != int64(r.orders) {
		t.Errorf("%d of %d orders were answered", got, r.orders)
	}
	for i := 1; i <= r.orders; i++ {
		id := fmt.Sprint("o-", i)
		page, err := l.Deductions(t.Context(), stock.DeductionQuery{Client: "shop", OrderID: id, Limit: 10})
		if err != nil || len(page.Deductions) != 1 || page.Deductions[0].State != stock.Committed {
			t.Fatalf("order %s: %+v, %v", id, page, err)
		}
	}
	sold := map[string]stock.Quantity{"hot": 0, "A": 0, "B": 0}
	for i := 1; i <= r.orders; i++ {
		for _, sku := range [][]string{{"hot"}, {"hot", "A"}, {"B", "hot"}, {"A", "B"}}[i%4] {
			sold[sku]++
		}
	}
	for sku, want := range sold {
		if got := levels(t, l, sku); got.OnHand != 10_000-want {
			t.Errorf("%s: %d sold, want %d", sku, 10_000-got.OnHand, want)
		}
	}
	mustHold(t, url)
}

func (r *rush) stock(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	for _, sku := range []string{"hot", "A", "B"} {
		stockUp(t, l, sku, 10_000)
	}
}

// TestServerIsKilled kills Postgres in the middle of a rush, twice, and starts it again on the same data.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	url := server.Database(t)
	l := openAt(t, url)
	kills := make(chan struct{}, 2)
	r := &rush{orders: 600, milestone: func(answered int64) {
		if answered == 150 || answered == 400 {
			kills <- struct{}{}
		}
	}}
	r.stock(t, l)
	var killing sync.WaitGroup
	killing.Go(func() {
		for range 2 {
			<-kills
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	r.run(t, l)
	killing.Wait()
	r.check(t, openAt(t, url), url) // the last kill may come after the last order: then an idle session is the first to see it
	if r.unsure.Load() > 0 {
		t.Logf("%d answers were unsure", r.unsure.Load())
	}
}

// TestSessionsAreTerminated throws the ledger's sessions out, again and again, in the middle of a rush.
func TestSessionsAreTerminated(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	ledgers := []*ledger.Ledger{openAt(t, url), openAt(t, url)}
	const every = 60
	turns := make(chan struct{}, 100)
	r := &rush{orders: 600, milestone: func(answered int64) {
		if answered%every == 0 {
			turns <- struct{}{}
		}
	}}
	r.stock(t, ledgers[0])
	conn := connect(t, url)
	var terminating sync.WaitGroup
	ended := 0
	terminating.Go(func() {
		for range turns {
			var n int
			err := conn.QueryRow(t.Context(), `
				SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'holdfast%'`).Scan(&n)
			if err != nil {
				t.Error(err)
			}
			ended += n
		}
	})
	r.run(t, ledgers...)
	close(turns)
	terminating.Wait()
	r.check(t, openAt(t, url), url) // the idle sessions of the others may just have ended, and nobody noticed
	if ended < 10 {
		t.Errorf("only %d sessions were terminated", ended)
	}
}

// TestReadsAfterSessionsWereLost: once a session was seen to have ended, no idle one that ended with it is read from.
func TestReadsAfterSessionsWereLost(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l, conn := openAt(t, url), connect(t, url)
	stockUp(t, l, "A", 9)
	deduct(t, l, order("first", "A"))
	read := func() {
		var readers sync.WaitGroup
		for range 64 {
			readers.Go(func() {
				page, err := l.Deductions(t.Context(), stock.DeductionQuery{Client: "shop", OrderID: "first", Limit: 1})
				if err != nil || len(page.Deductions) != 1 {
					t.Errorf("read %+v, %v", page, err)
				}
			})
		}
		readers.Wait()
	}
	read()
	var sessions int
	err := conn.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE application_name = 'holdfast-reads' AND pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&sessions)
	if err != nil || sessions < 2 {
		t.Fatalf("%d sessions were ended, %v", sessions, err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'holdfast'`); err != nil {
		t.Fatal(err)
	}
	deduct(t, l, order("second", "A")) // finds out, and is written all the same
	read()
}

// TestACommitWhoseReplyIsLostIsUnknown: the batch is written on locked rows, and commits by a statement of its own.
func TestACommitWhoseReplyIsLostIsUnknown(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, url := behind(t, database)
	l, other := start(t, ledger.Config{URL: url, Patience: 2 * time.Second}), openAt(t, database)
	stockUp(t, l, "A", 9)
	deduct(t, other, order("in between", "A"))
	fired := proxy.OnRequest(contains("commit\x00"), fault.LoseReply)
	for range 100 {
		proxy.OnRequest(contains("application_name\x00holdfast\x00"), fault.LoseRequest)
	}
	_, err := l.Deduct(t.Context(), order("lost", "A"))
	happens(t, "the loss", fired)
	proxy.Restore()
	if !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if got := levels(t, other, "A"); got.OnHand != 7 {
		t.Errorf("got %s", figures(got))
	}
}

// Between the look-up of live orders and that of keys another process makes the very deduction that is asked about:
// whoever finds the order has to find its key, too.
func TestARetryIsNotTakenForAnotherOrder(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	wire, through := behind(t, database)
	slow, fast := openAt(t, through), openAt(t, database)
	stockUp(t, fast, "A", 10)
	seen := map[string]bool{}
	second := wire.OnRequest(func(request []byte) bool {
		for _, lookUp := range []string{"-- name: FindOperations", "-- name: FindLive"} {
			if bytes.Contains(request, []byte(lookUp)) {
				seen[lookUp] = true
			}
		}
		return len(seen) == 2
	}, fault.HoldRequest)
	r := order("O", "A")
	answered := make(chan error, 1)
	go func() { _, err := slow.Recall(t.Context(), r); answered <- err }()
	happens(t, "the second look-up", second)
	if _, err := fast.Deduct(t.Context(), order("O", "A")); err != nil {
		t.Fatal(err)
	}
	wire.Restore()
	if err := <-answered; err != nil {
		t.Errorf("the retry is told: %v", err)
	}
}
