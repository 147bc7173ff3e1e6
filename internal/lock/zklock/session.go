package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is a connection to ZooKeeper, with what the client library does not tell: the timeout that the server
// settled for, and calls that end when their ctx does.
type session struct {
	conn    *zk.Conn
	timeout atomic.Int64 // ms, as the server said last
	events  <-chan zk.Event

	mu     sync.Mutex
	socket net.Conn       // the last one; guarded by mu
	closed bool           // guarded by mu
	calls  sync.WaitGroup // added to under mu while not closed
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect(servers []string, timeout time.Duration) (*session, error) {
	s := &session{}
	s.timeout.Store(timeout.Milliseconds())
	var err error
	s.conn, s.events, err = zk.Connect(servers, timeout,
		zk.WithLogInfo(false), zk.WithLogger(silent{}), zk.WithDialer(s.dial))
	return s, err
}

func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	socket, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, socket.Close())
	}
	s.socket = socket
	return &greeted{Conn: socket, session: s}, nil
}

// greeted reads the server's first answer along: length, protocol version, timeout in ms, four bytes each.
type greeted struct {
	net.Conn
	session *session
	header  []byte
}

func (g *greeted) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if missing := 12 - len(g.header); missing > 0 {
		if g.header = append(g.header, p[:min(n, missing)]...); len(g.header) == 12 {
			if ms := int64(binary.BigEndian.Uint32(g.header[8:])); ms > 0 { // 0: the session is refused
				g.session.timeout.Store(ms)
			}
		}
	}
	return n, err
}

// lasts is how long after a write the session is there at least. A follower tells the leader whom it heard from
// only every half tick, and the timeout is two ticks or more: a quarter of it may already be over.
func (s *session) lasts() time.Duration {
	timeout := time.Duration(s.timeout.Load()) * time.Millisecond
	return timeout - timeout/4
}

// close ends the session on the server, if it can be reached, and waits for everything here.
func (s *session) close() {
	s.conn.Close()
	s.mu.Lock()
	s.closed = true
	if s.socket != nil {
		_ = s.socket.Close() // it may be waiting for a server that is gone
	}
	s.mu.Unlock()
	for range s.events { // closed when the library's goroutines have ended
	}
	s.calls.Wait()
}

// call asks and gives up waiting, not asking, when ctx ends: the library's calls end by themselves when the
// connection does, which is after two thirds of the session's timeout without a word.
func call[T any](ctx context.Context, s *session, ask func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	answered := make(chan result, 1)
	var none T
	if !s.start(func() {
		value, err := ask()
		answered <- result{value, err}
	}) {
		return none, zk.ErrClosing
	}
	select {
	case r := <-answered:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// start runs a call in the background, unless the session is closed.
func (s *session) start(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Go(do)
	}
	return !s.closed
}

// broken reports whether an error says nothing about what was asked: the connection or the session ended.
func broken(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrNoServer) ||
		errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved)
}
