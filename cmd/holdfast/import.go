package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

type importCommand struct {
	File   string `arg:"" type:"existingfile" help:"CSV with a header, or NDJSON; - for standard input."`
	Target target `embed:""`

	ID      string `name:"id" help:"Name of this import, say the delivery note's number. Lines with a delta need one: sent again under the same name they change nothing."`
	Workers int    `default:"32" help:"Lines under way at once, up to 1024. Lines of one item keep their order."`
}

// Help of the command, beside its flags.
func (c *importCommand) Help() string {
	return `A line names an item and says what is to be:

  sku            required
  location       "default" when left out
  on_hand        what is physically there, as counted; or
  delta          units to add, negative to take away
  safety_stock, low_stock_at, label   settings; those left out stay as they are

An item that does not exist is created. The columns held, available and version of an export are ignored. Lines that fail are listed with
their numbers; the others are done. The file may be sent again: what is as it should be is left alone.`
}

// Validate refuses values that make no sense.
func (c *importCommand) Validate() error {
	if c.Workers < 1 || c.Workers > maxCalls {
		return fmt.Errorf("--workers is %d: it must be 1 to %d", c.Workers, maxCalls)
	}
	return nil
}

// Run sends the file's lines to the service.
func (c *importCommand) Run(ctx context.Context, s streams) error {
	file := os.Stdin
	if c.File != "-" {
		var err error
		if file, err = os.Open(c.File); err != nil {
			return err
		}
		defer file.Close()
	}
	api, err := c.Target.caller()
	if err != nil {
		return err
	}
	i := &importer{api: api, id: c.ID, out: s.err, show: newProgress(s.err)}
	err = i.run(ctx, file, c.Workers)
	fmt.Fprintf(s.out, "%s: %s created, %d changed, %d as they should be, %d failed\n",
		count(int(i.lines.Load()), "line"), thousands(i.created.Load()), i.changed.Load(), i.same.Load(), i.failed.Load())
	if err == nil && i.failed.Load() > 0 {
		return errNo
	}
	return err
}

// importer brings lines into a service.
type importer struct {
	api  *caller
	id   string
	show *progress

	lines, created, changed, same, failed atomic.Int64

	mu  sync.Mutex
	out io.Writer // for lines that fail; guarded by mu
}

// run reads lines and deals them to workers by item: those of one item are worked off in order.
func (i *importer) run(ctx context.Context, source io.Reader, workers int) error {
	i.show.begin("lines", 0)
	defer i.show.end()
	next, err := openLines(source)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	seed := maphash.MakeSeed()
	queues := make([]chan *stockLine, workers)
	for w := range queues {
		queues[w] = make(chan *stockLine, 4) // so that one slow item does not hold up the others at once
		defer close(queues[w])
		group.Go(func() {
			for l := range queues[w] {
				i.do(ctx, l)
			}
		})
	}
	for ctx.Err() == nil {
		l, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if bad := (*lineError)(nil); errors.As(err, &bad) {
			i.lines.Add(1)
			i.fail(bad.line, bad.err)
			continue
		}
		if err != nil {
			return err
		}
		w := maphash.Comparable(seed, [2]string{l.SKU, l.Location}) % uint64(workers)
		select {
		case queues[w] <- l:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// do one line and count what came of it.
func (i *importer) do(ctx context.Context, l *stockLine) {
	defer i.show.step()
	i.lines.Add(1)
	what, err := i.bring(ctx, l)
	if err != nil {
		i.fail(l.line, fmt.Errorf("%q: %w", l.SKU, err))
		return
	}
	what.Add(1)
}

func (i *importer) fail(line int, err error) {
	i.failed.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	fmt.Fprintf(i.out, "line %d: %v\n", line, err)
}

// maxLooks bounds how often an item is looked at anew because somebody else changed it meanwhile.
const maxLooks = 5

// bring makes an item what the line says, and returns the counter of what that took.
func (i *importer) bring(ctx context.Context, l *stockLine) (*atomic.Int64, error) {
	if err := i.check(l); err != nil {
		return nil, err
	}
	what := &i.same
	for range maxLooks {
		now, etag, err := i.look(ctx, l)
		if err != nil {
			return nil, err
		}
		moved, err := i.configure(ctx, l, now, etag, &what)
		if err == nil && !moved {
			moved, err = i.adjust(ctx, l, now.OnHand, &what)
		}
		if err != nil || !moved {
			return what, err
		}
	}
	return nil, fmt.Errorf("others changed it %d times meanwhile", maxLooks)
}

// check what only this side can know is wrong.
func (i *importer) check(l *stockLine) error {
	switch {
	case l.SKU == "":
		return errors.New("it has no sku")
	case l.OnHand != nil && *l.OnHand < 0:
		return errors.New("on_hand must not be negative")
	case l.OnHand != nil && l.Delta != nil:
		return errors.New("on_hand and delta exclude each other")
	case l.Delta != nil && i.id == "":
		return errors.New("a delta needs --id, so that sending the file again does not repeat it")
	}
	return nil
}

// look at the item as it is; the zero item and no ETag when there is none.
func (i *importer) look(ctx context.Context, l *stockLine) (now item, etag string, err error) {
	a, err := i.api.persist(ctx, request{method: http.MethodGet, path: stockPath(l.SKU, "", l.Location)})
	if err != nil || a.status == http.StatusNotFound {
		return item{}, "", err
	}
	return now, a.header.Get("ETag"), a.read(&now)
}

// configure creates the item, or changes the settings that the line names. moved: somebody else was faster.
func (i *importer) configure(ctx context.Context, l *stockLine, now item, etag string, what **atomic.Int64) (moved bool, err error) {
	header := map[string]string{"If-None-Match": "*"}
	if etag != "" {
		if !l.differs(&now) {
			return false, nil
		}
		header = map[string]string{"If-Match": etag}
	}
	settings := map[string]any{"safety_stock": now.SafetyStock, "label": now.Label}
	if now.LowStockAt != nil {
		settings["low_stock_at"] = *now.LowStockAt
	}
	set(settings, "safety_stock", l.SafetyStock)
	set(settings, "low_stock_at", l.LowStockAt)
	set(settings, "label", l.Label)
	a, err := i.api.persist(ctx, request{method: http.MethodPut, path: stockPath(l.SKU, "", l.Location), header: header, body: settings})
	if err != nil {
		return false, err
	}
	if a.status == http.StatusPreconditionFailed {
		return true, nil
	}
	if etag == "" {
		*what = &i.created
	} else if *what == &i.same {
		*what = &i.changed
	}
	return false, a.must()
}

func set[T any](settings map[string]any, name string, value *T) {
	if value != nil {
		settings[name] = *value
	}
}

// differs reports whether a setting that the line names is another one.
func (l *stockLine) differs(now *item) bool {
	return l.SafetyStock != nil && *l.SafetyStock != now.SafetyStock ||
		l.LowStockAt != nil && (now.LowStockAt == nil || *l.LowStockAt != *now.LowStockAt) ||
		l.Label != nil && *l.Label != now.Label
}

// adjust books a count when on_hand is not what the line says, or its delta. moved: somebody else was faster.
func (i *importer) adjust(ctx context.Context, l *stockLine, onHand int64, what **atomic.Int64) (moved bool, err error) {
	r := request{method: http.MethodPost, path: stockPath(l.SKU, "/adjustments", l.Location)}
	switch {
	case l.OnHand != nil && *l.OnHand != onHand:
		// A key of its own for each look: what it stands for is to replace the figure that was seen.
		r.key = keyOf("import", uuid.NewString())
		r.body = map[string]any{"kind": "count", "set_to": *l.OnHand, "expected_on_hand": onHand, "reason": "import", "reference": i.id}
	case l.Delta != nil:
		kind := "receive"
		if *l.Delta < 0 {
			kind = "adjust"
		}
		r.key = keyOf("import", i.id, strconv.Itoa(l.line), l.SKU, l.Location)
		r.body = map[string]any{"kind": kind, "delta": *l.Delta, "reason": "import", "reference": i.id}
	default:
		return false, nil
	}
	a, err := i.api.persist(ctx, r)
	if err != nil {
		return false, err
	}
	switch {
	case a.status == http.StatusPreconditionFailed:
		return true, nil
	case *what == &i.same && !a.replayed():
		*what = &i.changed
	}
	return false, a.must()
}
