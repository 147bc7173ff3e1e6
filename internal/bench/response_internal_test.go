package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
)

// raw is what net/http sends: the response of a handler, as bytes.
func raw(t *testing.T, handle http.HandlerFunc) []byte {
	t.Helper()
	server := httptest.NewServer(handle)
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := httputil.DumpResponse(response, true)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestResponsesOfAServerAreRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 300)
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   response
		body   string
	}{
		"with a length": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "taken")
		}, response{status: 201}, "taken"},
		"replayed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", "true")
			fmt.Fprint(w, "taken")
		}, response{status: 200, replayed: true}, "taken"},
		"not replayed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", "false")
		}, response{status: 200}, ""},
		"empty":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, response{status: 503}, ""},
		"chunked": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) }, response{status: 200}, long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := raw(t, c.handle)
			// Every beginning is not whole yet; with the next response behind it, it ends where it ends.
			for n := range text {
				if _, err := parseResponse(text[:n]); !errors.Is(err, errMore) {
					t.Fatalf("the first %d of %d bytes: %v, want %v", n, len(text), err, errMore)
				}
			}
			got, err := parseResponse(append(text, "HTTP/1.1 200 OK\r\n"...))
			if err != nil {
				t.Fatal(err)
			}
			if got.size != len(text) {
				t.Errorf("the response has %d bytes, want %d", got.size, len(text))
			}
			if got.status != c.want.status || got.replayed != c.want.replayed || string(got.body) != c.body {
				t.Errorf("status %d, replayed %v, body %.40q; want %d, %v, %.40q",
					got.status, got.replayed, got.body, c.want.status, c.want.replayed, c.body)
			}
		})
	}
}

func TestWhatIsNoResponseIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 \r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n", // ends with the connection, which is kept
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
	} {
		if r, err := parseResponse([]byte(text)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %+v, %v; want %v", text, r, err, errMalformed)
		}
	}
}
