package fault_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandbox.Tests(m)) }

const (
	patience = 30 * time.Second       // how long a test waits for what must happen
	silence  = 100 * time.Millisecond // how long it listens for what must not
)

// echo is a server that answers every message with the same bytes and remembers what it got.
type echo struct {
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	got      bytes.Buffer
	arrived  chan struct{} // one entry for each read, at most its capacity
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: listener, arrived: make(chan struct{}, 1000)}
	e.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.running.Go(func() { e.answer(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		e.running.Wait()
	})
	return e
}

func (e *echo) answer(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.got.Write(buffer[:n])
		e.mu.Unlock()
		e.arrived <- struct{}{}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got.String()
}

// newProxy stands before the echo server and ends before it.
func newProxy(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	proxy, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

func dial(t *testing.T, proxy *fault.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, message string) {
	t.Helper()
	if _, err := io.WriteString(conn, message); err != nil {
		t.Fatal(err)
	}
}

// hears waits for exactly this message.
func hears(t *testing.T, conn net.Conn, message string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != message {
		t.Fatalf("heard %q, %v; want %q", got, err, message)
	}
}

// hearsNothing checks that the connection is open and silent.
func hearsNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

// ends checks that the connection ends without another byte.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want the connection's end", n, err)
	}
}

func happens(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

func contains(needle string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(needle)) }
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	conn := dial(t, newProxy(t, server.listener.Addr().String()))
	message := string(bytes.Repeat([]byte("0123456789"), 100_000))
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(conn, message) })
	hears(t, conn, message)
	writing.Wait()
	if server.received() != message {
		t.Fatal("the server got something else")
	}
}

func TestProxyPassesTheEndOn(t *testing.T) {
	t.Parallel()
	conn := dial(t, newProxy(t, newEcho(t).listener.Addr().String()))
	send(t, conn, "last words")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	hears(t, conn, "last words")
	ends(t, conn)
}

func TestProxyWithoutTarget(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ends(t, dial(t, newProxy(t, listener.Addr().String())))
}

func TestCut(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, newEcho(t).listener.Addr().String())
	conn := dial(t, proxy)
	send(t, conn, "a")
	hears(t, conn, "a")
	proxy.Cut()
	ends(t, conn)
	ends(t, dial(t, proxy))
	proxy.Restore()
	again := dial(t, proxy)
	send(t, again, "b")
	hears(t, again, "b")
}

func TestRetargetMovesNewConnections(t *testing.T) {
	t.Parallel()
	before, after := newEcho(t), newEcho(t)
	proxy := newProxy(t, before.listener.Addr().String())
	old := dial(t, proxy)
	send(t, old, "a")
	hears(t, old, "a")
	proxy.Retarget(after.listener.Addr().String())
	moved := dial(t, proxy)
	send(t, moved, "b")
	hears(t, moved, "b")
	send(t, old, "c")
	hears(t, old, "c")
	if before.received() != "ac" || after.received() != "b" {
		t.Errorf("the servers got %q and %q", before.received(), after.received())
	}
}

func TestStallDeliversLate(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	conn := dial(t, proxy)
	send(t, conn, "a")
	hears(t, conn, "a")
	proxy.Stall()
	send(t, conn, "b")
	hearsNothing(t, conn)
	fresh := dial(t, proxy)
	send(t, fresh, "c")
	hearsNothing(t, fresh)
	if got := server.received(); got != "a" {
		t.Fatalf("the server got %q while the wire stalled", got)
	}
	proxy.Restore()
	hears(t, conn, "b")
	hears(t, fresh, "c")
}

func TestCutEndsWhatIsStalled(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, newEcho(t).listener.Addr().String())
	conn := dial(t, proxy)
	proxy.Stall()
	send(t, conn, "a")
	hearsNothing(t, conn)
	proxy.Cut()
	ends(t, conn)
}

func TestSwallowLosesBytes(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	whole, holed := dial(t, proxy), dial(t, proxy)
	send(t, whole, "a")
	hears(t, whole, "a")
	proxy.Swallow()
	send(t, holed, "b")
	hearsNothing(t, holed)
	proxy.Restore()
	ends(t, holed)
	send(t, whole, "c")
	hears(t, whole, "c")
	if got := server.received(); got != "ac" {
		t.Fatalf("the server got %q", got)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	for name, set := range map[string]func(*fault.Proxy){
		"requests": func(p *fault.Proxy) { p.DelayRequests(delay) },
		"replies":  func(p *fault.Proxy) { p.DelayReplies(delay) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, newEcho(t).listener.Addr().String())
			conn := dial(t, proxy)
			set(proxy)
			const messages = 100
			began := time.Now()
			for range messages {
				send(t, conn, "x")
			}
			for range messages {
				hears(t, conn, "x")
			}
			took := time.Since(began)
			if took < delay {
				t.Errorf("took %v, want at least the delay of %v", took, delay)
			}
			if took > messages*delay/2 {
				t.Errorf("took %v: messages wait for each other's delay", took)
			}
		})
	}
}

func TestDropRepliesAppliesAndCuts(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	proxy.DropReplies()
	for _, message := range []string{"a", "b"} {
		conn := dial(t, proxy)
		send(t, conn, message)
		ends(t, conn)
	}
	if got := server.received(); got != "ab" {
		t.Fatalf("the server got %q", got)
	}
}

// TestRequestLost and its three sisters are the four ways one request can break.
func TestRequestLost(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	fired := proxy.OnRequest(contains("COMMIT"), fault.LoseRequest)
	conn, other := dial(t, proxy), dial(t, proxy)
	send(t, conn, "BEGIN")
	hears(t, conn, "BEGIN")
	send(t, conn, "COMMIT")
	ends(t, conn)
	happens(t, "the loss", fired)
	send(t, other, "COMMIT") // the rule is used up
	hears(t, other, "COMMIT")
	if got := server.received(); got != "BEGINCOMMIT" {
		t.Fatalf("the server got %q", got)
	}
}

func TestReplyLost(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	fired := proxy.OnRequest(contains("COMMIT"), fault.LoseReply)
	conn := dial(t, proxy)
	send(t, conn, "BEGIN")
	hears(t, conn, "BEGIN")
	send(t, conn, "COMMIT")
	ends(t, conn)
	happens(t, "the loss", fired)
	if got := server.received(); got != "BEGINCOMMIT" {
		t.Fatalf("the server got %q", got)
	}
}

func TestDisconnectLeavesTheRequestOnItsWay(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	proxy.DelayRequests(silence) // so that the client is told before the server has it
	fired := proxy.OnRequest(contains("COMMIT"), fault.Disconnect)
	conn := dial(t, proxy)
	send(t, conn, "COMMIT")
	ends(t, conn)
	happens(t, "the cut", fired)
	if got := server.received(); got != "" {
		t.Fatalf("the server has %q already", got)
	}
	happens(t, "the request's arrival", server.arrived)
	if got := server.received(); got != "COMMIT" {
		t.Fatalf("the server got %q", got)
	}
}

func TestHeldRequestArrivesLate(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	proxy := newProxy(t, server.listener.Addr().String())
	fired := proxy.OnRequest(contains("COMMIT"), fault.HoldRequest)
	conn, other := dial(t, proxy), dial(t, proxy)
	send(t, conn, "COMMIT")
	happens(t, "the hold", fired)
	hearsNothing(t, conn)
	send(t, other, "later")
	hears(t, other, "later")
	proxy.Restore()
	hears(t, conn, "COMMIT")
	if got := server.received(); got != "laterCOMMIT" {
		t.Fatalf("the server got %q", got)
	}
}

func TestRequestInTwoPieces(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	proxy := newProxy(t, listener.Addr().String())
	fired := proxy.OnRequest(contains("COMMIT"), fault.LoseRequest)
	conn := dial(t, proxy)
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	send(t, conn, "COM")
	hears(t, server, "COM") // and does not answer, so the request is not over
	send(t, conn, "MIT")
	happens(t, "the loss", fired)
	ends(t, server)
	ends(t, conn)
}

func TestRestoreForgetsRules(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, newEcho(t).listener.Addr().String())
	fired := proxy.OnRequest(contains("COMMIT"), fault.LoseRequest)
	proxy.Restore()
	conn := dial(t, proxy)
	send(t, conn, "COMMIT")
	hears(t, conn, "COMMIT")
	select {
	case <-fired:
		t.Fatal("a forgotten rule fired")
	default:
	}
}
