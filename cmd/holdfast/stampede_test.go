package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// A stampede: many buyers at once want the last units of one item, at two processes on one Postgres and one Redis.

const (
	hotSKU  = "LAMP/BRASS"
	buyers  = 500
	twice   = buyers * 8 / 100 // that many send their request a second time at once
	onShelf = 20
)

// stampede is the shop and what its buyers were told.
type stampede struct {
	redis     *sandbox.Redis
	instances [2]*instance
	apis      [2]*caller
	orders    atomic.Int64 // numbers them
	answers   atomic.Int64

	mu   sync.Mutex
	sold map[string]string // deduction of each order that was accepted; guarded by mu
	odd  []string          // answers that are neither yes nor "sold out"; guarded by mu
}

func newStampede(t *testing.T) *stampede {
	t.Helper()
	s := &stampede{redis: sandbox.OwnRedis(t, sandbox.RedisConfig{}), sold: make(map[string]string)}
	shop := newShop(t, s.redis.Addr())
	for i := range s.instances {
		s.instances[i] = shop.open(t)
		s.apis[i] = s.instances[i].api()
	}
	s.instances[0].stockUp(t, hotSKU, onShelf)
	return s
}

// buy one unit at a process, without retries, and report whether it was had. What else than yes or "sold out" comes is kept.
func (s *stampede) buy(ctx context.Context, at int, order string) bool {
	a, err := s.apis[at%2].send(ctx, request{
		method: http.MethodPost, path: "/v1/deductions", key: order,
		body: map[string]any{"order_id": order, "lines": []map[string]any{{"sku": hotSKU, "quantity": 1}}},
	})
	s.answers.Add(1)
	var deduction struct {
		ID string `json:"id"`
	}
	verdict, problem := verdictOf(a, err, &deduction)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case verdict == accepted && (s.sold[order] == "" || s.sold[order] == deduction.ID):
		s.sold[order] = deduction.ID
		return true
	case verdict == accepted:
		problem = "two deductions: " + s.sold[order] + " and " + deduction.ID
	case verdict == refused:
		return false
	}
	s.odd = append(s.odd, order+": "+problem)
	return false
}

// rush lets all buyers go at once and returns when all are answered. midway is called when a part of them is.
func (s *stampede) rush(t *testing.T, midway func()) {
	t.Helper()
	var all sync.WaitGroup
	from := s.answers.Load()
	for n := range buyers {
		order := "order-" + strconv.FormatInt(s.orders.Add(1), 10)
		all.Go(func() { s.buy(t.Context(), n, order) })
		if n < twice {
			all.Go(func() { s.buy(t.Context(), n+1, order) })
		}
	}
	for s.answers.Load() < from+buyers/5 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // polling: the requests end by their deadlines
	}
	midway()
	all.Wait()
}

// check that as many are sold as there were, to as many orders, and that nobody got another answer than yes or no.
func (s *stampede) check(t *testing.T, stocked int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.odd) > 0 {
		t.Errorf("%d answers are neither yes nor no, the first: %s", len(s.odd), s.odd[0])
	}
	if len(s.sold) != stocked {
		t.Errorf("%d orders were accepted, %d units were there", len(s.sold), stocked)
	}
	different := make(map[string]bool)
	for _, deduction := range s.sold {
		different[deduction] = true
	}
	if len(different) != len(s.sold) {
		t.Errorf("%d orders have %d deductions", len(s.sold), len(different))
	}
	if i := s.instances[0].item(t, hotSKU); i.OnHand != 0 || i.Available != 0 {
		t.Errorf("%d on hand, %d available, want none", i.OnHand, i.Available)
	}
}

// wrongFor is how long "sold out" may be wrong after Redis answers.
const wrongFor = time.Second

// restocked gives units to buyers one by one, at both processes in turn, until they are sold. From wrongFor after since, which is when Redis was
// itself again and the units were there, nobody may be told that there are none.
func (s *stampede) restocked(t *testing.T, units int, since time.Time) {
	t.Helper()
	sold := 0
	for n := 0; sold < units && time.Since(since) < serviceLimit; n++ {
		began := time.Now()
		if s.buy(t.Context(), n, "late-"+strconv.FormatInt(s.orders.Add(1), 10)) {
			sold++
		} else if late := began.Sub(since); late > wrongFor {
			t.Errorf("told \"sold out\" %v after Redis was back, with %d units there", late, units-sold)
			return
		}
	}
	if sold < units {
		t.Errorf("only %d of %d units could be had", sold, units)
	}
}

func TestStampede(t *testing.T) {
	t.Parallel()
	s := newStampede(t)
	s.rush(t, func() {})
	s.check(t, onShelf)
	s.instances[1].receive(t, hotSKU, "more", 5)
	s.restocked(t, 5, time.Now())
	s.check(t, onShelf+5)
}

func TestStampedeWhileRedisIsKilled(t *testing.T) {
	t.Parallel()
	s := newStampede(t)
	s.rush(t, s.redis.Kill)
	s.check(t, onShelf)
	s.instances[1].receive(t, hotSKU, "more", 5)
	if err := s.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.restocked(t, 5, time.Now())
	s.rush(t, func() {})
	s.check(t, onShelf+5)
}

func TestStampedeWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	s := newStampede(t)
	var back time.Time
	s.rush(t, func() {
		if err := s.redis.Pause(); err != nil {
			t.Error(err)
		}
		s.instances[1].receive(t, hotSKU, "more", 5)
		<-time.After(2 * time.Second)
		if err := s.redis.Resume(); err != nil {
			t.Error(err)
		}
		back = time.Now()
	})
	// The buyers of the rush may have had some of the five.
	s.mu.Lock()
	left := onShelf + 5 - len(s.sold)
	s.mu.Unlock()
	s.restocked(t, left, back)
	s.check(t, onShelf+5)
}

func TestStampedeWhileRedisIsFlushed(t *testing.T) {
	t.Parallel()
	s := newStampede(t)
	client := s.client(t)
	flush := func() {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
	s.rush(t, flush)
	s.check(t, onShelf)
	s.instances[1].receive(t, hotSKU, "more", 5)
	flush()
	s.restocked(t, 5, time.Now())
	s.check(t, onShelf+5)
}

func TestStampedeWithTheGateSetBack(t *testing.T) {
	t.Parallel()
	s := newStampede(t)
	if !s.buy(t.Context(), 0, "first") { // so that the gate knows the item
		t.Fatal("could not buy the first")
	}
	client := s.client(t)
	full := dump(t, client)
	s.rush(t, func() { full.restore(t, client) })
	s.check(t, onShelf)
	full.restore(t, client) // now it thinks that nineteen are there
	s.rush(t, func() {})
	s.check(t, onShelf)

	empty := dump(t, client)
	s.instances[1].receive(t, hotSKU, "more", 5)
	empty.restore(t, client) // and now that there is nothing
	s.restocked(t, 5, time.Now())
	s.check(t, onShelf+5)
}

func (s *stampede) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), Protocol: 2})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// snapshot is everything that Redis had at a moment.
type snapshot map[string]string

func dump(t *testing.T, client *redis.Client) snapshot {
	t.Helper()
	all := make(snapshot)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		text, err := client.Dump(t.Context(), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) { // run out meanwhile
			t.Fatal(err)
		}
		if err == nil {
			all[key] = text
		}
	}
	if len(all) == 0 {
		t.Fatal("the gate keeps nothing in Redis")
	}
	return all
}

// restore puts Redis back in one step, as a failover to a replica that was behind does.
func (s snapshot) restore(t *testing.T, client *redis.Client) {
	t.Helper()
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.FlushDB(t.Context())
		for key, text := range s {
			p.Restore(t.Context(), key, 0, text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOrdersThatCrossNeitherDeadlockNorConflict(t *testing.T) {
	t.Parallel()
	const orders, atOnce = 500, 64
	s := newShop(t, "")
	apis := [2]*caller{}
	var first *instance
	for i := range apis {
		instance := s.open(t)
		if apis[i] = instance.api(); first == nil {
			first = instance
		}
	}
	var forth, back []map[string]any
	for c := 'A'; c <= 'Z'; c++ {
		first.stockUp(t, string(c), orders)
		line := map[string]any{"sku": string(c), "quantity": 1}
		forth, back = append(forth, line), append([]map[string]any{line}, back...)
	}
	stocked := time.Now()
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for n := range orders {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			lines := forth
			if n%4 < 2 { // both ways at both processes
				lines = back
			}
			for {
				a, err := apis[n%2].send(t.Context(), request{
					method: http.MethodPost, path: "/v1/deductions", key: "cross-" + strconv.Itoa(n),
					body: map[string]any{"order_id": strconv.Itoa(n), "lines": lines},
				})
				if err == nil {
					err = a.must()
				}
				// "Short" may rest on figures up to a second old: those from before the stock came.
				if err != nil && a != nil && a.status == http.StatusConflict && time.Since(stocked) < 5*time.Second {
					continue
				}
				if err != nil {
					t.Errorf("order %d: %v", n, err)
				}
				return
			}
		})
	}
	group.Wait()
	for c := 'A'; c <= 'Z'; c++ {
		if i := first.item(t, string(c)); i.OnHand != 0 || i.Version != orders+1 {
			t.Errorf("%c: %d on hand at version %d, want 0 at %d", c, i.OnHand, i.Version, orders+1)
		}
	}
}

func TestOrderOfAThousandLinesIsOneBatch(t *testing.T) {
	t.Parallel()
	const lines = 1000
	service := newShop(t, "").open(t)
	var stock strings.Builder
	stock.WriteString("sku,on_hand\n")
	order := make([]map[string]any, lines)
	for n := range lines {
		sku := fmt.Sprintf("BOLT-%04d", n)
		fmt.Fprintf(&stock, "%s,%d\n", sku, 2)
		order[n] = map[string]any{"sku": sku, "quantity": 2}
	}
	file := filepath.Join(t.TempDir(), "stock.csv")
	if err := os.WriteFile(file, []byte(stock.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := service.holdfast(t.Context(), "import", file); code != exitFine {
		t.Fatal(errs)
	}
	before := service.metric(t, "holdfast_ledger_batch_requests_count")
	began := time.Now()
	a, err := service.api().send(t.Context(), request{
		method: http.MethodPost, path: "/v1/deductions", key: "big", body: map[string]any{"order_id": "big", "lines": order},
	})
	took := time.Since(began)
	if err == nil {
		err = a.must()
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := service.metric(t, "holdfast_ledger_batch_requests_count") - before; n != 1 {
		t.Errorf("it took %.0f batches", n)
	}
	if t.Logf("%d lines in %v", lines, took); took > 10*time.Second { // with the race detector, and other tests beside it
		t.Errorf("it took %v", took)
	}
	for sku, left := range service.left(t) {
		if left != 0 {
			t.Errorf("%s: %d left", sku, left)
		}
	}
}
