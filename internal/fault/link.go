package fault

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	chunkSize    = 64 << 10
	queueLength  = 64      // chunks under way in one direction; more have to wait
	requestLimit = 1 << 20 // how much of a request a match can see
)

// link is one connection of a client and its counterpart to the server.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn // server is nil until connect
	once           sync.Once
	cut            chan struct{} // closed by close

	// guarded by the proxy's mutex
	request []byte // what the client sent since the last reply
	losing  *rule  // the rule that waits for the next reply to lose it
	deaf    bool   // the client is cut off: replies are read and thrown away
	lost    bool   // bytes were swallowed: the stream has a hole
}

// chunk is some bytes on their way and when they arrive.
type chunk struct {
	data []byte
	due  time.Time
}

// verdict is what becomes of some bytes.
type verdict int

const (
	pass   verdict = iota
	drop           // read and lost
	finish         // passed on, and then the client is cut off
	sever          // not passed on, and both sides are cut
)

// connect gives the link its server side; false if the link was cut meanwhile.
func (l *link) connect(server *net.TCPConn) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	select {
	case <-l.cut:
		_ = server.Close() // nobody is left to tell
		return false
	default:
		l.server = server
		return true
	}
}

// run forwards in both directions until both have ended.
func (l *link) run() {
	var directions sync.WaitGroup
	directions.Go(func() { l.pump(l.client, l.server, l.toServer) })
	directions.Go(func() { l.pump(l.server, l.client, l.toClient) })
	directions.Wait()
}

// close cuts both sides at once.
func (l *link) close() {
	l.once.Do(func() {
		close(l.cut)
		_ = l.client.Close() // nobody is left to tell
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// pump forwards one direction until its source ends, then ends the destination's input.
func (l *link) pump(from, to *net.TCPConn, decide func([]byte) (verdict, time.Duration)) {
	queue := make(chan chunk, queueLength)
	var delivery sync.WaitGroup
	delivery.Go(func() { l.deliver(to, queue) })
	defer delivery.Wait()
	defer close(queue)
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !l.forward(buffer[:n], queue, decide) {
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // reset: not an end but a cut
				l.close()
			}
			return
		}
	}
}

// forward does what is decided about some bytes and reports whether to go on reading.
func (l *link) forward(data []byte, queue chan<- chunk, decide func([]byte) (verdict, time.Duration)) bool {
	what, delay := decide(data)
	switch what {
	case drop:
		return true
	case sever:
		l.close()
		return false
	}
	select {
	case queue <- chunk{slices.Clone(data), time.Now().Add(delay)}:
	case <-l.cut:
		return false
	}
	if what == finish {
		_ = l.client.Close() // reading from it ends, which ends the server's input after what is queued
	}
	return true
}

// deliver writes what is queued when it is due. A client that does not take a reply does not end the connection to
// the server: what it sent before is still on its way there.
func (l *link) deliver(to *net.TCPConn, queue <-chan chunk) {
	for c := range queue {
		timer := time.NewTimer(time.Until(c.due))
		select {
		case <-timer.C:
		case <-l.cut:
			timer.Stop()
		}
		if _, err := to.Write(c.data); err != nil && to == l.server {
			l.close()
		}
	}
	_ = to.CloseWrite() // closed already is fine
}

// toServer decides about bytes of the client.
func (l *link) toServer(data []byte) (verdict, time.Duration) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.request = append(l.request, data...)
	l.request = l.request[max(0, len(l.request)-requestLimit):]
	if what, decided := l.applyRuleLocked(); decided {
		return what, p.requestDelay
	}
	return l.modeLocked(), p.requestDelay
}

// applyRuleLocked looks for a rule that waits for this request and uses it up.
func (l *link) applyRuleLocked() (verdict, bool) {
	p := l.proxy
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.match(l.request) })
	if i < 0 {
		return pass, false
	}
	r := p.rules[i]
	p.rules = slices.Delete(p.rules, i, i+1)
	switch r.action {
	case LoseReply:
		l.losing = r
		return pass, true
	case HoldRequest:
		close(r.fired)
		if !l.waitLocked() {
			return sever, true
		}
		return pass, true
	case Disconnect:
		l.deaf = true
		close(r.fired)
		return finish, true
	default:
		close(r.fired)
		return sever, true
	}
}

// toClient decides about bytes of the server.
func (l *link) toClient([]byte) (verdict, time.Duration) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.request = l.request[:0]
	if l.losing != nil || (p.mode == dropReplies && !l.deaf) {
		l.deaf = true
		_ = l.client.Close() // ends the server's input too, after what is queued
		if l.losing != nil {
			close(l.losing.fired)
			l.losing = nil
		}
	}
	if l.deaf {
		return drop, 0
	}
	return l.modeLocked(), p.replyDelay
}

// modeLocked is what the proxy does to bytes in general; while it stalls nobody gets further.
func (l *link) modeLocked() verdict {
	p := l.proxy
	for p.mode == stall {
		if !l.waitLocked() {
			return sever
		}
	}
	if p.mode == swallow {
		l.lost = true
		return drop
	}
	return pass
}

// waitLocked waits for Restore without the lock; false if the link was cut first.
func (l *link) waitLocked() bool {
	restored := l.proxy.restored
	l.proxy.mu.Unlock()
	defer l.proxy.mu.Lock()
	select {
	case <-restored:
		return true
	case <-l.cut:
		return false
	}
}
