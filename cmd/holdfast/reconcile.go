package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

type reconcileCommand struct {
	Ledger     ledgerAddress `embed:""`
	RedisURL   string        `env:"HOLDFAST_REDIS_URL" help:"Redis of the gate. None: only the ledger is checked."`
	GatePrefix string        `env:"HOLDFAST_GATE_PREFIX" default:"holdfast" help:"Prefix of the gate's keys."`
	Repair     bool          `help:"Make the gate forget each item it is wrong about; it asks the ledger then. The ledger is never changed."`
	JSON       bool          `name:"json" help:"Print what was found as JSON."`
}

// Help of the command, beside its flags.
func (*reconcileCommand) Help() string {
	return "Checks everything from the beginning, while the service runs or not. Exit code 0: everything agrees; 1: something does not, " +
		"or did not before it was repaired."
}

// found is a finding as it is printed.
type found struct {
	Rule     stock.Rule `json:"rule"`
	Subject  string     `json:"subject"`
	Evidence []string   `json:"evidence"`
	Repaired bool       `json:"repaired"`
}

// Run checks, and prints what is wrong.
func (c *reconcileCommand) Run(ctx context.Context, s streams) error {
	cfg := inventory.Config{Ledger: ledger.Config{URL: c.Ledger.URL, Writers: 1, Readers: 2}, Gate: gate.Config{Prefix: c.GatePrefix}}
	if c.RedisURL != "" {
		client, err := gate.Dial(c.RedisURL)
		if err != nil {
			return fmt.Errorf("HOLDFAST_REDIS_URL: %w", err)
		}
		defer client.Close()
		cfg.Redis = client
	}
	service, err := inventory.Open(cfg)
	if err != nil {
		return err
	}
	defer service.Close()
	show := newProgress(s.err)
	show.begin("items", 0)
	shown := int64(0)
	v, err := service.ReconcileAll(ctx, inventory.FullCheck{Repair: c.Repair, Progress: func(v inventory.Verdict) {
		for ; shown < v.Checked.Items; shown++ {
			show.step()
		}
	}})
	show.end()
	if err != nil {
		return err
	}
	if err := c.print(s, &v); err != nil {
		return err
	}
	if v.Gate != nil {
		return fmt.Errorf("the gate could not be checked: %w", v.Gate)
	}
	if len(v.Findings) > 0 {
		return errNo
	}
	return nil
}

func (c *reconcileCommand) print(s streams, v *inventory.Verdict) error {
	findings := make([]found, len(v.Findings))
	for i, f := range v.Findings {
		findings[i] = found(f)
	}
	if c.JSON {
		return json.NewEncoder(s.out).Encode(struct {
			Items     int64   `json:"items"`
			Movements int64   `json:"movements"`
			Customers int64   `json:"customers"`
			Keys      int64   `json:"keys"`
			Findings  []found `json:"findings"`
		}{v.Checked.Items, v.Checked.Movements, v.Checked.Customers, v.Checked.Keys, findings})
	}
	for _, f := range findings {
		repaired := ""
		if f.Repaired {
			repaired = " (repaired)"
		}
		fmt.Fprintf(s.out, "%s: %s%s\n    %s\n", f.Rule, f.Subject, repaired, strings.Join(f.Evidence, "\n    "))
	}
	_, err := fmt.Fprintf(s.out, "%d items, %d movements, %d counts of customers and %d keys checked: %d findings\n",
		v.Checked.Items, v.Checked.Movements, v.Checked.Customers, v.Checked.Keys, len(findings))
	return err
}
