package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// sellerArgs tell a process of a comparison what to sell, and how.
type sellerArgs struct {
	Path     string
	Name     string // of the run; its items are Name-0, Name-1 …
	Items    int
	Postgres string
	Redis    []string // one, or the independent ones of Redlock
	Etcd     string
	Lasts    time.Duration
	Twice    bool // every order is sent twice at once
	Process  int
}

func (a sellerArgs) item(n int) string { return a.Name + "-" + strconv.Itoa(n) }

// tally is what a process counted.
type tally struct {
	Orders, Failed int64
	Lasted         time.Duration
	Latency        [latencyBuckets]int64
}

func (t *tally) add(o *tally) {
	t.Orders += o.Orders
	t.Failed += o.Failed
	t.Lasted = max(t.Lasted, o.Lasted)
	for i := range t.Latency {
		t.Latency[i] += o.Latency[i]
	}
}

// bucket is the place of a latency: steps of 0.1 ms up to 100 ms, then of 10 ms.
func bucket(d time.Duration) int {
	const fine = 1000
	if i := int(d / (100 * time.Microsecond)); i < fine {
		return i
	}
	return min(fine+int((d-100*time.Millisecond)/(10*time.Millisecond)), latencyBuckets-1)
}

// bucketEnd is the longest latency of a bucket.
func bucketEnd(i int) time.Duration {
	const fine = 1000
	if i < fine {
		return time.Duration(i+1) * 100 * time.Microsecond
	}
	return 100*time.Millisecond + time.Duration(i-fine+1)*10*time.Millisecond
}

// quantile is the latency that a share of the orders keeps.
func (t *tally) quantile(share float64) time.Duration {
	wanted := int64(share * float64(t.Orders))
	for i, n := range t.Latency {
		if wanted -= n; wanted < 0 {
			return bucketEnd(i)
		}
	}
	return 0
}

func (t *tally) result(path string, trouble Trouble, taken int64) PathResult {
	return PathResult{
		Path: path, Trouble: trouble, Orders: t.Orders, Failed: t.Failed,
		Rate: float64(t.Orders) / t.Lasted.Seconds(), P50: t.quantile(.5), P99: t.quantile(.99),
		SoldTwice:  max(0, t.Orders-taken),
		TakenTwice: max(0, taken-t.Orders-t.Failed),
	}
}

// playSeller sells as fast as it can for a while, and says what it counted.
func playSeller(ctx context.Context, c *Child) error {
	var args sellerArgs
	if err := c.Args(&args); err != nil {
		return err
	}
	path := pathOf(args.Path)
	if path == nil {
		return fmt.Errorf("there is no path %q", args.Path)
	}
	pool, err := pgxpool.New(ctx, args.Postgres+"&pool_max_conns=40")
	if err != nil {
		return err
	}
	defer pool.Close()
	sell, stop, err := path.open(ctx, args, pool)
	if err != nil {
		return err
	}
	defer stop()
	c.Say("ready", "")
	if err := c.Await("go"); err != nil {
		return err
	}
	sold, err := json.Marshal(args.sellFor(ctx, sell))
	if err != nil {
		return err
	}
	c.Say("sold", "%s", sold)
	return nil
}

// sellFor has the workers sell until the time is over; an order that was begun is ended.
func (a sellerArgs) sellFor(ctx context.Context, sell sellOne) *tally {
	began := time.Now()
	counts := make([]tally, pathWorkers)
	var workers sync.WaitGroup
	for w := range pathWorkers {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(a.Process), uint64(w)))
			for n := 0; time.Since(began) < a.Lasts; n++ {
				order := fmt.Sprintf("%s-%d-%d-%d", a.Name, a.Process, w, n)
				sent := time.Now()
				if err := a.send(ctx, sell, order, a.item(random.IntN(a.Items))); err != nil {
					counts[w].Failed++
					continue
				}
				counts[w].Orders++
				counts[w].Latency[bucket(time.Since(sent))]++
			}
		})
	}
	workers.Wait()
	total := &tally{Lasted: time.Since(began)}
	for i := range counts {
		total.add(&counts[i])
	}
	return total
}

// send sends an order, or the order and a duplicate of it at once; one answer of the two is enough for the client.
func (a sellerArgs) send(ctx context.Context, sell sellOne, order, item string) error {
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	if !a.Twice {
		return sell(ctx, order, item)
	}
	second := make(chan error, 1)
	go func() { second <- sell(ctx, order, item) }()
	first := sell(ctx, order, item)
	if err := <-second; err != nil && first != nil {
		return errors.Join(first, err)
	}
	return nil
}
