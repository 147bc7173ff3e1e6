package httpapi_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// Each is an item of its own, which path and body reach alike.
func TestEverySKUIsReachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	skus := []string{
		"CLE-056621/6", "%2F", "/", "a b", "a+b", "..", ".", "../..", "ä", "{x}", "{}", "{sku}", "😀", "BANK CHARGES", "M", "m", "01234", "1234",
		"%", "%25", "%252F", "a%20b", "a?b", "a#b", "a;b", "a,b", "a&b=c", `"`, `\`, `'`, "*", "~", ":", "@", "//", "x/", "movements", "x/movements",
		"<script>", "null", "0", "\u0301", strings.Repeat("é", 64), strings.Repeat("/", 128),
	}
	// Unlike the other escapers, this one leaves nothing to the HTTP client's own reading of the path.
	path := func(sku string) string {
		var b strings.Builder
		for i := range len(sku) {
			fmt.Fprintf(&b, "%%%02X", sku[i])
		}
		return "/v1/stock/" + b.String()
	}
	for i, sku := range skus {
		made := w.call(t, shop, "PUT", path(sku), `{"label":`+strconv.Quote(strconv.Itoa(i))+`}`, "If-None-Match", "*").want(t, 201)
		if got := decode[openapi.Item](t, made).Sku; got != sku {
			t.Errorf("made %q, want %q", got, sku)
		}
	}
	for i, sku := range skus {
		n := strconv.Itoa(i + 1)
		w.call(t, shop, "POST", path(sku)+"/adjustments", `{"kind":"receive","delta":`+n+`}`, key("receive "[:7]+n)...).want(t, 201)
	}
	for i, sku := range skus {
		for _, p := range []string{path(sku), "/v1/stock/" + url.PathEscape(sku)} {
			item := decode[openapi.ItemLocations](t, w.call(t, reader, "GET", p, "").want(t, 200))
			if item.Sku != sku || item.Totals.OnHand != int64(i+1) || item.Locations[0].Label != strconv.Itoa(i) {
				t.Errorf("%s is %+v, want %q with %d on hand", p, item, sku, i+1)
			}
		}
		body := `{"order_id":` + quote(sku) + `,"lines":[{"sku":` + quote(sku) + `,"quantity":1}]}`
		d := decode[openapi.Deduction](t, w.call(t, shop, "POST", "/v1/deductions", body, key("take"+strconv.Itoa(i))...).want(t, 201))
		if d.Lines[0].Sku != sku || (*d.Items)[0].OnHand != int64(i) {
			t.Errorf("took %+v of %q", d, sku)
		}
		w.call(t, reader, "GET", path(sku)+"/movements", "").want(t, 200)
	}
	// What the path says goes for the location as well.
	for _, location := range []string{"../x", "a b", "%2F", "ä&b=c+d"} {
		w.call(t, shop, "PUT", "/v1/stock/M?location="+url.QueryEscape(location), `{}`).want(t, 201)
		item := decode[openapi.Item](t, w.call(t, reader, "GET", "/v1/stock/M?location="+url.QueryEscape(location), "").want(t, 200))
		if item.Location != location {
			t.Errorf("location %q, want %q", item.Location, location)
		}
	}
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(s) + `"`
}

// Paths are taken as they are: nothing is cleaned, redirected or guessed.
func TestPathsAreNotCleaned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/stock/", "//v1/stock", "/v1//stock", "/v1/stock//", "/v1/stock/kettle/", "/v1/./stock", "/v1/stock/../deductions/x/y",
		"/v1/stock/a/b", "/V1/stock", "/v1/stock/kettle/Movements", "/v1/stock/kettle%2Fmovements/x", "/v1/deductions/", "/docs/", "/docs/../openapi.yaml", "/docs/nothing", "/docs/%2e%2e",
	} {
		w.call(t, shop, "GET", path, "").problem(t, 404, "not-found")
	}
	a := w.call(t, shop, "GET", "/v1/stock/%2e%2e", "")
	a.problem(t, 404, "not-found") // an item named ".." that does not exist
	w.call(t, shop, "DELETE", "/v1/nothing", "").problem(t, 404, "not-found")
	w.call(t, shop, "BREW", "/v1/nothing", "").problem(t, 404, "not-found")
	for _, test := range []struct{ method, path, allow string }{
		{"DELETE", "/v1/stock/kettle", "GET, PUT"},
		{"HEAD", "/v1/stock", "GET"},
		{"OPTIONS", "/v1/deductions", "GET, POST"},
		{"GET", "/v1/stock/a%2Fb/adjustments", "POST"},
		{"PATCH", "/v1/deductions/x/commit", "POST"},
		{"BREW", "/v1/stock/kettle", "GET, PUT"},
		{"POST", "/openapi.yaml", "GET"},
	} {
		a := w.call(t, shop, test.method, test.path, "")
		if test.method == "HEAD" {
			a.want(t, 405)
		} else {
			a.problem(t, 405, "method-not-allowed")
		}
		if got := a.header.Get("Allow"); got != test.allow {
			t.Errorf("%s %s: Allow %q, want %q", test.method, test.path, got, test.allow)
		}
	}
}
