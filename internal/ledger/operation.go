package ledger

import (
	"slices"
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
	key        stock.Keyed
	order      orderPart
	deductions []*deductionRow // as they were last read
	fence      stock.Fence     // that guards it
	customer   stock.Customer  // whom a new deduction is for
	counts     bool            // what the customers of the deductions have may change
}

// result is the verdict on one operation.
type result struct {
	outcome    *stock.Outcome
	each       []result // of an operation on several deductions
	adjustment *stock.Adjustment
	// replay: the operation had had its effect before; the caller is shown what it is now.
	replay *operationRow
	own    bool // an earlier sending of this same request had it
	// voided is the tombstone the operation makes.
	voided *operationRow
	err    error
	// hold is how long after the write a new or extended hold expires.
	hold time.Duration
	// certain: the refusal rests on nothing that another reading could change.
	certain bool
	// unproven: it shows an item that the operation does not change, so that its write would not find out that the
	// figures are old.
	unproven bool
}

func refuse(err error) result { return result{err: err} }

// answer of an operation on a deduction that is granted; at is not known before the write.
func (v *view) answer(d *deductionRow, hold time.Duration) result {
	out := &stock.Outcome{Deduction: d.Deduction, Levels: make([]stock.Levels, 0, len(d.Lines))}
	if hold == 0 {
		out.Deduction = v.asOfNow(d)
	}
	unproven := false
	for i := range d.Lines {
		if row := v.items[d.Lines[i].Item]; row != nil && !row.listed {
			row.listed = true
			unproven = unproven || row.levels.Version == row.seen
			out.Levels = append(out.Levels, row.levels)
		}
	}
	for i := range d.Lines {
		if row := v.items[d.Lines[i].Item]; row != nil {
			row.listed = false
		}
	}
	return result{outcome: out, hold: hold, unproven: unproven}
}

// needsProof reports whether the result, or one of those it consists of, is unproven.
func (r *result) needsProof() bool {
	return r.unproven || slices.ContainsFunc(r.each, func(one result) bool { return one.needsProof() })
}

// rehearsal decides an operation on a copy of what it may change: a verdict, and nothing to write.
type rehearsal struct{ operation }

func (r rehearsal) decide(v *view) result { return r.operation.decide(v.copyFor(r.operation)) }

// unchanged is the answer of an operation that finds the state it asks for already there.
func (v *view) unchanged(d *deductionRow) result {
	r := v.answer(d, 0)
	r.outcome.Replayed = true
	return r
}

// stamp fills in what only the write could tell: when it happened, by the ledger's clock.
func (r *result) stamp(at time.Time) {
	for i := range r.each {
		r.each[i].stamp(at)
	}
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

// claim finds what an earlier sending of a batch did, and the last one found done: that is no replay. Somebody else who
// did the very same at the same revision in between cannot be told from us, and asked for the same.
func claim(found, sent []result) {
	for i := range sent {
		f, s := &found[i], &sent[i]
		switch {
		case f.replay != nil:
			f.own = s.err == nil && f.replay.version == s.position()
		case f.outcome != nil && f.outcome.Replayed && s.outcome != nil:
			f.outcome.Replayed = s.outcome.Replayed || f.outcome.Deduction.Revision != s.outcome.Deduction.Revision
		}
		claim(f.each, s.each)
	}
}

// position is what an operation notes beside its key: the version of its movement, or the revision it made.
func (r *result) position() int64 {
	switch {
	case r.adjustment != nil:
		return r.adjustment.Movement.Version
	case r.outcome != nil:
		return int64(r.outcome.Deduction.Revision)
	case len(r.each) > 0:
		return r.each[0].position()
	}
	return 0
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
