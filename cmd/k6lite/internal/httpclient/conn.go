package httpclient

import (
	"bufio"
	"crypto/tls"
	"net"
	"time"
)

// conn is one connection and its buffers. It belongs to one request at a time.
type conn struct {
	net.Conn          // the TLS connection when there is one
	raw      net.Conn // what lies under it
	tls      *tls.ConnectionState
	reader   *bufio.Reader
	out      []byte    // request under construction, reused
	received int64     // bytes read since the connection was made
	since    time.Time // idle since
}

func newConn(raw net.Conn) *conn {
	cn := &conn{Conn: raw, raw: raw}
	cn.reader = bufio.NewReaderSize(cn, readBuffer)
	return cn
}

func (cn *conn) secure(over *tls.Conn) {
	state := over.ConnectionState()
	cn.Conn, cn.tls = over, &state
}

// Read counts what it reads.
func (cn *conn) Read(p []byte) (int, error) {
	n, err := cn.Conn.Read(p)
	cn.received += int64(n)
	return n, err
}

// freshFor is how long an idle connection is trusted without asking the kernel.
const freshFor = 10 * time.Millisecond

// alive says whether an idle connection is still open at the other end and silent.
func (cn *conn) alive() bool {
	if cn.reader.Buffered() > 0 {
		return false // the server said something that nobody asked for
	}
	return time.Since(cn.since) < freshFor || open(cn.raw)
}
