package inventory

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Deduct takes stock for an order, or holds it: all lines or none.
func (s *Service) Deduct(ctx context.Context, r *stock.DeductRequest) (*stock.Outcome, error) {
	done := s.DeductAll(ctx, []*stock.DeductRequest{r})[0]
	return done.Outcome, done.Err
}

// DeductAll is [Service.Deduct] for many requests, each for itself, in their order.
//
// The gate may refuse, but it knows nothing of what was done before: a retry of a deduction that took the last
// units must find that deduction, not "sold out". So a refusal of the gate is answered only after the ledger
// was asked for the key and the order; many such questions share one reading.
func (s *Service) DeductAll(ctx context.Context, all []*stock.DeductRequest) []stock.DeductResult {
	if err := s.ledger.Source(ctx, all...); err != nil {
		return slices.Repeat([]stock.DeductResult{{Err: err}}, len(all))
	}
	if s.gate == nil {
		return s.decideAll(ctx, all)
	}
	results, again := s.round(ctx, all)
	if len(again) > 0 {
		done, _ := s.round(ctx, pick(all, again))
		for n, i := range again {
			results[i] = done[n]
		}
	}
	return results
}

// round asks the gate and then the ledger. Again are the places of requests that the gate refused while others of this
// very round had tickets that came to nothing: a replay needs no units, and must not be in the way of what comes after it.
func (s *Service) round(ctx context.Context, all []*stock.DeductRequest) (results []stock.DeductResult, again []int) {
	wishes := make([]gate.Wish, len(all))
	for i, r := range all {
		wishes[i] = gate.Wish{
			Ticket: gate.TicketFor(r.Client, r.OrderID, r.Part), Lines: r.Lines,
			Terms: gate.Terms{Partial: r.AllowPartial, Customer: r.For(), Limit: r.CustomerLimit},
		}
	}
	defect.Reach(defect.BeforeGate)
	answers := s.gate.TakeAll(ctx, wishes)
	defect.Reach(defect.TicketTaken)
	results, passed, refused := s.refuse(ctx, all, answers)
	decided := s.decideAll(ctx, pick(all, passed))
	defect.Reach(defect.Settled)
	wasted := false
	for n, done := range decided {
		i := passed[n]
		results[i] = done
		if answers[i].Verdict != gate.Granted {
			continue
		}
		wasted = wasted || done.Err != nil || done.Outcome.Replayed
		// An unknown outcome frees nothing: the units may be gone. The ticket runs out by itself.
		if !errors.Is(done.Err, stock.ErrUnknownOutcome) || defect.On(defect.FreeTicketOnUnknown) {
			s.gate.Drop(wishes[i])
		}
	}
	if !wasted {
		refused = nil
	}
	return results, refused
}

// pick the requests at these places.
func pick(all []*stock.DeductRequest, places []int) []*stock.DeductRequest {
	if len(places) == len(all) { // in order, so they are all of them
		return all
	}
	some := make([]*stock.DeductRequest, len(places))
	for n, i := range places {
		some[n] = all[i]
	}
	return some
}

// refuse answers what the gate refused, unless the ledger knows better, and lists the places of those that have passed
// and of those that are refused for want of units.
func (s *Service) refuse(
	ctx context.Context, all []*stock.DeductRequest, answers []gate.Answer,
) (results []stock.DeductResult, passed, short []int) {
	results = make([]stock.DeductResult, len(all))
	var refused []int
	for i := range answers {
		switch answers[i].Verdict {
		case gate.Short:
			results[i].Err = &stock.ShortError{Lines: answers[i].Short}
		case gate.Limited:
			results[i].Err = &stock.LimitError{Lines: answers[i].Limited}
		case gate.UnknownItem:
			results[i].Err = &stock.UnknownItemError{Lines: answers[i].Unknown}
		default:
			passed = append(passed, i)
			continue
		}
		refused = append(refused, i)
	}
	if len(refused) == 0 {
		return results, passed, nil
	}
	for n, known := range s.ledger.RecallAll(ctx, pick(all, refused)) {
		switch {
		case errors.Is(known.Err, stock.ErrOrderAlreadyDeducted):
			passed = append(passed, refused[n]) // it may stand in the way as a hold whose time is over
		case known.Outcome != nil || known.Err != nil:
			results[refused[n]] = known
		case answers[refused[n]].Verdict == gate.Short:
			short = append(short, refused[n])
		}
	}
	slices.Sort(passed)
	return results, passed, short
}

// decideAll has the ledger decide, and once more what was short of units that were held by what has expired.
func (s *Service) decideAll(ctx context.Context, all []*stock.DeductRequest) []stock.DeductResult {
	if len(all) == 0 {
		return nil
	}
	if err := s.makeRoomFor(ctx, all); err != nil {
		return slices.Repeat([]stock.DeductResult{{Err: err}}, len(all))
	}
	results := s.ledger.DeductAll(ctx, all)
	var short []int
	var errs []error
	for i := range results {
		if results[i].Err != nil && (errors.Is(results[i].Err, stock.ErrInsufficientStock) || errors.Is(results[i].Err, stock.ErrCustomerLimit)) {
			short, errs = append(short, i), append(errs, results[i].Err)
		}
	}
	if len(short) == 0 || !s.makeRoom(ctx, errs...) {
		return results
	}
	for n, done := range s.ledger.DeductAll(ctx, pick(all, short)) {
		results[short[n]] = done
	}
	return results
}

// makeRoom ends holds whose time is over on the items that requests were short of, and reports whether there were any:
// where no gate has the item confirmed, nobody else looks.
func (s *Service) makeRoom(ctx context.Context, refusals ...error) bool {
	var items []stock.Item
	for _, err := range refusals {
		if short, ok := errors.AsType[*stock.ShortError](err); ok {
			for i := range short.Lines {
				items = append(items, short.Lines[i].Item)
			}
		}
		if over, ok := errors.AsType[*stock.LimitError](err); ok {
			for i := range over.Lines {
				items = append(items, over.Lines[i].Item)
			}
		}
	}
	if len(items) == 0 {
		return false
	}
	slices.SortFunc(items, stock.Item.Compare)
	freed, err := s.expireOn(ctx, slices.Compact(items))
	return err == nil && freed
}

// makeRoomFor requests that may be partial: less being there does not refuse them, so that they cannot be asked twice.
func (s *Service) makeRoomFor(ctx context.Context, all []*stock.DeductRequest) error {
	var items []stock.Item
	for _, r := range all {
		for i := 0; r.AllowPartial && i < len(r.Lines); i++ {
			items = r.Lines[i].AppendItems(items)
		}
	}
	if len(items) == 0 {
		return nil
	}
	_, err := s.expireOn(ctx, items)
	return err
}

// RehearseDeduct answers what [Service.Deduct] would answer now. Nothing is written, the gate is not asked and the key
// stays free; only holds whose time is over may end, as they would have by themselves.
func (s *Service) RehearseDeduct(ctx context.Context, r *stock.DeductRequest) (*stock.Outcome, error) {
	if err := s.ledger.Source(ctx, r); err != nil {
		return nil, err
	}
	if err := s.makeRoomFor(ctx, []*stock.DeductRequest{r}); err != nil {
		return nil, err
	}
	out, err := s.ledger.RehearseDeduct(ctx, r)
	if err != nil && s.makeRoom(ctx, err) {
		return s.ledger.RehearseDeduct(ctx, r)
	}
	return out, err
}

// RehearseAdjust answers what [Service.Adjust] would answer now, and does nothing.
func (s *Service) RehearseAdjust(ctx context.Context, r *stock.AdjustRequest) (*stock.Adjustment, error) {
	return s.ledger.RehearseAdjust(ctx, r)
}
