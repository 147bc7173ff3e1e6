package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"
)

type explainCommand struct {
	Target   target `embed:""`
	SKU      string `arg:"" name:"sku" help:"The SKU."`
	Location string `default:"default" help:"The location."`
	JSON     bool   `name:"json" help:"Print the whole explanation as JSON."`
}

// explanation is the part of the API's answer that is shown in tables; the sentences say the rest.
type explanation struct {
	Summary []string `json:"summary"`
	Holds   struct {
		Count int64 `json:"count"`
		First []struct {
			ID        string    `json:"deduction_id"`
			Client    string    `json:"client"`
			OrderID   string    `json:"order_id"`
			Held      int64     `json:"held"`
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"first"`
	} `json:"holds"`
	Customers struct {
		Count int64 `json:"count"`
		Most  []struct {
			Client   string `json:"client"`
			Customer string `json:"customer"`
			Units    int64  `json:"units"`
		} `json:"most"`
	} `json:"customers"`
	Movements []struct {
		movement
		Actor  string    `json:"actor"`
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	} `json:"movements"`
}

// Run asks a running service and prints its answer.
func (c *explainCommand) Run(ctx context.Context, s streams) error {
	api, err := c.Target.caller()
	if err != nil {
		return err
	}
	a, err := api.persist(ctx, request{method: http.MethodGet, path: stockPath(c.SKU, "/explain", c.Location)})
	if err != nil {
		return err
	}
	var e explanation
	if err := a.read(&e); err != nil {
		return fmt.Errorf("explain %s: %w", c.SKU, err)
	}
	if c.JSON {
		var text bytes.Buffer
		if err := json.Indent(&text, a.body, "", "  "); err != nil {
			return err
		}
		_, err = fmt.Fprintln(s.out, text.String())
		return err
	}
	for _, sentence := range e.Summary {
		fmt.Fprintln(s.out, sentence)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if len(e.Holds.First) > 0 {
		fmt.Fprintf(w, "\nHELD BY (%d of %d)\tORDER\tUNITS\tUNTIL\tDEDUCTION\n", len(e.Holds.First), e.Holds.Count)
		for _, h := range e.Holds.First {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", h.Client, h.OrderID, h.Held, h.ExpiresAt.Format(time.RFC3339), h.ID)
		}
	}
	if len(e.Customers.Most) > 0 {
		fmt.Fprintf(w, "\nCUSTOMER (%d of %d)\tCLIENT\tUNITS\n", len(e.Customers.Most), e.Customers.Count)
		for _, c := range e.Customers.Most {
			fmt.Fprintf(w, "%s\t%s\t%d\n", c.Customer, c.Client, c.Units)
		}
	}
	if len(e.Movements) > 0 {
		fmt.Fprintln(w, "\nVERSION\tAT\tMOVEMENT\tON HAND\tHELD\tBY\tREASON")
		for _, m := range e.Movements {
			fmt.Fprintf(w, "%d\t%s\t%s\t%+d → %d\t%+d → %d\t%s\t%s\n",
				m.Version, m.At.Format(time.RFC3339Nano), m.Kind, m.DeltaOnHand, m.OnHand, m.DeltaHeld, m.Held, m.Actor, m.Reason)
		}
	}
	return w.Flush()
}
