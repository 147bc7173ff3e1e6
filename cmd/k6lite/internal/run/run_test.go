package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/run"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/summary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play is one run of a script.
type play struct {
	script string
	files  map[string]string // beside the script
	env    map[string]string
	cli    option.CommandLine
	ctx    context.Context
}

// result is what came of it.
type result struct {
	code   int
	stdout string
	stderr string
	data   summary.Data // from handleSummary, when the script left that to the test
	took   time.Duration
}

// run runs the script; unless it has a handleSummary of its own, the data it would get is in the result.
func (p play) run(t *testing.T) result {
	t.Helper()
	dir := t.TempDir()
	own := strings.Contains(p.script, "handleSummary")
	if !own {
		p.script += "\nexport function handleSummary(data) { return { stdout: JSON.stringify(data) }; }\n"
	}
	for name, text := range p.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "script.js")
	if err := os.WriteFile(path, []byte(p.script), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.ctx == nil {
		p.ctx = context.Background()
	}
	if p.env == nil {
		p.env = map[string]string{}
	}
	var stdout, stderr bytes.Buffer
	began := time.Now()
	code := run.Run(p.ctx, run.Config{Script: path, Env: p.env, CLI: p.cli, Quiet: true, Stdout: &stdout, Stderr: &stderr})
	r := result{code: code, stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	if !own && strings.HasPrefix(r.stdout, "{") {
		if err := json.Unmarshal(stdout.Bytes(), &r.data); err != nil {
			t.Fatalf("%v in %s", err, r.stdout)
		}
	}
	return r
}

// wantCode fails the test when the run ended with another exit code.
func (r result) wantCode(t *testing.T, want int) {
	t.Helper()
	if r.code != want {
		t.Errorf("exit code %d, want %d\n%s", r.code, want, r.stderr)
	}
}

// value returns one value of one metric, and fails the test when it is not there.
func (r result) value(t *testing.T, metric, name string) float64 {
	t.Helper()
	v, ok := r.data.Metrics[metric].Values[name]
	if !ok {
		t.Errorf("no %s of %s; log: %s", name, metric, r.stderr)
	}
	return v
}

func (r result) want(t *testing.T, metric, name string, want float64) {
	t.Helper()
	if got := r.value(t, metric, name); got != want {
		t.Errorf("%s of %s: got %v, want %v", name, metric, got, want)
	}
}

// between is for what depends on the clock.
func (r result) between(t *testing.T, metric, name string, low, high float64) {
	t.Helper()
	if got := r.value(t, metric, name); got < low || got > high {
		t.Errorf("%s of %s: got %v, want between %v and %v", name, metric, got, low, high)
	}
}

// logged fails the test when the log lacks one of the texts.
func (r result) logged(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("the log lacks %q:\n%s", text, r.stderr)
		}
	}
}

// server is what the scripts talk to. It counts what it sees.
type server struct {
	*httptest.Server
	requests atomic.Int64
	parallel atomic.Int64 // most requests at once
	now      atomic.Int64

	mu   sync.Mutex // guards seen
	seen []string
}

// serve answers: /status/N with that status, /sleep/MS after that time, /echo with the request as JSON, all else "ok".
func serve(t *testing.T) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	return s
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.parallel.Load(); now > most && !s.parallel.CompareAndSwap(most, now); most = s.parallel.Load() {
	}
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	var n int
	switch {
	case scan(r.URL.Path, "/status/%d", &n):
		w.WriteHeader(n)
	case scan(r.URL.Path, "/sleep/%d", &n):
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
		case <-r.Context().Done():
		}
	case r.URL.Path == "/echo":
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "url": r.URL.String(), "headers": r.Header, "body": string(body)})
	case r.URL.Path == "/json":
		_, _ = io.WriteString(w, `{"zero":0,"minus":-0,"big":9007199254740991,"half":5e-1,"\u00fc\n":null,"__proto__":{"a":[]},"s":"\ud83d\ude80"}`)
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case r.URL.Path == "/cookie":
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
	default:
		_, _ = io.WriteString(w, "ok")
	}
}

func scan(path, format string, n *int) bool {
	_, err := fmt.Sscanf(path, format, n)
	return err == nil
}

// with puts the server's address into a script, for BASE.
func (s *server) with(script string) string { return strings.ReplaceAll(script, "BASE", s.URL) }

func contains(text, part string) bool { return strings.Contains(text, part) }

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(content)
}
