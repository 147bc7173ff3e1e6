package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strconv"
)

type exportCommand struct {
	Target   target `embed:""`
	Format   string `enum:"csv,ndjson" default:"csv" help:"csv or ndjson."`
	Location string `help:"Only items at this location."`
}

// Help of the command, beside its flags.
func (c *exportCommand) Help() string {
	return "Items come in the order of their SKU and location, a page at a time: each is as it was when its page was read. The output can be imported."
}

// exportColumns are what a line has, in order.
var exportColumns = []string{"sku", "location", "on_hand", "held", "safety_stock", "available", "version", "low_stock_at", "label"}

// Run writes all items to standard output.
func (c *exportCommand) Run(ctx context.Context, s streams) error {
	api, err := c.Target.caller()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	show := newProgress(s.err)
	show.begin("items", 0)
	defer show.end()
	write := json.NewEncoder(out).Encode
	if c.Format == "csv" {
		w := csv.NewWriter(out)
		if err := w.Write(exportColumns); err != nil {
			return err
		}
		write = func(v any) error {
			if err := w.Write(v.(*item).columns()); err != nil {
				return err
			}
			w.Flush()
			return w.Error()
		}
	}
	err = api.items(ctx, c.Location, func(i *item) error {
		show.step()
		return write(i)
	})
	return errors.Join(err, out.Flush())
}

func (i *item) columns() []string {
	low := ""
	if i.LowStockAt != nil {
		low = number(*i.LowStockAt)
	}
	return []string{
		i.SKU, i.Location, number(i.OnHand), number(i.Held), number(i.SafetyStock), number(i.Available), number(i.Version), low, i.Label,
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
