package job_test

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/lock/backends"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// The long form is `make jobs-long`: a hundred pauses on every locker, and an hour of ticks of a second.
var (
	pauses = flag.Int("pauses", 1, "how often runners are paused on each locker")
	ticks  = flag.Int("ticks", 60, "how many ticks two processes share")
)

// place is where the leases of a test's jobs are kept.
type place struct {
	setup childSetup
	pool  *pgxpool.Pool
}

// newPlace starts what a back end needs.
func newPlace(t *testing.T, backend string, ttl time.Duration) *place {
	t.Helper()
	database := sandbox.Database(t)
	p := &place{setup: childSetup{TTL: ttl, Every: time.Second, Locks: backends.Config{
		Use: backend, Prefix: strings.Trim(sandbox.Prefix(t), ":"), Database: database, Session: ttl,
	}}}
	switch at := &p.setup.Locks; backend {
	case backends.Redis:
		at.Redis = "redis://" + sandbox.RedisAddr(t)
	case backends.Redlock:
		for range 3 {
			at.Redlock = append(at.Redlock, "redis://"+sandbox.OwnRedis(t, sandbox.RedisConfig{}).Addr())
		}
	case backends.Etcd:
		at.Etcd = []string{sandbox.OwnEtcd(t).URL()}
	case backends.ZooKeeper:
		at.ZooKeeper = []string{sandbox.OwnZooKeeper(t).Addr()}
	}
	var err error
	if p.pool, err = pgxpool.New(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.pool.Close)
	return p
}

func (p *place) scalar(t *testing.T, sql string, args ...any) (n int64) {
	t.Helper()
	if err := p.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A runner is stopped in the middle of its work, for longer than its lease. Another one takes the tick over and ends it.
// Then the first one goes on, as if nothing had happened: what it writes is refused by its token.
func TestPausedRunnerWritesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{
		backends.Redis, backends.Redlock, backends.Etcd, backends.ZooKeeper, backends.Postgres, backends.PostgresAdvisory,
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, backend, time.Second)
			p.setup.Waits = true
			service := openStock(t, p.setup.Locks.Database)
			runners := [2]*runnerProcess{startRunner(t, p.setup), startRunner(t, p.setup)}
			start := time.Now().Truncate(time.Second)
			var last int64
			for n := range *pauses {
				first, second := runners[n%2], runners[1-n%2]
				token := p.pauseOne(t, service, first, second, start.Add(time.Duration(n)*time.Second))
				if token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				last = token
				if t.Failed() {
					t.Fatalf("pause %d of %d", n+1, *pauses)
				}
			}
			n := p.scalar(t, "SELECT count(*) FROM job_runs WHERE outcome = 'done' AND attempts = 2 AND rows = 1")
			if n != int64(*pauses) {
				t.Errorf("%d of %d ticks were done by whoever took them over", n, *pauses)
			}
			t.Logf("%d of %d paused runs wrote nothing, the last under a token before %d", n, *pauses, last)
		})
	}
}

// pauseOne lets the second runner take the tick over from the first, and returns its token.
func (p *place) pauseOne(t *testing.T, service *inventory.Service, first, second *runnerProcess, tick time.Time) (newer int64) {
	t.Helper()
	id := expiredHold(t, service, p)
	first.tick(t, tick)
	old := first.hearToken(t)
	first.signal(t, syscall.SIGSTOP)
	second.tick(t, tick) // waits until the lease of the first is over
	newer = second.hearToken(t)
	if newer <= old {
		t.Errorf("token %d after %d", newer, old)
	}
	// The newer one has written nothing yet: that its token is claimed must do.
	first.signal(t, syscall.SIGCONT)
	first.say(t, "go")
	if wrote := first.hear(t, "wrote"); !strings.Contains(wrote, stock.ErrStale.Error()) {
		t.Errorf("the paused runner with token %d wrote after %d was claimed: %s", old, newer, wrote)
	}
	if out, err := service.Deduction(t.Context(), "shop", id); err != nil || p.scalar(t, "SELECT sum(held) FROM items") != 1 {
		t.Errorf("the hold was released by the paused runner: %+v, %v", out, err)
	}
	if ran := first.hear(t, "ran"); ran == "<nil>" {
		t.Error("the paused runner ended the tick")
	}
	second.say(t, "go")
	if wrote := second.hear(t, "wrote"); wrote != "1 <nil>" {
		t.Errorf("the newest holder wrote %s", wrote)
	}
	if ran := second.hear(t, "ran"); ran != "<nil>" {
		t.Errorf("the newest holder's run: %s", ran)
	}
	if held := p.scalar(t, "SELECT sum(held) FROM items"); held != 0 {
		t.Errorf("%d are held", held)
	}
	return newer
}

func openStock(t *testing.T, database string) *inventory.Service {
	t.Helper()
	service, err := inventory.Open(inventory.Config{Ledger: ledger.Config{URL: database}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	return service
}

// expiredHold makes a hold whose time is over.
func expiredHold(t *testing.T, service *inventory.Service, p *place) stock.DeductionID {
	t.Helper()
	item := stock.Item{SKU: "A", Location: stock.DefaultLocation}
	name := fmt.Sprint("hold ", p.scalar(t, "SELECT count(*) FROM deductions"))
	keyed := stock.Keyed{Client: "shop", Key: name}
	if _, err := service.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: item}); err != nil {
		t.Fatal(err)
	}
	_, err := service.Adjust(t.Context(), &stock.AdjustRequest{
		Keyed: stock.Keyed{Client: "shop", Key: "stock " + name}, Item: item, Kind: stock.Receive, Delta: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := service.Deduct(t.Context(), &stock.DeductRequest{
		Keyed: keyed, OrderID: name, Lines: []stock.WantedLine{{Item: item, Quantity: 1}}, Hold: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.pool.Exec(t.Context(), "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE id = $1", out.Deduction.ID); err != nil {
		t.Fatal(err)
	}
	return out.Deduction.ID
}

// Two processes are told the same time, tick after tick. Each tick has one run and one effect, and tokens grow.
func TestEachTickRunsOnceInTwoProcesses(t *testing.T) {
	t.Parallel()
	p := newPlace(t, backends.Redis, 10*time.Second)
	p.setup.Counter = true
	if _, err := p.pool.Exec(t.Context(), "CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, token bigint)"); err != nil {
		t.Fatal(err)
	}
	runners := [2]*runnerProcess{startRunner(t, p.setup), startRunner(t, p.setup)}
	start := time.Now().Truncate(time.Second)
	for n := range *ticks {
		now := start.Add(time.Duration(n) * time.Second)
		for _, r := range runners {
			r.tick(t, now)
		}
		for _, r := range runners {
			if ran := r.hear(t, "ran"); ran != "<nil>" {
				t.Fatalf("tick %d: %s", n, ran)
			}
		}
	}
	want := int64(*ticks)
	kept := min(want, 1000) // what the history keeps
	if n := p.scalar(t, "SELECT count(*) FROM job_runs WHERE outcome = 'done' AND rows = 1 AND attempts = 1"); n != kept {
		t.Errorf("%d of %d ticks were done once, at the first attempt", n, kept)
	}
	if n := p.scalar(t, "SELECT count(*) FROM effects"); n != want {
		t.Errorf("%d ticks had %d effects", want, n)
	}
	if n := p.scalar(t, "SELECT count(*) FROM (SELECT token <= lag(token) OVER (ORDER BY n) AS shrank FROM effects) o WHERE shrank"); n != 0 {
		t.Errorf("%d tokens did not grow", n)
	}
	shares := p.scalar(t, "SELECT count(DISTINCT runner) FROM job_runs")
	t.Logf("%d ticks, %d processes had some of them", want, shares)
	if shares != 2 && want >= 60 {
		t.Error("one process ran everything: then nothing was shown about two")
	}
}
