package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 20

// caller calls a running service as a client would.
type caller struct {
	base  string
	token string
	http  *http.Client
}

func newCaller(base, token string) *caller {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	return &caller{base: strings.TrimSuffix(base, "/"), token: token, http: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request. An error means that there is no answer: whether it had its effect is not known.
func (c *caller) send(ctx context.Context, method, path, key string, body any) (*answer, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
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

// must turns an answer that is no success into an error that says what the service said.
func (a *answer) must() error {
	if a.status < 300 {
		return nil
	}
	var problem struct{ Title, Detail string }
	_ = json.Unmarshal(a.body, &problem) // without a problem document the status must do
	return fmt.Errorf("%d %s %s", a.status, problem.Title, problem.Detail)
}

func (c *caller) exists(ctx context.Context, path string) (bool, error) {
	a, err := c.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return false, err
	}
	if a.status == http.StatusNotFound {
		return false, nil
	}
	return true, a.must()
}

func (c *caller) put(ctx context.Context, path string, body any) error {
	a, err := c.send(ctx, http.MethodPut, path, "", body)
	if err != nil {
		return err
	}
	return a.must()
}

func (c *caller) post(ctx context.Context, path, key string, body any) error {
	a, err := c.send(ctx, http.MethodPost, path, key, body)
	if err != nil {
		return err
	}
	return a.must()
}
