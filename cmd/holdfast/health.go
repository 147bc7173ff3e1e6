package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// adminTarget says where the admin listener of a running service is.
type adminTarget struct {
	AdminAddr string `env:"HOLDFAST_ADMIN_ADDR" default:"127.0.0.1:9090" help:"Admin address of the service."`
}

// ask the admin listener; the caller closes the answer's body.
func (t *adminTarget) ask(ctx context.Context, path string) (*http.Response, error) {
	host, port, err := net.SplitHostPort(t.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_ADMIN_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// get what the admin listener has under path, within ten seconds.
func (t *adminTarget) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	response, err := t.ask(ctx, path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

type healthCommand struct{ adminTarget }

// Run asks once, for at most two seconds.
func (c *healthCommand) Run(ctx context.Context, s streams) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	response, err := c.ask(ctx, "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		fmt.Fprintln(s.out, "not ready:", response.Status)
		return errNo
	}
	fmt.Fprintln(s.out, "ready")
	return nil
}
