package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// maxLogLines bounds an order log: it is kept in memory.
const maxLogLines = 5_000_000

// orderLog is an order log as it is to be sent.
type orderLog struct {
	lines    int
	orders   []order          // in the order of the log, each at its first line
	invoices int              // those without any line that can be sent included
	codes    []string         // of all lines, those that are left out included, in byte order
	demand   map[string]int64 // by code: what all sales together ask for
	skipped  map[string]*skipped
}

// order is one invoice: a sale, or goods that came back.
type order struct {
	invoice string
	cancels bool
	lines   []orderLine // each code once, its lines summed
	back    []comeback  // of a cancellation, what becomes of its lines
}

type orderLine struct {
	code     string
	quantity int64 // positive, on a cancellation too
}

// comeback is a quantity that came back, and the sale it is taken to come from.
type comeback struct {
	orderLine
	sale int // index of the order; -1: no earlier sale in the log has it
	line int // its index among the lines of the sale
}

// skipped are the lines left out for one reason.
type skipped struct {
	Reason string `json:"reason"`
	Lines  int    `json:"lines"`
	First  int    `json:"first_line"` // where in the file to look
}

// Why a line is left out.
const (
	skipQuantity = "the quantity is not a whole number within the limits of a line"
	skipZero     = "the quantity is zero"
	skipNegative = "negative quantity on a sale: a correction of stock, not an order"
	skipPositive = "positive quantity on a cancellation"
	skipCode     = "the stock code is not a legal SKU"
	skipInvoice  = "the invoice is not a legal order id"
	skipLines    = "the invoice has more codes than an order may have lines"
)

// readLog reads an order log: CSV with the columns invoice, stock_code and quantity; others are ignored. Lines of one code on one
// invoice are summed. An invoice whose number begins with C is a cancellation.
func readLog(source io.Reader) (*orderLog, error) {
	r := csv.NewReader(skipByteOrderMark(source))
	r.ReuseRecord = true
	columns, err := logColumns(r)
	if err != nil {
		return nil, err
	}
	b := logBuilder{
		log:    orderLog{demand: make(map[string]int64), skipped: make(map[string]*skipped)},
		orders: make(map[string]int), places: make(map[place]int), codes: make(map[string]bool),
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return b.finish(), nil
		}
		if err != nil {
			return nil, err
		}
		if b.log.lines++; b.log.lines > maxLogLines {
			return nil, fmt.Errorf("the log has more than %d lines", maxLogLines)
		}
		line, _ := r.FieldPos(0)
		b.add(line, record[columns[0]], record[columns[1]], record[columns[2]])
	}
}

// skipByteOrderMark drops what some programs begin a file with.
func skipByteOrderMark(source io.Reader) *bufio.Reader {
	r := bufio.NewReader(source)
	if mark, _ := r.Peek(3); string(mark) == "\uFEFF" {
		_, _ = r.Discard(3) // they are there
	}
	return r
}

// logColumns finds the columns by the names in the first line.
func logColumns(r *csv.Reader) (at [3]int, err error) {
	header, err := r.Read()
	if err != nil {
		return at, fmt.Errorf("read the header: %w", err)
	}
	for i, name := range [3]string{"invoice", "stock_code", "quantity"} {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return at, fmt.Errorf("the log has no column %q: its header is %q", name, header)
		}
	}
	return at, nil
}

// logBuilder gathers lines into orders.
type logBuilder struct {
	log    orderLog
	orders map[string]int // invoice → index
	places map[place]int  // → index of the line
	codes  map[string]bool
}

type place struct {
	order int
	code  string
}

func (b *logBuilder) add(line int, invoice, code, quantity string) {
	// The record's memory is used again; what is kept must be its own.
	at, known := b.orders[invoice]
	if !known {
		at = len(b.log.orders)
		invoice = strings.Clone(invoice)
		b.orders[invoice] = at
		b.log.orders = append(b.log.orders, order{invoice: invoice, cancels: strings.HasPrefix(invoice, "C")})
		b.log.invoices++
	}
	o := &b.log.orders[at]
	if !b.codes[code] && stock.CheckName(code) == nil {
		b.codes[strings.Clone(code)] = true
	}
	units, reason := wantedUnits(o, code, quantity)
	if reason != "" {
		b.skip(reason, line)
		return
	}
	i, known := b.places[place{at, code}]
	switch {
	case !known && len(o.lines) == stock.MaxLines:
		b.skip(skipLines, line)
	case known && o.lines[i].quantity+units > int64(stock.MaxLineQuantity):
		b.skip(skipQuantity, line)
	case !known:
		code = strings.Clone(code)
		b.places[place{at, code}] = len(o.lines)
		o.lines = append(o.lines, orderLine{code, units})
	default:
		o.lines[i].quantity += units
	}
}

// wantedUnits is how many units a line is about, or why it is left out.
func wantedUnits(o *order, code, quantity string) (units int64, reason string) {
	units, err := strconv.ParseInt(quantity, 10, 64)
	if o.cancels {
		units = -units
	}
	switch {
	case stock.CheckName(o.invoice) != nil:
		return 0, skipInvoice
	case stock.CheckName(code) != nil:
		return 0, skipCode
	case err != nil, units > int64(stock.MaxLineQuantity):
		return 0, skipQuantity
	case units == 0:
		return 0, skipZero
	case units < 0 && o.cancels:
		return 0, skipPositive
	case units < 0:
		return 0, skipNegative
	}
	return units, ""
}

func (b *logBuilder) skip(reason string, line int) {
	s := b.log.skipped[reason]
	if s == nil {
		s = &skipped{Reason: reason, First: line}
		b.log.skipped[reason] = s
	}
	s.Lines++
}

// finish leaves out invoices of which nothing is left, and matches what came back with what was sold before.
func (b *logBuilder) finish() *orderLog {
	log := &b.log
	log.orders = slices.DeleteFunc(log.orders, func(o order) bool { return len(o.lines) == 0 })
	m := matcher{sold: make(map[string][]soldLine)}
	for i := range log.orders {
		o := &log.orders[i]
		for j, l := range o.lines {
			if o.cancels {
				o.back = append(o.back, m.match(l)...)
				continue
			}
			log.demand[l.code] += l.quantity
			m.sold[l.code] = append(m.sold[l.code], soldLine{sale: i, line: j, left: l.quantity})
		}
	}
	log.codes = slices.Sorted(maps.Keys(b.codes))
	return log
}

// matcher says which sales goods come back from. A cancellation names none, so it is the latest earlier one that has the code and
// has not come back yet. That depends on the log alone, not on what the service answers: the same log makes the
// same requests under the same keys, however often it is sent.
type matcher struct{ sold map[string][]soldLine }

type soldLine struct {
	sale, line int
	left       int64 // not come back yet
}

func (m *matcher) match(l orderLine) []comeback {
	var back []comeback
	sold := m.sold[l.code]
	for len(sold) > 0 && l.quantity > 0 {
		last := &sold[len(sold)-1]
		units := min(last.left, l.quantity)
		back = append(back, comeback{orderLine{l.code, units}, last.sale, last.line})
		last.left -= units
		l.quantity -= units
		if last.left == 0 {
			sold = sold[:len(sold)-1]
		}
	}
	m.sold[l.code] = sold
	if l.quantity > 0 {
		back = append(back, comeback{l, -1, 0})
	}
	return back
}

// keyOf makes an idempotency key of the names that make a request this one: visible ASCII, at most 255 bytes.
func keyOf(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.QueryEscape(part)
	}
	key := strings.Join(escaped, ":")
	if len(key) > 255 {
		sum := sha256.Sum256([]byte(key))
		key = escaped[0] + ":" + hex.EncodeToString(sum[:])
	}
	return key
}
