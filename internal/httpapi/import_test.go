package httpapi_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	ndjson = "application/x-ndjson"
	asCSV  = "text/csv"
)

// bring sends rows and returns what came of each in a few words, and the summary.
func (w *world) bring(t testing.TB, token, kind, query, rows, importKey string) ([]string, openapi.ImportEnd) {
	t.Helper()
	a := w.call(t, token, "POST", "/v1/stock/import"+query, rows, "Content-Type", "", "Content-Type", kind, "Idempotency-Key", importKey)
	a.want(t, 200)
	return imported(t, a.body)
}

func imported(t testing.TB, body []byte) (results []string, end openapi.ImportEnd) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	for _, line := range lines[:len(lines)-1] {
		var r openapi.ImportResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		words := fmt.Sprint(r.Line, " ", r.Result)
		if r.Created != nil {
			words += " created"
		}
		if r.Item != nil {
			words += fmt.Sprint(" ", r.Item.Sku, " ", r.Item.OnHand)
		}
		if r.Problem != nil {
			words += " " + strings.TrimPrefix(r.Problem.Type, "urn:holdfast:problem:")
			for _, p := range pointers(*r.Problem) {
				words += " " + p
			}
		}
		results = append(results, words)
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("no summary: %v: %s", err, lines[len(lines)-1])
	}
	return results, end
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestImportAnswersEachRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "old", 5)
	w.stockUpAt(t, "old", "york", 5)
	const rows = `{"sku":"new","create":true,"on_hand":7,"low_stock_at":3,"label":"New"}

{"sku":"old","delta":3}
{"sku":"old","on_hand":9,"expected_on_hand":8}
{"sku":"old","on_hand":9,"expected_on_hand":8}
{"sku":"none","on_hand":1}
{"sku":"none"}
{"sku":"old"}
{"sku":"old","safety_stock":1}
{"sku":"old","delta":-50}
{"sku":"old","delta":1,"on_hand":1}
{"sku":"old","delta":0}
{"sku":"old","delta":1.5}
{"sku":"old","colour":"red"}
{"sku":"old","sku":"old"}
{"sku":"old",
{"sku":" old","delta":1}
{"delta":1}
{"sku":"old","expected_on_hand":1}
{"sku":"old","key":"\"k\"","delta":1}
{"sku":"old","on_hand":9007199254740992}
{"sku":"old","key":"own","delta":1,"held":1,"available":null,"version":"x"}
{"sku":"old","location":"york","delta":1}`
	want := []string{
		"1 applied created new 7", "3 applied old 8", "4 applied old 9", "5 refused old 10 precondition-failed",
		"6 refused unknown-item", "7 refused unknown-item", "8 unchanged old 10", "9 applied old 10",
		"10 refused old 10 insufficient-stock", "11 refused invalid-field /delta", "12 refused invalid-field /delta",
		"13 refused invalid-field /delta", "14 refused invalid-field /colour", "15 refused malformed-request /sku",
		"16 refused malformed-request ", "17 refused invalid-field /sku", "18 refused invalid-field /sku",
		"19 refused invalid-field /expected_on_hand", "20 refused invalid-field /key", "21 refused invalid-field /on_hand",
		"22 applied old 10", "23 applied old 6",
	}
	got, end := w.bring(t, shop, ndjson, "", rows, "note-1")
	// A row that moves nothing shows the figures as they are once its batch is done.
	same(t, "first", got, want)
	same(t, "summary", fmt.Sprint(end.Summary.Rows, end.Summary.Created, end.Summary.Applied, end.Summary.Unchanged, end.Summary.Refused), "22 1 6 1 15")

	got, _ = w.bring(t, shop, ndjson, "?results=refused", rows, "note-1")
	for _, r := range got {
		if !strings.Contains(r, "refused") {
			t.Errorf("only what was refused was asked for: %s", r)
		}
	}
	again, end := w.bring(t, shop, ndjson, "", rows, "note-1")
	same(t, "again", again[:4], []string{"1 replayed new 7", "3 replayed old 10", "4 replayed old 10", "5 refused old 10 precondition-failed"})
	same(t, "summary", fmt.Sprint(end.Summary.Applied, end.Summary.Replayed), "0 5")
	got, _ = w.bring(t, shop, ndjson, "", `{"sku":"old","delta":4}`, "own")
	same(t, "another import", got, []string{"1 applied old 14"})
	got, _ = w.bring(t, shop, ndjson, "", `{"sku":"old","key":"own","delta":4}`, "third")
	same(t, "a row's key for something else", got, []string{"1 refused old 14 idempotency-key-reused"})
	got, _ = w.bring(t, york, ndjson, "?create=true", `{"sku":"old","delta":4}
{"sku":"old","location":"york","delta":4}`, "york")
	same(t, "a token for york", got, []string{"1 refused forbidden", "2 applied old 10"})
}

func TestImportReadsCSV(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got, _ := w.bring(t, shop, asCSV+"; charset=UTF-8", "?create=true", "\ufeffsku,on_hand,create,low_stock_at,label,version\r\n"+
		"MUG,10,,5,\"Mug, \"\"white\"\"\",3\r\n\"a\nb\",1,,,,\r\n🫖,2,,,,\r\nnone,2,false,,,\r\nMUG,x,,y,,\r\nMUG,1\r\nMUG,1\"1,,,,\r\nlast,3,true,,,", "k")
	same(t, "rows", got, []string{
		"2 applied created MUG 10", "3 refused invalid-field /sku", "5 applied created 🫖 2", "6 refused unknown-item",
		"7 refused invalid-field /on_hand /low_stock_at", "8 refused malformed-request ", "9 refused malformed-request ", "10 applied created last 3",
	})
	got, _ = w.bring(t, shop, asCSV, "", "sku,on_hand,expected_on_hand\nMUG,12,\nMUG,12,10\nMUG,13,12\n", "l")
	same(t, "counts", got, []string{"2 refused MUG 13 precondition-failed", "3 applied MUG 12", "4 applied MUG 13"})
	got, _ = w.bring(t, shop, asCSV, "?overwrite=true", "sku,on_hand,expected_on_hand\nMUG,4,\nMUG,5,9\n", "m")
	same(t, "overwritten", got, []string{"2 applied MUG 4", "3 refused MUG 4 precondition-failed"})
}

func TestImportRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	send := func(body string, headers ...string) answer {
		t.Helper()
		return w.call(t, shop, "POST", "/v1/stock/import", body, append([]string{"Content-Type", ""}, headers...)...)
	}
	send("x", "Content-Type", ndjson).problem(t, 400, "idempotency-key-missing")
	send("x", "Content-Type", ndjson, "Idempotency-Key", strings.Repeat("k", 241)).problem(t, 422, "invalid-field")
	for _, kind := range []string{"", "application/json", "text/csv; charset=latin1", "text/html"} {
		send("x", "Content-Type", kind, "Idempotency-Key", "k").problem(t, 415, "unsupported-media-type")
	}
	send("x", "Content-Type", ndjson, "Content-Encoding", "gzip", "Idempotency-Key", "k").problem(t, 415, "unsupported-media-type")
	for _, header := range []string{"", "sku,colour\n", "on_hand\n", "sku,\"\n"} {
		send(header, "Content-Type", asCSV, "Idempotency-Key", "k").problem(t, 400, "malformed-request")
	}
	w.call(t, shop, "POST", "/v1/stock/import?results=none", "", "Content-Type", ndjson, "Idempotency-Key", "k").problem(t, 422, "invalid-field")
	w.call(t, reader, "POST", "/v1/stock/import", "", "Content-Type", ndjson, "Idempotency-Key", "k").problem(t, 403, "forbidden")

	for kind, rows := range map[string]string{
		ndjson: `{"sku":"A","create":true}` + "\n" + `{"sku":"` + strings.Repeat("x", 70000) + `"}`,
		asCSV:  "sku,create\nA,true\nB,\"" + strings.Repeat("x", 300000),
	} {
		got, end := w.bring(t, shop, kind, "", rows, "k")
		if len(got) != 1 || end.Summary.Problem == nil || !strings.HasSuffix(end.Summary.Problem.Type, ":too-large") {
			t.Errorf("a row without end: %q, %+v", got, end)
		}
	}
}

// slowly is a connection to the world that sends what it is told and reads when it is told.
func (w *world) slowly(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// importSlowly is slowly with an import that has begun.
func (w *world) importSlowly(t *testing.T, head string) net.Conn {
	t.Helper()
	conn := w.slowly(t)
	if _, err := fmt.Fprintf(conn, "POST /v1/stock/import?create=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", shop, head); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestImportThatIsCutOffLeavesWholeRows: rows are done as they come, what came of half a row is nothing, and the same
// import again finishes the work.
func TestImportThatIsCutOffLeavesWholeRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = "sku,delta\nA,100\nB,100\nC,1"
	conn := w.importSlowly(t, "Content-Type: text/csv\r\nIdempotency-Key: k\r\nContent-Length: 1000")
	if _, err := io.WriteString(conn, rows); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 2 { // answered while the rest has not come yet
		if !lines.Scan() || !strings.Contains(lines.Text(), `"applied"`) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for ; !strings.Contains(w.log.String(), "/v1/stock/import"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the import does not end")
		}
	}
	w.call(t, shop, "GET", "/v1/stock/C?location=default", "").problem(t, 404, "not-found")
	got, _ := w.bring(t, shop, asCSV, "?create=true", rows+"00\n", "k")
	same(t, "again", got, []string{"2 replayed A 100", "3 replayed B 100", "4 applied created C 100"})
}

// TestImportTakesNoMoreThanIsRead: a client that sends as fast as it can and reads nothing is not read from either, however
// much it has to send, and memory stays what it was.
func TestImportTakesNoMoreThanIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "A", 1)
	const row = `{"sku":"A","colour":"red"}` + "\n" // is refused, with a long answer
	const size = 100 << 20
	conn := w.importSlowly(t, fmt.Sprintf("Content-Type: application/x-ndjson\r\nIdempotency-Key: k\r\nContent-Length: %d", size))
	chunk := []byte(strings.Repeat(row, 1000))
	sent, stuck := 0, time.Time{}
	var heap runtime.MemStats
	for sent < size {
		if err := conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Write(chunk)
		sent += n
		if err != nil { // the buffers of both directions are full
			stuck = time.Now()
			break
		}
		runtime.ReadMemStats(&heap)
		if heap.HeapAlloc > 300<<20 {
			t.Fatalf("%d MiB of heap after %d MiB were sent", heap.HeapAlloc>>20, sent>>20)
		}
	}
	if stuck.IsZero() {
		t.Fatalf("all %d MiB were taken although nobody reads", sent>>20)
	}
	t.Logf("stuck after %d KiB, %d MiB of heap", sent>>10, heap.HeapAlloc>>20)
	at, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("reading at last: %v", err)
	}
	_ = conn.Close() // first, or closing the body would read what the import has still to say
	_ = at.Body.Close()
}

// live is how much of the heap is in use, without what nobody refers to any more.
func live() uint64 {
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	return heap.HeapAlloc
}

// TestExportMakesNoMoreThanIsRead: a hundred thousand rows go to a client that reads little by little, and at no time is more of them in memory than a
// few pages. It runs alone, because it looks at the heap.
func TestExportMakesNoMoreThanIsRead(t *testing.T) { //nolint:paralleltest // see above
	const rows, bound = 100_000, 8 << 20
	url := sandbox.Database(t)
	w := newWorldOn(t, ledger.Config{URL: url})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const items = `INSERT INTO items (sku, location, label) SELECT format('item %s', n), 'default', repeat('x', 100) FROM generate_series(1, $1::integer) n`
	if _, err := conn.Exec(t.Context(), items, rows); err != nil {
		t.Fatal(err)
	}
	wire := w.slowly(t)
	if _, err := fmt.Fprintf(wire, "GET /v1/stock/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", reader); err != nil {
		t.Fatal(err)
	}
	before := live()
	resp, err := http.ReadResponse(bufio.NewReader(wire), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	got, most := 0, uint64(0)
	for ; lines.Scan(); got++ {
		if got%5_000 == 0 { // meanwhile the service makes as much as it is let
			most = max(most, live())
		}
	}
	if lines.Err() != nil || got != rows {
		t.Errorf("%d rows, %v", got, lines.Err())
	}
	if most > before+bound {
		t.Errorf("%d KiB of heap, %d before", most>>10, before>>10)
	}
	t.Logf("at most %d KiB of heap more than before", (int64(most)-int64(before))>>10)
}

var manyRows = flag.Int("rows", 10_000, "how many rows are imported and exported in one stream")

// Many rows come in one stream, faster than orders could, and go out in another; however many there are, memory stays what it was.
func TestImportAndExportOfManyRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows := *manyRows
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	pipe, sink := io.Pipe()
	var most atomic.Uint64
	go func() {
		out := bufio.NewWriter(sink)
		for n := range rows {
			if n%5_000 == 4_999 {
				most.Store(max(most.Load(), live()))
			}
			fmt.Fprintf(out, `{"sku":"item %06d","on_hand":%d,"label":"no. %d"}`+"\n", n, n%100+1, n)
		}
		_ = sink.CloseWithError(out.Flush())
	}()
	req, err := http.NewRequestWithContext(ctx, "POST", w.server.URL+"/v1/stock/import?create=true&results=refused", pipe)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+shop)
	req.Header.Set("Content-Type", ndjson)
	req.Header.Set("Idempotency-Key", "many")
	began := time.Now()
	resp, err := w.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, end := imported(t, body)
	if end.Summary.Applied != rows || end.Summary.Created != rows {
		t.Errorf("%s", body)
	}
	t.Logf("%.0f rows/s, at most %d MiB of heap", float64(rows)/time.Since(began).Seconds(), most.Load()>>20)
	if most.Load() > 300<<20 {
		t.Errorf("%d MiB of heap", most.Load()>>20)
	}
	a := w.call(t, reader, "GET", "/v1/stock/export", "", "Accept", "text/csv").want(t, 200)
	records, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
	if err != nil || len(records) != rows+1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	last := rows - 1
	units := fmt.Sprint(last%100 + 1)
	same(t, "the last one", records[rows], []string{fmt.Sprintf("item %06d", last), "default", units, "0", "0", units, "1", "", fmt.Sprint("no. ", last)})
}

func TestExportIsWhatTheTokenMaySee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "A", 5)
	w.stockUp(t, "export", 1)
	w.stockUpAt(t, "A", "york", 6)
	skus := func(a answer) []string {
		t.Helper()
		var all []string
		for line := range strings.Lines(string(a.want(t, 200).body)) {
			var v struct {
				Sku      string `json:"sku"`
				Location string `json:"location"`
			}
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			all = append(all, v.Sku+"@"+v.Location)
		}
		return all
	}
	same(t, "all", skus(w.call(t, reader, "GET", "/v1/stock/export", "")), []string{"A@default", "A@york", "export@default"})
	same(t, "york", skus(w.call(t, york, "GET", "/v1/stock/export?location=york", "")), []string{"A@york"})
	same(t, "e", skus(w.call(t, reader, "GET", "/v1/stock/export?sku_prefix=e", "")), []string{"export@default"})
	w.call(t, york, "GET", "/v1/stock/export", "").problem(t, 403, "forbidden")
	w.call(t, york, "GET", "/v1/stock/export?location=default", "").problem(t, 403, "forbidden")
	one := w.call(t, reader, "GET", "/v1/stock/%65xport?location=default", "").want(t, 200)
	if item := decode[openapi.Item](t, one); item.Sku != "export" {
		t.Errorf("the item called export: %+v", item)
	}
}

// What happened is listed page by page as CloudEvents.
func TestEventsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	low := stock.Quantity(5)
	for _, sku := range []string{"A", "B"} {
		if _, err := w.stock.Configure(t.Context(), &stock.ConfigureRequest{Client: "test", Item: stock.Item{SKU: stock.SKU(sku), Location: "york"}, LowStockAt: &low}); err != nil {
			t.Fatal(err)
		}
	}
	w.bring(t, york, ndjson, "", `{"sku":"A","location":"york","delta":8}
{"sku":"B","location":"york","delta":8}
{"sku":"A","location":"york","delta":-4}
{"sku":"B","location":"york","delta":-4}`, "k")
	var all []openapi.Event
	path := "/v1/events?limit=1&location=york"
	deadline := time.Now().Add(30 * time.Second)
	for len(all) < 2 && time.Now().Before(deadline) {
		list := decode[openapi.EventList](t, w.call(t, york, "GET", path, "").want(t, 200))
		all = append(all, list.Events...)
		if list.NextCursor != nil {
			path = "/v1/events?limit=1&location=york&cursor=" + *list.NextCursor
		}
	}
	if len(all) != 2 || all[0].Subject != "A@york" || all[1].Data.Available != 4 || all[1].Data.LowStockAt != 5 || all[0].Id == all[1].Id {
		t.Errorf("%+v", all)
	}
	list := decode[openapi.EventList](t, w.call(t, york, "GET", path, "").want(t, 200))
	if len(list.Events) != 0 || list.NextCursor == nil || !strings.HasSuffix(path, *list.NextCursor) {
		t.Errorf("behind the last one: %+v", list)
	}
	w.call(t, york, "GET", "/v1/events", "").problem(t, 403, "forbidden")
	w.call(t, shop, "GET", "/v1/events?cursor=x", "").problem(t, 422, "invalid-field")
}
