package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

type retainCommand struct {
	Ledger  ledgerAddress `embed:""`
	Before  time.Time     `required:"" format:"2006-01-02" help:"Roll up movements from before this day (UTC), as in 2026-01-31."`
	Archive string        `xor:"old" required:"" help:"Where the movements go: a file, or a directory to make one in. With a name in .gz it is compressed."`
	Discard bool          `xor:"old" required:"" help:"Keep no archive."`
}

// Help of the command, beside its flags.
func (c *retainCommand) Help() string {
	return `For each item, its movements from before the day become one movement of kind checkpoint, which has the version of the last of
them and the sums of all. Figures, idempotency keys and deductions stay as they are.

It works in small steps beside whatever runs, may be stopped at any time, and goes on when it is started again with
the same archive. The archive has every movement once, one JSON object a line.`
}

// Run rolls up until nothing old is left.
func (c *retainCommand) Run(ctx context.Context, s streams) error {
	if c.Before.After(time.Now()) {
		return errors.New("--before has to be past")
	}
	l, err := ledger.Open(ledger.Config{URL: c.Ledger.URL, Writers: 1, Readers: 1})
	if err != nil {
		return err
	}
	defer l.Close()
	show := newProgress(s.err)
	show.begin("movements", 0)
	items, movements := 0, 0
	err = c.retain(ctx, l, func(done ledger.Retained) {
		items, movements = items+done.Items, movements+done.Movements
		for range done.Movements {
			show.step()
		}
	})
	show.end()
	fmt.Fprintf(s.out, "%s movements of %s rolled up\n", thousands(movements), count(items, "item"))
	if err != nil {
		return fmt.Errorf("%w (start it again to go on)", err)
	}
	return nil
}

func (c *retainCommand) retain(ctx context.Context, l *ledger.Ledger, each func(ledger.Retained)) error {
	var archive *ledger.Archive
	if !c.Discard {
		path := c.Archive
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = archiveIn(path, c.Before, "")
		}
		archive = ledger.NewArchive(path)
	}
	return rollUp(ctx, l.Retain(c.Before, archive, stock.Fence{}), each)
}

// archiveIn names the file in a directory for movements from before a day.
func archiveIn(dir string, before time.Time, suffix string) string {
	return filepath.Join(dir, "movements-before-"+before.Format(time.DateOnly)+suffix+".ndjson.gz")
}

// rollUp makes steps until nothing old is left.
func rollUp(ctx context.Context, r *ledger.Retention, each func(ledger.Retained)) error {
	for {
		done, err := r.Step(ctx)
		if err != nil {
			return err
		}
		if each(done); done.Done {
			return nil
		}
	}
}
