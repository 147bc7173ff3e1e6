package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// call is one request on its way through the API, and the [http.ResponseWriter] of its answer: that is how a handler behind chi and
// the generated wrapper gets at it. Its buffers serve many requests, one after the other.
type call struct {
	exchange
	body body
	out  []byte // the answer is encoded in it
}

// exchange is what a call has of one request alone.
type exchange struct {
	http.ResponseWriter
	api    *API
	r      *http.Request
	ctx    context.Context // ends with the request's deadline; nil until admitted
	cancel context.CancelFunc
	began  time.Time
	id     string
	route  *route
	client *client // who calls; nil until admitted
	weight int64   // of the room it takes

	short  string // where in the body a short line is, when it is not in its lines
	status int    // of the answer; 0 until it is begun
	kind   string // of the problem, if the answer is one
	err    error  // what an operator should read, if anything
	cut    bool   // half an answer was sent, and the rest will not be
}

// keepBuffer is the size, in bytes, above which a buffer is not kept for the next request.
const keepBuffer = 64 << 10

func (c *call) begin(a *API, w http.ResponseWriter, r *http.Request) {
	c.exchange = exchange{ResponseWriter: w, api: a, r: r, began: time.Now(), id: requestID(r.Header), route: a.unmatched}
	c.out = c.out[:0]
}

// finish gives everything back and writes the one log line and the one observation, whatever happened.
func (a *API) finish(c *call) {
	broken := recover()
	half := broken != nil && c.status != 0 || c.cut
	if broken != nil {
		c.panicked(broken)
	}
	if c.cancel != nil {
		c.cancel()
	}
	if c.client != nil {
		c.client.inFlight.Add(-c.weight)
		a.inFlight.Add(-c.weight)
	}
	took := time.Since(c.began)
	c.route.observe(c.status, took, c.kind)
	c.logLine(took)
	c.recycle()
	if half {
		panic(http.ErrAbortHandler) // closes the connection: half an answer must not look whole
	}
}

// panicked answers for a defect, if nothing was answered yet.
func (c *call) panicked(v any) {
	if c.status == 0 {
		c.refuse(errInternal)
	}
	c.kind = "internal"
	c.err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
}

// recycle forgets the request, so that nothing keeps it alive, and offers the call for another one.
func (c *call) recycle() {
	a := c.api
	c.exchange = exchange{}
	if cap(c.out) > keepBuffer {
		c.out = nil
	}
	if c.body.buf.Cap() > keepBuffer {
		c.body = body{}
	}
	a.calls.Put(c)
}

// logLine never shows a token or a key, and a path only as the pattern it matched.
func (c *call) logLine(took time.Duration) {
	level := slog.LevelInfo
	switch {
	case c.kind == "internal":
		level = slog.LevelError
	case c.status >= 500:
		level = slog.LevelWarn
	}
	log := c.route.log
	if !log.Enabled(context.Background(), level) {
		return
	}
	name := ""
	if c.client != nil {
		name = c.client.name
	}
	attrs := [6]slog.Attr{
		slog.Int("status", c.status),
		slog.Int64("duration_us", took.Microseconds()),
		slog.String("client", name),
		slog.String("request_id", c.id),
	}
	n := 4
	if c.kind != "" {
		attrs[n] = slog.String("problem", c.kind)
		n++
	}
	if c.err != nil {
		attrs[n] = slog.String("error", c.err.Error())
		n++
	}
	log.LogAttrs(context.Background(), level, "request", attrs[:n]...)
}

// WriteHeader notes the status on its way out.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write notes that an answer has begun.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

const requestIDHeader = "X-Request-Id"

// requestID is the caller's own if it is a sane one, else 96 random bits in hex.
func requestID(h http.Header) string {
	if given := h[requestIDHeader]; len(given) == 1 && saneID(given[0]) {
		return given[0]
	}
	var random [16]byte
	binary.NativeEndian.PutUint64(random[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(random[8:], rand.Uint64())
	return hex.EncodeToString(random[:12])
}

// saneID keeps what could upset a log, a header or a URI out.
func saneID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// admit lets the request in to route, or says why not: who it is comes first, then room, then what he may.
func (c *call) admit(to *route) error {
	c.route = to
	a := c.api
	client, err := a.clients.authenticate(c.r.Header)
	if err != nil {
		return err
	}
	if defect.On(defect.ReplayAcrossClients) {
		client = client.named("anyone")
	}
	c.weight = min(to.limit()/maxBody, a.maxInFlight, a.maxPerClient) // so that any request fits in when it is alone
	if a.inFlight.Add(c.weight) > a.maxInFlight {
		a.inFlight.Add(-c.weight)
		return stock.ErrOverloaded
	}
	c.client = client // from here on finish gives the room back
	if client.inFlight.Add(c.weight) > a.maxPerClient {
		return errRateLimited
	}
	if !client.may(to.scope) && (to.or == "" || !client.may(to.or)) {
		return forbidden("The token lacks the scope " + string(to.scope) + ".")
	}
	if err := checkQuery(c.r.URL.RawQuery, to.query); err != nil {
		return err
	}
	deadline := a.deadline
	if to.streams {
		deadline = maxStreamTime
	}
	c.ctx, c.cancel = context.WithTimeout(c.r.Context(), deadline)
	return nil
}

// admitted is [call.admit], answering when it fails.
func (c *call) admitted(to *route) bool {
	err := c.admit(to)
	if err != nil {
		c.fail(err)
	}
	return err == nil
}

// checkQuery refuses parameters nobody asked for: a misspelt location must not mean the default one.
func checkQuery(raw string, known []string) error {
	if raw == "" {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return &refusal{kind: errMalformed, parameter: "query", detail: "the query string has an invalid escape or a semicolon"}
	}
	for name := range query {
		if !slices.Contains(known, name) {
			return invalidParameter(name, "is not a parameter of this path")
		}
	}
	return nil
}

// read takes the request's body in, which must be there.
func (c *call) read(into func(*body)) error {
	if err := checkMediaType(c.r.Header); err != nil {
		return err
	}
	if err := c.body.load(c.r, c.route.limit()); err != nil {
		return err
	}
	return c.body.parse(into)
}

// readIfAny takes the request's body in if there is one.
func (c *call) readIfAny(into func(*body)) error {
	if c.r.ContentLength == 0 {
		return nil
	}
	if err := c.body.load(c.r, c.route.limit()); err != nil {
		return err
	}
	if c.body.buf.Len() == 0 {
		return nil
	}
	if err := checkMediaType(c.r.Header); err != nil {
		return err
	}
	return c.body.parse(into)
}

// checkMediaType accepts JSON in UTF-8 and nothing else.
func checkMediaType(h http.Header) error {
	given := h["Content-Type"]
	if len(given) > 1 {
		return duplicateHeader("Content-Type")
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return errMediaType
	}
	switch {
	case len(given) == 0:
		return errMediaType
	case given[0] == "application/json": // what nearly everybody sends
		return nil
	}
	kind, params, err := mime.ParseMediaType(given[0])
	charset, named := params["charset"]
	if err != nil || kind != "application/json" || named && !strings.EqualFold(charset, "utf-8") {
		return errMediaType
	}
	return nil
}

func duplicateHeader(name string) error {
	return &refusal{kind: errDuplicateHeader, parameter: name, detail: name + " must be there once"}
}

// keyed is what an idempotency key names: a request of this client.
func (c *call) keyed(key string) (stock.Keyed, error) { return c.keyedIn(keyHeader, key) }

// keyedIn is [call.keyed] for a key that came in as another parameter.
func (c *call) keyedIn(parameter, key string) (stock.Keyed, error) {
	k, err := parseKey(parameter, key)
	return stock.Keyed{Client: c.client.name, Key: k}, err
}

// mayUse refuses locations the token is not for.
func (c *call) mayUse(location stock.Location) error {
	if c.client.reaches(location) {
		return nil
	}
	return forbidden("The token is not for location " + strconv.Quote(string(location)) + ".")
}

// The values of headers that most answers have. Nobody may change them: they are shared.
var (
	contentJSON    = []string{"application/json"}
	contentProblem = []string{"application/problem+json"}
	noSniff        = []string{"nosniff"}
)

// answer sends the encoded body b. A write that fails means that nobody listens any more: nothing could be done about it.
func (c *call) answer(status int, contentType []string, b []byte) {
	c.out = b
	h := c.Header()
	h["Content-Type"] = contentType
	h["X-Content-Type-Options"] = noSniff
	h[requestIDHeader] = []string{c.id}
	c.WriteHeader(status)
	_, _ = c.Write(b)
}

// run is the one shape of every operation: what do returns is how it failed; else it has answered.
func (c *call) run(do func() error) {
	if err := do(); err != nil {
		c.fail(err)
	}
}

// fail answers with the problem that err is. Once the client has hung up, whatever failed did so because of that; net/http says the same when it
// gives up a client that is still there.
func (c *call) fail(err error) {
	if c.r.Context().Err() != nil && !errors.Is(err, errLate) {
		err = context.Canceled
	}
	if p := c.refuse(err); p.status >= http.StatusInternalServerError {
		c.err = err
	}
}

func (c *call) refuse(err error) *problem {
	p := c.api.problemOf(err)
	c.kind = p.name
	h := c.Header()
	if p.seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(p.seconds))
	}
	if precondition, ok := errors.AsType[*stock.PreconditionError](err); ok {
		h.Set("ETag", etagOf(precondition.Levels.Version))
	}
	switch p.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	case http.StatusForbidden:
		h.Set("WWW-Authenticate", `Bearer realm="holdfast", error="insufficient_scope"`)
	}
	c.answer(p.status, contentProblem, appendProblem(c.out[:0], p, c.id, place{short: c.short}, err))
	return p
}
