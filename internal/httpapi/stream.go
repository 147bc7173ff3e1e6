package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits of a call that streams. Its memory is bounded by those of one row and of the rows done at once, not by these.
const (
	maxStream     = 256 << 20        // bytes of a body: two million rows
	maxRow        = 64 << 10         // bytes of one row of it
	maxStreamTime = 30 * time.Minute // from begin to end
	maxStreamIdle = 30 * time.Second // for the next bytes to come or to be taken
)

var (
	contentNDJSON = []string{"application/x-ndjson"}
	contentCSV    = []string{"text/csv; charset=utf-8"}
)

// streamBody is the body of a call that streams, read within the limits.
type streamBody struct {
	from  io.Reader
	conn  *http.ResponseController
	total int64 // bytes that may still come
	row   int64 // the same, for the row that is being read
}

func (c *call) streamBody() *streamBody {
	return &streamBody{from: c.r.Body, conn: http.NewResponseController(c.ResponseWriter), total: maxStream, row: 2 * maxRow}
}

// nextRow begins another row. What was read ahead counts for it, so it may be as long as the buffer more.
func (b *streamBody) nextRow() { b.row = 2 * maxRow }

// Read implements [io.Reader].
func (b *streamBody) Read(p []byte) (int, error) {
	switch {
	case b.total <= 0:
		return 0, &refusal{kind: errTooLarge, detail: "A stream has at most 268435456 bytes."}
	case b.row <= 0:
		return 0, errRowTooLarge
	}
	if err := b.conn.SetReadDeadline(time.Now().Add(maxStreamIdle)); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.total, b.row)])
	b.total -= int64(n)
	b.row -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = malformed("", "the body ended early")
	}
	return n, err
}

var errRowTooLarge = &refusal{kind: errTooLarge, detail: "A row has at most 65536 bytes."}

// send sends the next part of an answer and waits until the network has taken it, so that no more is made than is
// read. What goes wrong is noted, and the connection will not look as if the answer were whole.
func (c *call) send(contentType []string, part []byte) bool {
	conn := http.NewResponseController(c.ResponseWriter)
	if c.status == 0 {
		h := c.Header()
		h["Content-Type"] = contentType
		h["X-Content-Type-Options"] = noSniff
		h[requestIDHeader] = []string{c.id}
		c.WriteHeader(http.StatusOK)
	}
	err := conn.SetWriteDeadline(time.Now().Add(maxStreamIdle))
	if err == nil {
		_, err = c.Write(part)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		c.cutOff(err)
	}
	return err == nil
}

// cutOff gives up an answer that has begun.
func (c *call) cutOff(err error) {
	if c.r.Context().Err() != nil {
		err = context.Canceled
	}
	c.kind, c.err, c.cut = c.api.problemOf(err).name, err, true
}
