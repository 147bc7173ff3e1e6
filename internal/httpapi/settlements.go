package httpapi

import (
	"encoding/base64"
	"encoding/csv"
	"net/http"
	"strconv"
	"time"

	openapitypes "github.com/oapi-codegen/runtime/types"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) ListSettlements(w http.ResponseWriter, _ *http.Request, date openapitypes.Date, p openapi.ListSettlementsParams) {
	c := callOf(w)
	c.run(func() error {
		q := stock.SettlementQuery{Day: date.Time}
		var err error
		if q.Location, err = c.oneLocation(p.Location); err != nil {
			return err
		}
		if p.Format != nil {
			if !p.Format.Valid() {
				return invalidParameter("format", "must be json or csv")
			}
			if *p.Format == openapi.Csv {
				return o.settlementsCSV(c, &q, p)
			}
		}
		if q.Limit, err = parseLimit(p.Limit); err != nil {
			return err
		}
		if q.After, err = parseSettlementCursor(p.Cursor); err != nil {
			return err
		}
		page, err := o.stock.Settlements(c.ctx, q)
		if err != nil {
			return err
		}
		c.answer(http.StatusOK, contentJSON, appendSettlements(c.out, page))
		return nil
	})
}

func appendSettlements(b []byte, page *stock.SettlementPage) []byte {
	b = appendText(b, `{"date":`, page.Day.Format(time.DateOnly))
	b = appendTime(b, `,"settled_at":`, page.SettledAt)
	b = append(b, `,"settlements":`...)
	b = appendList(b, page.Settlements, appendSettlement)
	if page.Next != 0 {
		b = appendText(b, `,"next_cursor":`, settlementCursor(page.Next))
	}
	return append(b, '}')
}

func appendSettlement(b []byte, s *stock.Settlement) []byte {
	b = appendText(b, `{"sku":`, string(s.SKU))
	b = appendText(b, `,"location":`, string(s.Location))
	b = appendNumber(b, `,"version":`, s.Version)
	b = appendNumber(b, `,"opening":`, s.Opening)
	b = appendMoved(append(b, ','), &s.Moved)
	b = appendNumber(b, `,"closing":`, s.Closing)
	return append(b, '}')
}

// settlementsCSV sends a whole day, page by page, so that its size is bounded by nothing but the day. A failure after the
// first page breaks the connection off: half a day must not look whole.
func (o operations) settlementsCSV(c *call, q *stock.SettlementQuery, p openapi.ListSettlementsParams) error {
	if p.Limit != nil || p.Cursor != nil {
		return invalidParameter("format", "csv is the whole day: it goes without limit and cursor")
	}
	q.Limit = stock.MaxPage
	page, err := o.stock.Settlements(c.ctx, *q)
	if err != nil {
		return err
	}
	h := c.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="settlement-`+page.Day.Format(time.DateOnly)+`.csv"`)
	h["X-Content-Type-Options"] = noSniff
	h[requestIDHeader] = []string{c.id}
	c.WriteHeader(http.StatusOK)
	w := csv.NewWriter(c)
	_ = w.Write([]string{"date", "sku", "location", "version", "opening", "received", "deducted", "returned", "adjusted", "closing"})
	for {
		for i := range page.Settlements {
			_ = w.Write(settlementRecord(page.Day, &page.Settlements[i])) // nobody may be reading any more: Flush tells
		}
		w.Flush()
		if w.Error() != nil || page.Next == 0 {
			return nil //nolint:nilerr // whoever does not read any more needs no answer
		}
		q.After = page.Next
		if page, err = o.stock.Settlements(c.ctx, *q); err != nil {
			panic(err) // see [API.finish]
		}
	}
}

func settlementRecord(day time.Time, s *stock.Settlement) []string {
	record := []string{day.Format(time.DateOnly), string(s.SKU), string(s.Location), strconv.FormatInt(s.Version, 10)}
	for _, figure := range []stock.Quantity{s.Opening, s.Moved.Received, s.Moved.Deducted, s.Moved.Returned, s.Moved.Adjusted, s.Closing} {
		record = append(record, strconv.FormatInt(int64(figure), 10))
	}
	return record
}

func settlementCursor(after int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, after, 10))
}

func parseSettlementCursor(cursor *string) (int64, error) {
	if cursor == nil {
		return 0, nil
	}
	digits, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err == nil {
		var after int64
		if after, err = strconv.ParseInt(string(digits), 10, 64); err == nil && after > 0 {
			return after, nil
		}
	}
	return 0, invalidParameter("cursor", "must be a next_cursor of this list")
}
