package httpclient

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Field is one header field of a request.
type Field struct{ Name, Value string }

// Request is one request to send.
type Request struct {
	Method  string
	URL     *url.URL // absolute, http or https
	Header  []Field  // names in canonical form; Content-Length, Connection and Transfer-Encoding are the client's
	Body    []byte   // nil for none
	Timeout time.Duration
	Discard bool // do not keep the body of the answer
}

// Timings says how long each phase of a request took.
type Timings struct {
	Blocked        time.Duration // until a connection was there, with Connecting and TLSHandshaking
	Connecting     time.Duration
	TLSHandshaking time.Duration
	Sending        time.Duration
	Waiting        time.Duration // from the last byte sent to the first received
	Receiving      time.Duration
}

// Duration is sending, waiting and receiving together.
func (t *Timings) Duration() time.Duration { return t.Sending + t.Waiting + t.Receiving }

// Answer is what came of a request. When Err is set there is no status and no body, even if the head of an answer came:
// a cut answer proves nothing.
type Answer struct {
	Status     int
	StatusText string // "200 OK"
	Proto      string
	Header     http.Header
	Body       []byte // nil when discarded
	Timings    Timings
	Sent       int64 // bytes on the wire
	Received   int64
	Remote     string // address of the server
	TLS        *tls.ConnectionState
	Err        error

	last bool // the server will close the connection after this answer
}

// Send sends one request and reads its answer. It never follows a redirect.
//
// A request that met a kept connection at the very moment the server closed it is sent once more on a new one, if it
// is safe to repeat: GET, HEAD, OPTIONS, TRACE or one that carries an Idempotency-Key. That is net/http's rule.
func (c *Client) Send(req *Request) *Answer {
	a := &Answer{}
	if a.Err = req.check(); a.Err != nil {
		return a
	}
	began := time.Now()
	deadline := began.Add(req.Timeout)
	t := targetOf(req.URL)
	for attempt := 0; ; attempt++ {
		cn, reused, err := c.take(t, deadline, &a.Timings)
		a.Timings.Blocked = time.Since(began)
		if err != nil {
			a.Err = err
			return a
		}
		err = c.exchange(cn, req, a)
		c.release(t, cn, err == nil && !a.last)
		if err == nil {
			return a
		}
		if attempt == 0 && reused && a.Received == 0 && req.repeatable() && closedByServer(err) {
			a.Sent, a.Timings = 0, Timings{}
			continue
		}
		a.Err, a.Status, a.StatusText, a.Body = c.readable(err), 0, "", nil
		return a
	}
}

// exchange writes the request and reads the whole answer.
func (c *Client) exchange(cn *conn, req *Request, a *Answer) error {
	began := time.Now()
	before := cn.received
	a.Remote, a.TLS = cn.RemoteAddr().String(), cn.tls
	defer func() { a.Received += cn.received - before }()

	cn.out = req.write(cn.out[:0], c.cfg.UserAgent)
	n, unsent := cn.Write(cn.out)
	a.Sent += int64(n)
	sent := time.Now()
	a.Timings.Sending = sent.Sub(began)
	if unsent != nil && !closedByServer(unsent) {
		return unsent
	}
	_, err := cn.reader.Peek(1) // a server may answer and close before it has read everything
	first := time.Now()
	a.Timings.Waiting = first.Sub(sent)
	if err != nil {
		return cmp.Or(unsent, err)
	}
	err = a.read(cn, req)
	a.Timings.Receiving = time.Since(first)
	a.last = a.last || unsent != nil
	return err
}

// read parses the answer, interim ones skipped, and reads its body to the end.
func (a *Answer) read(cn *conn, req *Request) error {
	like := &http.Request{Method: req.Method}
	var res *http.Response
	for interim := 0; ; interim++ {
		var err error
		res, err = http.ReadResponse(cn.reader, like) //nolint:bodyclose // the connection is the client's own to close
		if err != nil {
			return err
		}
		if res.StatusCode >= 200 {
			break
		}
		if res.StatusCode == http.StatusSwitchingProtocols || interim > 10 {
			return fmt.Errorf("unexpected interim answer %s", res.Status)
		}
	}
	a.Status, a.StatusText, a.Proto, a.Header = res.StatusCode, res.Status, res.Proto, res.Header
	a.last = res.Close || !res.ProtoAtLeast(1, 1)
	if req.Discard {
		_, err := io.Copy(io.Discard, res.Body)
		return err
	}
	body := make([]byte, 0, max(0, min(res.ContentLength, maxBody))+1)
	body, err := readAll(body, res.Body)
	if err != nil {
		return err
	}
	a.Body, err = decode(a.Header.Get("Content-Encoding"), body)
	return err
}

// readAll appends all of r to buf, up to maxBody.
func readAll(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, 512)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > maxBody {
			return nil, fmt.Errorf("the body is larger than %d bytes", maxBody)
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (req *Request) repeatable() bool {
	switch req.Method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return slices.ContainsFunc(req.Header, func(f Field) bool {
		return f.Name == "Idempotency-Key" || f.Name == "X-Idempotency-Key"
	})
}

// check refuses what cannot be written as one well-formed request.
func (req *Request) check() error {
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Hostname() == "" {
		return fmt.Errorf("%w: %q is not an absolute http or https URL", ErrURL, req.URL)
	}
	if !httpguts.ValidHeaderFieldName(req.Method) {
		return fmt.Errorf("%q is not a method", req.Method)
	}
	return req.CheckHeader()
}

// CheckHeader refuses header fields that are malformed or that the client sets itself.
func (req *Request) CheckHeader() error {
	for _, f := range req.Header {
		if !httpguts.ValidHeaderFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return fmt.Errorf("header field %q: %q is not valid", f.Name, f.Value)
		}
		switch f.Name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade":
			return fmt.Errorf("header field %s is the client's to set", f.Name)
		}
	}
	return nil
}

// write appends the request in wire form to b.
func (req *Request) write(b []byte, userAgent string) []byte {
	host, agent := req.URL.Host, userAgent
	for _, f := range req.Header {
		switch f.Name {
		case "Host":
			host = f.Value
		case "User-Agent":
			agent = f.Value
		}
	}
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	if agent != "" {
		b = append(b, "\r\nUser-Agent: "...)
		b = append(b, agent...)
	}
	b = append(b, "\r\n"...)
	for _, f := range req.Header {
		if f.Name == "Host" || f.Name == "User-Agent" {
			continue
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	if req.Body != nil || req.Method == "POST" || req.Method == "PUT" || req.Method == "PATCH" {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(req.Body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, req.Body...)
}

// readable turns the error of a deadline, which Cut or the timeout has set, into what it means.
func (c *Client) readable(err error) error {
	if !isTimeout(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return ErrCut
	}
	return ErrTimeout
}

// Redirect returns the request that follows an answer which points elsewhere, nil when it does not.
func Redirect(req *Request, a *Answer) (*Request, error) {
	location := a.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	next := *req
	switch a.Status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if req.Method != "GET" && req.Method != "HEAD" {
			next.Method, next.Body = "GET", nil
			next.Header = slices.DeleteFunc(slices.Clone(req.Header), func(f Field) bool {
				return strings.HasPrefix(f.Name, "Content-")
			})
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	to, err := req.URL.Parse(location)
	if err != nil {
		return nil, errors.Join(ErrURL, err)
	}
	if to.Host != req.URL.Host {
		next.Header = slices.DeleteFunc(slices.Clone(next.Header), func(f Field) bool {
			return f.Name == "Authorization" || f.Name == "Host" // not for strangers
		})
	}
	next.URL = to
	return &next, nil
}
