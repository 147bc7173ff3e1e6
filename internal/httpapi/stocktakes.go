package httpapi

import (
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) OpenStocktake(w http.ResponseWriter, r *http.Request, sku openapi.Sku, p openapi.OpenStocktakeParams) {
	c := callOf(w)
	c.run(func() error {
		var req stock.OpenStocktakeRequest
		var err error
		if req.Item, err = c.item(sku, p.Location); err != nil {
			return err
		}
		if req.Keyed, err = c.keyed(p.IdempotencyKey); err != nil {
			return err
		}
		if err := c.read(func(b *body) { b.openStocktake(&req) }); err != nil {
			return err
		}
		s, err := o.stock.OpenStocktake(c.ctx, &req)
		if err != nil {
			return err
		}
		c.replayed(s.Replayed)
		c.Header().Set("Location", r.URL.EscapedPath()+"/"+s.ID.String())
		c.answer(http.StatusCreated, contentJSON, appendStocktake(c.out, s))
		return nil
	})
}

func (o operations) GetStocktake(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, id openapi.StocktakeId, p openapi.GetStocktakeParams) {
	c := callOf(w)
	c.run(func() error {
		item, err := c.item(sku, p.Location)
		if err != nil {
			return err
		}
		s, err := o.stock.Stocktake(c.ctx, c.client.name, id)
		if err != nil {
			return err
		}
		if s.Item != item {
			return stock.ErrNotFound
		}
		c.answer(http.StatusOK, contentJSON, appendStocktake(c.out, s))
		return nil
	})
}

func (o operations) CompleteStocktake(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, id openapi.StocktakeId, p openapi.CompleteStocktakeParams) {
	c := callOf(w)
	c.run(func() error {
		req := stock.CompleteStocktakeRequest{Client: c.client.name, ID: id}
		var err error
		if req.Item, err = c.item(sku, p.Location); err != nil {
			return err
		}
		if err := c.read(func(b *body) { b.completeStocktake(&req) }); err != nil {
			return err
		}
		c.short = "/counted"
		s, err := o.stock.CompleteStocktake(c.ctx, &req)
		if err != nil {
			return err
		}
		c.replayed(s.Replayed)
		c.answer(http.StatusOK, contentJSON, appendStocktake(c.out, s))
		return nil
	})
}

func appendStocktake(b []byte, s *stock.Stocktake) []byte {
	b = appendText(b, `{"id":`, s.ID.String())
	b = appendItem(b, s.Item)
	b = appendText(b, `,"state":`, string(s.State))
	b = appendNumber(b, `,"token":`, s.Fence.Token)
	b = appendText(b, `,"reference":`, s.Reference)
	b = appendTime(b, `,"opened_at":`, s.OpenedAt)
	b = appendTime(b, `,"expires_at":`, s.ExpiresAt)
	b = appendNumber(b, `,"version":`, s.Version)
	b = appendNumber(b, `,"on_hand":`, s.OnHand)
	if n := s.Counted; n != nil {
		b = appendNumber(b, `,"counted":`, n.Quantity)
		b = appendMovement(append(b, `,"movement":`...), &n.Movement)
		b = appendMoved(append(b, `,"moved":{`...), &n.Moved)
		b = append(appendNumber(b, `,"movements":`, n.Movements), '}')
	}
	return append(b, '}')
}

// appendMoved goes on in an object with sums of movements.
func appendMoved(b []byte, m *stock.Moved) []byte {
	b = appendNumber(b, `"received":`, m.Received)
	b = appendNumber(b, `,"deducted":`, m.Deducted)
	b = appendNumber(b, `,"returned":`, m.Returned)
	return appendNumber(b, `,"adjusted":`, m.Adjusted)
}
