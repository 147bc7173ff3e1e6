package httpclient_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/httpclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, address string) *httpclient.Request {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &httpclient.Request{Method: "GET", URL: u, Timeout: 5 * time.Second}
}

func post(t *testing.T, address, body string, header ...httpclient.Field) *httpclient.Request {
	t.Helper()
	r := get(t, address)
	r.Method, r.Body, r.Header = "POST", []byte(body), header
	return r
}

func newClient(t *testing.T, cfg httpclient.Config) *httpclient.Client {
	t.Helper()
	c := httpclient.New(cfg)
	t.Cleanup(c.CloseIdle)
	return c
}

// serve starts a server that counts its connections.
func serve(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	connections := new(atomic.Int64)
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, connections
}

func TestRequestArrivesAsItWasGiven(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %q %q %q %d %s", r.Method, r.URL, r.Host, r.Header["X-A"], r.UserAgent(), r.ContentLength, body)
	})
	c := newClient(t, httpclient.Config{UserAgent: "tester"})
	req := post(t, s.URL+"/p/a%2Fb?x=1&y=%20", "hello", httpclient.Field{Name: "X-A", Value: "1"}, httpclient.Field{Name: "Host", Value: "elsewhere"})
	a := c.Send(req)
	want := `POST /p/a%2Fb?x=1&y=%20 "elsewhere" ["1"] "tester" 5 hello`
	if a.Err != nil || a.Status != 200 || string(a.Body) != want || a.StatusText != "200 OK" {
		t.Errorf("got %v %d %s\nwant %s", a.Err, a.Status, a.Body, want)
	}
	if a.Remote != s.Listener.Addr().String() || a.Proto != "HTTP/1.1" || a.Sent < 50 || a.Received < int64(len(want)) {
		t.Errorf("got %+v", a)
	}
}

func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	s, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chunked":
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "b")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/interim":
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "final")
		}
	})
	c := newClient(t, httpclient.Config{})
	for path, want := range map[string]string{"/": "", "/chunked": "ab", "/none": "", "/interim": "final"} {
		for _, discard := range []bool{false, true} {
			req := get(t, s.URL+path)
			req.Discard = discard
			a := c.Send(req)
			if a.Err != nil || !discard && string(a.Body) != want || discard && a.Body != nil {
				t.Errorf("%s, discard=%t: got %v %q", path, discard, a.Err, a.Body)
			}
		}
	}
	head := get(t, s.URL)
	head.Method = "HEAD"
	if a := c.Send(head); a.Err != nil || len(a.Body) != 0 {
		t.Errorf("HEAD: %v %q", a.Err, a.Body)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("nine requests in a row used %d connections, want 1", n)
	}
	none := newClient(t, httpclient.Config{NoReuse: true})
	for range 3 {
		if a := none.Send(get(t, s.URL)); a.Err != nil {
			t.Error(a.Err)
		}
	}
	if n := connections.Load(); n != 4 {
		t.Errorf("without reuse: %d connections in all, want 4", n)
	}
}

func TestTimeoutAndRefusalHaveTheirDocumentedCodes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.Header().Set("Content-Length", "10")
			w.(http.Flusher).Flush()
		}
		<-release
	})
	defer close(release)
	c := newClient(t, httpclient.Config{})
	for _, path := range []string{"/", "/body"} {
		req := get(t, s.URL+path)
		req.Timeout = 100 * time.Millisecond
		began := time.Now()
		a := c.Send(req)
		if !errors.Is(a.Err, httpclient.ErrTimeout) || httpclient.Code(a.Err) != 1050 {
			t.Errorf("%s: got %v, code %d", path, a.Err, httpclient.Code(a.Err))
		}
		if took := time.Since(began); took < 100*time.Millisecond || took > 2*time.Second {
			t.Errorf("%s: took %s", path, took)
		}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if a := c.Send(get(t, "http://"+closed.Addr().String())); httpclient.Code(a.Err) != 1212 {
		t.Errorf("refused: got %v, code %d", a.Err, httpclient.Code(a.Err))
	}
	if a := c.Send(get(t, "ftp://x/")); httpclient.Code(a.Err) != 1020 {
		t.Errorf("no http URL: got %v, code %d", a.Err, httpclient.Code(a.Err))
	}
}

func TestTLSErrorsHaveTheirDocumentedCodes(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	if a := newClient(t, httpclient.Config{}).Send(get(t, s.URL)); httpclient.Code(a.Err) != 1310 {
		t.Errorf("unknown authority: got %v, code %d", a.Err, httpclient.Code(a.Err))
	}
	a := newClient(t, httpclient.Config{InsecureSkipVerify: true}).Send(get(t, s.URL))
	if a.Err != nil || string(a.Body) != "HTTP/1.1" || a.TLS == nil || a.Timings.TLSHandshaking <= 0 {
		t.Errorf("skipping verification: got %v %q %+v", a.Err, a.Body, a.Timings)
	}
}

// raw is a server that answers as the test says, connection by connection.
func raw(t *testing.T, connection func(n int, c net.Conn, read *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				connection(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func answer(c net.Conn, read *bufio.Reader) bool {
	r, err := http.ReadRequest(read)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	return err == nil
}

// A server that reads the second request on a connection and closes without an answer: whether it acted on it is not
// known, so only what is safe to repeat is sent again.
func TestOnlySafeRequestsAreRepeatedOnALostConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		second func(url string) *httpclient.Request
		ok     bool
	}{
		{"GET", func(u string) *httpclient.Request { return get(t, u) }, true},
		{"POST", func(u string) *httpclient.Request { return post(t, u, "x") }, false},
		{"POST with Idempotency-Key", func(u string) *httpclient.Request {
			return post(t, u, "x", httpclient.Field{Name: "Idempotency-Key", Value: "k"})
		}, true},
	} {
		url := raw(t, func(n int, conn net.Conn, read *bufio.Reader) {
			if answer(conn, read) && n == 0 {
				_, _ = http.ReadRequest(read)
				return
			}
			for answer(conn, read) {
			}
		})
		client := newClient(t, httpclient.Config{})
		if a := client.Send(get(t, url)); a.Err != nil {
			t.Fatal(a.Err)
		}
		a := client.Send(c.second(url))
		if (a.Err == nil) != c.ok {
			t.Errorf("%s: got %v, want success: %t", c.name, a.Err, c.ok)
		}
		client.CloseIdle()
	}
}

func TestConnectionTheServerClosedWhileIdleIsNotUsed(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	url := raw(t, func(n int, c net.Conn, read *bufio.Reader) {
		if n == 0 {
			answer(c, read)
			closed <- c.Close()
			return
		}
		for answer(c, read) {
		}
	})
	client := newClient(t, httpclient.Config{})
	if a := client.Send(get(t, url)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	<-time.After(20 * time.Millisecond) // so that the connection is older than what the client trusts blindly
	if a := client.Send(post(t, url, "not to be repeated")); a.Err != nil {
		t.Errorf("a POST met the dead connection: %v", a.Err)
	}
	client.CloseIdle()
}

func TestBrokenAnswersAreErrors(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":    "",
		"no HTTP":    "hello\r\n\r\n",
		"cut header": "HTTP/1.1 200 OK\r\nContent-Le",
		"cut body":   "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"cut chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"bad gzip":   "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc",
		"unknown":    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Encoding: br\r\n\r\nabc",
	} {
		url := raw(t, func(_ int, c net.Conn, read *bufio.Reader) {
			if _, err := http.ReadRequest(read); err == nil {
				_, _ = io.WriteString(c, text)
			}
		})
		a := newClient(t, httpclient.Config{}).Send(get(t, url))
		if a.Err == nil || a.Status != 0 || a.Body != nil {
			t.Errorf("%s: was taken for an answer: %d %q", name, a.Status, a.Body)
		}
		if strings.Contains(name, "gzip") || name == "unknown" {
			if code := httpclient.Code(a.Err); code != 1701 {
				t.Errorf("%s: code %d, want 1701", name, code)
			}
		}
	}
}

func TestGzipIsUndone(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, strings.Repeat("stock ", 1000)+r.Header.Get("Accept-Encoding"))
		_ = z.Close()
	})
	a := newClient(t, httpclient.Config{}).Send(get(t, s.URL))
	if a.Err != nil || string(a.Body) != strings.Repeat("stock ", 1000) {
		t.Errorf("got %v, %d bytes", a.Err, len(a.Body))
	}
}

func TestServerMayAnswerBeforeItHasReadEverything(t *testing.T) {
	t.Parallel()
	url := raw(t, func(_ int, c net.Conn, read *bufio.Reader) {
		if _, err := http.ReadRequest(read); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, read)
	})
	a := newClient(t, httpclient.Config{}).Send(post(t, url, strings.Repeat("x", 8<<20)))
	if a.Err != nil || a.Status != 413 {
		t.Errorf("got %v, status %d", a.Err, a.Status)
	}
}

func TestCutEndsRequestsAtOnceUntilResume(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 10)
	release := make(chan struct{})
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- struct{}{}
			<-release
		}
	})
	defer close(release)
	c := newClient(t, httpclient.Config{})
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- c.Send(get(t, s.URL+"/wait")).Err }()
	}
	<-began
	<-began
	c.Cut()
	for range 2 {
		if err := <-results; !errors.Is(err, httpclient.ErrCut) {
			t.Errorf("on its way: got %v, want ErrCut", err)
		}
	}
	if a := c.Send(get(t, s.URL)); !errors.Is(a.Err, httpclient.ErrCut) {
		t.Errorf("after Cut: got %v, want ErrCut", a.Err)
	}
	c.Resume()
	if a := c.Send(get(t, s.URL)); a.Err != nil {
		t.Errorf("after Resume: %v", a.Err)
	}
}

func TestTimingsAddUp(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(60 * time.Millisecond)
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		<-time.After(40 * time.Millisecond)
		_, _ = io.WriteString(w, "b")
	})
	c := newClient(t, httpclient.Config{})
	first, second := c.Send(get(t, s.URL)).Timings, c.Send(get(t, s.URL)).Timings
	for _, tm := range []httpclient.Timings{first, second} {
		// On a busy machine the first byte is seen late; what waiting gains then, receiving loses.
		if tm.Waiting < 60*time.Millisecond || tm.Waiting+tm.Receiving < 100*time.Millisecond || tm.Receiving <= 0 {
			t.Errorf("got %+v, want 60 ms of waiting and 40 ms of receiving", tm)
		}
		if tm.Duration() != tm.Sending+tm.Waiting+tm.Receiving {
			t.Errorf("the duration is not the sum: %+v", tm)
		}
	}
	if first.Connecting <= 0 || first.Blocked < first.Connecting || second.Connecting != 0 {
		t.Errorf("connecting: %+v, then %+v", first, second)
	}
}

func TestWhatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	for _, f := range []httpclient.Field{
		{Name: "X-A", Value: "a\r\nX-B: b"}, {Name: "X A", Value: "a"}, {Name: "", Value: "a"},
		{Name: "Content-Length", Value: "5"}, {Name: "Connection", Value: "close"}, {Name: "Transfer-Encoding", Value: "chunked"},
	} {
		req := get(t, "http://127.0.0.1:1/")
		req.Header = []httpclient.Field{f}
		if err := req.CheckHeader(); err == nil {
			t.Errorf("%q: %q was accepted", f.Name, f.Value)
		}
	}
}

func TestRedirectsByTheRules(t *testing.T) {
	t.Parallel()
	key := httpclient.Field{Name: "Authorization", Value: "secret"}
	kind := httpclient.Field{Name: "Content-Type", Value: "text/plain"}
	for _, c := range []struct {
		status         int
		method, to     string
		want, wantURL  string
		body, keepsKey bool
	}{
		{301, "GET", "/b", "GET", "http://h/b", true, true},
		{302, "POST", "/b", "GET", "http://h/b", false, true},
		{303, "PUT", "b", "GET", "http://h/x/b", false, true},
		{307, "POST", "/b", "POST", "http://h/b", true, true},
		{308, "POST", "http://other/b", "POST", "http://other/b", true, false},
		{304, "GET", "/b", "", "", false, false},
		{200, "GET", "/b", "", "", false, false},
	} {
		req := post(t, "http://h/x/a", "body", key, kind)
		req.Method = c.method
		next, err := httpclient.Redirect(req, &httpclient.Answer{Status: c.status, Header: http.Header{"Location": {c.to}}})
		if err != nil || (next == nil) != (c.want == "") {
			t.Errorf("%d: got %v, %v", c.status, next, err)
			continue
		}
		if next == nil {
			continue
		}
		hasKey := len(next.Header) > 0 && next.Header[0] == key
		if next.Method != c.want || next.URL.String() != c.wantURL || (next.Body != nil) != c.body || hasKey != c.keepsKey {
			t.Errorf("%d %s: got %s %s body=%t key=%t", c.status, c.method, next.Method, next.URL, next.Body != nil, hasKey)
		}
	}
}
