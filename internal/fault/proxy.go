package fault

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Action is what happens at a request that [Proxy.OnRequest] waits for.
type Action int

const (
	// LoseRequest cuts the connection instead of forwarding: not applied.
	LoseRequest Action = iota + 1
	// LoseReply forwards, and cuts the client off when the reply arrives, without it: applied, reply lost.
	LoseReply
	// Disconnect forwards and cuts the client off at once: the server applies it, perhaps after the client's error.
	Disconnect
	// HoldRequest keeps the request back until [Proxy.Restore]: applied late, whether the client waits or not.
	HoldRequest
)

type mode int

const (
	forward mode = iota
	cut
	stall
	swallow
	dropReplies
)

// dialLimit bounds connecting to the target; a loopback answers at once or not at all.
const dialLimit = 5 * time.Second

// Proxy forwards TCP connections to one target until it is told to fail. All methods may be called at any time from
// any goroutine, except after Close.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu           sync.Mutex // guards all below
	target       string
	mode         mode
	requestDelay time.Duration
	replyDelay   time.Duration
	rules        []*rule
	restored     chan struct{} // closed and replaced by Restore: what is held back goes on
	links        map[*link]bool
}

// rule waits for one request and is then used up.
type rule struct {
	match  func(request []byte) bool
	action Action
	fired  chan struct{}
}

// NewProxy listens on a free loopback port for connections to the target, host:port.
func NewProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for connections to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: listener, restored: make(chan struct{}), links: map[*link]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts everything and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return err
}

// Cut closes all connections, and every new one as soon as it is made, until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = cut
	for l := range p.links {
		l.close()
	}
}

// Stall keeps connections open and holds all bytes back, in both directions, until Restore delivers them: what TCP
// does when a network comes back.
func (p *Proxy) Stall() { p.set(stall) }

// Swallow keeps connections open and loses all bytes, in both directions, until Restore: a peer that is gone without
// a word. A connection that lost something is cut by Restore.
func (p *Proxy) Swallow() { p.set(swallow) }

// DropReplies forwards requests and cuts each client off when the first reply arrives, without it: applied, reply
// lost, for everybody, until Restore.
func (p *Proxy) DropReplies() { p.set(dropReplies) }

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
}

// DelayRequests makes everything to the server arrive later by d, without narrowing the pipe. Zero: no delay.
func (p *Proxy) DelayRequests(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestDelay = d
}

// DelayReplies makes everything from the server arrive later by d, without narrowing the pipe. Zero: no delay.
func (p *Proxy) DelayReplies(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replyDelay = d
}

// Retarget has new connections go to another server, as an address that a failover moves. Connections that exist stay as they are.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// OnRequest does the action at the first request, on any connection, that matches, once. The returned channel is
// closed when it happens: for LoseReply when the reply has arrived and the client is cut off, otherwise at the request.
//
// match sees what the client sent since the server last answered on that connection, at most the last 1 MiB, and is
// called again when more of it arrives. It must not keep or change the bytes, nor call the proxy.
func (p *Proxy) OnRequest(match func(request []byte) bool, action Action) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &rule{match: match, action: action, fired: make(chan struct{})}
	p.rules = append(p.rules, r)
	return r.fired
}

// Restore ends every failure: what was held back is delivered, connections that lost bytes are cut, rules that did
// not fire are forgotten, delays end.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.rules, p.requestDelay, p.replyDelay = forward, nil, 0, 0
	for l := range p.links {
		if l.lost {
			l.close()
		}
	}
	close(p.restored)
	p.restored = make(chan struct{})
}

// accept takes connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve runs one connection to its end.
func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{proxy: p, client: client, cut: make(chan struct{})}
	target, ok := p.add(l)
	if !ok {
		_ = client.Close() // it was refused: nobody is left to tell
		return
	}
	defer p.remove(l)
	server, err := net.DialTimeout("tcp", target, dialLimit)
	if err != nil {
		return
	}
	if l.connect(server.(*net.TCPConn)) {
		l.run()
	}
}

// add makes a link subject to failures and says where it goes, unless all are cut.
func (p *Proxy) add(l *link) (target string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == cut {
		return "", false
	}
	p.links[l] = true
	return p.target, true
}

func (p *Proxy) remove(l *link) {
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
