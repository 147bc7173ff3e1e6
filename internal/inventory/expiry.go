package inventory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// sweepLimit is how many holds one sweep releases at once; a longer queue is worked off in rounds.
	sweepLimit = 500
	// sweepRounds bounds one sweep, so that it ends: what is left waits for the next.
	sweepRounds = 20
	// dueLimit bounds the expired holds released before an item's figures are confirmed.
	dueLimit = 1000
	// expireAtOnce is how many expiries wait in the sequencer together.
	expireAtOnce = 64
)

// metrics of what this package does by itself.
type metrics struct {
	expired   prometheus.Counter
	reconcile *reconcileMetrics
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		reconcile: newReconcileMetrics(r),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_holds_expired_total", Help: "Holds this instance released because their time was over.",
		}),
	}
	if r != nil {
		r.MustRegister(m.expired)
	}
	return m
}

// confirm reads the figures of items for the gate, after releasing what has expired on them: availability
// does not wait for the sweeper.
func (s *Service) confirm(ctx context.Context, items []stock.Item) ([]stock.Levels, error) {
	if _, err := s.expireOn(ctx, items); err != nil {
		return nil, err
	}
	return s.ledger.Levels(ctx, items)
}

// count reads what customers have for the gate, after releasing what has expired on the items.
func (s *Service) count(ctx context.Context, of []stock.CustomerUnits) ([]stock.CustomerUnits, error) {
	items := make([]stock.Item, len(of))
	for i := range of {
		items[i] = of[i].Item
	}
	if _, err := s.expireOn(ctx, items); err != nil {
		return nil, err
	}
	return s.ledger.Units(ctx, of)
}

// expireOn ends holds on items whose time is over, and reports whether there were any.
func (s *Service) expireOn(ctx context.Context, items []stock.Item) (bool, error) {
	due, err := s.ledger.DueOn(ctx, items, dueLimit)
	if err != nil {
		return false, err
	}
	_, err = s.expire(ctx, due, stock.Fence{})
	return len(due) > 0, err
}

// reconcileEvery makes a step of the continuous check at each interval, until ctx ends.
func (s *Service) reconcileEvery(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := s.Reconcile(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("a step of the continuous check could not be finished", "error", err)
		}
	}
}

// Sweep releases every hold whose time is over by the ledger's clock, up to a bound, and returns how many. Under a fence
// it is [stock.ErrStale] for all but the newest holder. Answers do not wait for it: it only keeps the figures of items
// nobody asks for up to date.
func (s *Service) Sweep(ctx context.Context, f stock.Fence) (int64, error) {
	var swept int64
	for range sweepRounds {
		due, err := s.ledger.Due(ctx, sweepLimit)
		if err != nil {
			return swept, err
		}
		n, err := s.expire(ctx, due, f)
		swept += n
		if err != nil {
			return swept, err
		}
		if len(due) < sweepLimit {
			return swept, nil
		}
	}
	return swept, nil
}

// expire ends holds, many in one batch of the ledger, and returns how many. The first error is returned after all were tried.
func (s *Service) expire(ctx context.Context, due []stock.DeductionID, f stock.Fence) (int64, error) {
	if len(due) > 0 {
		defect.Reach(defect.DueListed)
	}
	var (
		group sync.WaitGroup
		once  sync.Once
		first error
		ended atomic.Int64
		slots = make(chan struct{}, expireAtOnce)
	)
	for _, id := range due {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			out, err := s.ledger.Expire(ctx, id, f)
			if err != nil {
				once.Do(func() { first = err })
				return
			}
			if !out.Replayed {
				s.metrics.expired.Inc()
				ended.Add(1)
			}
		})
	}
	group.Wait()
	return ended.Load(), first
}
