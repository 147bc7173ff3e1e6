package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

const (
	malformed = "malformed-request"
	invalid   = "invalid-field"
)

const line = `{"sku":"kettle","quantity":1}`

func order(more string) string { return `{"order_id":"1","lines":[` + line + `]` + more + `}` }
func lines(l string) string    { return `{"order_id":"1","lines":[` + l + `]}` }

// letters are so many different names.
func letters(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = string(rune('a' + i))
	}
	return all
}

// wrong is a body that is refused, and where.
type wrong struct {
	body, kind string
	at         []string // nil: somewhere
}

// refuses sends each body as a new deduction. Each is refused with a pointer to the place, and nothing changes.
func refuses(t *testing.T, tests []wrong) {
	t.Helper()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	for i, test := range tests {
		a := w.call(t, shop, "POST", "/v1/deductions", test.body, append(key(fmt.Sprint(i)), "Content-Type", "", "Content-Type", "application/json")...)
		status := 422
		if test.kind == malformed {
			status = 400
		}
		p := a.problem(t, status, test.kind)
		if got := pointers(p); test.at != nil && !slices.Equal(got, test.at) {
			t.Errorf("%.80s\npoints at %q, want %q", test.body, got, test.at)
		}
		if n := len(pointers(p)); n < 1 || n > 100 {
			t.Errorf("%.80s\npoints at %d places", test.body, n)
		}
		if p.Outcome != openapi.None || p.Retry != openapi.Never {
			t.Errorf("%.80s\noutcome %s, retry %s", test.body, p.Outcome, p.Retry)
		}
	}
	if a := w.call(t, reader, "GET", "/v1/stock/kettle?location=default", ""); a.header.Get("ETag") != `"1"` {
		t.Errorf("a refused request changed something: %s", a.body)
	}
}

func TestWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	refuses(t, []wrong{
		{``, malformed, []string{""}},
		{`null`, invalid, []string{""}},
		{`[]`, invalid, []string{""}},
		{`"x"`, invalid, []string{""}},
		{`{`, malformed, []string{""}},
		{`{"order_id"`, malformed, []string{"/order_id"}},
		{`{"order_id":"1"`, malformed, []string{""}},
		{`{"order_id":}`, malformed, []string{"/order_id"}},
		{`{order_id:"1"}`, malformed, []string{""}},
		{`{'order_id':'1'}`, malformed, []string{""}},
		{order(`,`), malformed, []string{""}},
		{"\ufeff" + order(``), malformed, []string{""}},
		{order(``) + `x`, malformed, []string{""}},
		{order(``) + order(``), malformed, []string{""}},
		{order(`,"order_id":"2"`), malformed, []string{"/order_id"}},
		{order(`,"order\u005fid":"2"`), malformed, []string{"/order_id"}},
		{lines(`{"sku":"kettle","quantity":1,"quantity":2}`), malformed, []string{"/lines/0/quantity"}},
		{"{\"order_id\":\"\xff\"}", malformed, []string{"/order_id"}},
		{`{"order_id":"\ud800"}`, malformed, []string{"/order_id"}},
		{`{"order_id":"\x41"}`, malformed, []string{"/order_id"}},
		{`{"order_id":` + strings.Repeat("[", 10) + strings.Repeat("]", 10) + `}`, malformed, []string{"/order_id/0/0/0/0/0/0/0"}},
		{order(`,"x":` + strings.Repeat(`{"a":`, 100_000/5)), malformed, nil},
	})
}

func TestValuesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	refuses(t, []wrong{
		{`{}`, invalid, []string{"/order_id", "/lines"}},
		{order(`,"unknown":1`), invalid, []string{"/unknown"}},
		{order(`,"Part":"x"`), invalid, []string{"/Part"}},
		{order(`,"a/b~":{"deep":[1,2]}`), invalid, []string{"/a~1b~0"}},
		{order(`,"part":null`), invalid, []string{"/part"}},
		{order(`,"part":7`), invalid, []string{"/part"}},
		{order(`,"hold_seconds":null`), invalid, []string{"/hold_seconds"}},
		{order(`,"hold_seconds":0`), invalid, []string{"/hold_seconds"}},
		{order(`,"hold_seconds":86401`), invalid, []string{"/hold_seconds"}},
		{order(`,"hold_seconds":true`), invalid, []string{"/hold_seconds"}},
		{`{"order_id":null,"lines":null}`, invalid, []string{"/order_id", "/lines"}},
		{`{"order_id":"","lines":[]}`, invalid, []string{"/order_id", "/lines"}},
		{`{"order_id":" x","lines":{}}`, invalid, []string{"/order_id", "/lines"}},
		{`{"order_id":"a\u0007","lines":[` + line + `]}`, invalid, []string{"/order_id"}},
		{`{"order_id":"` + strings.Repeat("x", 129) + `","lines":[` + line + `]}`, invalid, []string{"/order_id"}},
		{lines(``), invalid, []string{"/lines"}},
		{lines(`null`), invalid, []string{"/lines/0"}},
		{lines(line + `,7,` + line), invalid, []string{"/lines/1"}},
		{lines(`{}`), invalid, []string{"/lines/0/sku", "/lines/0/quantity"}},
		{lines(`{"sku":"kettle"}`), invalid, []string{"/lines/0/quantity"}},
		{lines(`{"sku":"","quantity":1}`), invalid, []string{"/lines/0/sku"}},
		{lines(`{"sku":"\u0000","quantity":1}`), invalid, []string{"/lines/0/sku"}},
		{lines(`{"sku":"a ","quantity":1}`), invalid, []string{"/lines/0/sku"}},
		{lines(`{"sku":null,"quantity":null}`), invalid, []string{"/lines/0/sku", "/lines/0/quantity"}},
		{lines(`{"sku":"kettle","location":"","quantity":1}`), invalid, []string{"/lines/0/location"}},
		{lines(`{"sku":"kettle","quantity":1,"line_id":""}`), invalid, []string{"/lines/0/line_id"}},
		{lines(`{"sku":"kettle","quantity":1,"sourcing":"all"}`), invalid, []string{"/lines/0/sourcing"}},
		{lines(`{"sku":"kettle","quantity":1,"sourcing":"any","location":"york"}`), invalid, []string{"/lines/0"}},
		{lines(`{"sku":"kettle","quantity":1,"locations":["york"]}`), invalid, []string{"/lines/0"}},
		{lines(`{"sku":"kettle","quantity":1,"split":true}`), invalid, []string{"/lines/0"}},
		{lines(`{"sku":"kettle","quantity":1,"sourcing":"any","locations":[]}`), invalid, []string{"/lines/0/locations"}},
		{lines(`{"sku":"kettle","quantity":1,"sourcing":"any","locations":["a","b","a"]}`), invalid, []string{"/lines/0/locations/2"}},
		{lines(`{"sku":"kettle","quantity":1,"sourcing":"any","locations":["` + strings.Join(letters(17), `","`) + `"]}`), invalid, []string{"/lines/0/locations"}},
		{lines(strings.Repeat(`{"sku":"kettle","quantity":1,"sourcing":"any"},`, 62) + strings.Repeat(line+",", 8) + line), invalid, []string{"/lines"}},
		{order(`,"customer_limit":1`), invalid, []string{"/customer"}},
		{order(`,"customer":"ann","customer_limit":0`), invalid, []string{"/customer_limit"}},
		{order(`,"customer":""`), invalid, []string{"/customer"}},
		{order(`,"allow_partial":1`), invalid, []string{"/allow_partial"}},
		{`{"order_id":"1","customer":"ann","customer_limit":1,"lines":[{"sku":"kettle","quantity":1,"sourcing":"any"}]}`, invalid, []string{"/lines/0/sourcing"}},
		{lines(`{"sku":"kettle","quantity":1,"line_id":"a"},{"sku":"kettle","quantity":1,"line_id":"a"}`), invalid, []string{"/lines/1/line_id"}},
		{lines(strings.Repeat(line+",", 1000) + line), invalid, []string{"/lines"}},
		{lines(strings.Repeat(`{},`, 200) + line), invalid, nil},
	})
}

func TestQuantitiesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	var tests []wrong
	for _, quantity := range []string{
		`0`, `-1`, `1.5`, `"1"`, `1e3`, `1E0`, `1.0`, `-0`, `null`, `true`, `[1]`, `{"n":1}`,
		`1000000001`, `2147483648`, `9007199254740993`, `9223372036854775808`, `1` + strings.Repeat("0", 400),
	} {
		tests = append(tests, wrong{lines(line + `,{"sku":"kettle","quantity":` + quantity + `}`), invalid, []string{"/lines/1/quantity"}})
	}
	refuses(t, tests)
}

// What is unusual but right is taken.
func TestUnusualBodiesAreTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "ä/😀", 2_000_000_000)
	for i, body := range []string{
		"  \n{ \"order_id\" : \"0\" , \"lines\" : [ { \"quantity\" : 1 , \"sku\" : \"ä/😀\" } ] }\r\n\t",
		`{"lines":[{"sku":"\u00e4\/\ud83d\ude00","quantity":1}],"order\u005fid":"1"}`,
		`{"order_id":"2","part":"","lines":[{"sku":"ä/😀","quantity":1000000000,"location":"default"}]}`,
		`{"order_id":"3","lines":[` + strings.Repeat(`{"sku":"ä/😀","quantity":1},`, 999) + `{"sku":"ä/😀","quantity":1}]}`,
	} {
		w.call(t, shop, "POST", "/v1/deductions", body, key(fmt.Sprint(i))...).want(t, 201)
	}
}

func TestOtherBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	w.stockUp(t, "cup", 100)
	d := w.hold(t, "1")
	id := "/v1/deductions/" + d.Id.String()
	adjust, item := "/v1/stock/kettle/adjustments", "/v1/stock/kettle"
	for i, test := range []struct {
		method, path, body string
		at                 []string
	}{
		{"POST", id + "/commit", `{"lines":[]}`, []string{"/lines"}},
		{"POST", id + "/commit", `{"keep_rest":true}`, []string{"/lines"}},
		{"POST", id + "/commit", `{"keep_rest":"true"}`, []string{"/keep_rest"}},
		{"POST", id + "/commit", `{"keep_rest":null}`, []string{"/keep_rest"}},
		{"POST", id + "/commit", `{"lines":[{"quantity":1}]}`, []string{"/lines/0"}},
		{"POST", id + "/commit", `{"lines":[{"line":1,"line_id":"k","quantity":1}]}`, []string{"/lines/0"}},
		{"POST", id + "/commit", `{"lines":[{"line":0,"quantity":1}]}`, []string{"/lines/0/line"}},
		{"POST", id + "/commit", `{"lines":[{"line":1}]}`, []string{"/lines/0/quantity"}},
		{"POST", id + "/commit", `{"other":1}`, []string{"/other"}},
		{"POST", id + "/release", `{"lines":[]}`, []string{"/lines"}},
		{"POST", id + "/release", `[]`, []string{""}},
		{"POST", id + "/extend", `{}`, []string{"/hold_seconds"}},
		{"POST", id + "/extend", `{"hold_seconds":86401}`, []string{"/hold_seconds"}},
		{"POST", id + "/extend", `{"hold_seconds":60,"reacquire":1}`, []string{"/reacquire"}},
		{"POST", id + "/returns", `{"reason":"` + strings.Repeat("x", 257) + `"}`, []string{"/reason"}},
		{"POST", id + "/returns", `{"lines":[{"line":1,"quantity":0}]}`, []string{"/lines/0/quantity"}},
		{"POST", adjust, `{}`, []string{"/kind"}},
		{"POST", adjust, `{"kind":"deduct","delta":1}`, []string{"/kind"}},
		{"POST", adjust, `{"kind":7,"delta":1}`, []string{"/kind"}},
		{"POST", adjust, `{"kind":"adjust"}`, []string{""}},
		{"POST", adjust, `{"kind":"adjust","delta":1,"set_to":1}`, []string{""}},
		{"POST", adjust, `{"kind":"adjust","delta":0}`, []string{"/delta"}},
		{"POST", adjust, `{"kind":"receive","delta":-1}`, []string{"/delta"}},
		{"POST", adjust, `{"kind":"receive","set_to":1,"expected_on_hand":1}`, []string{"/delta"}},
		{"POST", adjust, `{"kind":"adjust","delta":9007199254740992}`, []string{"/delta"}},
		{"POST", adjust, `{"kind":"adjust","set_to":-1,"expected_on_hand":1.5}`, []string{"/set_to", "/expected_on_hand"}},
		{"POST", adjust, `{"kind":"adjust","delta":1,"reference":"` + strings.Repeat("x", 129) + `"}`, []string{"/reference"}},
		{"PUT", item, `{"safety_stock":-1,"low_stock_at":null,"label":7}`, []string{"/safety_stock", "/low_stock_at", "/label"}},
		{"PUT", item, `{"on_hand":1}`, []string{"/on_hand"}},
	} {
		p := w.call(t, shop, test.method, test.path, test.body, key(fmt.Sprint(i))...).problem(t, 422, invalid)
		if got := pointers(p); !slices.Equal(got, test.at) {
			t.Errorf("%s %s\npoints at %q, want %q", test.path, test.body, got, test.at)
		}
	}
}

func TestParametersAreReadStrictly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 1)
	for path, at := range map[string]string{
		"/v1/stock?limit=0":                                  "limit",
		"/v1/stock?limit=1001":                               "limit",
		"/v1/stock?limit=1e2":                                "limit",
		"/v1/stock?limit=2&limit=3":                          "limit",
		"/v1/stock?low=perhaps":                              "low",
		"/v1/stock?cursor=!":                                 "cursor",
		"/v1/stock?cursor=QUJD":                              "cursor",
		"/v1/stock?cursor=":                                  "cursor",
		"/v1/stock?location=":                                "location",
		"/v1/stock?loaction=york":                            "loaction",
		"/v1/stock?Location=york":                            "Location",
		"/v1/stock?sku_prefix=%00":                           "sku_prefix",
		"/v1/stock/kettle?location=a&location=b":             "location",
		"/v1/stock/kettle?location=%20a":                     "location",
		"/v1/stock/%00":                                      "sku",
		"/v1/stock/%FF":                                      "sku",
		"/v1/stock/%20a":                                     "sku",
		"/v1/stock/" + strings.Repeat("x", 129):              "sku",
		"/v1/stock/kettle/movements?after_version=-1":        "after_version",
		"/v1/stock/kettle/movements?after_version=x":         "after_version",
		"/v1/stock/kettle/movements?cursor=x":                "cursor",
		"/v1/deductions":                                     "order_id",
		"/v1/deductions?order_id=":                           "order_id",
		"/v1/deductions?order_id=1&state=gone":               "state",
		"/v1/deductions?order_id=1&cursor=QUJD":              "cursor",
		"/v1/deductions/not-a-uuid":                          "id",
		"/v1/deductions/019ad1f0-7d3a-7bc4-9b65-0d4c6f2f7e1": "id",
	} {
		p := w.call(t, shop, "GET", path, "").problem(t, 422, invalid)
		if got := pointers(p); !slices.Equal(got, []string{at}) {
			t.Errorf("%s points at %q, want %q", path, got, at)
		}
	}
	for _, query := range []string{"?location=%zz", "?a;b"} {
		w.call(t, shop, "GET", "/v1/stock"+query, "").problem(t, 400, malformed)
	}
	for _, tag := range []string{`17`, `W/"17"`, `"x"`, `"-1"`, `"1", "2"`, `*`, `"99999999999999999999"`} {
		p := w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`, "If-Match", tag).problem(t, 422, invalid)
		if got := pointers(p); !slices.Equal(got, []string{"If-Match"}) {
			t.Errorf("If-Match %s points at %q", tag, got)
		}
	}
	w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`, "If-Match", `"1"`, "If-Match", `"2"`).problem(t, 400, "duplicate-header")
}

func TestIdempotencyKeyHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	n := 0
	deduct := func(headers ...string) answer {
		t.Helper()
		n++
		return w.call(t, shop, "POST", "/v1/deductions", fmt.Sprintf(`{"order_id":"%d","lines":[{"sku":"kettle","quantity":1}]}`, n), headers...)
	}
	for _, k := range []string{"a", `"b"`, strings.Repeat("k", 255), `"` + strings.Repeat("q", 255) + `"`, `c"d`, `!#$%&'()*+,-./:;<=>?@[\]^_{|}~`} {
		deduct(key(k)...).want(t, 201)
	}
	for _, k := range []string{strings.Repeat("l", 256), `"` + strings.Repeat("m", 256) + `"`, "a b", "ä", `"`, `"a`, `"a"b"`, `"a b"`, "a\tb"} {
		p := deduct(key(k)...).problem(t, 422, invalid)
		if got := pointers(p); !slices.Equal(got, []string{"Idempotency-Key"}) {
			t.Errorf("key %q points at %q", k, got)
		}
	}
	deduct().problem(t, 400, "idempotency-key-missing")
	deduct(key(`""`)...).problem(t, 400, "idempotency-key-missing")
	deduct("Idempotency-Key", "one", "Idempotency-Key", "two").problem(t, 400, "duplicate-header")
	deduct("Idempotency-Key", "same", "Idempotency-Key", "same").problem(t, 400, "duplicate-header")

	req, err := http.NewRequest("POST", w.server.URL+"/v1/deductions", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + shop}, "Content-Type": {"application/json"}, "Idempotency-Key": {""}}
	w.send(t, req, `{}`).problem(t, 400, "idempotency-key-missing")
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	n := 0
	deduct := func(headers ...string) answer {
		t.Helper()
		n++
		headers = append(headers, key(fmt.Sprint(n))...)
		return w.call(t, shop, "POST", "/v1/deductions", fmt.Sprintf(`{"order_id":"%d","lines":[{"sku":"kettle","quantity":1}]}`, n), headers...)
	}
	for _, good := range []string{"application/json; charset=utf-8", `application/json;charset="UTF-8"`, "Application/JSON"} {
		deduct("Content-Type", "", "Content-Type", good).want(t, 201)
	}
	for _, bad := range []string{"text/plain", "application/xml", "application/json; charset=latin1", "application/problem+json", "json", "application/json;;"} {
		deduct("Content-Type", "", "Content-Type", bad).problem(t, 415, "unsupported-media-type")
	}
	deduct("Content-Type", "").problem(t, 415, "unsupported-media-type")
	deduct("Content-Type", "application/json").problem(t, 400, "duplicate-header")
	deduct("Content-Encoding", "gzip").problem(t, 415, "unsupported-media-type")
	d := w.hold2(t)
	w.call(t, shop, "POST", "/v1/deductions/"+d+"/commit", `{}`, "Content-Type", "", "Content-Type", "text/plain").problem(t, 415, "unsupported-media-type")
}

// hold2 makes a hold of one kettle and returns its id.
func (w *world) hold2(t testing.TB) string {
	t.Helper()
	a := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"hold2","hold_seconds":60,"lines":[{"sku":"kettle","quantity":1}]}`, key("hold2")...)
	return decode[openapi.Deduction](t, a.want(t, 201)).Id.String()
}

// endless has no length that a header could tell.
type endless struct{ io.Reader }

func TestSizeLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 100)
	padded := func(size int) string {
		body := `{"order_id":"1","lines":[{"sku":"kettle","quantity":1}]}`
		return body + strings.Repeat(" ", size-len(body))
	}
	w.call(t, shop, "POST", "/v1/deductions", padded(256<<10), key("fits")...).want(t, 201)
	w.call(t, shop, "POST", "/v1/deductions", padded(256<<10+1), key("not")...).problem(t, 413, "too-large")

	req, err := http.NewRequest("POST", w.server.URL+"/v1/deductions", endless{strings.NewReader(padded(256<<10 + 1))})
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + shop}, "Content-Type": {"application/json"}, "Idempotency-Key": {"chunked"}}
	w.send(t, req, padded(256<<10+1)).problem(t, 413, "too-large")

	many := make([]string, 0, 240)
	for i := range 120 {
		many = append(many, fmt.Sprintf("X-Field-%d", i), "x")
	}
	w.call(t, shop, "GET", "/v1/stock", "", many...).problem(t, 431, "headers-too-large")
	w.call(t, shop, "GET", "/v1/stock", "", many[:160]...).want(t, 200)
	w.call(t, shop, "GET", "/v1/stock", "", "X-Long", strings.Repeat("x", 16<<10)).problem(t, 431, "headers-too-large")
}
