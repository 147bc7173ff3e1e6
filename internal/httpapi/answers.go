package httpapi

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// The answers are appended member by member: on the busiest path that costs a fifth of what an encoder
// by reflection does. That they are what the contract says is checked on every exchange of the tests.

// appendText writes name, which brings the punctuation around it, and s as a JSON string.
func appendText(b []byte, name, s string) []byte {
	b = append(b, name...)
	// The error says that s was not UTF-8, which is replaced then: nothing else could be done about it here.
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// appendNumber writes name, which brings the punctuation around it, and n.
func appendNumber[N ~int | ~int32 | ~int64](b []byte, name string, n N) []byte {
	b = append(b, name...)
	return strconv.AppendInt(b, int64(n), 10)
}

// appendTime writes name, which brings the punctuation around it, and t in UTC.
func appendTime(b []byte, name string, t time.Time) []byte {
	b = append(b, name...)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendList writes entries as a JSON array, never null.
func appendList[E any](b []byte, entries []E, one func([]byte, *E) []byte) []byte {
	b = append(b, '[')
	for i := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, &entries[i])
	}
	return append(b, ']')
}

// appendItem goes on in an object with the names of an item.
func appendItem(b []byte, item stock.Item) []byte {
	b = appendText(b, `,"sku":`, string(item.SKU))
	return appendText(b, `,"location":`, string(item.Location))
}

// appendFigures opens an object with an item and its figures.
func appendFigures(b []byte, l *stock.Levels) []byte {
	b = appendText(b, `{"sku":`, string(l.SKU))
	b = appendText(b, `,"location":`, string(l.Location))
	b = appendNumber(b, `,"on_hand":`, l.OnHand)
	b = appendNumber(b, `,"held":`, l.Held)
	b = appendNumber(b, `,"safety_stock":`, l.SafetyStock)
	b = appendNumber(b, `,"available":`, l.Available())
	return appendNumber(b, `,"version":`, l.Version)
}

func appendLevels(b []byte, l *stock.Levels) []byte { return append(appendFigures(b, l), '}') }

func appendStock(b []byte, s *stock.Stock) []byte {
	b = appendFigures(b, &s.Levels)
	if s.LowStockAt != nil {
		b = appendNumber(b, `,"low_stock_at":`, *s.LowStockAt)
	}
	b = appendText(b, `,"label":`, s.Label)
	b = appendTime(b, `,"created_at":`, s.CreatedAt)
	b = appendTime(b, `,"updated_at":`, s.UpdatedAt)
	return append(b, '}')
}

// appendLocations writes every location of one SKU with their totals. A total stays exact: a thousand locations
// of at most 2^53 units are less than 2^63.
func appendLocations(b []byte, sku stock.SKU, locations []stock.Stock) []byte {
	var total stock.Levels
	for i := range locations {
		total.OnHand += locations[i].OnHand
		total.Held += locations[i].Held
		total.SafetyStock += locations[i].SafetyStock
	}
	b = appendText(b, `{"sku":`, string(sku))
	b = appendNumber(b, `,"totals":{"on_hand":`, total.OnHand)
	b = appendNumber(b, `,"held":`, total.Held)
	b = appendNumber(b, `,"safety_stock":`, total.SafetyStock)
	b = appendNumber(b, `,"available":`, total.Available())
	b = append(b, `},"locations":`...)
	b = appendList(b, locations, appendStock)
	return append(b, '}')
}

func appendMovement(b []byte, m *stock.Movement) []byte {
	b = appendNumber(b, `{"version":`, m.Version)
	b = appendText(b, `,"kind":`, string(m.Kind))
	b = appendNumber(b, `,"delta_on_hand":`, m.DeltaOnHand)
	b = appendNumber(b, `,"delta_held":`, m.DeltaHeld)
	b = appendNumber(b, `,"on_hand":`, m.OnHand)
	b = appendNumber(b, `,"held":`, m.Held)
	b = appendText(b, `,"reason":`, m.Reason)
	b = appendText(b, `,"reference":`, m.Reference)
	b = appendText(b, `,"actor":`, m.Actor)
	if m.Deduction != nil {
		b = appendText(b, `,"deduction_id":`, m.Deduction.String())
	}
	b = appendTime(b, `,"at":`, m.At)
	return append(b, '}')
}

func appendAdjustment(b []byte, a *stock.Adjustment) []byte {
	b = appendMovement(append(b, `{"movement":`...), &a.Movement)
	b = appendLevels(append(b, `,"item":`...), &a.Levels)
	return append(b, '}')
}

// appendOperation has what the key did beside the key: the deduction, or movement and item, or nothing.
func appendOperation(b []byte, o *stock.Operation) []byte {
	b = appendText(b, `{"key":`, o.Key)
	b = appendText(b, `,"kind":`, string(o.Kind))
	b = appendTime(b, `,"at":`, o.At)
	if o.Outcome != nil {
		b = appendOutcome(append(b, `,"deduction":`...), o.Outcome)
	}
	if o.Outcomes != nil {
		b = appendList(append(b, `,"deductions":`...), o.Outcomes, appendOutcome)
	}
	if o.Adjustment != nil {
		b = appendMovement(append(b, `,"movement":`...), &o.Adjustment.Movement)
		b = appendLevels(append(b, `,"item":`...), &o.Adjustment.Levels)
	}
	return append(b, '}')
}

// appendRehearsal has no more of the deduction than there is of one that was not made.
func appendRehearsal(b []byte, out *stock.Outcome) []byte {
	d := &out.Deduction
	b = append(b, `{"dry_run":true`...)
	if out.Replayed {
		b = appendText(b, `,"deduction_id":`, d.ID.String())
	}
	b = appendText(b, `,"order_id":`, d.OrderID)
	b = appendText(b, `,"part":`, d.Part)
	b = appendText(b, `,"state":`, string(d.State))
	b = append(b, `,"lines":`...)
	b = appendList(b, d.Lines, appendLine)
	b = append(b, `,"items":`...)
	b = appendList(b, out.Levels, appendLevels)
	return append(b, '}')
}

func appendAdjustmentRehearsal(b []byte, a *stock.Adjustment) []byte {
	b = appendNumber(b, `{"dry_run":true,"delta_on_hand":`, a.Movement.DeltaOnHand)
	b = appendLevels(append(b, `,"item":`...), &a.Levels)
	return append(b, '}')
}

func appendOutcome(b []byte, out *stock.Outcome) []byte {
	return appendDeduction(b, &out.Deduction, out.Levels)
}

// appendDeduction leaves items out when levels is nil.
func appendDeduction(b []byte, d *stock.Deduction, levels []stock.Levels) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, d.ID.String()...)
	b = append(b, '"')
	if d.Number != 0 {
		b = appendNumber(b, `,"number":`, d.Number)
	}
	b = appendText(b, `,"order_id":`, d.OrderID)
	b = appendText(b, `,"part":`, d.Part)
	b = appendText(b, `,"state":`, string(d.State))
	b = appendNumber(b, `,"revision":`, d.Revision)
	b = appendTime(b, `,"created_at":`, d.CreatedAt)
	b = appendTime(b, `,"updated_at":`, d.UpdatedAt)
	if d.Customer.Name != "" {
		b = appendText(b, `,"customer":`, d.Customer.Name)
	}
	if d.CustomerLimit > 0 {
		b = appendNumber(b, `,"customer_limit":`, d.CustomerLimit)
	}
	if !d.ExpiresAt.IsZero() {
		b = appendTime(b, `,"expires_at":`, d.ExpiresAt)
	}
	b = append(b, `,"lines":`...)
	b = appendList(b, d.Lines, appendLine)
	if levels != nil {
		b = append(b, `,"items":`...)
		b = appendList(b, levels, appendLevels)
	}
	return append(b, '}')
}

func appendLine(b []byte, l *stock.Line) []byte {
	b = appendNumber(b, `{"line":`, l.No)
	if l.RequestLine != l.No {
		b = appendNumber(b, `,"request_line":`, l.RequestLine)
	}
	if l.LineID != "" {
		b = appendText(b, `,"line_id":`, l.LineID)
	}
	b = appendItem(b, l.Item)
	b = appendNumber(b, `,"quantity":`, l.Quantity)
	b = appendNumber(b, `,"granted":`, l.Granted())
	b = appendNumber(b, `,"missing":`, l.Missing)
	b = appendNumber(b, `,"held":`, l.Held)
	b = appendNumber(b, `,"committed":`, l.Committed)
	b = appendNumber(b, `,"released":`, l.Released())
	b = appendNumber(b, `,"returned":`, l.Returned)
	return append(b, '}')
}
