package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// maxImportKey leaves room for the line's number behind an import's key.
const maxImportKey = 240

func (o operations) ImportStock(w http.ResponseWriter, _ *http.Request, p openapi.ImportStockParams) {
	c := callOf(w)
	c.run(func() error {
		key, err := c.keyed(p.IdempotencyKey)
		if err != nil {
			return err
		}
		if len(key.Key) > maxImportKey {
			return invalidParameter(keyHeader, "must have at most 240 characters for an import")
		}
		i := &importing{
			call: c, stock: o.stock, key: key,
			create: p.Create != nil && *p.Create, overwrite: p.Overwrite != nil && *p.Overwrite,
			all: p.Results == nil || *p.Results == openapi.ImportStockParamsResultsAll,
		}
		if p.Results != nil && !p.Results.Valid() {
			return invalidParameter("results", "must be all or refused")
		}
		// Answers are written while the body is read. Net/http cannot use the connection again after a body that was not
		// read to its end that way.
		c.Header().Set("Connection", "close")
		if err := http.NewResponseController(c.ResponseWriter).EnableFullDuplex(); err != nil {
			return err
		}
		if i.rows, i.buffered, err = c.openRows(c.streamBody()); err != nil {
			return err
		}
		i.run()
		return nil
	})
}

// importing is an import on its way.
type importing struct {
	*call
	stock     *inventory.Service
	key       stock.Keyed
	create    bool // what rows say that say nothing
	overwrite bool
	all       bool // rows that were not refused have a line in the answer, too

	rows     rowSource
	buffered *bufio.Reader // under rows
	batch    []importRow

	count, created, applied, replayed, unchanged, refused int
}

// run does rows as they come, many at once, and answers them before it reads on: rows are read no faster than their
// results are.
func (i *importing) run() {
	i.batch = make([]importRow, 0, inventory.MaxImport)
	for {
		ended := i.gather()
		b, stopped := i.do(i.out[:0])
		if stopped != nil {
			ended = stopped
		}
		if ended != nil {
			b = i.appendSummary(b, ended)
		}
		i.out = b
		if len(b) > 0 && !i.send(contentNDJSON, b) || ended != nil {
			return
		}
	}
}

// gather reads rows into the batch until it is full or the next line is not here yet. The error says why there are no more.
func (i *importing) gather() error {
	for i.batch = i.batch[:0]; len(i.batch) < cap(i.batch); {
		at := len(i.batch)
		i.batch = i.batch[:at+1]
		if err := i.rows(&i.batch[at]); err != nil {
			i.batch = i.batch[:at]
			return err
		}
		if here, _ := i.buffered.Peek(i.buffered.Buffered()); bytes.IndexByte(here, '\n') < 0 {
			return nil
		}
	}
	return nil
}

// do the batch and append what came of its rows. An error stops the import: the ledger cannot go on, or nobody knows
// what came of a row.
func (i *importing) do(b []byte) (_ []byte, stopped error) {
	rows := make([]stock.ImportRow, 0, len(i.batch))
	for at := range i.batch {
		r := &i.batch[at]
		if r.err = r.check(); r.err == nil {
			r.err = i.mayUse(r.item.Location)
		}
		if r.err == nil {
			rows = append(rows, i.rowOf(r))
		}
	}
	var done []stock.Imported
	if len(rows) > 0 {
		done = i.stock.Import(i.ctx, i.key.Client, rows)
	}
	for at := range i.batch {
		r, result := &i.batch[at], stock.Imported{}
		if r.err == nil {
			result, done = done[0], done[1:]
			r.err = result.Err
		}
		if unsettled(r.err) && stopped == nil {
			stopped = r.err
		}
		b = i.appendResult(b, r, &result)
	}
	return b, stopped
}

// unsettled reports whether an error is no answer to a row, but says that there is none now.
func unsettled(err error) bool {
	return errors.Is(err, stock.ErrUnknownOutcome) || errors.Is(err, stock.ErrLedgerUnavailable) || errors.Is(err, stock.ErrOverloaded)
}

// rowOf is a row in the words of the ledger.
func (i *importing) rowOf(r *importRow) stock.ImportRow {
	row := stock.ImportRow{Item: r.item, Create: i.create, SafetyStock: r.safety, LowStockAt: r.lowAt, Label: r.label}
	if r.create != nil {
		row.Create = *r.create
	}
	if r.onHand == nil && r.delta == nil {
		return row
	}
	a := &stock.AdjustRequest{Keyed: i.key, Item: r.item, Reason: r.reason, Reference: r.reference}
	if a.Key = r.key; a.Key == "" {
		a.Key = i.key.Key + "#" + strconv.Itoa(r.line)
	}
	switch {
	case r.delta != nil:
		a.Kind, a.Delta = stock.Adjust, *r.delta
		if a.Delta > 0 {
			a.Kind = stock.Receive
		}
	case r.expected == nil && i.overwrite:
		a.Kind, a.SetTo, a.Overwrite = stock.Count, r.onHand, true
	default:
		a.Kind, a.SetTo, a.ExpectedOnHand = stock.Count, r.onHand, r.expected
		if a.ExpectedOnHand == nil {
			a.ExpectedOnHand = new(stock.Quantity)
		}
	}
	row.Adjust = a
	return row
}

// appendResult counts what came of a row and appends its line.
func (i *importing) appendResult(b []byte, r *importRow, d *stock.Imported) []byte {
	i.count++
	if d.Created {
		i.created++
	}
	word := "unchanged"
	switch {
	case r.err != nil:
		word = "refused"
		i.refused++
	case d.Replayed:
		word = "replayed"
		i.replayed++
	case d.Moved || d.Created || d.Configured:
		word = "applied"
		i.applied++
	default:
		i.unchanged++
	}
	if r.err == nil && !i.all {
		return b
	}
	b = appendNumber(b, `{"line":`, r.line)
	b = append(b, `,"result":"`...)
	b = append(b, word...)
	b = append(b, '"')
	if d.Created {
		b = append(b, `,"created":true`...)
	}
	if d.Levels.SKU != "" {
		b = appendLevels(append(b, `,"item":`...), &d.Levels)
	}
	if r.err != nil {
		b = i.appendRefusal(append(b, `,"problem":`...), r)
	}
	return append(b, '}', '\n')
}

// appendRefusal appends the problem of a row, its places named as the row names them.
func (i *importing) appendRefusal(b []byte, r *importRow) []byte {
	err, short := r.err, "/delta"
	if r.onHand != nil {
		short = "/on_hand"
	}
	field, wrong := errors.AsType[*stock.FieldError](err)
	switch {
	case errors.Is(err, stock.ErrUnknownItem):
		err = stock.ErrUnknownItem // the row names it
	case wrong && len(field.Fields) == 1 && field.Fields[0].Pointer == "/set_to":
		err = stock.InvalidField("/on_hand", field.Fields[0].Detail)
	}
	return appendProblem(b, i.api.problemOf(err), i.id, place{short: short}, err)
}

// appendSummary appends the last line. An import that was ended by anything but the end of its rows says by what.
func (i *importing) appendSummary(b []byte, ended error) []byte {
	b = appendNumber(b, `{"summary":{"rows":`, i.count)
	b = appendNumber(b, `,"created":`, i.created)
	b = appendNumber(b, `,"applied":`, i.applied)
	b = appendNumber(b, `,"replayed":`, i.replayed)
	b = appendNumber(b, `,"unchanged":`, i.unchanged)
	b = appendNumber(b, `,"refused":`, i.refused)
	if !errors.Is(ended, io.EOF) {
		p := i.api.problemOf(ended)
		i.kind, i.err = p.name, ended
		b = appendProblem(append(b, `,"problem":`...), p, i.id, place{}, ended)
	}
	return append(b, "}}\n"...)
}
