package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/job"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// jobs asks an instance what its jobs did.
func (i *instance) jobs(t *testing.T, flags ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"jobs", "--admin-addr=" + i.admin}, flags...), &out, &errs); code != exitFine {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out.String()
}

// eventually waits for what is on its way.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(serviceLimit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

const sweepsDone = `holdfast_job_runs_total{job="expire-holds",outcome="done"}`

func TestJobsShowsWhatRan(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "")
	shop.env = append(shop.env, "HOLDFAST_JOBS_RECONCILE=")
	service := shop.open(t)
	eventually(t, "holds are swept", func() bool { return service.metric(t, sweepsDone) > 0 })
	var answer struct{ Jobs []job.Status }
	if err := json.Unmarshal([]byte(service.jobs(t, "--json")), &answer); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(answer.Jobs))
	for i := range answer.Jobs {
		names[i] = answer.Jobs[i].Job
	}
	want(t, "jobs", strings.Join(names, " "), "expire-holds settle reconcile retain")
	sweep := &answer.Jobs[0]
	if len(sweep.Runs) == 0 || sweep.Next.Before(sweep.Runs[0].ScheduledAt) || sweep.Runs[0].Runner == "" {
		t.Errorf("sweep: %+v", sweep)
	}
	last := sweep.Runs[len(sweep.Runs)-1] // the first of them may be under way
	if last.Outcome != stock.RunDone || last.EndedAt == nil || last.Token == 0 {
		t.Errorf("a run that ended: %+v", last)
	}
	table := service.jobs(t)
	for _, words := range [][]string{{"expire-holds", "every 1s"}, {"settle", "5 0 * * *"}, {"reconcile", "never"}, {"retain", "never"}} {
		found := false
		for line := range strings.Lines(table) {
			found = found || strings.HasPrefix(line, words[0]) && strings.Contains(line, words[1])
		}
		if !found {
			t.Errorf("no line %q in\n%s", words, table)
		}
	}
}

// The back end of the locks is killed while orders come in: none of them fails, nobody takes the instance for broken,
// and when the back end is there again the jobs go on.
func TestDeductionsGoOnWithoutTheLocks(t *testing.T) {
	t.Parallel()
	t.Run("locks beside the gate", func(t *testing.T) { // as a deployment does that sets nothing
		t.Parallel()
		redis := sandbox.OwnRedis(t, sandbox.RedisConfig{})
		goOnWithout(t, newShop(t, redis.Addr()), redis)
	})
	t.Run("locks of their own", func(t *testing.T) {
		t.Parallel()
		shop := newShop(t, "")
		var servers []*sandbox.Redis
		var urls []string
		for range 3 {
			server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
			servers, urls = append(servers, server), append(urls, "redis://"+server.Addr())
		}
		shop.env = append(shop.env, "HOLDFAST_LOCK=redlock", "HOLDFAST_LOCK_REDLOCK="+strings.Join(urls, ","))
		goOnWithout(t, shop, servers...)
	})
}

func goOnWithout(t *testing.T, shop *shop, servers ...*sandbox.Redis) {
	t.Helper()
	shop.env = append(shop.env, "HOLDFAST_SWEEP=200ms", "HOLDFAST_JOBS_LEASE=2s")
	service := shop.open(t)
	const units = 1_000_000
	service.stockUp(t, "MUG", units)
	eventually(t, "holds are swept", func() bool { return service.metric(t, sweepsDone) > 0 })
	orders := service.takeOrders(t)
	orders.more(t)

	for _, server := range servers {
		server.Kill()
	}
	failures := func() float64 { return service.metric(t, `holdfast_job_lock_errors_total{job="expire-holds"}`) }
	eventually(t, "the jobs find no lock", func() bool { return failures() >= 2 })
	service.mustBeReady(t)
	orders.more(t)
	before := service.metric(t, sweepsDone)
	for _, server := range servers {
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the jobs go on", func() bool { return service.metric(t, sweepsDone) > before })
	service.mustBeReady(t)
	orders.more(t)
	taken := orders.end()
	if left := service.item(t, "MUG").OnHand; left != units-taken {
		t.Errorf("%d left of %d, %d were sold", left, units, taken)
	}
	t.Logf("%d orders, all of them served", taken)
}

func (i *instance) mustBeReady(t *testing.T) {
	t.Helper()
	a, err := newCaller("http://"+i.admin, "").send(t.Context(), request{method: "GET", path: "/readyz"})
	if err != nil || a.status != http.StatusOK {
		t.Errorf("readyz: %+v, %v", a, err)
	}
}

// orders come in without a pause; each is sent once.
type orders struct {
	stop    chan struct{}
	clients sync.WaitGroup
	taken   atomic.Int64
}

func (i *instance) takeOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{stop: make(chan struct{})}
	for client := range 4 {
		o.clients.Go(func() {
			api := i.api()
			for n := 0; ; n++ {
				select {
				case <-o.stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", client, n)
				a, err := api.send(t.Context(), request{method: http.MethodPost, path: "/v1/deductions", key: id, body: map[string]any{
					"order_id": id, "lines": []map[string]any{{"sku": "MUG", "quantity": 1}},
				}})
				if err != nil || a.status != http.StatusCreated {
					t.Errorf("order %s: %+v, %v", id, a, err)
					return
				}
				o.taken.Add(1)
			}
		})
	}
	t.Cleanup(func() { o.end() })
	return o
}

// more waits until a good many orders more have been served.
func (o *orders) more(t *testing.T) {
	t.Helper()
	const many = 100
	from := o.taken.Load()
	eventually(t, "orders are served", func() bool { return t.Failed() || o.taken.Load() > from+many })
}

// end of the orders; it returns how many were served.
func (o *orders) end() int64 {
	select {
	case <-o.stop:
	default:
		close(o.stop)
	}
	o.clients.Wait()
	return o.taken.Load()
}

// Retention as a job: what is old becomes a checkpoint, and goes to a file.
func TestRetentionRunsByItself(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "")
	dir := t.TempDir()
	shop.env = append(shop.env, "HOLDFAST_JOBS_RETAIN=every 1s", "HOLDFAST_JOBS_RETAIN_DAYS=31", "HOLDFAST_JOBS_RETAIN_ARCHIVE="+dir)
	service := shop.open(t)
	service.bring(t, "sku,delta\nMUG,5\nMUG,6\n", exitFine)
	conn, err := pgx.Connect(t.Context(), strings.TrimPrefix(shop.env[0], "HOLDFAST_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err = conn.Exec(t.Context(), "UPDATE movements SET at = at - interval '1 year'"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "old movements are rolled up", func() bool { return service.metric(t, `holdfast_job_rows_total{job="retain"}`) == 2 })
	files, err := filepath.Glob(filepath.Join(dir, "movements-before-*.ndjson.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	a, err := service.api().send(t.Context(), request{method: "GET", path: stockPath("MUG", "/movements", "")})
	if err != nil || !strings.Contains(string(a.body), `{"movements":[{"version":2,"kind":"checkpoint","delta_on_hand":11,`) {
		t.Errorf("%s, %v", a.body, err)
	}
}

func TestJobSettingsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	fine := jobsConfig{Lease: 10 * time.Second, RetainDays: 400}
	if err := fine.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*jobsConfig){
		"HOLDFAST_JOBS_LEASE":          func(c *jobsConfig) { c.Lease = time.Second },
		"HOLDFAST_JOBS_SETTLE":         func(c *jobsConfig) { c.Settle = "sometimes" },
		"HOLDFAST_JOBS_RECONCILE":      func(c *jobsConfig) { c.Reconcile = "61 * * * *" },
		"HOLDFAST_JOBS_RETAIN:":        func(c *jobsConfig) { c.Retain, c.RetainArchive = "every 1ms", discard },
		"HOLDFAST_JOBS_RETAIN_DAYS":    func(c *jobsConfig) { c.RetainDays = 30 },
		"HOLDFAST_JOBS_RETAIN_ARCHIVE": func(c *jobsConfig) { c.Retain = "0 4 * * *" },
	} {
		c := fine
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A back end whose shortest lease is longer than what the jobs ask for would never grant one.
func TestEveryBackEndGrantsTheShortestLease(t *testing.T) {
	t.Parallel()
	none := []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"}
	b, err := openLocks(t.Context(), &lockConfig{
		Lock: "auto", LockPrefix: "p", LockRedlock: none, LockEtcd: []string{"http://127.0.0.1:1"}, LockZookeeper: []string{"127.0.0.1:1"},
	}, "postgres://127.0.0.1:1/none", none[0], leastLease)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, backend := range b.All {
		if p := backend.Properties(); p.MinTTL > leastLease {
			t.Errorf("%s grants no lease shorter than %s", p.Backend, p.MinTTL)
		}
	}
}
