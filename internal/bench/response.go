package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// response is what the generator looks at of an HTTP/1.1 response.
type response struct {
	status   int
	replayed bool   // it has Idempotent-Replayed: true
	later    bool   // it has Retry-After
	body     []byte // of a chunked one the first chunk; valid until the next read
	size     int    // of the whole response, in bytes
}

// shed: the request was turned away.
func (r *response) shed() bool { return r.status == 503 }

var (
	// errMore: the response is not whole yet.
	errMore      = errors.New("the response is not whole")
	errMalformed = errors.New("not an HTTP/1.1 response with a length")
)

var (
	endOfHead = []byte("\r\n\r\n")
	crlf      = []byte("\r\n")
	version11 = []byte("HTTP/1.1 ")
)

// parseResponse reads the response that data begins with; errMore when it is cut off. It knows what a well-behaved
// server sends on a connection that is kept, and takes nothing else.
func parseResponse(data []byte) (response, error) {
	end := bytes.Index(data, endOfHead)
	if end < 0 {
		return response{}, errMore
	}
	if !bytes.HasPrefix(data, version11) || end < len(version11)+3 {
		return response{}, fmt.Errorf("%w: %q", errMalformed, data[:min(len(data), 64)])
	}
	var r response
	r.status = int(data[9]-'0')*100 + int(data[10]-'0')*10 + int(data[11]-'0')
	length, chunked := -1, false
	head, rest := data[:end+2], data[end+4:]
	for len(head) > 0 {
		stop := bytes.IndexByte(head, '\n') // there is one: the head ends in it
		name, value, _ := bytes.Cut(head[:stop-1], []byte(": "))
		switch head = head[stop+1:]; {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.Atoi(string(value))
			if err != nil {
				return r, fmt.Errorf("%w: %w", errMalformed, err)
			}
			length = n
		case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = string(value) == "chunked"
		case len(name) == len("Retry-After") && bytes.EqualFold(name, []byte("Retry-After")):
			r.later = len(value) > 0
		case len(name) == len("Idempotent-Replayed") && bytes.EqualFold(name, []byte("Idempotent-Replayed")):
			r.replayed = string(value) == "true"
		}
	}
	switch {
	case chunked:
		return r, r.chunks(rest, end+4)
	case length < 0:
		return r, fmt.Errorf("%w: status %d", errMalformed, r.status)
	case len(rest) < length:
		return r, errMore
	}
	r.body, r.size = rest[:length], end+4+length
	return r, nil
}

// chunks reads a chunked body that begins at an offset of the response.
func (r *response) chunks(rest []byte, offset int) error {
	for first := true; ; first = false {
		line := bytes.Index(rest, crlf)
		if line < 0 {
			return errMore
		}
		n, err := strconv.ParseUint(string(rest[:line]), 16, 24)
		if err != nil {
			return fmt.Errorf("%w: chunk of %w", errMalformed, err)
		}
		size := line + 2 + int(n) + 2
		if len(rest) < size {
			return errMore
		}
		if first {
			r.body = rest[line+2:][:n]
		}
		rest, offset = rest[size:], offset+size
		if n == 0 {
			r.size = offset
			return nil
		}
	}
}
