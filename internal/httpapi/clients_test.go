package httpapi_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

func TestTokenFilesThatAreNotValid(t *testing.T) {
	t.Parallel()
	hash := httpapi.HashToken("x")
	entry := `{"name":"a","sha256":"` + hash + `","scopes":["admin"]}`
	for name, text := range map[string]string{
		"empty":            ``,
		"null":             `null`,
		"no tokens":        `[]`,
		"not a list":       entry,
		"no name":          `[{"sha256":"` + hash + `","scopes":["admin"]}]`,
		"bad name":         `[{"name":" a","sha256":"` + hash + `","scopes":["admin"]}]`,
		"short hash":       `[{"name":"a","sha256":"abcd","scopes":["admin"]}]`,
		"a token, no hash": `[{"name":"a","sha256":"` + strings.Repeat("x", 64) + `","scopes":["admin"]}]`,
		"no scopes":        `[{"name":"a","sha256":"` + hash + `","scopes":[]}]`,
		"unknown scope":    `[{"name":"a","sha256":"` + hash + `","scopes":["root"]}]`,
		"no locations":     `[{"name":"a","sha256":"` + hash + `","scopes":["admin"],"locations":[]}]`,
		"bad location":     `[{"name":"a","sha256":"` + hash + `","scopes":["admin"],"locations":[""]}]`,
		"unknown member":   `[{"name":"a","sha256":"` + hash + `","scopes":["admin"],"location":["x"]}]`,
		"same hash twice":  `[` + entry + `,` + entry + `]`,
		"trailing":         `[` + entry + `] x`,
		"too large":        `[` + entry + `]` + strings.Repeat(" ", 4<<20),
	} {
		path := filepath.Join(t.TempDir(), "tokens.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := httpapi.OpenClients(path); err == nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), hash) {
			t.Errorf("%s: the error shows a hash: %v", name, err)
		}
	}
	if _, err := httpapi.OpenClients(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a file that is not there was taken")
	}
}

func TestTokensAreReadAgainWhenTheFileChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	log := new(logLines)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		w.clients.Watch(ctx, time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
	}()
	defer func() { cancel(); <-watched }()
	becomes := func(token string, status int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); w.call(t, token, "GET", "/v1/stock", "").status != status; {
			if time.Now().After(deadline) {
				t.Fatalf("%s never got %d; log:\n%s", token, status, log)
			}
		}
	}
	logged := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), text); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q was never logged:\n%s", text, log)
			}
		}
	}
	next := append(tokens(), httpapi.Token{Name: "shop", SHA256: httpapi.HashToken("next"), Scopes: []httpapi.Scope{httpapi.ScopeStockRead}})
	becomes("next", 401)
	writeTokens(t, w.tokens, next)
	becomes("next", 200)
	becomes(shop, 200)

	if err := os.WriteFile(w.tokens, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	logged("not taken over")
	becomes("next", 200)
	if err := os.Remove(w.tokens); err != nil {
		t.Fatal(err)
	}
	logged("no such file")
	becomes("next", 200)
	before := strings.Count(log.String(), "no such file")

	writeTokens(t, w.tokens, next[len(next)-1:])
	becomes(shop, 401)
	if n := strings.Count(log.String(), "no such file"); n != before || n > 2 {
		t.Errorf("a missing file was logged %d times", n)
	}
}
