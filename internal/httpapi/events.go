package httpapi

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) ListEvents(w http.ResponseWriter, _ *http.Request, p openapi.ListEventsParams) {
	c := callOf(w)
	c.run(func() error {
		var q stock.EventQuery
		var err error
		if q.Location, err = c.oneLocation(p.Location); err != nil {
			return err
		}
		if q.Limit, err = parseLimit(p.Limit); err != nil {
			return err
		}
		if q.After, err = parseEventCursor(p.Cursor); err != nil {
			return err
		}
		page, err := o.stock.Events(c.ctx, q)
		if err != nil {
			return err
		}
		b := append(c.out, `{"events":`...)
		b = appendList(b, page, appendEvent)
		if len(page) > 0 {
			q.After = page[len(page)-1].Place
		}
		if q.After != (stock.EventPlace{}) {
			b = appendText(b, `,"next_cursor":`, eventCursor(q.After))
		}
		c.answer(http.StatusOK, contentJSON, append(b, '}'))
		return nil
	})
}

// appendEvent writes a CloudEvent in its JSON format. Its id is the movement's: the item's number and the version.
func appendEvent(b []byte, e *stock.Event) []byte {
	b = appendNumber(b, `{"specversion":"1.0","id":"`, e.Place.Item)
	b = appendNumber(b, `-`, e.Levels.Version)
	b = append(b, `","source":"/v1/stock","type":"holdfast.`...)
	b = append(b, e.Kind...)
	b = appendText(b, `","subject":`, e.Levels.Item.String())
	b = appendTime(b, `,"time":`, e.At)
	b = appendFigures(append(b, `,"datacontenttype":"application/json","data":`...), &e.Levels)
	b = appendNumber(b, `,"low_stock_at":`, e.LowStockAt)
	return append(b, "}}"...)
}

func eventCursor(p stock.EventPlace) string {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 28), uint32(p.Epoch))
	for _, n := range []int64{p.Tx, p.Item, p.Version} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseEventCursor(cursor *string) (p stock.EventPlace, err error) {
	if cursor == nil {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err != nil || len(b) != 28 {
		return p, invalidParameter("cursor", "must be a next_cursor of this list")
	}
	p.Epoch = int32(binary.BigEndian.Uint32(b))
	p.Tx, p.Item, p.Version = int64(binary.BigEndian.Uint64(b[4:])), int64(binary.BigEndian.Uint64(b[12:])), int64(binary.BigEndian.Uint64(b[20:]))
	return p, nil
}
