package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) CommitOrder(w http.ResponseWriter, _ *http.Request, id openapi.OrderId) {
	c := callOf(w)
	c.run(func() error {
		return c.changeOrder(&stock.OrderRequest{OrderID: id}, (*body).nothing, o.stock.CommitOrder)
	})
}

func (o operations) ReleaseOrder(w http.ResponseWriter, _ *http.Request, id openapi.OrderId) {
	c := callOf(w)
	c.run(func() error {
		return c.changeOrder(&stock.OrderRequest{OrderID: id}, (*body).nothing, o.stock.ReleaseOrder)
	})
}

func (o operations) ReturnOrder(w http.ResponseWriter, _ *http.Request, id openapi.OrderId, p openapi.ReturnOrderParams) {
	c := callOf(w)
	c.run(func() error {
		req := stock.OrderRequest{OrderID: id}
		var err error
		if req.Keyed, err = c.keyed(p.IdempotencyKey); err != nil {
			return err
		}
		return c.changeOrder(&req, func(b *body) { b.orderReturn(&req) }, o.stock.ReturnOrder)
	})
}

// changeOrder is the shape of what is done with all deductions of an order.
func (c *call) changeOrder(
	req *stock.OrderRequest, read func(*body), do func(context.Context, *stock.OrderRequest) (*stock.OrderOutcome, error),
) error {
	req.Client = c.client.name
	if err := stock.CheckName(req.OrderID); err != nil {
		return invalidParameter("order_id", err.Error())
	}
	if err := c.readIfAny(read); err != nil {
		return err
	}
	if err := c.mayTouchOrder(req.OrderID); err != nil {
		return err
	}
	out, err := do(c.ctx, req)
	if err != nil {
		return err
	}
	c.replayed(out.Replayed)
	status := http.StatusOK
	if req.Key != "" {
		status = http.StatusCreated
	}
	b := appendText(c.out, `{"order_id":`, req.OrderID)
	b = appendList(append(b, `,"deductions":`...), out.Deductions, appendOutcome)
	c.answer(status, contentJSON, append(b, '}'))
	return nil
}

// mayTouchOrder looks at an order before it is changed, for tokens that are limited to some locations.
func (c *call) mayTouchOrder(id string) error {
	if c.client.locations == nil {
		return nil
	}
	all, err := c.api.stock.Order(c.ctx, c.client.name, id)
	if err != nil {
		return err
	}
	for i := range all {
		if err := c.mayUseLines(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
