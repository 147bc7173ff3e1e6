package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Scope is what a token may be for.
type Scope string

// The scopes. Admin stands for all of them.
const (
	ScopeStockRead  Scope = "stock:read"
	ScopeStockWrite Scope = "stock:write"
	ScopeDeductions Scope = "deductions:write"
	ScopeAdmin      Scope = "admin"
)

// Token is an entry of the token file, which is a JSON list of them. Several entries may have one name: then each of
// these tokens is that client, so that one can be replaced by the next without a gap.
type Token struct {
	Name      string           `json:"name"`                // the client's identity, which owns keys and orders
	SHA256    string           `json:"sha256"`              // of the token, in hex; see [HashToken]
	Scopes    []Scope          `json:"scopes"`              // at least one
	Locations []stock.Location `json:"locations,omitempty"` // the only ones it is for; none: all
}

// HashToken is what a token file has in place of the token. Tokens are long and random, so a plain hash is enough.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

const (
	maxTokenFile = 4 << 20 // bytes
	maxTokens    = 10_000
)

// client is who calls, as one token says it.
type client struct {
	name      string
	hash      [sha256.Size]byte
	scopes    []Scope
	locations []stock.Location // nil: all
	inFlight  *atomic.Int64    // requests under way, shared by all tokens of the name
}

// named is the client under another name; only a defect asks for it.
func (c *client) named(name string) *client {
	other := *c
	other.name = name
	return &other
}

// may reports whether the client has the scope.
func (c *client) may(s Scope) bool {
	return slices.Contains(c.scopes, s) || slices.Contains(c.scopes, ScopeAdmin)
}

// reaches reports whether the client may name the location.
func (c *client) reaches(l stock.Location) bool {
	return c.locations == nil || slices.Contains(c.locations, l)
}

// Clients are all who may call, read from a token file.
type Clients struct {
	path string
	// known has the clients by the first bytes of their token's hash.
	known atomic.Pointer[map[prefix][]*client]

	mu   sync.Mutex
	seen os.FileInfo // guarded by mu: the file as it was when it was read last, well or not
}

// prefix of a hash. Looking it up takes a time that depends on it, which helps nobody to find a token; the hashes themselves are
// compared in constant time.
type prefix [8]byte

// OpenClients reads the token file at path.
func OpenClients(path string) (*Clients, error) {
	c := &Clients{path: path}
	c.known.Store(&map[prefix][]*client{})
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the token file again. When it is not valid, those known before stay.
func (c *Clients) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reloadLocked()
}

func (c *Clients) reloadLocked() error {
	text, info, err := readBounded(c.path)
	c.seen = info
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	known, err := parseTokens(text, *c.known.Load())
	if err != nil {
		return fmt.Errorf("token file %s: %w", c.path, err)
	}
	c.known.Store(&known)
	return nil
}

// Watch looks at the token file at this interval and reads it again when it has changed, until ctx ends. A file that is not
// valid is logged once and changes nothing.
func (c *Clients) Watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch changed, err := c.reloadIfChanged(); {
		case err != nil:
			log.Error("token file not taken over, the tokens known before stay valid", slog.Any("error", err))
		case changed:
			log.Info("token file read again", slog.Int("tokens", c.count()))
		}
	}
}

func (c *Clients) reloadIfChanged() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := os.Stat(c.path)
	if err != nil {
		now = nil
	}
	if sameFile(c.seen, now) {
		return false, nil
	}
	return true, c.reloadLocked()
}

// sameFile tells by identity, size and time of change; nil stands for a file that is not there.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (c *Clients) count() int {
	n := 0
	for _, some := range *c.known.Load() {
		n += len(some)
	}
	return n
}

// readBounded reads the file and what it was when it was opened.
func readBounded(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err == nil && len(text) > maxTokenFile {
		err = fmt.Errorf("has more than %d bytes", maxTokenFile)
	}
	return text, info, err
}

// parseTokens turns the file into clients. Requests under way go on counting for the names that were known before.
func parseTokens(text []byte, before map[prefix][]*client) (map[prefix][]*client, error) {
	var tokens []Token
	if err := json.Unmarshal(text, &tokens, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if len(tokens) == 0 || len(tokens) > maxTokens {
		return nil, fmt.Errorf("has %d tokens, not 1 to %d", len(tokens), maxTokens)
	}
	inFlight := make(map[string]*atomic.Int64)
	for _, some := range before {
		for _, c := range some {
			inFlight[c.name] = c.inFlight
		}
	}
	known := make(map[prefix][]*client, len(tokens))
	for i, t := range tokens {
		one, err := t.client()
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		if inFlight[t.Name] == nil {
			inFlight[t.Name] = new(atomic.Int64)
		}
		one.inFlight = inFlight[t.Name]
		key := prefix(one.hash[:])
		if slices.ContainsFunc(known[key], func(c *client) bool { return c.hash == one.hash }) {
			return nil, fmt.Errorf("token %d: its hash is there twice", i+1)
		}
		known[key] = append(known[key], one)
	}
	return known, nil
}

// client checks the entry.
func (t *Token) client() (*client, error) {
	if err := stock.CheckName(t.Name); err != nil {
		return nil, fmt.Errorf("name %w", err)
	}
	hash, err := hex.DecodeString(t.SHA256)
	if err != nil || len(hash) != sha256.Size {
		return nil, errors.New("sha256 must be 64 hex digits")
	}
	if len(t.Scopes) == 0 {
		return nil, errors.New("has no scopes")
	}
	for _, s := range t.Scopes {
		switch s {
		case ScopeStockRead, ScopeStockWrite, ScopeDeductions, ScopeAdmin:
		default:
			return nil, fmt.Errorf("unknown scope %q", s)
		}
	}
	if t.Locations != nil && len(t.Locations) == 0 {
		return nil, errors.New("locations must name one, or be left out")
	}
	for _, l := range t.Locations {
		if err := stock.CheckName(string(l)); err != nil {
			return nil, fmt.Errorf("location %w", err)
		}
	}
	return &client{name: t.Name, hash: [sha256.Size]byte(hash), scopes: t.Scopes, locations: t.Locations}, nil
}

// authenticate finds who sent these headers.
func (c *Clients) authenticate(h http.Header) (*client, error) {
	given := h["Authorization"]
	if len(given) > 1 {
		return nil, duplicateHeader("Authorization")
	}
	if len(given) == 0 {
		return nil, errUnauthenticated
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, errUnauthenticated
	}
	hash := sha256.Sum256([]byte(token))
	for _, known := range (*c.known.Load())[prefix(hash[:])] {
		if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
			return known, nil
		}
	}
	return nil, errUnauthenticated
}
