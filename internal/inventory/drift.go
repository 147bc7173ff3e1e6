package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// newsTake is how long news from a commit to the gate may be on their way: longer than the pause and the call of
// any lane. A base that is older than a commit of that long ago is one that missed it.
const newsTake = 300 * time.Millisecond

// glance is what a look at the gate came to.
type glance struct {
	gate.Figures
	unreadable error
}

// peek at what the gate has about items; nothing without a gate. A gate that cannot be asked is an error, one whose figures cannot be read
// is not: that is what a check is for.
func (s *Service) peek(ctx context.Context, items []ledger.NumberedItem) (map[stock.Item]glance, error) {
	if s.gate == nil {
		return nil, nil
	}
	seen := make(map[stock.Item]glance, len(items))
	for _, item := range items {
		figures, err := s.gate.Peek(ctx, item.Item)
		switch {
		case errors.Is(err, gate.ErrUnreadable):
			seen[item.Item] = glance{unreadable: err}
		case err != nil:
			return nil, err
		case figures.Known:
			seen[item.Item] = glance{Figures: figures}
		}
	}
	return seen, nil
}

// itemFinding is a finding about the gate's figures of one item.
type itemFinding struct {
	stock.Finding
	item stock.Item
}

// drift is what is wrong in the gate. A base that is only older than the ledger is given the time that news take, and looked at again.
func (s *Service) drift(ctx context.Context, seen map[stock.Item]glance, checks []ledger.ItemCheck) ([]itemFinding, error) {
	var found []itemFinding
	var older []*stock.Levels
	for i := range checks {
		levels := &checks[i].Levels
		at, ok := seen[levels.Item]
		if !ok {
			continue
		}
		rule, why := drifted(&at, levels)
		switch {
		case rule != "":
			found = append(found, newDrift(rule, why, levels, &at))
		case behind(&at.Figures, levels):
			older = append(older, levels)
		}
	}
	if len(older) == 0 {
		return found, nil
	}
	timer := time.NewTimer(newsTake)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	for _, levels := range older {
		figures, err := s.gate.Peek(ctx, levels.Item)
		if err != nil {
			return found, err
		}
		if figures.Known && behind(&figures, levels) {
			why := fmt.Sprintf("it has not heard of a commit of more than %v ago", newsTake)
			found = append(found, newDrift(stock.RuleGateLags, why, levels, &glance{Figures: figures}))
		}
	}
	return found, nil
}

func newDrift(rule stock.Rule, why string, levels *stock.Levels, at *glance) itemFinding {
	return itemFinding{item: levels.Item, Finding: stock.Finding{Rule: rule, Subject: levels.Item.String(), Evidence: []string{
		why,
		fmt.Sprintf("gate: available %d, epoch %d, version %d, confirmed at %s; %d tickets, those that count hold %d",
			at.Available, at.Epoch, at.Version, at.ConfirmedAt.UTC().Format(time.RFC3339Nano), len(at.Tickets), at.Outstanding),
		fmt.Sprintf("ledger: available %d (on_hand %d, held %d, safety_stock %d), epoch %d, version %d",
			levels.Available(), levels.OnHand, levels.Held, levels.SafetyStock, levels.Epoch, levels.Version),
	}}}
}

// behind reports whether the gate's base is older than the ledger's figures.
func behind(at *gate.Figures, levels *stock.Levels) bool {
	return at.Epoch < levels.Epoch || at.Epoch == levels.Epoch && at.Version < levels.Version
}

// drifted says which rule the gate's figures break beside the ledger's, which were read after them, and why; "" when none, or when they are
// only older.
func drifted(at *glance, levels *stock.Levels) (stock.Rule, string) {
	if at.unreadable != nil {
		return stock.RuleGateLags, at.unreadable.Error()
	}
	same := at.Epoch == levels.Epoch && at.Version == levels.Version
	switch {
	case !same && !behind(&at.Figures, levels):
		return stock.RuleGate, "it is ahead of the ledger"
	case same && at.Available > levels.Available():
		return stock.RuleGate, "it has more available than the ledger at the same version"
	case same && at.Available < levels.Available():
		return stock.RuleGateLags, "it has less available than the ledger at the same version"
	case at.ConfirmedAt.After(at.Now):
		return stock.RuleGateLags, "it was confirmed in the future"
	}
	if why := ticketsWrong(&at.Figures); why != "" {
		return stock.RuleTickets, why
	}
	return "", ""
}

// ticketsWrong says what does not add up among the tickets of an item, "" when all does. Tickets whose time is over are there until the
// script sweeps them, which it does by their number and their earliest deadline.
func ticketsWrong(at *gate.Figures) string {
	var counting stock.Quantity
	for i := range at.Tickets {
		t := &at.Tickets[i]
		switch {
		case t.Epoch > at.Epoch || t.Epoch == at.Epoch && t.Version > at.Version:
			return "a ticket was taken from figures it has not heard of yet"
		case t.Deadline.Before(at.Earliest) || at.Earliest.IsZero():
			return "a ticket ends before the deadline it takes for the earliest"
		case t.Epoch == at.Epoch && t.Version == at.Version:
			counting += t.Quantity
		}
	}
	if counting != at.Outstanding {
		return fmt.Sprintf("the tickets that count hold %d", counting)
	}
	if at.Count != int64(len(at.Tickets)) {
		return fmt.Sprintf("it counts %d tickets", at.Count)
	}
	return ""
}
