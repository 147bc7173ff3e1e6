package httpapi

import (
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) CreateDeduction(w http.ResponseWriter, _ *http.Request, p openapi.CreateDeductionParams) {
	c := callOf(w)
	c.run(func() error {
		req, err := c.deductRequest(p.IdempotencyKey)
		if err != nil {
			return err
		}
		if req.dryRun {
			out, err := o.stock.RehearseDeduct(c.ctx, &req.DeductRequest)
			if err != nil {
				return err
			}
			c.replayed(out.Replayed)
			c.answer(http.StatusOK, contentJSON, appendRehearsal(c.out, out))
			return nil
		}
		out, err := o.stock.Deduct(c.ctx, &req.DeductRequest)
		if err != nil {
			return err
		}
		c.deducted(out)
		return nil
	})
}

func (c *call) deductRequest(key string) (*newDeduction, error) {
	req := new(newDeduction)
	var err error
	if req.Keyed, err = c.keyed(key); err != nil {
		return nil, err
	}
	if err := c.read(func(b *body) { b.deduct(req) }); err != nil {
		return nil, err
	}
	return req, c.mayWant(req.Lines)
}

// mayWant refuses lines at locations the token is not for.
func (c *call) mayWant(lines []stock.WantedLine) error {
	for i := range lines {
		if err := c.mayUseSources(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// mayUseSources refuses locations that the line names and the token is not for. A line that names none is taken from those
// it is for.
func (c *call) mayUseSources(l *stock.WantedLine) error {
	if l.Sourcing == nil {
		return c.mayUse(l.Item.Location)
	}
	l.Sourcing.Within = c.client.locations
	for _, location := range l.Sourcing.Locations {
		if err := c.mayUse(location); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) deducted(out *stock.Outcome) {
	c.Header()["Location"] = []string{"/v1/deductions/" + out.Deduction.ID.String()}
	c.outcome(http.StatusCreated, out)
}

func (o operations) GetDeduction(w http.ResponseWriter, _ *http.Request, id openapi.DeductionId) {
	c := callOf(w)
	c.run(func() error {
		out, err := o.stock.Deduction(c.ctx, c.client.name, id)
		if err != nil {
			return err
		}
		if err := c.mayUseLines(&out.Deduction); err != nil {
			return err
		}
		c.answer(http.StatusOK, contentJSON, appendDeduction(c.out, &out.Deduction, out.Levels))
		return nil
	})
}

func (o operations) ListDeductions(w http.ResponseWriter, _ *http.Request, p openapi.ListDeductionsParams) {
	c := callOf(w)
	c.run(func() error {
		q := stock.DeductionQuery{Client: c.client.name}
		var err error
		if q.OrderID, q.Number, err = parseOrderOrNumber(p.OrderId, p.Number); err != nil {
			return err
		}
		if p.State != nil {
			if !p.State.Valid() {
				return invalidParameter("state", "must be a state of a deduction")
			}
			q.State = stock.State(*p.State)
		}
		if q.Limit, err = parseLimit(p.Limit); err != nil {
			return err
		}
		if q.After, err = parseDeductionCursor(p.Cursor); err != nil {
			return err
		}
		page, err := o.stock.Deductions(c.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Deductions {
			if err := c.mayUseLines(&page.Deductions[i]); err != nil {
				return err
			}
		}
		b := append(c.out, `{"deductions":`...)
		b = appendList(b, page.Deductions, func(b []byte, d *stock.Deduction) []byte { return appendDeduction(b, d, nil) })
		if page.Next != nil {
			b = appendText(b, `,"next_cursor":`, deductionCursor(*page.Next))
		}
		c.answer(http.StatusOK, contentJSON, append(b, '}'))
		return nil
	})
}

func (o operations) CommitDeduction(w http.ResponseWriter, _ *http.Request, id openapi.DeductionId, p openapi.CommitDeductionParams) {
	c := callOf(w)
	c.run(func() error {
		req := stock.CommitRequest{Keyed: stock.Keyed{Client: c.client.name}, ID: id}
		if err := c.readIfAny(func(b *body) { b.commit(&req) }); err != nil {
			return err
		}
		if req.KeepRest {
			if p.IdempotencyKey == nil {
				return errKeyMissing
			}
			var err error
			if req.Key, err = parseKey(keyHeader, *p.IdempotencyKey); err != nil {
				return err
			}
		}
		if err := c.mayTouch(id); err != nil {
			return err
		}
		out, err := o.stock.Commit(c.ctx, &req)
		if err != nil {
			return err
		}
		c.outcome(http.StatusOK, out)
		return nil
	})
}

func (o operations) ReleaseDeduction(w http.ResponseWriter, _ *http.Request, id openapi.DeductionId) {
	c := callOf(w)
	c.run(func() error {
		if err := c.readIfAny((*body).nothing); err != nil {
			return err
		}
		if err := c.mayTouch(id); err != nil {
			return err
		}
		out, err := o.stock.Release(c.ctx, &stock.ReleaseRequest{Client: c.client.name, ID: id})
		if err != nil {
			return err
		}
		c.outcome(http.StatusOK, out)
		return nil
	})
}

func (o operations) ExtendDeduction(w http.ResponseWriter, _ *http.Request, id openapi.DeductionId) {
	c := callOf(w)
	c.run(func() error {
		req := stock.ExtendRequest{Client: c.client.name, ID: id}
		if err := c.read(func(b *body) { b.extend(&req) }); err != nil {
			return err
		}
		if err := c.mayTouch(id); err != nil {
			return err
		}
		c.short = "/reacquire"
		out, err := o.stock.Extend(c.ctx, &req)
		if err != nil {
			return err
		}
		c.outcome(http.StatusOK, out)
		return nil
	})
}

func (o operations) ReturnDeduction(w http.ResponseWriter, _ *http.Request, id openapi.DeductionId, p openapi.ReturnDeductionParams) {
	c := callOf(w)
	c.run(func() error {
		req := stock.ReturnRequest{ID: id}
		var err error
		if req.Keyed, err = c.keyed(p.IdempotencyKey); err != nil {
			return err
		}
		if err := c.readIfAny(func(b *body) { b.returned(&req) }); err != nil {
			return err
		}
		if err := c.mayTouch(id); err != nil {
			return err
		}
		out, err := o.stock.Return(c.ctx, &req)
		if err != nil {
			return err
		}
		c.outcome(http.StatusCreated, out)
		return nil
	})
}

// outcome answers with a deduction after a change.
func (c *call) outcome(status int, out *stock.Outcome) {
	c.replayed(out.Replayed)
	c.answer(status, contentJSON, appendDeduction(c.out, &out.Deduction, out.Levels))
}

func (c *call) replayed(yes bool) {
	if yes {
		c.Header().Set("Idempotent-Replayed", "true")
	}
}

// mayUseLines refuses a deduction that reaches beyond the token's locations.
func (c *call) mayUseLines(d *stock.Deduction) error {
	for i := range d.Lines {
		if err := c.mayUse(d.Lines[i].Item.Location); err != nil {
			return err
		}
	}
	return nil
}

// mayTouch looks at the deduction before it is changed, for tokens that are limited to some locations.
func (c *call) mayTouch(id stock.DeductionID) error {
	if c.client.locations == nil {
		return nil
	}
	out, err := c.api.stock.Deduction(c.ctx, c.client.name, id)
	if err != nil {
		return err
	}
	return c.mayUseLines(&out.Deduction)
}
