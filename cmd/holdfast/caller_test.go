package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serveScript answers one request after the other as scripted, the last answer again and again. The function it returns
// lists the keys and bodies that came.
func serveScript(t *testing.T, script ...http.HandlerFunc) (*caller, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		got = append(got, r.Header.Get("Idempotency-Key")+" "+string(body))
		answer := script[min(len(got), len(script))-1]
		mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	c := newCaller(server.URL, "token")
	c.patience = 10 * time.Second
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func problemAnswer(status int, kind, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"urn:holdfast:problem:`+kind+`"}`)
	}
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestPersistSendsTheSameRequestUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	c, got := serveScript(t,
		hangUp,
		problemAnswer(503, "overloaded", "1"),
		problemAnswer(429, "rate-limited", ""),
		problemAnswer(500, "internal", ""),
		problemAnswer(503, "ledger-unavailable", "1"),
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
	)
	// The transport would send a keyed request again by itself when a connection that was used before breaks.
	c.http.Transport.(*http.Transport).DisableKeepAlives = true
	began := time.Now()
	a, err := c.persist(t.Context(), request{method: "POST", path: "/", key: "k", body: map[string]int{"n": 1}})
	if err != nil || a.status != http.StatusCreated {
		t.Fatal(a, err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it took %v, but was told twice to wait a second", took)
	}
	same := `k {"n":1}`
	if diff := cmp.Diff([]string{same, same, same, same, same, same}, got()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	want := map[string]int{"no answer": 1, "overloaded": 1, "rate-limited": 1, "internal": 1, "ledger-unavailable": 1}
	if diff := cmp.Diff(want, c.retries); diff != "" || c.sent.Load() != 6 {
		t.Errorf("sent %d, retries (-want +got):\n%s", c.sent.Load(), diff)
	}
}

func TestPersistTakesARefusalForAnAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 404, 409, 412, 422} {
		c, got := serveScript(t, problemAnswer(status, "some", ""))
		a, err := c.persist(t.Context(), request{method: "POST", path: "/", key: "k"})
		if err != nil || a.status != status || len(got()) != 1 || a.problem().kind() != "some" {
			t.Errorf("%d: %+v, %v, after %d requests", status, a, err, len(got()))
		}
	}
}

func TestPersistGivesUp(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]http.HandlerFunc{"no answer": hangUp, "overloaded": problemAnswer(503, "overloaded", "")} {
		c, got := serveScript(t, script)
		c.patience = time.Second
		began := time.Now()
		_, err := c.persist(t.Context(), request{method: "GET", path: "/"})
		if took := time.Since(began); !errors.Is(err, errGaveUp) || took > 10*time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		if n := len(got()); n < 2 || n > 20 {
			t.Errorf("%s: %d attempts", name, n)
		}
	}
	c, _ := serveScript(t, problemAnswer(503, "overloaded", "1"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.persist(ctx, request{method: "GET", path: "/"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want to stop with the context", err)
	}
}

func TestTokenComesFromFlagOrFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target target
		want   string
	}{{target{TokenFile: file}, "secret"}, {target{Token: "given", TokenFile: file}, "given"}, {target{TokenFile: file + "x"}, ""}} {
		api, err := c.target.caller()
		if (err != nil) != (c.want == "") || err == nil && api.token != c.want {
			t.Errorf("%+v: %+v, %v", c.target, api, err)
		}
	}
}

func TestPathsOfItems(t *testing.T) {
	t.Parallel()
	for sku, want := range map[string]string{
		"85123A": "/v1/stock/85123A", "a/b": "/v1/stock/a%2Fb", "%2F": "/v1/stock/%252F", "..": "/v1/stock/%2E%2E", "...": "/v1/stock/%2E%2E%2E",
		"a.b": "/v1/stock/a.b", "a b?": "/v1/stock/a%20b%3F", "ä": "/v1/stock/%C3%A4",
	} {
		if got := stockPath(sku, "", ""); got != want {
			t.Errorf("%q: %s, want %s", sku, got, want)
		}
	}
	if got, want := stockPath("a", "/adjustments", "x&y"), "/v1/stock/a/adjustments?location=x%26y"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
