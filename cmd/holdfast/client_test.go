package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/client"
	"github.com/holdfast-stock/holdfast/internal/fault"
)

func (i *instance) client(options ...client.Option) *client.Client {
	return client.New("http://"+i.addr, shopToken, append(options, client.WithPatience(serviceLimit))...)
}

// The client's example is an order service. Holdfast is killed under it, twice; the example itself once. In the end every order has one
// result, and the ledger agrees with all of them.
func TestOrderServiceSurvivesKills(t *testing.T) {
	t.Parallel()
	const units, orders = 90, 120
	i := newShop(t, "").open(t)
	i.stockUp(t, "mug", units)
	dir := t.TempDir()
	binary := filepath.Join(dir, "example")
	build := exec.Command("go", "build", "-o", binary, "../../client/example")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	results := make(map[string]string) // of orders
	// sell has the example take orders until so many have a result, and calls kill.
	sell := func(list string, enough int, kill func(example *exec.Cmd)) {
		t.Helper()
		example := exec.CommandContext(t.Context(), binary)
		example.Dir, example.Stdin, example.Stderr = dir, strings.NewReader(list), os.Stderr
		example.Env = append(os.Environ(), "HOLDFAST_URL=http://"+i.addr, "HOLDFAST_TOKEN="+shopToken)
		out, err := example.StdoutPipe()
		if err == nil {
			err = example.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			result, id, _ := strings.Cut(lines.Text(), " ")
			if was := results[id]; was != "" && was != result {
				t.Errorf("order %s is %s and %s", id, was, result)
			}
			results[id] = result
			if n++; n == enough {
				kill(example)
			}
		}
		_ = example.Wait() // it may have been killed; its results tell
	}
	var list strings.Builder
	for n := range orders {
		fmt.Fprintf(&list, "%d mug 1\n", n)
	}
	killService := func(*exec.Cmd) { i.kill(); i.start(t) }
	sell(list.String(), 30, killService)
	sell("", 1, killService) // what has no result yet, if anything
	journal := filepath.Join(dir, "orders.journal")
	if err := os.Rename(journal, journal+".first"); err != nil {
		t.Fatal(err)
	}
	sell(list.String(), 30, func(example *exec.Cmd) { _ = example.Process.Kill() }) // an order service that lost its journal, and dies
	sell("", 0, nil)                                                                // starts again
	sell(list.String(), 0, nil)                                                     // and gets all its orders once more

	sold := 0
	for _, result := range results {
		if result == "sold" {
			sold++
		}
	}
	if len(results) != orders || sold != units {
		t.Errorf("%d orders have a result, %d are sold; want %d and %d", len(results), sold, orders, units)
	}
	if left := i.item(t, "mug"); left.OnHand != 0 || left.Version != units+1 {
		t.Errorf("%d left at version %d, after %d deductions of 1", left.OnHand, left.Version, units)
	}
	for id, result := range results {
		done, err := i.client().Operation(t.Context(), client.OrderKey(id, ""))
		if err != nil || (done.Kind == "void") != (result == "short") {
			t.Fatalf("order %s is %s, but the ledger has %v, %v", id, result, done, err)
		}
	}
}

// An answer that is lost is asked for again under the same key.
func TestClientFindsOutWhatALostAnswerSaid(t *testing.T) {
	t.Parallel()
	i := newShop(t, "").open(t)
	i.stockUp(t, "mug", 3)
	proxy, err := fault.NewProxy(i.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	shop := client.New("http://"+proxy.Addr(), shopToken, client.WithPatience(serviceLimit))
	two := &client.NewDeduction{OrderId: "1", Lines: []client.NewLine{{Sku: "mug", Quantity: 2}}}
	lost := proxy.OnRequest(func([]byte) bool { return true }, fault.LoseReply)
	done, err := shop.Deduct(t.Context(), "k", two)
	if err != nil || !done.Replayed || done.State != "committed" {
		t.Fatalf("%+v, %v", done, err)
	}
	select {
	case <-lost:
	default:
		t.Error("no reply was lost: the test shows nothing")
	}
	var short *client.Error
	more := &client.NewDeduction{OrderId: "2", Lines: two.Lines}
	if _, err = shop.Deduct(t.Context(), "k2", more); !errors.As(err, &short) || !errors.Is(err, client.ErrInsufficientStock) ||
		len(short.ShortLines()) != 1 || short.ShortLines()[0].Available != 1 {
		t.Errorf("%v", err)
	}
	if _, err = shop.Deduct(t.Context(), "k", more); !errors.Is(err, client.ErrKeyReused) {
		t.Errorf("%v", err)
	}
	if back, err := shop.Return(t.Context(), "back", done.Id, client.Return{}); err != nil || back.State != "returned" {
		t.Errorf("%+v, %v", back, err)
	}
	if mug, err := shop.Item(t.Context(), "mug", "default"); err != nil || mug.Available != 3 {
		t.Errorf("%+v, %v", mug, err)
	}
	hold := int32(60)
	held, err := shop.Deduct(t.Context(), "k3", &client.NewDeduction{OrderId: "3", HoldSeconds: &hold, Lines: two.Lines})
	if err == nil {
		held, err = shop.Commit(t.Context(), "", held.Id, nil)
	}
	if err != nil || held.State != "committed" {
		t.Errorf("%+v, %v", held, err)
	}
	if given, err := shop.Void(t.Context(), "never"); err != nil || given.Kind != "void" {
		t.Errorf("%+v, %v", given, err)
	}
	if _, err = shop.Deduct(t.Context(), "never", more); !errors.Is(err, client.ErrKeyVoided) {
		t.Errorf("%v", err)
	}

	i.kill() // nobody answers now
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var unknown *client.UnknownError
	if _, err = shop.Deduct(ctx, "k4", more); !errors.As(err, &unknown) || unknown.Key != "k4" ||
		!errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
