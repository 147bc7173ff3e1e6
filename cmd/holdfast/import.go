package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

type importCommand struct {
	File   string `arg:"" type:"existingfile" help:"CSV with a header, or NDJSON; - for standard input."`
	Target target `embed:""`

	ID        string `name:"id" help:"Name of this import, say the delivery note's number: sent again under the same name, rows change nothing a second time. Left out, it is made from what the file says."`
	Create    bool   `default:"true" negatable:"" help:"Create items that do not exist."`
	Overwrite bool   `help:"Let on_hand replace whatever figure there is when the row has no expected_on_hand."`
	JSON      bool   `name:"json" help:"Print what came of each row, as the service says it: NDJSON."`
}

// Help of the command, beside its flags.
func (c *importCommand) Help() string {
	return `A row names an item and says what is to be:

  sku            required
  location       "default" when left out
  on_hand        what is physically there, as counted; it replaces
  expected_on_hand   this figure, 0 when left out; or
  delta          units to add, negative to take away
  safety_stock, low_stock_at, label   settings; those left out stay as they are
  reason, reference   for the item's history
  key            the row's own idempotency key; left out, it is made from the import's name and the line

The other columns of an export are ignored. Rows that are refused are listed with their lines; the others are done. The
file may be sent again, and is, when the connection breaks: what was done is found done.`
}

// Run sends the file to the service.
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
	i := &importer{command: c, api: api, streams: s, show: newProgress(s.err)}
	end, err := i.persist(ctx, file)
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(s.out, "%s: %s applied (%s created), %s done before, %s as they should be, %s refused\n", count(end.Rows, "row"),
			thousands(end.Applied), thousands(end.Created), thousands(end.Replayed), thousands(end.Unchanged), thousands(end.Refused))
	}
	if end.Refused > 0 {
		return errNo
	}
	return nil
}

// importer sends one file.
type importer struct {
	streams
	command *importCommand
	api     *caller
	show    *progress
}

// importEnd is the last line of an answer.
type importEnd struct {
	Rows      int      `json:"rows"`
	Created   int64    `json:"created"`
	Applied   int64    `json:"applied"`
	Replayed  int64    `json:"replayed"`
	Unchanged int64    `json:"unchanged"`
	Refused   int64    `json:"refused"`
	Problem   *problem `json:"problem"`
}

// errCutOff: the answer has no end. The same import may be sent again.
var errCutOff = errors.New("the import was cut off")

// persist sends the file until an answer is whole or patience is over. Standard input can be sent once only.
func (i *importer) persist(ctx context.Context, file *os.File) (*importEnd, error) {
	id, size, err := i.look(file)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(i.api.patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		end, err := i.send(ctx, file, id, size)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil, size < 0, !errors.Is(err, errCutOff):
			return end, err
		case time.Now().Add(pause).After(until):
			return nil, fmt.Errorf("%w; what was done remains: send it again as --id=%s", err, id)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
}

// look at the file: its import's name, and its size, below 0 when it cannot be sent again.
func (i *importer) look(file *os.File) (id string, size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() {
		if i.command.ID == "" {
			return "", 0, errors.New("what comes from standard input needs --id, so that sending it again does not repeat it")
		}
		return i.command.ID, -1, nil
	}
	if i.command.ID != "" {
		return i.command.ID, info.Size(), nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", 0, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return "import-" + hex.EncodeToString(sum.Sum(nil)[:16]), info.Size(), err
}

// send the file once.
func (i *importer) send(ctx context.Context, file io.Reader, id string, size int64) (*importEnd, error) {
	body := bufio.NewReader(file)
	first, err := body.Peek(4)
	if len(first) == 0 {
		return nil, errors.Join(errors.New("the file is empty"), ignoreEOF(err))
	}
	kind := "text/csv"
	if first := bytes.TrimPrefix(first, []byte("\xef\xbb\xbf")); len(first) > 0 && first[0] == '{' {
		kind = "application/x-ndjson"
	}
	query := url.Values{"create": {strconv.FormatBool(i.command.Create)}, "overwrite": {strconv.FormatBool(i.command.Overwrite)}}
	if !i.command.JSON {
		query.Set("results", "refused")
	}
	i.show.begin("KiB", int(max(size, 0)>>10))
	defer i.show.end()
	lines, refusal, err := i.api.stream(ctx, streamRequest{
		method: http.MethodPost, path: "/v1/stock/import?" + query.Encode(), size: size,
		header: map[string]string{"Content-Type": kind, "Idempotency-Key": id},
		body:   &counted{body, i.show, 0},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errCutOff, err)
	case refusal == nil:
		defer lines.Close()
		return i.read(lines)
	case refusal.again() != "":
		return nil, fmt.Errorf("%w: %w", errCutOff, refusal.must())
	}
	return nil, refusal.must()
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// counted shows how much of a body was sent.
type counted struct {
	from io.Reader
	show *progress
	rest int
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	for c.rest += n; c.rest >= 1<<10; c.rest -= 1 << 10 {
		c.show.step()
	}
	return n, err
}

// read the answer's lines and show those of rows that were refused.
func (i *importer) read(body io.Reader) (*importEnd, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Line    int        `json:"line"`
			Problem *problem   `json:"problem"`
			Summary *importEnd `json:"summary"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%w: %w", errCutOff, err)
		}
		if i.command.JSON {
			fmt.Fprintln(i.out, lines.Text())
		}
		switch {
		case row.Summary != nil && row.Summary.Problem == nil:
			return row.Summary, nil
		case row.Summary != nil && row.Summary.Problem.Status >= http.StatusInternalServerError:
			return nil, fmt.Errorf("%w: %w", errCutOff, row.Summary.Problem.error())
		case row.Summary != nil:
			return nil, row.Summary.Problem.error()
		case !i.command.JSON && row.Problem != nil:
			fmt.Fprintf(i.err, "line %d: %v\n", row.Line, row.Problem.error())
		}
	}
	return nil, errors.Join(errCutOff, lines.Err())
}
