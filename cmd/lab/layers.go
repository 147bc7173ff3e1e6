package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lab"
)

type layersCommand struct {
	Lasts time.Duration `default:"3s" help:"How long each path sells under each trouble, 200ms to 1m."`
	Docs  string        `type:"path" placeholder:"DIR" help:"Write layers.md with its chart to this directory."`
	JSON  bool          `name:"json" help:"Print the results as JSON."`
}

// Validate refuses what cannot be run.
func (c *layersCommand) Validate() error {
	if c.Lasts < 200*time.Millisecond || c.Lasts > time.Minute {
		return fmt.Errorf("--lasts is %v, but 200ms to 1m are possible", c.Lasts)
	}
	return nil
}

// Run compares all paths. It fails if Holdfast's own paths sold or took a unit twice.
func (c *layersCommand) Run(ctx context.Context, s streams) error {
	began := time.Now()
	results, err := lab.Compare(ctx, lab.CompareConfig{Paths: lab.Paths(), Troubles: lab.Troubles(), Lasts: c.Lasts, Progress: s.err})
	if err != nil {
		return err
	}
	comparison := &lab.Comparison{Results: results, Lasts: c.Lasts, At: began, Machine: machine()}
	if c.Docs != "" {
		if err := comparison.WriteDocs(c.Docs); err != nil {
			return err
		}
	}
	if c.JSON {
		encoder := json.NewEncoder(s.out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(results)
	} else {
		err = layersTable(results, s.out)
	}
	if err != nil {
		return err
	}
	for _, r := range results {
		if !r.Right() && lab.IsOurs(r.Path) {
			return fmt.Errorf("%s was wrong while %s", r.Path, r.Trouble)
		}
	}
	return nil
}

// layersTable prints a line for each run.
func layersTable(results []lab.PathResult, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "path\ttrouble\torders/s\tp50\tp99\tfailed\tsold twice\ttaken twice\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%v\t%v\t%d\t%d\t%d\t\n", r.Path, r.Trouble, r.Rate, r.P50, r.P99, r.Failed, r.SoldTwice, r.TakenTwice)
	}
	return w.Flush()
}
