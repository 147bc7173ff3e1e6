package ledger

import (
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// operation is one request that may change the ledger. Its decide is pure: it reads the view, and either
// refuses and leaves the view as it was, or grants and changes it.
type operation interface {
	// touches lists the items it may change, one for each line.
	touches() []stock.Item
	// names says what has to be looked up before it may be refused.
	names() names
	decide(v *view) result
}

// names are the unique things an operation is about; zero values are absent.
type names struct {
	key       stock.Keyed
	order     orderPart
	deduction *deductionRow // as it was last read
}

// result is the verdict on one operation.
type result struct {
	outcome    *stock.Outcome
	adjustment *stock.Adjustment
	// replay: the operation had had its effect before; the caller is shown what it is now.
	replay *operationRow
	// voided is the tombstone the operation makes.
	voided *operationRow
	err    error
	// hold is how long after the write a new or extended hold expires.
	hold time.Duration
	// certain: the refusal rests on nothing that another reading could change.
	certain bool
}

func refuse(err error) result { return result{err: err} }

// answer of an operation on a deduction that is granted; at is not known before the write.
func (v *view) answer(d *deductionRow, hold time.Duration) result {
	out := &stock.Outcome{Deduction: d.Deduction, Levels: make([]stock.Levels, 0, len(d.Lines))}
	if hold == 0 {
		out.Deduction = v.asOfNow(d)
	}
	for i := range d.Lines {
		if row := v.items[d.Lines[i].Item]; !row.listed {
			row.listed = true
			out.Levels = append(out.Levels, row.levels)
		}
	}
	for i := range d.Lines {
		v.items[d.Lines[i].Item].listed = false
	}
	return result{outcome: out, hold: hold}
}

// unchanged is the answer of an operation that finds the state it asks for already there.
func (v *view) unchanged(d *deductionRow) result {
	r := v.answer(d, 0)
	r.outcome.Replayed = true
	return r
}

// stamp fills in what only the write could tell: when it happened, by the ledger's clock.
func (r *result) stamp(at time.Time) {
	switch {
	case r.voided != nil:
		r.voided.at = at
	case r.adjustment != nil:
		r.adjustment.Movement.At = at
	case r.outcome != nil && !r.outcome.Replayed:
		d := &r.outcome.Deduction
		if d.CreatedAt.IsZero() {
			d.CreatedAt = at
		}
		d.UpdatedAt = at
		if r.hold > 0 {
			d.ExpiresAt = at.Add(r.hold)
		}
	}
}

// replayed answers a key that was used: with what it did, or that it was for something else, or that it was voided.
func replayed(op operationRow, print stock.Fingerprint) result {
	switch {
	case op.kind == stock.VoidOperation:
		return result{err: stock.ErrKeyVoided, certain: true}
	case op.fingerprint != print:
		return result{err: stock.ErrKeyReused, certain: true}
	}
	return result{replay: &op}
}
