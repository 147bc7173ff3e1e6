//go:build chaos

package robust_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long to soak the service; 0: not at all")
	soakRate = flag.Float64("rate", 250, "operations a second while soaking, about; answers that take longer than the pauses make it less")
)

// watched is a figure that must not grow, and by how much it may be higher in the last quarter than in the first: by a factor, and
// by as much again as one measurement differs from the next.
type watched struct {
	name   string
	factor float64
	slack  float64
}

// watches of each process, by the names of its metrics, and of what both have at the stores.
func watches() []watched {
	return []watched{
		{"process_resident_memory_bytes", 1.25, 16 << 20},
		{"go_memstats_heap_objects", 1.5, 200_000}, // garbage included
		{"go_goroutines", 1.1, 20},
		{"process_open_fds", 1.1, 20},
		{"sessions with Postgres", 1, 4},
		{"connections to Redis", 1, 4},
		{"memory of Redis", 1.25, 2 << 20},
	}
}

// TestSoak lets customers work for long, in peace, and looks whether anything grows that should not.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("only with -soak")
	}
	redis := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	w := newWorld(t, worldConfig{command: product(t), postgres: sandbox.OwnPostgres(t, sandbox.PostgresConfig{}), redis: redis})
	l := w.prepare()
	l.pause = time.Duration(2 * customers / *soakRate * float64(time.Second)) // at most; half of it on average
	l.release()
	seen := l.watch(*soakFor)
	h := l.end()
	l.probe(h)
	w.complete(h)
	found := robust.CheckOrder(h) // Porcupine takes too long for a history of this length
	t.Logf("soaked for %v, seed %d: %d operations, %d movements, %.0f answers a second, %d violations\n%s", *soakFor, w.seed, len(h.Ops),
		len(h.Ledger.Movements), float64(l.answers.Load())/soakFor.Seconds(), len(found), seen.table(t))
	if len(found) > 0 {
		w.keep(h, found)
	}
	if len(h.Ledger.Movements) < int(soakFor.Seconds()*minimumRate) {
		t.Error("too little happened")
	}
}

// seen is what was measured of each figure over time, by what it is of and its name.
type seen map[[2]string][]float64

// watch the figures for a while.
func (l *load) watch(during time.Duration) seen {
	w := l.world
	ctx, cancel := context.WithTimeout(context.Background(), during+patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(ctx)
	client := w.redisClient()
	all := seen{}
	tick := time.NewTicker(min(5*time.Second, during/20))
	defer tick.Stop()
	for end := time.After(during); ; {
		select {
		case <-end:
			return all
		case <-tick.C:
		}
		for i, s := range w.services {
			all.add("process "+strconv.Itoa(i+1), s.figures(ctx))
		}
		all.add("both", w.storeFigures(ctx, conn, client))
	}
}

func (all seen) add(of string, figures map[string]float64) {
	for _, f := range watches() {
		if value, ok := figures[f.name]; ok {
			at := [2]string{of, f.name}
			all[at] = append(all[at], value)
		}
	}
}

// figures are a process' metrics without labels.
func (s *service) figures(ctx context.Context) map[string]float64 {
	t := s.world.t
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// storeFigures are what the processes have at the stores, and what Redis needs for it.
func (w *world) storeFigures(ctx context.Context, conn *pgx.Conn, client *redis.Client) map[string]float64 {
	w.t.Helper()
	var sessions float64
	const query = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	if err := conn.QueryRow(ctx, query).Scan(&sessions); err != nil {
		w.t.Fatal(err)
	}
	info, err := client.Info(ctx, "clients", "memory").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]float64{"sessions with Postgres": sessions}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseFloat(value, 64) // the two that are numbers are of interest
		switch name {
		case "connected_clients":
			all["connections to Redis"] = n
		case "used_memory":
			all["memory of Redis"] = n
		}
	}
	return all
}

// table shows each figure in the first and the last quarter, and fails the test if one has grown, or was never seen.
func (all seen) table(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "of\tfigure\tfirst quarter\tlast quarter\tmost")
	for _, of := range []string{"process 1", "process 2", "both"} {
		for _, f := range watches() {
			values := all[[2]string{of, f.name}]
			if len(values) == 0 {
				continue
			}
			quarter := max(len(values)/4, 1)
			first, last := median(values[:quarter]), median(values[len(values)-quarter:])
			fmt.Fprintf(table, "%s\t%s\t%.0f\t%.0f\t%.0f\n", of, f.name, first, last, slices.Max(values))
			if last > first*f.factor+f.slack {
				t.Errorf("%s of %s has grown from %.0f to %.0f", f.name, of, first, last)
			}
		}
	}
	if want := 2*4 + 3; len(all) != want {
		t.Errorf("%d figures were seen, not %d", len(all), want)
	}
	_ = table.Flush() // a builder takes everything
	return text.String()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
