package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) PutItem(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, p openapi.PutItemParams) {
	c := callOf(w)
	c.run(func() error {
		req := stock.ConfigureRequest{Client: c.client.name}
		var err error
		if req.Item, err = c.item(sku, p.Location); err != nil {
			return err
		}
		if req.IfVersion, err = parseIfMatch(p.IfMatch); err != nil {
			return err
		}
		if p.IfNoneMatch != nil {
			if !p.IfNoneMatch.Valid() {
				return invalidParameter("If-None-Match", "can only be *")
			}
			req.MustBeNew = true
		}
		if err := c.read(func(b *body) { b.settings(&req) }); err != nil {
			return err
		}
		done, err := o.stock.Configure(c.ctx, &req)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if done.Created {
			status = http.StatusCreated
		}
		c.etag(done.Stock.Version)
		c.answer(status, contentJSON, appendStock(c.out, &done.Stock))
		return nil
	})
}

func (o operations) GetItem(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, p openapi.GetItemParams) {
	c := callOf(w)
	if p.Location == nil {
		c.run(func() error { return o.locations(c, sku) })
		return
	}
	c.run(func() error {
		item, err := c.item(sku, p.Location)
		if err != nil {
			return err
		}
		found, err := o.stock.Item(c.ctx, item)
		if err != nil {
			return err
		}
		if tag := c.etag(found.Version); matches(p.IfNoneMatch, tag) {
			c.Header()[requestIDHeader] = []string{c.id}
			c.WriteHeader(http.StatusNotModified)
			return nil
		}
		c.answer(http.StatusOK, contentJSON, appendStock(c.out, &found))
		return nil
	})
}

// locations answers with all locations of the SKU that the token is for.
func (o operations) locations(c *call, name string) error {
	sku, err := stock.ParseSKU(name)
	if err != nil {
		return invalidParameter("sku", err.Error())
	}
	all, err := o.stock.Locations(c.ctx, sku)
	if err != nil {
		return err
	}
	mine := all[:0]
	for _, s := range all {
		if c.client.reaches(s.Location) {
			mine = append(mine, s)
		}
	}
	if len(mine) == 0 {
		return stock.ErrNotFound
	}
	c.answer(http.StatusOK, contentJSON, appendLocations(c.out, sku, mine))
	return nil
}

func (o operations) ListItems(w http.ResponseWriter, _ *http.Request, p openapi.ListItemsParams) {
	c := callOf(w)
	c.run(func() error {
		q, err := c.listQuery(p)
		if err != nil {
			return err
		}
		page, err := o.stock.List(c.ctx, q)
		if err != nil {
			return err
		}
		b := append(c.out, `{"items":`...)
		b = appendList(b, page, appendStock)
		if len(page) == q.Limit {
			b = appendText(b, `,"next_cursor":`, itemCursor(page[len(page)-1].Item))
		}
		c.answer(http.StatusOK, contentJSON, append(b, '}'))
		return nil
	})
}

func (c *call) listQuery(p openapi.ListItemsParams) (q stock.ListQuery, err error) {
	if p.SkuPrefix != nil {
		// A prefix may end in the middle of a SKU, even in a space, but has what a SKU may have.
		if q.Prefix = *p.SkuPrefix; stock.CheckText(strings.TrimRight(q.Prefix, " "), stock.MaxNameBytes) != nil {
			return q, invalidParameter("sku_prefix", "must be the beginning of a SKU")
		}
	}
	if q.Location, err = c.oneLocation(p.Location); err != nil {
		return q, err
	}
	q.Low = p.Low != nil && *p.Low
	if q.Limit, err = parseLimit(p.Limit); err != nil {
		return q, err
	}
	q.After, err = parseItemCursor(p.Cursor)
	return q, err
}

// oneLocation is the location a list is to be of; nil for all, which only a token without limits may see.
func (c *call) oneLocation(named *string) (*stock.Location, error) {
	switch {
	case named != nil:
		l, err := parseLocation(*named)
		if err != nil {
			return nil, err
		}
		return &l, c.mayUse(l)
	case c.client.locations == nil:
		return nil, nil
	case len(c.client.locations) == 1:
		return &c.client.locations[0], nil
	}
	return nil, forbidden("The token is for some locations only: name one of them.")
}

func (o operations) AdjustItem(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, p openapi.AdjustItemParams) {
	c := callOf(w)
	c.run(func() error {
		var req newAdjustment
		var err error
		if req.Item, err = c.item(sku, p.Location); err != nil {
			return err
		}
		if req.Keyed, err = c.keyed(p.IdempotencyKey); err != nil {
			return err
		}
		if req.IfVersion, err = parseIfMatch(p.IfMatch); err != nil {
			return err
		}
		if err := c.read(func(b *body) { b.adjust(&req) }); err != nil {
			return err
		}
		c.short = "/delta"
		if req.SetTo != nil {
			c.short = "/set_to"
		}
		do := o.stock.Adjust
		if req.dryRun {
			do = o.stock.RehearseAdjust
		}
		done, err := do(c.ctx, &req.AdjustRequest)
		if errors.Is(err, stock.ErrUnknownItem) {
			return stock.ErrNotFound // it is named by the path
		}
		if err != nil {
			return err
		}
		c.replayed(done.Replayed)
		c.etag(done.Levels.Version)
		if req.dryRun {
			c.answer(http.StatusOK, contentJSON, appendAdjustmentRehearsal(c.out, done))
			return nil
		}
		c.answer(http.StatusCreated, contentJSON, appendAdjustment(c.out, done))
		return nil
	})
}

func (o operations) ListMovements(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, p openapi.ListMovementsParams) {
	c := callOf(w)
	c.run(func() error {
		var q stock.MovementQuery
		var err error
		if q.Item, err = c.item(sku, p.Location); err != nil {
			return err
		}
		if q.Limit, err = parseLimit(p.Limit); err != nil {
			return err
		}
		if p.AfterVersion != nil {
			q.AfterVersion = *p.AfterVersion
		}
		if q.AfterVersion < 0 {
			return invalidParameter("after_version", "must not be negative")
		}
		page, err := o.stock.Movements(c.ctx, q)
		if err != nil {
			return err
		}
		b := append(c.out, `{"movements":`...)
		b = appendList(b, page, appendMovement)
		if len(page) == q.Limit {
			b = appendNumber(b, `,"next_after_version":`, page[len(page)-1].Version)
		}
		c.answer(http.StatusOK, contentJSON, append(b, '}'))
		return nil
	})
}

// item is what path and query name, if the token is for it.
func (c *call) item(sku string, location *string) (stock.Item, error) {
	item, err := parseItem(sku, location)
	if err != nil {
		return item, err
	}
	return item, c.mayUse(item.Location)
}

// etag sets the header and returns its value.
func (c *call) etag(version int64) string {
	tag := etagOf(version)
	c.Header()["Etag"] = []string{tag}
	return tag
}
