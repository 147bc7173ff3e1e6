package httpapi

import (
	"bufio"
	stdjson "encoding/json" //nolint:depguard // what ours is compared with
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// readers are all that read a body.
var readers = []func(*body){
	func(b *body) { b.deduct(new(newDeduction)) },
	func(b *body) { b.batch() },
	func(b *body) { b.commit(new(stock.CommitRequest)) },
	func(b *body) { b.extend(new(stock.ExtendRequest)) },
	func(b *body) { b.returned(new(stock.ReturnRequest)) },
	func(b *body) { b.orderReturn(new(stock.OrderRequest)) },
	func(b *body) { b.adjust(new(newAdjustment)) },
	func(b *body) { b.settings(new(stock.ConfigureRequest)) },
	func(b *body) { b.openStocktake(new(stock.OpenStocktakeRequest)) },
	func(b *body) { b.completeStocktake(new(stock.CompleteStocktakeRequest)) },
	(*body).nothing,
}

// lenient is a deduction as encoding/json reads it.
type lenient struct {
	OrderID      string         `json:"order_id"`
	Part         string         `json:"part"`
	Hold         int64          `json:"hold_seconds"`
	AllowPartial bool           `json:"allow_partial"`
	Customer     string         `json:"customer"`
	Limit        stock.Quantity `json:"customer_limit"`
	DryRun       bool           `json:"dry_run"`
	Lines        []struct {
		SKU       stock.SKU        `json:"sku"`
		Location  stock.Location   `json:"location"`
		Quantity  stock.Quantity   `json:"quantity"`
		LineID    string           `json:"line_id"`
		Sourcing  string           `json:"sourcing"`
		Locations []stock.Location `json:"locations"`
		Split     bool             `json:"split"`
	} `json:"lines"`
}

// deduction is what l asks for.
func (l *lenient) deduction() newDeduction {
	d := newDeduction{dryRun: l.DryRun}
	d.OrderID, d.Part, d.Hold = l.OrderID, l.Part, time.Duration(l.Hold)*time.Second
	d.AllowPartial, d.Customer, d.CustomerLimit = l.AllowPartial, l.Customer, l.Limit
	for _, line := range l.Lines {
		wanted := stock.WantedLine{Item: stock.Item{SKU: line.SKU, Location: line.Location}, Quantity: line.Quantity, LineID: line.LineID}
		switch {
		case line.Sourcing != "":
			wanted.Sourcing = &stock.Sourcing{Locations: line.Locations, Split: line.Split}
		case line.Location == "":
			wanted.Item.Location = stock.DefaultLocation
		}
		d.Lines = append(d.Lines, wanted)
	}
	return d
}

// Whatever comes, it is read or refused with a place that is wrong, twice in the same way; and a deduction that is taken is the very one that
// another reader finds in it, which lets much more pass.
func FuzzBody(f *testing.F) {
	for n := range readers {
		for _, text := range []string{
			`{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}`,
			`{"order_id":"\ud83d\ude00","part":"","hold_seconds":60,"lines":[{"sku":"a/b","location":"york","quantity":1000000000,"line_id":"l"}],"dry_run":true}`,
			`{"order_id":"1","customer":"ann","customer_limit":2,"allow_partial":true,"lines":[{"sku":"a","quantity":1,"sourcing":"any","locations":["x","y"],"split":true}]}`,
			`{"deductions":[{"idempotency_key":"k","deduction":{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}}]}`,
			`{"lines":[{"line":1,"quantity":2},{"line_id":"a","quantity":1}],"keep_rest":true}`,
			`{"kind":"count","set_to":9007199254740991,"expected_on_hand":0,"reason":"r","reference":"x"}`,
			`{"order_id":"1","order_id":"2"}`, `{"Order_ID":"1"}`, `{"order_id":1e3}`, `[[[[[[[[[[`, "{\"order_id\":\"\xff\"}", `{} {}`, `nul`, ``,
		} {
			f.Add(uint8(n), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, text []byte) {
		read := readers[int(n)%len(readers)]
		b := new(body)
		parse := func(read func(*body)) error {
			b.reset()
			b.buf.Write(text)
			return b.parse(read)
		}
		err := parse(read)
		if again := parse(read); err == nil != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("read once: %v; read again: %v", err, again)
		}
		if !errors.Is(err, errMalformed) && !errors.Is(err, stock.ErrInvalidField) && err != nil {
			t.Fatalf("not a refusal: %v", err)
		}
		var got newDeduction
		if parse(func(b *body) { b.deduct(&got) }) != nil {
			return
		}
		var wide lenient
		if err := stdjson.Unmarshal(text, &wide); err != nil {
			t.Fatalf("taken, but %v", err)
		}
		if diff := cmp.Diff(wide.deduction(), got, cmp.AllowUnexported(newDeduction{})); diff != "" {
			t.Fatalf("read in two ways (-encoding/json +ours):\n%s", diff)
		}
	})
}

// teller answers which SKU it was asked for.
type teller struct {
	openapi.Unimplemented
	sku string
}

func (o *teller) GetItem(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, _ openapi.GetItemParams) {
	o.sku = sku
	callOf(w).answer(http.StatusOK, contentJSON, nil)
}

// Every name of an item is reached by its path, escaped in either way; and whatever the path is, the item is what its only segment says.
func FuzzSKUPath(f *testing.F) {
	const token = "token"
	path := filepath.Join(f.TempDir(), "tokens.json")
	if err := os.WriteFile(path, []byte(`[{"name":"shop","sha256":"`+HashToken(token)+`","scopes":["admin"]}]`), 0o600); err != nil {
		f.Fatal(err)
	}
	clients, err := OpenClients(path)
	if err != nil {
		f.Fatal(err)
	}
	a, told := New(nil, Config{Clients: clients}), new(teller)
	a.mount(newMetrics(prometheus.NewRegistry(), &a.inFlight, a.problems), told)
	// ask for a path and return the SKU that arrived, and the status; 0 when it is not HTTP.
	ask := func(path string) (string, int) {
		text := "GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return "", 0
		}
		told.sku = ""
		answer := httptest.NewRecorder()
		a.ServeHTTP(answer, r)
		return told.sku, answer.Code
	}
	for _, sku := range []string{"CLE-056621/6", "%2F", "a b", "..", "ä", "{x}", "🛒", "a?b", "a#b", "a;b", "movements", "", "\x00", "\xff", "x/movements", "kettle?location=york"} {
		f.Add(sku)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if stock.CheckName(text) == nil {
			var all strings.Builder
			for i := range len(text) {
				all.WriteString("%" + "0123456789abcdef"[text[i]>>4:][:1] + "0123456789ABCDEF"[text[i]&15:][:1])
			}
			for _, escaped := range []string{url.PathEscape(text), all.String()} {
				if sku, status := ask("/v1/stock/" + escaped); sku != text || status != http.StatusOK {
					t.Fatalf("%s: %d with %q, want %q", escaped, status, sku, text)
				}
			}
		}
		sku, status := ask("/v1/stock/" + text)
		if status == http.StatusInternalServerError {
			t.Fatalf("%q: %d", text, status)
		}
		if sku == "" {
			return
		}
		segment, _, _ := strings.Cut(text, "?")
		segment, _, _ = strings.Cut(segment, " ") // the request line ends the path there
		if want, err := url.PathUnescape(segment); err != nil || want != sku || strings.Contains(segment, "/") {
			t.Fatalf("%q reached %q, want %q, %v", text, sku, want, err)
		}
	})
}
