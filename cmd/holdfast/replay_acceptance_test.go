package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// monthFile is a real month of orders. It belongs to others and is not part of this repository.
const monthFile = "../../../shared/data/online-retail-2010-12.csv"

// month returns the month's file, or a file of its first invoices.
func month(t *testing.T, invoices int) string {
	t.Helper()
	text, err := os.ReadFile(monthFile)
	if os.IsNotExist(err) {
		t.Skipf("%s is not there: see the README for where to get it", monthFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	if invoices == 0 {
		return monthFile
	}
	end, last := 0, ""
	for line := range strings.Lines(string(text)) {
		if invoice, _, _ := strings.Cut(line, ","); invoice != last {
			if last = invoice; invoices < 0 {
				break
			}
			invoices--
		}
		end += len(line)
	}
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, text[:end], 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ample is more of each code than any test sells.
const ample = 100_000

// sold reads a log by itself and returns what must be left of each code of ample stock when every sale is accepted.
func sold(t *testing.T, file string) map[string]int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[string]int64)
	for _, r := range records[1:] {
		quantity, err := strconv.ParseInt(r[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := left[r[1]]; !ok {
			left[r[1]] = ample
		}
		if cancels := r[0][0] == 'C'; cancels == (quantity < 0) {
			left[r[1]] -= quantity
		}
	}
	return left
}

// left exports the stock and returns what is on hand.
func (i *instance) left(t *testing.T) map[string]int64 {
	t.Helper()
	out, errs, code := i.holdfast(t.Context(), "export")
	if code != exitFine {
		t.Fatal(errs)
	}
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[string]int64)
	for _, r := range records[1:] {
		if left[r[0]], err = strconv.ParseInt(r[2], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return left
}

// replay sends a log from this process, where the race detector sees it, and returns the report; want is the exit code.
func (i *instance) replay(t *testing.T, want int, args ...string) *replayReport {
	t.Helper()
	return replayBy(t, i.holdfast, want, args)
}

// replayApart sends a log as users do, from a process of its own. Under the race detector sending a month costs more than all the service does.
func (i *instance) replayApart(t *testing.T, want int, args ...string) *replayReport {
	t.Helper()
	return replayBy(t, func(ctx context.Context, args ...string) (stdout, stderr string, code int) {
		return runBuilt(ctx, t, nil, append(args, i.flags()...)...)
	}, want, args)
}

type holdfast func(ctx context.Context, args ...string) (stdout, stderr string, code int)

func replayBy(t *testing.T, run holdfast, want int, args []string) *replayReport {
	t.Helper()
	began := time.Now()
	out, errs, code := run(t.Context(), append([]string{"replay", "--json"}, args...)...)
	var report replayReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	if code != want {
		t.Fatalf("exit code %d, want %d: %s%s", code, want, out, errs)
	}
	t.Logf("%s in %v: %d accepted (%d before), %d refused; %.0f deductions/s, p50 %.1f ms, p99 %.1f ms; sent again: %s", filepath.Base(args[0]),
		time.Since(began).Round(time.Millisecond), report.Orders.Accepted, report.Orders.Replayed, report.Orders.Refused,
		report.Speed.Deductions, report.Speed.P50, report.Speed.P99, kinds(report.Requests.Retries))
	return &report
}

func (i *instance) wantLeft(t *testing.T, file string) {
	t.Helper()
	if diff := cmp.Diff(sold(t, file), i.left(t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

func TestMonthWithAmpleStockTwice(t *testing.T) {
	t.Parallel()
	file := month(t, 0)
	service := newShop(t, "").open(t)
	r := service.replayApart(t, exitFine, file, fmt.Sprint("--stock=", ample))
	if r.Log.Invoices != 2025 || r.Log.Codes != 2822 || r.Orders.Accepted != 1629 || r.Orders.Replayed != 0 {
		t.Errorf("%+v %+v: want 2,025 invoices, 2,822 codes, 1,629 accepted now", r.Log, r.Orders)
	}
	if len(r.Log.Skipped) != 1 || r.Log.Skipped[0].Lines != 70 {
		t.Errorf("left out: %+v, want the 70 corrections of stock", r.Log.Skipped)
	}
	service.wantLeft(t, file)
	r = service.replayApart(t, exitFine, file, fmt.Sprint("--stock=", ample), "--expect-replays")
	if r.Orders.Accepted != 1629 || r.Orders.Replayed != 1629 || r.Returns.Replayed != r.Returns.Returned+r.Returns.Received {
		t.Errorf("second time: %+v %+v: want nothing but replays", r.Orders, r.Returns)
	}
	service.wantLeft(t, file)
}

func TestMonthInOrder(t *testing.T) {
	t.Parallel()
	file := month(t, 200)
	service := newShop(t, "").open(t)
	r := service.replayApart(t, exitFine, file, fmt.Sprint("--stock=", ample), "--workers=1")
	if r.Log.Invoices != 200 || r.Orders.Refused != 0 {
		t.Errorf("%+v %+v: want 200 invoices, none refused", r.Log, r.Orders)
	}
	service.wantLeft(t, file)
}

func TestMonthWithStockForSixOfTen(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	r := service.replayApart(t, exitFine, month(t, 0), "--stock-factor=0.6")
	if o := r.Orders; o.Accepted+o.Refused != 1629 || o.Refused < 300 || o.ShortLines < o.Refused {
		t.Errorf("%+v: want 1,629 answers, some hundred of them refusals", o)
	}
}

func TestMonthWithTheServiceKilled(t *testing.T) {
	t.Parallel()
	file := month(t, 400)
	service := newShop(t, "").open(t)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		service.awaitOrder(t, invoiceNear(t, file, 0.5))
		service.kill()
	}()
	r := service.replayApart(t, exitNo, file, fmt.Sprint("--stock=", ample), "--patience=100ms")
	<-killed
	if r.Orders.Accepted == 0 || r.Orders.Unsent == 0 || len(r.Checks) > 0 || r.OK {
		t.Errorf("%+v: want it to stop on the way, without checks", r.Orders)
	}
	service.start(t)
	r = service.replayApart(t, exitFine, file)
	if r.Orders.Replayed == 0 || r.Orders.Replayed == r.Orders.Accepted {
		t.Errorf("%+v: want some done before and some now", r.Orders)
	}
	service.wantLeft(t, file)
}

func TestMonthGoesOnAfterTheServiceWasKilled(t *testing.T) {
	t.Parallel()
	file := month(t, 300)
	service := newShop(t, "").open(t)
	started := make(chan struct{})
	go func() {
		defer close(started)
		for _, part := range []float64{0.3, 0.7} {
			service.awaitOrder(t, invoiceNear(t, file, part))
			service.kill()
			service.start(t)
		}
	}()
	r := service.replayApart(t, exitFine, file, fmt.Sprint("--stock=", ample))
	<-started
	if len(r.Requests.Retries) == 0 {
		t.Error("nothing had to be sent again")
	}
	service.wantLeft(t, file)
}

// dirty is a log like life makes them, for machines without the month's file.
func dirty(t *testing.T) string {
	t.Helper()
	codes := []string{"CLE-056621/6", "%2F", "a b", "..", "ä", "{x}", "{}", "🫖", "BANK CHARGES", "M", "m", "01234", "1234"}
	random := rand.New(rand.NewPCG(1, 2))
	var log strings.Builder
	log.WriteString("invoice,stock_code,quantity,at\n")
	for n := range 150 {
		invoice, sign := strconv.Itoa(n), 1
		if n%9 == 8 {
			invoice, sign = "C"+invoice, -1
		}
		for range 1 + random.IntN(10) {
			quantity := sign * (1 + random.IntN(5))
			switch random.IntN(30) {
			case 0:
				quantity = 0
			case 1:
				quantity = -quantity
			}
			fmt.Fprintf(&log, "%s,%s,%d,\n", invoice, codes[random.IntN(len(codes))], quantity)
		}
	}
	file := filepath.Join(t.TempDir(), "dirty.csv")
	if err := os.WriteFile(file, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReplayOfADirtyLog(t *testing.T) {
	t.Parallel()
	file := dirty(t)
	service := newShop(t, "").open(t)
	r := service.replay(t, exitFine, file, fmt.Sprint("--stock=", ample), "--rate=2000/s")
	if r.Orders.Refused > 0 || r.Returns.Returned == 0 || len(r.Log.Skipped) != 3 {
		t.Errorf("%+v", r)
	}
	service.wantLeft(t, file)
	service.replay(t, exitFine, file, "--expect-replays", "--workers=1")
	service.wantLeft(t, file)

	scarce := newShop(t, "").open(t)
	first := scarce.replay(t, exitFine, file, "--stock-factor=0.6")
	if first.Orders.Refused == 0 || first.Orders.Accepted == 0 || first.Returns.Received == 0 {
		t.Errorf("%+v %+v: want some of each", first.Orders, first.Returns)
	}
	again := scarce.replay(t, exitFine, file)
	if again.Orders.Replayed != first.Orders.Accepted || again.Returns.Replayed != first.Returns.Returned+first.Returns.Received {
		t.Errorf("%+v %+v: want all that was done before to be found so", again.Orders, again.Returns)
	}
}

func TestReplayFindsWhatAnotherOneDoes(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	target, err := url.Parse("http://" + service.addr)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	proxy := httputil.NewSingleHostReverseProxy(target)
	meddler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/deductions" {
			once.Do(func() { service.receive(t, "M", "behind their back", 1) })
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(meddler.Close)
	direct := service.addr
	service.addr = meddler.Listener.Addr().String()
	r := service.replay(t, exitNo, dirty(t), fmt.Sprint("--stock=", ample))
	service.addr = direct
	violated := make(map[string]int)
	for _, c := range r.Checks {
		if c.Violations > 0 {
			violated[c.Name] = c.Violations
		}
	}
	want := map[string]int{
		"an invoice is in the ledger once and whole, or not at all": 1, "final stock = initial − accepted + returned": 1,
	}
	if diff := cmp.Diff(want, violated); diff != "" {
		t.Errorf("violated (-want +got):\n%s", diff)
	}
}

func TestReplayWithoutStockOrTwiceWithOther(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	file := dirty(t)
	r := service.replay(t, exitNo, file)
	if r.Orders.Failed["unknown-item"] != r.Log.Sales || r.OK {
		t.Errorf("%+v: want every order to fail, as no item is known", r.Orders)
	}
	service.replay(t, exitFine, file, "--stock=1000")
	_, errs, code := service.holdfast(t.Context(), "replay", file, "--stock=999")
	if code != exitNo || !strings.Contains(errs, "gave it other stock") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestReplayRefusesWrongUse(t *testing.T) {
	t.Parallel()
	file := dirty(t)
	nobody := instance{addr: "127.0.0.1:1"}
	for _, args := range [][]string{
		{file, "--workers=0"}, {file, "--workers=1025"}, {file, "--rate=0"}, {file, "--rate=x/s"}, {file, "--stock=-1"}, {file, "--stock-factor=-1"},
		{file, "--stock=1", "--stock-factor=1"}, {file + "x"}, {}, {file, "--patience=x"},
	} {
		if _, errs, code := nobody.holdfast(t.Context(), append([]string{"replay"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
	if _, errs, code := nobody.holdfast(t.Context(), "replay", file, "--patience=10ms"); code != exitNo || !strings.Contains(errs, "gave up") {
		t.Errorf("nobody there: exit code %d: %s", code, errs)
	}
}

// invoiceNear is the first sale of a log at or after a part of it.
func invoiceNear(t *testing.T, file string, part float64) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[int(part*float64(len(lines))):] {
		if fields := strings.Split(line, ","); len(fields) == 4 && fields[0][0] != 'C' && fields[2][0] != '-' {
			return fields[0]
		}
	}
	t.Fatal("no sale")
	return ""
}

// awaitOrder waits until an order has its deduction. It may be called beside the test.
func (i *instance) awaitOrder(t *testing.T, invoice string) {
	api := i.api()
	for deadline := time.Now().Add(serviceLimit); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		a, err := api.send(t.Context(), request{method: "GET", path: "/v1/deductions?order_id=" + invoice})
		if err == nil && bytes.Contains(a.body, []byte(`"committed"`)) {
			return
		}
	}
	t.Errorf("invoice %s does not come", invoice)
}
