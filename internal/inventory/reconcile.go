package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// These bound what one step of the check looks at.
	stepItems     = 200
	stepCustomers = 500
	stepKeys      = 500
	// maxChanged bounds the changed items that wait to be checked; the others wait for the walk to come by.
	maxChanged = 10_000
	// wholeFindings bounds the findings of each rule that a full check returns.
	wholeFindings = 100
)

// Verdict is what a check came to.
type Verdict struct {
	Checked  ledger.Counts
	Findings []stock.Finding
	// Gate is why it could not be checked, nil when it was, or when there is none.
	Gate error
}

// Clean reports whether nothing was found that is still so.
func (v *Verdict) Clean() bool {
	for i := range v.Findings {
		if !v.Findings[i].Repaired {
			return false
		}
	}
	return true
}

func (v *Verdict) add(more *Verdict) {
	v.Checked.Items += more.Checked.Items
	v.Checked.Movements += more.Checked.Movements
	v.Checked.Customers += more.Checked.Customers
	v.Checked.Keys += more.Checked.Keys
	v.Findings = append(v.Findings, more.Findings...)
	v.Gate = errors.Join(v.Gate, more.Gate)
}

// changed are the items that this process wrote or read since they were last checked.
type changed struct {
	mu    sync.Mutex
	items map[stock.Item]struct{} // guarded by mu, at most maxChanged
}

func (c *changed) note(levels []stock.Levels) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items == nil {
		c.items = make(map[stock.Item]struct{})
	}
	for i := range levels {
		if len(c.items) >= maxChanged {
			return
		}
		c.items[levels[i].Item] = struct{}{}
	}
}

// take up to limit of them.
func (c *changed) take(limit int) []stock.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := make([]stock.Item, 0, min(limit, len(c.items)))
	for item := range c.items {
		if len(items) == limit {
			break
		}
		items = append(items, item)
		delete(c.items, item)
	}
	return items
}

// Reconcile makes one bounded step of the continuous check: items this process changed, and the next page of the walk over all
// items, what customers have, and all idempotency keys. What it finds in the gate it repairs, by making the gate forget the item; what it finds in the
// ledger it only records. It is safe to run in several processes at once.
func (s *Service) Reconcile(ctx context.Context) (Verdict, error) {
	verdict, err := s.reconcile(ctx)
	s.metrics.reconcile.observe(&verdict, err)
	if err != nil {
		return verdict, fmt.Errorf("reconcile: %w", err)
	}
	for i := range verdict.Findings {
		f := &verdict.Findings[i]
		if f.Rule.InGate() {
			s.log.Warn("the gate disagreed with the ledger", "rule", f.Rule, "subject", f.Subject, "evidence", f.Evidence, "repaired", f.Repaired)
		} else {
			s.log.Error("the ledger contradicts itself", "rule", f.Rule, "subject", f.Subject, "evidence", f.Evidence)
		}
	}
	return verdict, nil
}

func (s *Service) reconcile(ctx context.Context) (Verdict, error) {
	at, err := s.ledger.Round(ctx)
	if err != nil {
		return Verdict{}, err
	}
	items, err := s.ledger.Numbered(ctx, s.changed.take(stepItems))
	if err != nil {
		return Verdict{}, err
	}
	next, page := at, []ledger.NumberedItem(nil)
	if !at.ItemsDone {
		if page, err = s.ledger.ItemsAfter(ctx, at.ItemID, stepItems); err != nil {
			return Verdict{}, err
		}
		if next.ItemsDone = len(page) < stepItems; len(page) > 0 {
			next.ItemID = page[len(page)-1].ID
		}
	}
	verdict, err := s.checkItems(ctx, distinct(page, items), s.ledger.CheckItems, true)
	if err != nil {
		return verdict, err
	}
	ends, err := s.checkNames(ctx, &next, &verdict, at.ItemsDone)
	if err != nil {
		return verdict, err
	}
	if err := s.ledger.Record(ctx, verdict.Findings); err != nil {
		return verdict, err
	}
	next.Checked.Items += int64(len(page))
	next.Checked.Movements += verdict.Checked.Movements
	next.Checked.Customers += verdict.Checked.Customers
	next.Checked.Keys += verdict.Checked.Keys
	if ends {
		return verdict, s.ledger.EndRound(ctx, &at, &next)
	}
	return verdict, s.ledger.Advance(ctx, &at, &next)
}

// checkNames checks the next page of customers or of keys, once the walk has passed all items. It reports whether that ends the round.
func (s *Service) checkNames(ctx context.Context, next *ledger.Round, verdict *Verdict, itemsDone bool) (ends bool, err error) {
	var n int
	var found []stock.Finding
	switch {
	case !itemsDone:
		return false, nil
	case !next.CustomersDone:
		next.Counter, n, found, err = s.ledger.CheckCustomers(ctx, next.Counter, stepCustomers)
		next.CustomersDone = n < stepCustomers
		verdict.Checked.Customers = int64(n)
	default:
		next.Key, n, found, err = s.ledger.CheckKeys(ctx, next.Key, stepKeys)
		ends = n < stepKeys
		verdict.Checked.Keys = int64(n)
	}
	verdict.Findings = append(verdict.Findings, found...)
	return ends, err
}

// distinct is every item of both lists once.
func distinct(a, b []ledger.NumberedItem) []ledger.NumberedItem {
	seen := make(map[int64]bool, len(a)+len(b))
	var all []ledger.NumberedItem
	for _, list := range [][]ledger.NumberedItem{a, b} {
		for _, item := range list {
			if !seen[item.ID] {
				seen[item.ID] = true
				all = append(all, item)
			}
		}
	}
	return all
}

// FullCheck is what [Service.ReconcileAll] does besides checking.
type FullCheck struct {
	Repair   bool          // what is found in the gate
	Progress func(Verdict) // called after each part, with what was checked so far; may be nil
}

// ReconcileAll checks everything from the beginning: each item's whole history, what each customer has, each idempotency key, and the rules that need
// whole tables to be read. It takes as long as that takes, and writes nothing to the ledger.
func (s *Service) ReconcileAll(ctx context.Context, how FullCheck) (Verdict, error) {
	var sum Verdict
	done := func(part Verdict) {
		if sum.add(&part); how.Progress != nil {
			how.Progress(sum)
		}
	}
	for after, more := int64(0), true; more; {
		page, err := s.ledger.ItemsAfter(ctx, after, stepItems)
		if err != nil {
			return sum, err
		}
		part, err := s.checkItems(ctx, page, s.ledger.CheckItemsWhole, how.Repair)
		if err != nil {
			return sum, err
		}
		done(part)
		if more = len(page) == stepItems; more {
			after = page[len(page)-1].ID
		}
	}
	for after, more := (ledger.Counter{}), true; more; {
		last, n, found, err := s.ledger.CheckCustomers(ctx, after, stepCustomers)
		if err != nil {
			return sum, err
		}
		done(Verdict{Checked: ledger.Counts{Customers: int64(n)}, Findings: found})
		after, more = last, n == stepCustomers
	}
	for after, more := (stock.Keyed{}), true; more; {
		last, n, found, err := s.ledger.CheckKeys(ctx, after, stepKeys)
		if err != nil {
			return sum, err
		}
		done(Verdict{Checked: ledger.Counts{Keys: int64(n)}, Findings: found})
		after, more = last, n == stepKeys
	}
	found, err := s.ledger.CheckWhole(ctx, wholeFindings)
	if err != nil {
		return sum, err
	}
	done(Verdict{Findings: found})
	return sum, nil
}

type itemCheck func(context.Context, []ledger.NumberedItem) ([]ledger.ItemCheck, error)

// checkItems asks the gate first and the ledger after it. All that the gate may have heard was committed before, so the ledger's answer has
// it: a gate that is ahead of that is wrong, whatever is on its way.
func (s *Service) checkItems(ctx context.Context, items []ledger.NumberedItem, check itemCheck, repair bool) (Verdict, error) {
	var verdict Verdict
	if len(items) == 0 {
		return verdict, nil
	}
	seen, err := s.peek(ctx, items)
	verdict.Gate = err
	checks, err := check(ctx, items)
	if err != nil {
		return verdict, err
	}
	for i := range checks {
		c := &checks[i]
		verdict.Checked.Items++
		verdict.Checked.Movements += c.Movements
		verdict.Findings = append(verdict.Findings, c.Findings...)
		if c.More {
			s.changed.note([]stock.Levels{c.Levels})
		}
	}
	if s.gate == nil || verdict.Gate != nil {
		return verdict, nil //nolint:nilerr // a gate that cannot be asked is part of the verdict
	}
	drifted, err := s.drift(ctx, seen, checks)
	verdict.Gate = err
	for i := range drifted {
		f := &drifted[i]
		if repair {
			err := s.gate.Forget(ctx, f.item)
			f.Repaired = err == nil
			verdict.Gate = errors.Join(verdict.Gate, err)
		}
		verdict.Findings = append(verdict.Findings, f.Finding)
	}
	return verdict, nil
}
