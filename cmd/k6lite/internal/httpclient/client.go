// Package httpclient sends HTTP/1.1 requests for one virtual user, over connections of its own that are kept alive, and
// says where the time of each went.
//
// It is a client of its own, not [net/http.Client], for two reasons: the phases of a request are timed where they
// happen, and one request costs one goroutine, so that the generator takes little from a server on the same machine.
// Parsing of answers is net/http's. It refuses what it does not do: HTTP/2, proxies and cookies.
package httpclient

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"sync"
	"time"
)

// Config holds what is the same for all requests of a run.
type Config struct {
	UserAgent          string
	InsecureSkipVerify bool
	NoReuse            bool // close every connection after one answer
}

// limits of one client.
const (
	dialTimeout = 30 * time.Second
	maxBody     = 64 << 20 // of an answer that is kept
	readBuffer  = 8 << 10
)

// Client is the HTTP client of one virtual user. Send may be called by several goroutines at once.
type Client struct {
	cfg Config

	mu     sync.Mutex // guards all below
	idle   map[target][]*conn
	active map[*conn]struct{}
	cut    bool
	dials  context.Context // cancelled by Cut
	cancel context.CancelFunc
}

// target is what a connection leads to.
type target struct {
	secure bool
	addr   string // host:port
}

// New returns a client without connections.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, idle: map[target][]*conn{}, active: map[*conn]struct{}{}}
	c.dials, c.cancel = context.WithCancel(context.Background())
	return c
}

// Cut ends every request on its way with [ErrCut], and every later one, until Resume.
func (c *Client) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.cancel()
	for cn := range c.active {
		_ = cn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection
	}
}

// Resume makes the client usable after Cut.
func (c *Client) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		c.cut = false
		c.dials, c.cancel = context.WithCancel(context.Background())
	}
}

// CloseIdle closes the connections that no request is using.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, list := range c.idle {
		for _, cn := range list {
			_ = cn.Close() // nothing was promised on it
		}
		delete(c.idle, t)
	}
}

// take returns a connection to t: an idle one that is still open, else a new one.
func (c *Client) take(t target, deadline time.Time, tm *Timings) (cn *conn, reused bool, err error) {
	for {
		cn, cut := c.popIdle(t)
		if cut {
			return nil, false, ErrCut
		}
		if cn == nil {
			break
		}
		if cn.alive() {
			if !c.activate(cn) {
				return nil, false, ErrCut
			}
			return cn, true, cn.SetDeadline(deadline)
		}
		_ = cn.Close() // the server closed it already
	}
	cn, err = c.dial(t, deadline, tm)
	if err != nil {
		return nil, false, err
	}
	if !c.activate(cn) {
		return nil, false, ErrCut
	}
	return cn, false, cn.SetDeadline(deadline)
}

func (c *Client) popIdle(t target) (cn *conn, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, true
	}
	list := c.idle[t]
	if len(list) == 0 {
		return nil, false
	}
	cn = list[len(list)-1]
	c.idle[t] = list[:len(list)-1]
	return cn, false
}

// activate makes cn one that Cut reaches; false when Cut came first, and cn is closed.
func (c *Client) activate(cn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = cn.Close() // nothing was sent on it
		return false
	}
	c.active[cn] = struct{}{}
	return true
}

// release puts cn back for the next request, or closes it when it cannot serve one.
func (c *Client) release(t target, cn *conn, reusable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, cn)
	if !reusable || c.cut || c.cfg.NoReuse {
		_ = cn.Close() // its answer has been read or given up
		return
	}
	cn.since = time.Now()
	c.idle[t] = append(c.idle[t], cn)
}

// dial connects, and shakes hands when the target is secure.
func (c *Client) dial(t target, deadline time.Time, tm *Timings) (*conn, error) {
	c.mu.Lock()
	base := c.dials
	c.mu.Unlock()
	ctx, cancel := context.WithDeadline(base, deadline)
	defer cancel()
	began := time.Now()
	dialer := net.Dialer{Timeout: dialTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", t.addr)
	tm.Connecting += time.Since(began)
	if err != nil {
		return nil, c.dialError(base, deadline, err)
	}
	cn := newConn(raw)
	if !t.secure {
		return cn, nil
	}
	began = time.Now()
	host, _, _ := net.SplitHostPort(t.addr) // target addresses always have a port
	shaken := tls.Client(raw, &tls.Config{
		ServerName:         host,
		InsecureSkipVerify: c.cfg.InsecureSkipVerify, // the script asked for it, by a documented option
		NextProtos:         []string{"http/1.1"},
	})
	err = shaken.HandshakeContext(ctx)
	tm.TLSHandshaking += time.Since(began)
	if err != nil {
		_ = raw.Close() // the handshake failed, nothing else was on it
		return nil, c.dialError(base, deadline, err)
	}
	cn.secure(shaken)
	return cn, nil
}

// dialError tells the three reasons apart for which a dial can end early.
func (c *Client) dialError(base context.Context, deadline time.Time, err error) error {
	switch {
	case base.Err() != nil:
		return ErrCut
	case !time.Now().Before(deadline):
		return ErrTimeout
	default:
		return err
	}
}

// Host returns the host and port a request for u goes to.
func Host(u *url.URL) string { return targetOf(u).addr }

// targetOf returns where a request for u goes.
func targetOf(u *url.URL) target {
	t := target{secure: u.Scheme == "https"}
	port := u.Port()
	switch {
	case port != "" && u.Hostname() != "":
		t.addr = u.Host
	case t.secure:
		t.addr = net.JoinHostPort(u.Hostname(), "443")
	default:
		t.addr = net.JoinHostPort(u.Hostname(), "80")
	}
	return t
}
