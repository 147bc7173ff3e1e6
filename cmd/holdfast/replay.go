package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

type replayCommand struct {
	File   string `arg:"" type:"existingfile" help:"Order log: CSV with the columns invoice, stock_code and quantity. Invoices that begin with C are cancellations."`
	Target target `embed:""`

	Rate    perSecond `placeholder:"N/s" help:"Start at most this many orders a second. Default: as many as the workers can."`
	Workers int       `default:"64" help:"Orders under way at once, up to 1024; 1 sends them one after the other."`

	Stock         *int64   `xor:"stock" placeholder:"N" help:"First give every code N units."`
	StockFactor   *float64 `xor:"stock" placeholder:"F" help:"First give every code F times what the log's sales ask for, rounded."`
	ExpectReplays bool     `help:"The log was sent before: violated unless every order was done before and nothing changes."`
	JSON          bool     `help:"Print the report as JSON."`
}

// Validate refuses values that make no sense.
func (c *replayCommand) Validate() error {
	switch {
	case c.Workers < 1 || c.Workers > maxCalls:
		return fmt.Errorf("--workers is %d: it must be 1 to %d", c.Workers, maxCalls)
	case c.Stock != nil && *c.Stock < 0, c.StockFactor != nil && !(*c.StockFactor >= 0 && *c.StockFactor <= 1e6):
		return errors.New("--stock must not be negative, nor --stock-factor, which is at most 1,000,000")
	}
	return nil
}

// Run sends the log and checks what came of it.
func (c *replayCommand) Run(ctx context.Context, s streams) error {
	log, err := c.read()
	if err != nil {
		return err
	}
	api, err := c.Target.caller()
	if err != nil {
		return err
	}
	r := newReplay(api, log, c.Workers)
	r.show = newProgress(s.err)
	if c.Rate > 0 {
		r.rate = rate.Limit(c.Rate)
	}
	if units := c.units(log); units != nil {
		if err := r.setUp(ctx, units); err != nil {
			return err
		}
	}
	report, err := c.replay(ctx, r)
	if report != nil {
		err = errors.Join(err, report.print(s.out, c.JSON))
		if err == nil && !report.OK {
			return errNo
		}
	}
	return err
}

func (c *replayCommand) read() (*orderLog, error) {
	file, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	log, err := readLog(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	return log, nil
}

// units is how much each code is given first; nil: nothing, not even the item.
func (c *replayCommand) units(log *orderLog) func(code string) int64 {
	switch {
	case c.Stock != nil:
		return func(string) int64 { return *c.Stock }
	case c.StockFactor != nil:
		return func(code string) int64 { return int64(math.Round(*c.StockFactor * float64(log.demand[code]))) }
	}
	return nil
}

// replay sends the log and compares what it sees. A report comes with an error when not everything was sent.
func (c *replayCommand) replay(ctx context.Context, r *replay) (*replayReport, error) {
	e := evidence{log: r.log, results: r.results}
	var err error
	if e.start, err = r.snapshot(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	err = r.send(ctx)
	report := r.report(time.Since(began))
	if err != nil {
		report.conclude(nil)
		return report, err
	}
	if e.final, err = r.snapshot(ctx); err != nil {
		return report, err
	}
	if e.history, err = r.histories(ctx, e.final); err != nil {
		return report, err
	}
	checks := e.checks()
	if c.ExpectReplays {
		checks = append(checks, e.checkReplays())
	}
	report.conclude(checks)
	return report, nil
}

// perSecond is a rate, written as 200/s or 200.
type perSecond float64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *perSecond) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(text), "/s"), 64)
	if err != nil || !(n > 0) || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a rate like 200/s", text)
	}
	*p = perSecond(n)
	return nil
}
