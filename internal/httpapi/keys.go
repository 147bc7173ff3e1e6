package httpapi

import (
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) GetOperation(w http.ResponseWriter, _ *http.Request, key openapi.Key) {
	c := callOf(w)
	c.run(func() error {
		keyed, err := c.keyedIn("key", key)
		if err != nil {
			return err
		}
		done, err := o.stock.Operation(c.ctx, keyed)
		if err != nil {
			return err
		}
		return c.operation(done)
	})
}

func (o operations) VoidOperation(w http.ResponseWriter, _ *http.Request, key openapi.Key) {
	c := callOf(w)
	c.run(func() error {
		keyed, err := c.keyedIn("key", key)
		if err != nil {
			return err
		}
		if err := c.readIfAny((*body).nothing); err != nil {
			return err
		}
		done, err := o.stock.Void(c.ctx, keyed)
		if err != nil {
			return err
		}
		return c.operation(done)
	})
}

// operation answers with what a key did, unless that reaches beyond the token's locations.
func (c *call) operation(o *stock.Operation) error {
	if o.Outcome != nil {
		if err := c.mayUseLines(&o.Outcome.Deduction); err != nil {
			return err
		}
	}
	for i := range o.Outcomes {
		if err := c.mayUseLines(&o.Outcomes[i].Deduction); err != nil {
			return err
		}
	}
	if o.Adjustment != nil {
		if err := c.mayUse(o.Adjustment.Levels.Location); err != nil {
			return err
		}
	}
	c.replayed(o.Replayed)
	c.answer(http.StatusOK, contentJSON, appendOperation(c.out, o))
	return nil
}
