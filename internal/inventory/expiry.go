package inventory

import (
	"context"
	"sync"
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
	expired, failed prometheus.Counter
	reconcile       *reconcileMetrics
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		reconcile: newReconcileMetrics(r),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_holds_expired_total", Help: "Holds this instance released because their time was over.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_sweeps_failed_total", Help: "Sweeps for expired holds that could not be finished.",
		}),
	}
	if r != nil {
		r.MustRegister(m.expired, m.failed)
	}
	return m
}

// confirm reads the figures of items for the gate, after releasing what has expired on them: availability
// does not wait for the sweeper.
func (s *Service) confirm(ctx context.Context, items []stock.Item) ([]stock.Levels, error) {
	due, err := s.ledger.DueOn(ctx, items, dueLimit)
	if err != nil {
		return nil, err
	}
	if err := s.expire(ctx, due); err != nil {
		return nil, err
	}
	return s.ledger.Levels(ctx, items)
}

// every has do run until ctx ends.
func (s *Service) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		do(ctx)
	}
}

func (s *Service) sweepAndCount(ctx context.Context) {
	if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
		s.metrics.failed.Inc()
		s.log.Warn("sweep expired holds", "error", err)
	}
}

func (s *Service) reconcileAndLog(ctx context.Context) {
	if _, err := s.Reconcile(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("a step of the continuous check could not be finished", "error", err)
	}
}

// Sweep releases every hold whose time is over by the ledger's clock, up to a bound.
func (s *Service) Sweep(ctx context.Context) error {
	for range sweepRounds {
		due, err := s.ledger.Due(ctx, sweepLimit)
		if err != nil {
			return err
		}
		if err := s.expire(ctx, due); err != nil {
			return err
		}
		if len(due) < sweepLimit {
			return nil
		}
	}
	return nil
}

// expire ends holds, many in one batch of the ledger. The first error is returned after all were tried.
func (s *Service) expire(ctx context.Context, due []stock.DeductionID) error {
	if len(due) > 0 {
		defect.Reach(defect.DueListed)
	}
	var (
		group sync.WaitGroup
		once  sync.Once
		first error
		slots = make(chan struct{}, expireAtOnce)
	)
	for _, id := range due {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			out, err := s.ledger.Expire(ctx, id)
			if err != nil {
				once.Do(func() { first = err })
				return
			}
			if !out.Replayed {
				s.metrics.expired.Inc()
			}
		})
	}
	group.Wait()
	return first
}
