package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// standby of a primary, over a wire that can be cut.
func standby(t *testing.T, primary *sandbox.Postgres, synchronous bool) (*sandbox.Postgres, *fault.Proxy) {
	t.Helper()
	wire, err := fault.NewProxy(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := wire.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := sandbox.StartPostgresStandby(t.Context(), primary, sandbox.StandbyConfig{
		Name: "standby", Via: wire.Addr(), Synchronous: synchronous,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, wire
}

// TestWhatIsRememberedIsOfOneEpoch: a failover loses the last changes, others take their versions, and what this
// process remembers of the old server looks as current as ever. It must not be written.
func TestWhatIsRememberedIsOfOneEpoch(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	database := primary.Database(t)
	heir, wire := standby(t, primary, false)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	both := fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write", primary.Addr(), heir.Addr(), name)
	l := start(t, ledger.Config{URL: both, Writers: 1})
	stockUp(t, l, "B", 100)
	stockUp(t, l, "A", 100) // version 1
	eventually(t, "the standby has it", func() bool {
		var n int
		err := connect(t, heir.URL(name)).QueryRow(t.Context(), "SELECT count(*) FROM items WHERE sku = 'A' AND version = 1").Scan(&n)
		return err == nil && n == 1
	})
	wire.Cut()
	lost := order("lost by the failover", "A")
	lost.Lines[0].Quantity = 60
	deduct(t, l, lost) // version 2, 40 left; only here
	primary.Kill()
	if err := heir.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := openAt(t, heir.URL(name))
	deduct(t, other, order("of another process", "A")) // version 2 as well, 99 left
	eventually(t, "the ledger has found the new server", func() bool {
		_, err := l.Deduct(t.Context(), order("finds out", "B"))
		return err == nil
	})
	deduct(t, l, order("after", "A"))
	if got := levels(t, other, "A"); got.OnHand != 98 || got.Version != 3 {
		t.Errorf("got %s, want 98 on hand", figures(got))
	}
	mustHold(t, heir.URL(name))
}

// TestCommitWithoutItsStandbyIsUnknown: the server gave up waiting for its standby and says so beside its answer, which
// calls it done.
func TestCommitWithoutItsStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	database := primary.Database(t)
	partner, _ := standby(t, primary, true)
	l := openAt(t, database)
	stockUp(t, l, "A", 5)
	partner.Kill()
	answered := make(chan error, 1)
	go func() {
		_, err := l.Deduct(t.Context(), order("o", "A"))
		answered <- err
	}()
	conn := connect(t, database)
	eventually(t, "the commit waits for the standby", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n)
		return err == nil && n > 0
	})
	if err := <-answered; !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("committed without its standby: %v", err)
	}
}

// TestWhatItsStandbyLacksIsNotSeen: a commit waits for a standby that is cut off, for longer than anybody has patience. As long as the
// standby lacks it, it may be lost, and nobody may be told that it was done, however often he asks.
func TestWhatItsStandbyLacksIsNotSeen(t *testing.T) {
	t.Parallel()
	primary := sandbox.OwnPostgres(t, sandbox.PostgresConfig{})
	database := primary.Database(t)
	_, wire := standby(t, primary, true)
	stockUp(t, openAt(t, database), "A", 5)
	l := start(t, ledger.Config{URL: database, Patience: time.Second})
	eventually(t, "it has numbers to give", func() bool {
		_, err := l.Deduct(t.Context(), order("first", "A"))
		return err == nil
	})
	wire.Stall()
	for range 3 {
		if _, err := l.Deduct(t.Context(), order("o", "A")); err == nil {
			t.Fatal("a deduction that the standby lacks was called done")
		}
	}
	if got := levels(t, openAt(t, database), "A"); got.OnHand != 4 {
		t.Errorf("got %s, which the standby lacks", figures(got))
	}
	wire.Restore()
	eventually(t, "it is done", func() bool {
		_, err := l.Deduct(t.Context(), order("o", "A"))
		return err == nil
	})
	if got := levels(t, l, "A"); got.OnHand != 3 {
		t.Errorf("got %s, want 3 on hand", figures(got))
	}
}

// TestDeductionIsLost between the look at it and the change: it is not found, and nobody falls over it.
func TestDeductionIsLost(t *testing.T) {
	t.Parallel()
	d := stock.Deduction{Client: "shop", State: stock.Held, Lines: []stock.Line{{No: 1, Item: at("A"), Quantity: 1, Held: 1}}}
	s := ledger.Sight{Fresh: true, Now: noon, Items: []stock.Levels{{Item: at("A"), OnHand: 1, Held: 1}}}
	for name, op := range map[string]ledger.Asked{
		"commit":  ledger.AskCommit(&d, &stock.CommitRequest{}),
		"release": ledger.AskRelease(&d),
		"expire":  ledger.AskExpire(&d),
		"extend":  ledger.AskExtend(&d, &stock.ExtendRequest{Hold: time.Hour}),
		"return":  ledger.AskReturn(&d, &stock.ReturnRequest{Keyed: keyed("k")}),
	} {
		if got := ledger.Decide(s, op); !errors.Is(got.Verdicts[0].Err, stock.ErrNotFound) || got.Write {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestCloseDoesNotWaitForAServerThatIsGone: what waits is told so, soon.
func TestCloseDoesNotWaitForAServerThatIsGone(t *testing.T) {
	t.Parallel()
	proxy, address := behind(t, sandbox.Database(t))
	proxy.Cut()
	l, err := ledger.Open(ledger.Config{URL: address, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed("k"), Item: at("A"), Kind: stock.Adjust, Delta: 1})
		answered <- err
	}()
	eventually(t, "a writer has taken it", func() bool { return len(l.Busy()) == 1 })
	closed := make(chan struct{})
	go func() {
		l.Close()
		close(closed)
	}()
	happens(t, "the end", closed)
	if err := <-answered; !errors.Is(err, stock.ErrLedgerUnavailable) {
		t.Errorf("got %v", err)
	}
}
