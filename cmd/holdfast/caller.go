package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 16 << 20
	// maxCalls bounds the calls under way at once; it is what a service lets one client have.
	maxCalls = 1024
	// firstPause and lastPause bound the pause before a request is sent again; it doubles from one to the other.
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// target says which running service to call, and as whom.
type target struct {
	URL       string        `env:"HOLDFAST_URL" default:"http://127.0.0.1:8080" help:"The running service."`
	Token     string        `env:"HOLDFAST_TOKEN" help:"Token to call it with."`
	TokenFile string        `default:".dev/token" help:"File to read the token from when none is given."`
	Patience  time.Duration `default:"30s" help:"How long to go on sending one request that gets no answer, or 429 or 503."`
}

// caller for the service.
func (t *target) caller() (*caller, error) {
	token := t.Token
	if token == "" {
		text, err := os.ReadFile(t.TokenFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("no token: give --token, HOLDFAST_TOKEN or --token-file (%s is not there)", t.TokenFile)
		case err != nil:
			return nil, err
		}
		token = strings.TrimSpace(string(text))
	}
	c := newCaller(t.URL, token)
	c.patience = t.Patience
	return c, nil
}

// caller calls a running service as a client would.
type caller struct {
	base     string
	token    string
	http     *http.Client
	patience time.Duration // for one request, over all its attempts

	sent    atomic.Int64 // attempts
	mu      sync.Mutex
	retries map[string]int // by reason; guarded by mu
}

func newCaller(base, token string) *caller {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = maxCalls, maxCalls
	return &caller{
		base: strings.TrimSuffix(base, "/"), token: token, retries: make(map[string]int),
		http: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}
}

// request is one call of the API.
type request struct {
	method, path string
	key          string // idempotency key, if any
	header       map[string]string
	body         any // sent as JSON, if any
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one attempt. An error means that there is no answer: whether it had its effect is not known.
func (c *caller) send(ctx context.Context, r request) (*answer, error) {
	var content io.Reader = http.NoBody
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	call, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, content)
	if err != nil {
		return nil, err
	}
	call.Header.Set("Authorization", "Bearer "+c.token)
	if r.body != nil {
		call.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		call.Header.Set("Idempotency-Key", r.key)
	}
	for name, value := range r.header {
		call.Header.Set(name, value)
	}
	c.sent.Add(1)
	response, err := c.http.Do(call)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return &answer{response.StatusCode, response.Header, text}, nil
}

// streamRequest is a call whose body or answer is too large to be kept.
type streamRequest struct {
	method, path string
	header       map[string]string
	body         io.Reader // nil: none
	size         int64     // of the body, below 0 when it is not known
}

// stream makes one attempt and returns a successful answer as a stream that the caller has to close, any other one as
// a whole.
func (c *caller) stream(ctx context.Context, r streamRequest) (io.ReadCloser, *answer, error) {
	call, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, r.body)
	if err != nil {
		return nil, nil, err
	}
	call.ContentLength = r.size
	call.Header.Set("Authorization", "Bearer "+c.token)
	for name, value := range r.header {
		call.Header.Set(name, value)
	}
	// It may take as long as it takes: the service ends a stream that stands still.
	response, err := (&http.Client{Transport: c.http.Transport}).Do(call)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode < 300 {
		return response.Body, nil, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return nil, &answer{response.StatusCode, response.Header, text}, err
}

// errGaveUp: no final answer came within the caller's patience. Whether the request had its effect is not known.
var errGaveUp = errors.New("gave up")

// persist sends a request, the same one with the same key, until it gets an answer that sending it again would not
// better, or until patience is over. Pauses grow, are jittered, and are no shorter than Retry-After.
func (c *caller) persist(ctx context.Context, r request) (*answer, error) {
	until := time.Now().Add(c.patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		a, err := c.send(ctx, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		why := a.again()
		if err == nil && why == "" {
			return a, nil
		}
		wait := pause/2 + rand.N(pause)
		if err != nil {
			why = "no answer"
		} else {
			wait = max(wait, a.retryAfter()+rand.N(firstPause))
			err = a.must()
		}
		if time.Now().Add(wait).After(until) {
			return nil, fmt.Errorf("%s %s: %w after %v: %w", r.method, r.path, errGaveUp, c.patience, err)
		}
		c.mu.Lock()
		c.retries[why]++
		c.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// again says why the same request should be sent again, or "" when the answer is final.
func (a *answer) again() string {
	switch {
	case a == nil:
		return ""
	case a.status == http.StatusTooManyRequests, a.status >= http.StatusInternalServerError,
		a.header.Get("Retry-After") != "":
		if kind := a.problem().kind(); kind != "" {
			return kind
		}
		return strconv.Itoa(a.status)
	}
	return ""
}

func (a *answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// replayed reports whether the service says that it did nothing now, because it had been done before.
func (a *answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// problem is what an answer says when it is none of success.
type problem struct {
	Type   string      `json:"type"`
	Status int         `json:"status"`
	Title  string      `json:"title"`
	Detail string      `json:"detail"`
	Short  []shortLine `json:"short"`
}

// shortLine is a line that cannot be served.
type shortLine struct {
	Pointer   string `json:"pointer"`
	SKU       string `json:"sku"`
	Requested int64  `json:"requested"`
	Available int64  `json:"available"`
	Version   int64  `json:"version"`
}

// kind is the last part of the problem's type: its name.
func (p *problem) kind() string { return p.Type[strings.LastIndexByte(p.Type, ':')+1:] }

// problem of an answer; one that is not a problem document has only zero values.
func (a *answer) problem() *problem {
	var p problem
	_ = json.Unmarshal(a.body, &p) // the status says enough
	return &p
}

// must turns an answer that is no success into an error that says what the service said.
func (a *answer) must() error {
	if a.status < 300 {
		return nil
	}
	p := a.problem()
	p.Status = a.status
	return p.error()
}

// error says what the service said.
func (p *problem) error() error { return fmt.Errorf("%d %s %s", p.Status, p.Title, p.Detail) }

// read decodes the body of a successful answer.
func (a *answer) read(into any) error {
	if err := a.must(); err != nil {
		return err
	}
	return json.Unmarshal(a.body, into)
}

// levels are an item's figures as of one version, as the API shows them.
type levels struct {
	SKU         string `json:"sku"`
	Location    string `json:"location"`
	OnHand      int64  `json:"on_hand"`
	Held        int64  `json:"held"`
	SafetyStock int64  `json:"safety_stock"`
	Available   int64  `json:"available"`
	Version     int64  `json:"version"`
}

// item is what the API shows of an item.
type item struct {
	levels
	LowStockAt *int64 `json:"low_stock_at"`
	Label      string `json:"label"`
}

// maxPage is how many entries the API gives at once.
const maxPage = 1000

// items calls each with every item, of one location or, when that is empty, of all.
func (c *caller) items(ctx context.Context, location string, each func(*item) error) error {
	query := url.Values{"limit": {strconv.Itoa(maxPage)}}
	if location != "" {
		query.Set("location", location)
	}
	for {
		a, err := c.persist(ctx, request{method: http.MethodGet, path: "/v1/stock?" + query.Encode()})
		if err != nil {
			return err
		}
		var page struct {
			Items      []item `json:"items"`
			NextCursor string `json:"next_cursor"`
		}
		if err := a.read(&page); err != nil {
			return fmt.Errorf("list stock: %w", err)
		}
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		if page.NextCursor == "" {
			return nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// stockPath is the path of an item, or of what is below it; without a location it is the default one that is changed.
func stockPath(sku, below, location string) string {
	segment := url.PathEscape(sku)
	if sku == "export" && below == "" {
		segment = "%65xport" // the path of that name is another one
	}
	if strings.Trim(sku, ".") == "" {
		segment = strings.Repeat("%2E", len(sku)) // a segment of dots would lead somewhere else
	}
	path := "/v1/stock/" + segment + below
	if location != "" {
		path += "?location=" + url.QueryEscape(location)
	}
	return path
}

func (c *caller) exists(ctx context.Context, path string) (bool, error) {
	a, err := c.send(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return false, err
	}
	if a.status == http.StatusNotFound {
		return false, nil
	}
	return true, a.must()
}

func (c *caller) put(ctx context.Context, path string, body any) error {
	a, err := c.send(ctx, request{method: http.MethodPut, path: path, body: body})
	if err != nil {
		return err
	}
	return a.must()
}

func (c *caller) post(ctx context.Context, path, key string, body any) error {
	a, err := c.send(ctx, request{method: http.MethodPost, path: path, key: key, body: body})
	if err != nil {
		return err
	}
	return a.must()
}
