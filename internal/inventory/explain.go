package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Explanation is why an item's available stock is what it is, in both stores.
type Explanation struct {
	stock.Explanation
	Gate      GateState
	Figures   gate.Figures // what the gate had just before the ledger was asked, when it is known
	Counting  int          // of its tickets, how many count
	Drift     string       // what is wrong in the gate, "" when nothing is
	Sentences []string     // all this in words
}

// GateState says what there is to say of the gate about an item.
type GateState string

// The gate's states.
const (
	GateKnown       GateState = "known"       // it has figures
	GateEmpty       GateState = "empty"       // it has none: the next request that needs them has it ask the ledger
	GateUnreadable  GateState = "unreadable"  // what it has is not of its form
	GateUnreachable GateState = "unreachable" // it cannot be asked
	GateOff         GateState = "off"         // there is none
)

// Explain why an item's available stock is what it is; [stock.ErrNotFound] when there is no such item.
func (s *Service) Explain(ctx context.Context, item stock.Item) (*Explanation, error) {
	state, at := s.look(ctx, item)
	from, err := s.ledger.Explain(ctx, item)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Explanation: *from, Gate: state, Figures: at.Figures}
	for i := range at.Tickets {
		if t := &at.Tickets[i]; t.Epoch == at.Epoch && t.Version == at.Version {
			e.Counting++
		}
	}
	if state == GateKnown || state == GateUnreadable {
		_, e.Drift = drifted(&at, &e.Levels)
	}
	e.Sentences = append(e.inLedger(), e.inGate()...)
	return e, nil
}

// look at what the gate has, before the ledger is asked: then it can only be older.
func (s *Service) look(ctx context.Context, item stock.Item) (GateState, glance) {
	if s.gate == nil {
		return GateOff, glance{}
	}
	figures, err := s.gate.Peek(ctx, item)
	switch {
	case errors.Is(err, gate.ErrUnreadable):
		return GateUnreadable, glance{unreadable: err}
	case err != nil:
		s.log.Warn("explain: the gate cannot be asked", "error", err)
		return GateUnreachable, glance{}
	case !figures.Known:
		return GateEmpty, glance{}
	}
	return GateKnown, glance{Figures: figures}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000 MST") }

// inLedger says what the ledger has.
func (e *Explanation) inLedger() []string {
	l := &e.Levels
	words := []string{fmt.Sprintf("%d available = %d on hand − %d held − %d safety stock, in the ledger at version %d, read at %s.",
		l.Available(), l.OnHand, l.Held, l.SafetyStock, l.Version, clock(e.ReadAt))}
	if l.Available() < 0 {
		words = append(words, "That is below zero because the safety stock is more than what is free. Nothing is oversold.")
	}
	switch e.Holds {
	case 0:
		words = append(words, "No open hold has it.")
	case 1:
		words = append(words, fmt.Sprintf("One open hold has %d, until %s.", e.Held, clock(e.Holders[0].ExpiresAt)))
	default:
		words = append(words, fmt.Sprintf("%d open holds have %d; the first of them ends at %s.", e.Holds, e.Held, clock(e.Holders[0].ExpiresAt)))
	}
	if e.Overdue > 0 {
		words = append(words, fmt.Sprintf("%d of these units are held by holds whose time is over: they are released by the next sweep, or the next request that needs them.", e.Overdue))
	}
	if e.Held != l.Held {
		words = append(words, fmt.Sprintf("CONTRADICTION in the ledger: the item says %d held, its open holds %d. Run \"holdfast reconcile\".", l.Held, e.Held))
	}
	switch {
	case e.Customers == 1:
		words = append(words, fmt.Sprintf("One customer has %d of it, held or taken and not returned: %q of %s.", e.Counted, e.Most[0].Name, e.Most[0].Client))
	case e.Customers > 1:
		words = append(words, fmt.Sprintf("%d customers have %d of it, held or taken and not returned; most of it, %d, %q of %s.",
			e.Customers, e.Counted, e.Most[0].Units, e.Most[0].Name, e.Most[0].Client))
	}
	if len(e.Movements) > 0 {
		m := &e.Movements[0]
		words = append(words, fmt.Sprintf("The last movement was %s by %q at %s: %+d on hand, %+d held.", m.Kind, m.Actor, clock(m.At), m.DeltaOnHand, m.DeltaHeld))
	}
	return words
}

// inGate says what the gate has, and what that means for who asks now.
func (e *Explanation) inGate() []string {
	switch e.Gate {
	case GateOff:
		return []string{"There is no gate: the ledger decides every request."}
	case GateUnreachable:
		return []string{"The gate cannot be asked: while it is so, the ledger decides every request."}
	case GateEmpty:
		return []string{"The gate knows nothing of it: nobody asked for it lately, or so much is left that no ticket is needed. The ledger decides."}
	case GateUnreadable:
		return []string{"DRIFT: " + e.Drift + ". The gate replaces it when it is next asked."}
	}
	f := &e.Figures
	words := []string{fmt.Sprintf("The gate lets %d more pass = %d available at version %d − %d of the %d tickets that count, read at %s; the ledger confirmed its figures %v before.",
		f.Available-f.Outstanding, f.Available, f.Version, f.Outstanding, e.Counting, clock(f.Now), f.Now.Sub(f.ConfirmedAt).Round(time.Millisecond))}
	switch {
	case e.Drift != "":
		words = append(words, "DRIFT: of the gate, "+e.Drift+". The continuous check repairs it; \"holdfast reconcile --repair\" does now.")
	case behind(f, &e.Levels):
		words = append(words, fmt.Sprintf("It is %d versions behind the ledger: news are on their way, or were lost. It says \"short\" only on figures that the ledger confirmed within %v.",
			e.Levels.Version-f.Version, gate.Freshness))
	default:
		words = append(words, "It agrees with the ledger.")
	}
	return words
}
