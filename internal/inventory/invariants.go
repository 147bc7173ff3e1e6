package inventory

import (
	"context"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// maxShown bounds the findings that [Service.Invariants] lists; they are all counted.
const maxShown = 100

// Invariants are the last verdict of the continuous check, whichever process made it.
type Invariants struct {
	ledger.Round                          // on its way, and the last whole one
	Findings     []ledger.RecordedFinding // not seen whole since, the oldest first; at most 100
	All          map[stock.Rule]int64     // how many there are
	Open         map[stock.Rule]int64     // how many of them were not repaired
}

// Hold reports whether everything that was checked held, or does again.
func (i *Invariants) Hold() bool {
	for _, n := range i.Open {
		if n > 0 {
			return false
		}
	}
	return true
}

// Invariants reads the last verdict of the continuous check.
func (s *Service) Invariants(ctx context.Context) (Invariants, error) {
	var told Invariants
	var err error
	if told.Round, err = s.ledger.Round(ctx); err != nil {
		return told, err
	}
	told.Findings, told.All, told.Open, err = s.ledger.Findings(ctx, maxShown)
	return told, err
}
