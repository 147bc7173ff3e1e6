package pglock

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watched is a connection that is read at all times, so that its end is known when it comes, not when it is used
// next: an advisory lock is free in the same moment.
type watched struct {
	net.Conn               // what pgx reads and writes: one end of a pipe
	ended    chan struct{} // closed when the connection to the server has ended
}

// dialWatched wraps a dial function so that its connections are watched.
func dialWatched(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		server, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		w := &watched{Conn: near, ended: make(chan struct{})}
		arrived := make(chan []byte, maxUnread)
		go w.read(server, arrived)
		go func() { // ends when all is read, or when pgx closes its end
			for data := range arrived {
				_, _ = far.Write(data) // after an error there is only draining left
			}
			_ = far.Close()
		}()
		go func() { // ends when pgx closes its end, or the server its own
			_, _ = io.Copy(server, far)
			_ = server.Close()
		}()
		return w, nil
	}
}

// maxUnread is how many pieces may have arrived that pgx has not read. An idle session gets a few words at most, the
// last of them why it ends; more than this, and the end is only seen when they are read.
const maxUnread = 64

// read reads until the server or the network ends the connection, or we do.
func (w *watched) read(server net.Conn, arrived chan<- []byte) {
	defer close(arrived)
	defer close(w.ended)
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 {
			arrived <- bytes.Clone(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// ended is closed when the connection to the server has ended.
func ended(conn *pgxpool.Conn) <-chan struct{} {
	c := conn.Conn().PgConn().Conn()
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*watched).ended
}
