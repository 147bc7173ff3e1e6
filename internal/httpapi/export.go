package httpapi

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// exportColumns are those of a CSV export, in order.
var exportColumns = []string{"sku", "location", "on_hand", "held", "safety_stock", "available", "version", "low_stock_at", "label"}

func (o operations) ExportStock(w http.ResponseWriter, r *http.Request, p openapi.ExportStockParams) {
	c := callOf(w)
	c.run(func() error {
		limit := int32(stock.MaxPage)
		q, err := c.listQuery(openapi.ListItemsParams{SkuPrefix: p.SkuPrefix, Location: p.Location, Low: p.Low, Limit: &limit})
		if err != nil {
			return err
		}
		if strings.Contains(r.Header.Get("Accept"), "text/csv") {
			return o.export(c, q, contentCSV, csvPages())
		}
		return o.export(c, q, contentNDJSON, jsonPage)
	})
}

// export streams page after page. An error is returned only as long as nothing was sent.
func (o operations) export(c *call, q stock.ListQuery, contentType []string, encode func(b []byte, page []stock.Stock) []byte) error {
	for {
		page, err := o.stock.List(c.ctx, q)
		switch {
		case err != nil && c.status == 0:
			return err
		case err != nil:
			c.cutOff(err)
			return nil
		}
		c.out = encode(c.out[:0], page)
		if !c.send(contentType, c.out) || len(page) < q.Limit {
			return nil
		}
		q.After = &page[len(page)-1].Item
	}
}

func jsonPage(b []byte, page []stock.Stock) []byte {
	for i := range page {
		b = append(appendStock(b, &page[i]), '\n')
	}
	return b
}

// csvPages encodes pages as CSV, the first one behind the header.
func csvPages() func([]byte, []stock.Stock) []byte {
	header := true
	return func(b []byte, page []stock.Stock) []byte {
		buf := bytes.NewBuffer(b)
		w := csv.NewWriter(buf) // writing to memory does not fail
		if header {
			_ = w.Write(exportColumns)
			header = false
		}
		for i := range page {
			_ = w.Write(exportRecord(&page[i]))
		}
		w.Flush()
		return buf.Bytes()
	}
}

func exportRecord(s *stock.Stock) []string {
	number := func(q stock.Quantity) string { return strconv.FormatInt(int64(q), 10) }
	low := ""
	if s.LowStockAt != nil {
		low = number(*s.LowStockAt)
	}
	return []string{
		string(s.SKU), string(s.Location), number(s.OnHand), number(s.Held), number(s.SafetyStock), number(s.Available()),
		strconv.FormatInt(s.Version, 10), low, s.Label,
	}
}
