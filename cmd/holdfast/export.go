package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

type exportCommand struct {
	Target   target `embed:""`
	Format   string `enum:"csv,ndjson" default:"csv" help:"csv or ndjson."`
	Location string `help:"Only items at this location."`
	Prefix   string `help:"Only SKUs that begin with this."`
}

// Help of the command, beside its flags.
func (c *exportCommand) Help() string {
	return "Items come in the order of their SKU and location, each as it was when its part of the list was read. The output can be imported."
}

// Run writes all items to standard output.
func (c *exportCommand) Run(ctx context.Context, s streams) error {
	api, err := c.Target.caller()
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]string{"location": c.Location, "sku_prefix": c.Prefix} {
		if value != "" {
			query.Set(name, value)
		}
	}
	accept := map[string]string{"csv": "text/csv", "ndjson": "application/x-ndjson"}
	lines, refusal, err := api.stream(ctx, streamRequest{
		method: http.MethodGet, path: "/v1/stock/export?" + query.Encode(), header: map[string]string{"Accept": accept[c.Format]},
	})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal.must()
	}
	defer lines.Close()
	show := newProgress(s.err)
	show.begin("KiB", 0)
	defer show.end()
	if _, err := io.Copy(s.out, &counted{lines, show, 0}); err != nil {
		return fmt.Errorf("the export was cut off: %w", err)
	}
	return nil
}
