package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

type healthCommand struct {
	AdminAddr string `env:"HOLDFAST_ADMIN_ADDR" default:"127.0.0.1:9090" help:"Admin address of the service."`
}

// Run asks once, for at most two seconds.
func (c *healthCommand) Run(ctx context.Context, s streams) error {
	host, port, err := net.SplitHostPort(c.AdminAddr)
	if err != nil {
		return fmt.Errorf("HOLDFAST_ADMIN_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
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
