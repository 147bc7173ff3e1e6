package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// What a process of the service does with input that is made to harm it: bytes that are not quite HTTP, text that wants to be a log line,
// names without end. What it does with JSON, parameters and tokens is tested in package httpapi; here it is the whole command, as
// it is started, that is asked over a plain connection.

// The secrets of a fortress. None of them may be seen anywhere.
const (
	databasePassword = "database-secret"
	redisPassword    = "redis-secret"
	wrongToken       = "wrong-secret"
	secretKey        = "key-secret"
)

// fortress is a process that logs all it can and has passwords to lose.
type fortress struct {
	*instance
	database *fault.Proxy // on the way to Postgres
	gate     *sandbox.Redis
}

func openFortress(t *testing.T) *fortress {
	t.Helper()
	server := sandbox.OwnRedis(t, sandbox.RedisConfig{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
	if err := errors.Join(client.ConfigSet(t.Context(), "requirepass", redisPassword).Err(), client.Close()); err != nil {
		t.Fatal(err)
	}
	s := newShop(t, ":"+redisPassword+"@"+server.Addr())
	at := slices.IndexFunc(s.env, func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_DATABASE_URL=") })
	database, err := url.Parse(strings.TrimPrefix(s.env[at], "HOLDFAST_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := fault.NewProxy(database.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	database.Host, database.User = proxy.Addr(), url.UserPassword(database.User.Username(), databasePassword)
	s.env[at] = "HOLDFAST_DATABASE_URL=" + database.String()
	s.env = append(s.env, "HOLDFAST_ACCESS_LOG=true", "HOLDFAST_LOG_LEVEL=DEBUG")
	return &fortress{s.open(t), proxy, server}
}

func TestHostileInput(t *testing.T) {
	t.Parallel()
	f := openFortress(t)
	f.stockUp(t, "kettle", 1000)
	slow := f.sendSlowly(t)
	t.Run("requests", f.rawRequests)
	t.Run("lines in the log", f.injectLines)
	t.Run("names without end", f.nameWithoutEnd)
	t.Run("a slow header", func(t *testing.T) { f.hasGivenUp(t, slow) })
	t.Run("errors", f.provokeErrors)
	seen := f.look(t, "/metrics") + f.look(t, "/debug/pprof/goroutine?debug=2") + f.look(t, "/locks") + f.look(t, "/jobs")
	f.look(t, "/debug/pprof/cmdline")
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	log := f.log.String()
	f.mu.Unlock()
	checkLog(t, log)
	for _, secret := range []string{shopToken, databasePassword, redisPassword, wrongToken, secretKey} {
		if strings.Contains(log+seen, secret) {
			t.Errorf("%s is to be seen", secret)
		}
	}
}

// look at a page of the admin listener.
func (f *fortress) look(t *testing.T, path string) string {
	t.Helper()
	a, err := newCaller("http://"+f.admin, "").send(t.Context(), request{method: "GET", path: path})
	if err != nil {
		t.Fatal(err)
	}
	return string(a.body)
}

// patientConn is a connection on which no read and no write may take longer than a process may take for anything.
type patientConn struct{ net.Conn }

func (c patientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(serviceLimit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c patientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(serviceLimit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (f *fortress) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	dialed, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	conn := patientConn{dialed}
	return conn, bufio.NewReader(conn)
}

// ended reports whether the service has closed a connection, and waits for that.
func ended(from *bufio.Reader) error {
	_, err := from.ReadByte()
	var timeout net.Error
	switch {
	case err == nil:
		return errors.New("there is one answer more")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the connection is open")
	}
	return nil
}

const (
	hostLine = "Host: x\r\n"
	authLine = "Authorization: Bearer " + shopToken + "\r\n"
	jsonLine = "Content-Type: application/json\r\n"
	listing  = "GET /v1/stock HTTP/1.1\r\n"
)

// rawOrder is a request for one kettle under a key of its own, up to the headers that say how long its body is.
func rawOrder(id string) (head, body string) {
	return "POST /v1/deductions HTTP/1.1\r\n" + hostLine + authLine + jsonLine + "Idempotency-Key: " + id + "\r\n",
		`{"order_id":"` + id + `","lines":[{"sku":"kettle","quantity":1}]}`
}

// ordered is an order with other headers in place of those that say how long its body is.
func ordered(id, headers string) string {
	head, body := rawOrder(id)
	return head + headers + "\r\n" + body
}

// chunked is an order in one chunk, with headers besides.
func chunked(id, headers string) string {
	head, body := rawOrder(id)
	return fmt.Sprintf("%s%s\r\n%x\r\n%s\r\n0\r\n\r\n", head, headers, len(body), body)
}

// rawRequest is answered with these statuses and nothing more; then the connection is closed, or takes another request.
type rawRequest struct {
	name, send string
	want       []int
	closed     bool
}

// lengths are orders whose body is as long as headers of several kinds say.
func lengths() []rawRequest {
	_, body := rawOrder("x-00")
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	const te = "Transfer-Encoding: chunked\r\n"
	return []rawRequest{
		{"a length", ordered("l-00", length), []int{201}, false},
		{"the same length twice", ordered("l-01", length+length), []int{201}, false},
		{"two lengths", ordered("l-02", length+"Content-Length: 1\r\n"), []int{400}, true},
		{"a list of lengths", ordered("l-03", "Content-Length: 5, 5\r\n"), []int{400}, true},
		{"a length with a sign", ordered("l-04", "Content-Length: +5\r\n"), []int{400}, true},
		{"a negative length", ordered("l-05", "Content-Length: -1\r\n"), []int{400}, true},
		{"a length in hex", ordered("l-06", "Content-Length: 0x40\r\n"), []int{400}, true},
		{"no length at all", ordered("l-07", "") + "\r\n\r\n", []int{400, 400}, true}, // the body is another request, and not one
		{"a length beyond 64 bits", ordered("l-08", "Content-Length: 99999999999999999999\r\n"), []int{400}, true},
		{"a length beyond the limit", ordered("l-09", "Content-Length: 262145\r\n"), []int{413}, true},
		{"and asked before it is sent", ordered("l-10", "Content-Length: 262145\r\nExpect: 100-continue\r\n"), []int{413}, true},

		{"chunks", chunked("c-00", te), []int{201}, false},
		{"chunks and a length", chunked("c-01", te+"Content-Length: 1\r\n"), []int{201}, false}, // the chunks count
		{"chunks and a bad length", chunked("c-02", te+"Content-Length: x\r\n"), []int{400}, true},
		{"chunks twice", chunked("c-03", te+te), []int{501}, true},
		{"chunks in a list", chunked("c-04", "Transfer-Encoding: gzip, chunked\r\n"), []int{501}, true},
		{"chunks with a space", chunked("c-05", "Transfer-Encoding: chunked \x0b\r\n"), []int{400}, true},
		{"chunks by another name", chunked("c-06", "Transfer-Encoding: xchunked\r\n"), []int{501}, true},
		{"chunks before their time", strings.Replace(chunked("c-07", te), "HTTP/1.1", "HTTP/1.0", 1), []int{400}, true},
		{"a chunk without a size", ordered("c-08", te) + "\r\n", []int{400}, true},
	}
}

// headersAndTargets are requests for a list of items that is none of our business, for other sites, and by what is not HTTP.
func headersAndTargets() []rawRequest {
	many := strings.Builder{}
	for i := range 900 {
		fmt.Fprintf(&many, "X-Field-%d: x\r\n", i)
	}
	return []rawRequest{
		{"no host", listing + authLine + "\r\n", []int{400}, true},
		{"two hosts", listing + hostLine + hostLine + authLine + "\r\n", []int{400}, true},
		{"a host that is none", listing + "Host: a b\r\n" + authLine + "\r\n", []int{400}, true},
		{"a name with a space", listing + hostLine + "X : y\r\n" + authLine + "\r\n", []int{400}, true},
		{"a NUL in a header", listing + hostLine + "X: a\x00b\r\n" + authLine + "\r\n", []int{400}, true},
		{"a CR in a header", listing + hostLine + "X: a\rb\r\n" + authLine + "\r\n", []int{400}, true},
		{"a line without a colon", listing + hostLine + "X\r\n" + authLine + "\r\n", []int{400}, true},
		{"two tokens", listing + hostLine + authLine + authLine + "\r\n", []int{400}, false},
		{"900 headers", listing + hostLine + authLine + many.String() + "\r\n", []int{431}, false},
		{"80 KiB of a header", listing + hostLine + authLine + "X: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", []int{431}, true},

		{"another site", "GET http://elsewhere/v1/stock HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{200}, false},
		{"another site without a path", "GET http://elsewhere HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{404}, false},
		{"a path that is none", "GET v1/stock HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{400}, true},
		{"a control character", "GET /v1/stock/\x01 HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{400}, true},
		{"bytes that are no text", "GET /v1/stock/\xff HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{422}, false},
		{"a path of 60 KiB", "GET /v1/stock/" + strings.Repeat("x", 60<<10) + " HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{422}, false},
		{"everything", "OPTIONS * HTTP/1.1\r\n" + hostLine + "\r\n", []int{200}, false},
		{"a proxy", "CONNECT elsewhere:443 HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{404}, false},
		{"a trace", "TRACE /v1/stock HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{405}, false},
		{"a method in small letters", "get /v1/stock HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{405}, false},
		{"a method that is none", "GE(T /v1/stock HTTP/1.1\r\n" + hostLine + authLine + "\r\n", []int{400}, true},
		{"HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{404}, true},
		{"HTTP/3", "GET /v1/stock HTTP/3.0\r\n" + hostLine + authLine + "\r\n", []int{505}, true},
		{"no version", "GET /v1/stock\r\n\r\n", []int{400}, true},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}, true},
	}
}

// rawRequests sends all of them. Of the orders, only those that were answered 201 are in the ledger.
func (f *fortress) rawRequests(t *testing.T) {
	before, sold := f.item(t, "kettle").OnHand, int64(0)
	for _, test := range slices.Concat(lengths(), headersAndTargets()) {
		conn, answers := f.dial(t)
		if _, err := io.WriteString(conn, test.send); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, want := range test.want {
			got, err := status(answers)
			if err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", test.name, got, err, want)
			}
			if got == http.StatusCreated {
				sold++
			}
		}
		if test.closed {
			if err := ended(answers); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		} else if err := f.takesAnother(conn, answers); err != nil {
			t.Errorf("%s: the connection is of no more use: %v", test.name, err)
		}
	}
	if got := before - f.item(t, "kettle").OnHand; got != sold || sold != 4 {
		t.Errorf("%d orders were acknowledged, and %d are in the ledger", sold, got)
	}
}

// status reads one answer.
func status(from *bufio.Reader) (int, error) {
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// takesAnother request on the same connection, which shows that nothing of the last one was left.
func (f *fortress) takesAnother(conn net.Conn, answers *bufio.Reader) error {
	if _, err := io.WriteString(conn, "GET /v1/nothing HTTP/1.1\r\n"+hostLine+"\r\n"); err != nil {
		return err
	}
	got, err := status(answers)
	if err == nil && got != http.StatusNotFound {
		err = fmt.Errorf("status %d", got)
	}
	return err
}

// sendSlowly begins a request whose header never ends.
func (f *fortress) sendSlowly(t *testing.T) *bufio.Reader {
	t.Helper()
	conn, answers := f.dial(t)
	if _, err := io.WriteString(conn, listing+hostLine+authLine+"X-Slow: "); err != nil {
		t.Fatal(err)
	}
	return answers
}

// hasGivenUp waits until the service has closed a connection that it was to wait on.
func (f *fortress) hasGivenUp(t *testing.T, answers *bufio.Reader) {
	t.Helper()
	if err := ended(answers); err != nil {
		t.Error(err)
	}
}

// forged is what an attacker would like to read in the log.
const forged = `{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"forged"}`

// injectLines puts the end of a line and a line of its own wherever a client may put text.
func (f *fortress) injectLines(t *testing.T) {
	for n, end := range []string{"\n", "\r\n", "\r", "\u2028", "\u0085", "\x1b[2K", `"}` + "\n", "\\n"} {
		text := "x" + end + forged
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped, inJSON := url.QueryEscape(text), string(quoted)
		segment := strings.ReplaceAll(escaped, "+", "%20")
		body := func(format string) string { return fmt.Sprintf(format, inJSON) }
		for _, r := range []struct{ method, path, body, headers string }{
			{"GET", "/v1/stock/" + segment, "", ""},
			{"GET", "/" + segment, "", ""},
			{"GET", "/v1/stock?" + escaped + "=1", "", ""},
			{"GET", "/v1/stock?location=" + escaped, "", ""},
			{"GET", "/v1/stock?cursor=" + escaped, "", ""},
			{"GET", "/v1/operations/" + segment, "", ""},
			{"GET", "/v1/deductions/" + segment, "", ""},
			{"POST", "/v1/orders/" + segment + "/commit", "", ""},
			{"PUT", "/v1/stock/A" + fmt.Sprint(n), body(`{"label":%s}`), ""},
			{"POST", "/v1/stock/kettle/adjustments", body(`{"kind":"receive","delta":1,"reason":%s}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/stock/kettle/adjustments", body(`{"kind":%s}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/deductions", body(`{"order_id":%s,"lines":[{"sku":"kettle","quantity":1}]}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/deductions", body(`{"order_id":"1","lines":[{"sku":%s,"quantity":1}]}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/deductions", body(`{"order_id":"1","customer":%s,"lines":[{"sku":"kettle","quantity":1}]}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/deductions", body(`{%s:1}`), "Idempotency-Key: a\r\n"},
			{"POST", "/v1/deductions", text, "Idempotency-Key: a\r\n"},
			{"GET", "/v1/stock", "", "X-Request-Id: x" + forged + "\r\n"},
			{"GET", "/v1/stock", "", "User-Agent: x" + forged + "\r\nReferer: x" + forged + "\r\n"},
			{"POST", "/v1/deductions", "{}", "Idempotency-Key: " + forged + "\r\n"},
			{"POST", "/v1/deductions", "{}", "Idempotency-Key: " + secretKey + "\r\nX-Request-Id: a\tb\r\n"},
		} {
			f.sendText(t, fmt.Sprintf("%s %s HTTP/1.1\r\n%s%s%s%sContent-Length: %d\r\n\r\n%s",
				r.method, r.path, hostLine, authLine, jsonLine, r.headers, len(r.body), r.body))
		}
		f.sendText(t, listing+hostLine+"Authorization: Bearer "+wrongToken+forged+"\r\n\r\n")
		f.sendText(t, "GET /x"+forged+" HTTP/1.1\r\n"+hostLine+"\r\n")
		f.sendText(t, "G"+forged+" / HTTP/1.1\r\n"+hostLine+"\r\n")
	}
}

// sendText sends a request that is answered somehow, but never as a defect of the service.
func (f *fortress) sendText(t *testing.T, text string) {
	t.Helper()
	conn, answers := f.dial(t)
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if got, err := status(answers); err != nil || got >= 500 {
		t.Errorf("%.100q: %d, %v", text, got, err)
	}
}

// checkLog looks at every line of the log: an object of JSON with a time and a level, and nothing that a client wrote.
func checkLog(t *testing.T, log string) {
	t.Helper()
	requests := 0
	for line := range strings.Lines(log) {
		var l struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Time == "" || l.Level == "" || strings.HasPrefix(l.Msg, "forged") {
			t.Errorf("a line of the log, %v: %.300s", err, line)
		}
		if l.Msg == "request" {
			requests++
		}
	}
	if requests < 10_000 {
		t.Errorf("only %d requests were logged", requests)
	}
}

// nameWithoutEnd asks for ten thousand SKUs and ten thousand paths that nobody has heard of, and by methods that there are none of: the
// metrics have as many series as before. On a busy machine something may have come of it that had not come before, which has a series of its
// own; then the next ten thousand add none.
func (f *fortress) nameWithoutEnd(t *testing.T) {
	f.askForNames(t, 10, 100)
	var diff string
	for range 3 {
		before := f.series(t)
		if len(before) < 300 {
			t.Fatalf("only %d series", len(before))
		}
		f.askForNames(t, 100, 10_000)
		if diff = cmp.Diff(before, f.series(t)); diff == "" {
			return
		}
	}
	t.Errorf("series (-before +after):\n%.3000s", diff)
}

// askForNames sends batches of a hundred orders, each for an SKU of its own, and requests on one connection for so many paths.
func (f *fortress) askForNames(t *testing.T, batches, paths int) {
	t.Helper()
	for range batches {
		var entries []map[string]any
		for range 100 {
			name := fmt.Sprintf("%x", rand.Uint64())
			entries = append(entries, map[string]any{"idempotency_key": name, "deduction": map[string]any{
				"order_id": name, "customer": name, "customer_limit": 1, "lines": []map[string]any{{"sku": name, "quantity": 1}},
			}})
		}
		f.sendUnknown(t, entries)
	}
	conn, answers := f.dial(t)
	go func() {
		to := bufio.NewWriter(conn)
		for n := range paths {
			name := fmt.Sprintf("%x", rand.Uint64())
			method, path := "GET", "/"+name
			switch n % 20 {
			case 0:
				path = "/v1/stock/" + name
			case 1:
				path = "/v1/orders/" + name
			case 2:
				method = "X" + name
			case 3:
				path = "/docs/" + name
			}
			fmt.Fprintf(to, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, name, authLine)
		}
		_ = to.Flush() // whoever reads sees what is missing
	}()
	for n := range paths {
		if got, err := status(answers); err != nil || got/100 != 4 {
			t.Fatalf("answer %d: %d, %v", n, got, err)
		}
	}
}

// sendUnknown sends a batch whose every item is unknown, again while an entry is answered with a 503, as a machine with too much to do may.
func (f *fortress) sendUnknown(t *testing.T, entries []map[string]any) {
	t.Helper()
	for until := time.Now().Add(serviceLimit); ; {
		a, err := f.api().send(t.Context(), request{method: "POST", path: "/v1/deductions/batch", body: map[string]any{"deductions": entries}})
		if err == nil && a.status == http.StatusOK && bytes.Count(a.body, []byte("unknown-item")) >= len(entries) {
			return
		}
		busy := err == nil && (a.status == http.StatusServiceUnavailable || bytes.Contains(a.body, []byte(`"status":503`)))
		if !busy || time.Now().After(until) {
			t.Fatalf("%v, %d: %.300s", err, a.status, a.body)
		}
	}
}

// series are the names and labels of all that the process measures.
func (f *fortress) series(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(f.look(t, "/metrics")) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			all[line[:at]] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// provokeErrors takes the stores away, one after the other, so that there is something to log about them.
func (f *fortress) provokeErrors(t *testing.T) {
	if err := f.gate.Pause(); err != nil {
		t.Fatal(err)
	}
	head, body := rawOrder(secretKey)
	f.answers(t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body), http.StatusCreated)
	if err := f.gate.Resume(); err != nil {
		t.Fatal(err)
	}
	f.database.Cut()
	for range 3 {
		f.answers(t, listing+hostLine+authLine+"\r\n", http.StatusServiceUnavailable)
	}
	f.database.Restore()
}

// answers fails the test unless a request is answered with this status.
func (f *fortress) answers(t *testing.T, text string, want int) {
	t.Helper()
	conn, answers := f.dial(t)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if got, err := status(answers); err != nil || got != want {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
}

// A command that cannot start says why, and no password.
func TestStartUpErrorsTellNoPassword(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://u:secret@127.0.0.1:1/x"
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	entry := fmt.Sprintf(`[{"name":"shop","sha256":%q,"scopes":["admin"]}]`, httpapi.HashToken(shopToken))
	if err := os.WriteFile(tokens, []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--tokens-file=" + tokens, "--start-timeout=1s", "--database-url=" + nowhere, "--redis-url=redis://:secret@127.0.0.1:1"},
		{"migrate", "status", "--database-url=" + nowhere},
		{"locks", "--database-url=" + nowhere, "--redis-url=redis://:secret@127.0.0.1:1"},
		{"locks", "--database-url=" + nowhere, "--redis-url=redis://:secret/x@h"},
		{"locks", "--database-url=" + nowhere, "--redis-url=redis://h/secret"},
		{"locks", "--database-url=" + nowhere, "--lock-redlock=redis://:secret/x@h"},
		{"reconcile", "--database-url=postgres://u:secret/x@h/d"},
		{"retain", "--before=2026-01-01", "--discard", "--database-url=postgres://u:secret/x@h/d"},
		{"serve", "--tokens-file=none", "--database-url=postgres://u:secret/x@h/d"},                    // a slash in the password
		{"serve", "--tokens-file=none", "--database-url=postgres://u:%zzsecret@h/d"},                   // an escape that is none
		{"serve", "--tokens-file=none", "--database-url=postgres://u:x:secret@y%zz@h/d"},               // a colon and an at sign
		{"serve", "--tokens-file=none", "--database-url=postgres://u:secret@h:port/d"},                 // a port that is none
		{"serve", "--tokens-file=none", "--database-url=postgres://h/d?password=secret&sslmode=bogus"}, // a setting that is none
		{"serve", "--tokens-file=none", "--database-url=host=h password=secret sslmode=bogus"},         // the same in words
		{"serve", "--tokens-file=none", "--database-url=host=h password='secret x sslmode=bogus"},      // a quote without end
		{"serve", "--tokens-file=none", "--database-url=secret"},                                       // no address
		{"serve", "--tokens-file=none", "--database-url=postgres://u:secret@h/d?sslmode=verify-full&sslrootcert=/missing"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		if said := out.String() + errs.String(); code == exitFine || strings.Contains(said, "secret") || len(said) == 0 {
			t.Errorf("%q: exit code %d:\n%s", args, code, said)
		}
	}
}
