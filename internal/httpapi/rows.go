package httpapi

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// rowSource gives the rows of an import one by one, then [io.EOF]. A row that cannot be read has an err of its own and the
// next one may be read; any other error ends it.
type rowSource func(*importRow) error

// importRow is a row as it was sent.
type importRow struct {
	line      int // its number, from 1
	err       error
	item      stock.Item
	key       string
	create    *bool
	onHand    *stock.Quantity
	expected  *stock.Quantity
	delta     *stock.Quantity
	safety    *stock.Quantity
	lowAt     *stock.Quantity
	label     *string
	reason    string
	reference string
}

// values is where the members of a row come from: a JSON object, or the cells of a CSV record. What is wrong is noted there.
type values interface {
	name() string
	text(limit int) string
	boolean() bool
	quantity(least, most stock.Quantity) stock.Quantity
	ignore()
}

// member takes in one member of the row; false when the contract knows none of that name.
func (r *importRow) member(name string, v values) bool {
	quantity := func(least stock.Quantity) *stock.Quantity {
		q := v.quantity(least, stock.MaxOnHand)
		return &q
	}
	switch name {
	case "sku":
		r.item.SKU = stock.SKU(v.name())
	case "location":
		r.item.Location = stock.Location(v.name())
	case "key":
		r.key = v.text(maxKey)
	case "create":
		create := v.boolean()
		r.create = &create
	case "on_hand":
		r.onHand = quantity(0)
	case "expected_on_hand":
		r.expected = quantity(0)
	case "delta":
		r.delta = quantity(-stock.MaxOnHand)
	case "safety_stock":
		r.safety = quantity(0)
	case "low_stock_at":
		r.lowAt = quantity(0)
	case "label":
		label := v.text(maxLabel)
		r.label = &label
	case "reason":
		r.reason = v.text(maxReason)
	case "reference":
		r.reference = v.text(stock.MaxNameBytes)
	case "held", "available", "version", "created_at", "updated_at":
		v.ignore()
	default:
		return false
	}
	return true
}

// check what members must be together, once they are legal by themselves.
func (r *importRow) check() error {
	switch {
	case r.err != nil:
		return r.err
	case r.item.SKU == "":
		return stock.InvalidField("/sku", "is required")
	case r.onHand != nil && r.delta != nil:
		return stock.InvalidField("/delta", "excludes on_hand")
	case r.expected != nil && r.onHand == nil:
		return stock.InvalidField("/expected_on_hand", "goes with on_hand")
	case r.delta != nil && *r.delta == 0:
		return stock.InvalidField("/delta", "must not be 0")
	}
	if r.key != "" {
		_, err := parseKey("key", r.key)
		if err != nil || r.key[0] == '"' {
			return stock.InvalidField("/key", "must be of visible ASCII characters, without quotes around it")
		}
	}
	return nil
}

// openRows finds out how the body's rows are written.
func (c *call) openRows(stream *streamBody) (rowSource, *bufio.Reader, error) {
	given := c.r.Header["Content-Type"]
	if len(given) > 1 {
		return nil, nil, duplicateHeader("Content-Type")
	}
	kind, params := "", map[string]string(nil)
	if len(given) == 1 {
		kind, params, _ = mime.ParseMediaType(given[0])
	}
	encoding := c.r.Header.Get("Content-Encoding")
	charset := params["charset"]
	if encoding != "" && encoding != "identity" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		kind = ""
	}
	buffered := bufio.NewReaderSize(stream, maxRow)
	if mark, _ := buffered.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = buffered.Discard(3) // a byte order mark, which some programs put before UTF-8
	}
	switch kind {
	case "application/x-ndjson":
		return c.jsonRows(buffered, stream), buffered, nil
	case "text/csv":
		rows, err := csvRows(buffered, stream)
		return rows, buffered, err
	}
	return nil, nil, &refusal{kind: errMediaType, detail: "Send Content-Type: application/x-ndjson or text/csv, in UTF-8, without Content-Encoding."}
}

// jsonRows reads one JSON object a line. Empty lines are counted and say nothing.
func (c *call) jsonRows(from *bufio.Reader, stream *streamBody) rowSource {
	line := 0
	return func(r *importRow) error {
		for {
			stream.nextRow()
			text, err := from.ReadSlice('\n')
			line++
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				return errRowTooLarge
			case err != nil && !errors.Is(err, io.EOF):
				return err // what came of the line may be less than was meant
			}
			if text = bytes.TrimSpace(text); len(text) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			*r = importRow{line: line, item: stock.Item{Location: stock.DefaultLocation}}
			b := &c.body
			b.reset()
			b.buf.Write(text)
			r.err = b.parse(func(b *body) {
				b.object(func(name []byte) bool { return r.member(string(name), b) }, "sku")
			})
			return nil
		}
	}
}

// csvRows reads CSV with a header line.
func csvRows(from *bufio.Reader, stream *streamBody) (rowSource, error) {
	reader := csv.NewReader(from)
	reader.ReuseRecord = true
	header, err := reader.Read()
	var bad *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return nil, malformed("", "there is no header line")
	case errors.As(err, &bad):
		return nil, malformed("", "the header line: "+bad.Err.Error())
	case err != nil:
		return nil, err
	}
	header = slices.Clone(header)
	for _, name := range header {
		if !new(importRow).member(name, new(cell)) {
			return nil, malformed("", "the column "+strconv.Quote(name[:min(len(name), stock.MaxNameBytes)])+" is not one the contract knows")
		}
	}
	if !slices.Contains(header, "sku") {
		return nil, malformed("", `there is no column "sku"`)
	}
	return func(r *importRow) error {
		stream.nextRow()
		record, err := reader.Read()
		var bad *csv.ParseError
		switch {
		case errors.As(err, &bad):
			*r = importRow{line: bad.StartLine, err: malformed("", bad.Err.Error())}
			return nil
		case err != nil:
			return err
		}
		*r = importRow{item: stock.Item{Location: stock.DefaultLocation}}
		r.line, _ = reader.FieldPos(0)
		var wrong []stock.Field
		for i, text := range record {
			if text == "" {
				continue
			}
			one := cell{value: text}
			r.member(header[i], &one)
			if one.wrong != "" {
				wrong = append(wrong, stock.Field{Pointer: "/" + header[i], Detail: one.wrong})
			}
		}
		if wrong != nil {
			r.err = &stock.FieldError{Fields: wrong}
		}
		return nil
	}, nil
}

// cell is one value of a CSV record.
type cell struct {
	value string
	wrong string
}

func (c *cell) name() string {
	if err := stock.CheckName(c.value); err != nil {
		c.wrong = err.Error()
	}
	return c.value
}

func (c *cell) text(limit int) string {
	if err := stock.CheckText(c.value, limit); err != nil {
		c.wrong = err.Error()
	}
	return c.value
}

func (c *cell) boolean() bool {
	if c.value != "true" && c.value != "false" {
		c.wrong = "must be true or false"
	}
	return c.value == "true"
}

func (c *cell) quantity(least, most stock.Quantity) stock.Quantity {
	q, ok := parseQuantity(c.value, least, most)
	if !ok {
		c.wrong = wholeNumber(least, most)
	}
	return q
}

func (c *cell) ignore() {}
