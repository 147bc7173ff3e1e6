package inventory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Config of a [Service]. What both stores need is named once, here.
type Config struct {
	Ledger ledger.Config
	Gate   gate.Config
	// Redis is where the gate lives, from [gate.Dial]; nil: no gate, the ledger decides everything.
	Redis redis.UniversalClient
	// Reconcile is how often a step of the continuous check is made, see [Service.Reconcile]; not positive: never.
	Reconcile  time.Duration
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Service is the one way to change or read stock.
type Service struct {
	ledger  *ledger.Ledger
	gate    *gate.Gate // nil: none
	log     *slog.Logger
	metrics *metrics
	changed changed // since it was last reconciled
	stop    context.CancelFunc
	checker sync.WaitGroup // the continuous check
}

// Open starts the service on a migrated database. Neither store need be reachable yet.
func Open(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{log: cfg.Log, metrics: newMetrics(cfg.Registerer)}
	cfg.Ledger.Log, cfg.Ledger.Registerer = cfg.Log, cfg.Registerer
	cfg.Gate.Logger, cfg.Gate.Registerer = cfg.Log, cfg.Registerer
	cfg.Gate.Confirm, cfg.Gate.Count = s.confirm, s.count
	if cfg.Redis != nil {
		s.gate = gate.New(cfg.Redis, cfg.Gate)
		cfg.Ledger.Counted = s.gate.Count
	}
	cfg.Ledger.Seen = s.seen
	var err error
	if s.ledger, err = ledger.Open(cfg.Ledger); err != nil {
		if s.gate != nil {
			s.gate.Close()
		}
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if cfg.Reconcile > 0 {
		s.checker.Go(func() { s.reconcileEvery(ctx, cfg.Reconcile) })
	}
	return s, nil
}

// seen hears what the ledger has just written or read, before any caller is answered.
func (s *Service) seen(levels []stock.Levels) {
	if s.gate != nil {
		s.gate.Settle(levels)
	}
	s.changed.note(levels)
}

// Close finishes what is under way and stops. New requests are refused.
func (s *Service) Close() {
	s.stop()
	s.checker.Wait()
	s.ledger.Close()
	if s.gate != nil {
		s.gate.Close()
	}
}

// Commit takes what a deduction holds: [stock.ErrHoldExpired] when its time is over.
func (s *Service) Commit(ctx context.Context, r *stock.CommitRequest) (*stock.Outcome, error) {
	return s.ledger.Commit(ctx, r)
}

// Release gives back what a deduction holds.
func (s *Service) Release(ctx context.Context, r *stock.ReleaseRequest) (*stock.Outcome, error) {
	return s.ledger.Release(ctx, r)
}

// Extend moves a hold's expiry, or takes an expired one anew.
func (s *Service) Extend(ctx context.Context, r *stock.ExtendRequest) (*stock.Outcome, error) {
	out, err := s.ledger.Extend(ctx, r)
	if err != nil && s.makeRoom(ctx, err) {
		return s.ledger.Extend(ctx, r)
	}
	return out, err
}

// Return books goods that came back: never more in sum than was committed.
func (s *Service) Return(ctx context.Context, r *stock.ReturnRequest) (*stock.Outcome, error) {
	return s.ledger.Return(ctx, r)
}

// Order is the deductions of an order that count: of each part the live one, else the last.
func (s *Service) Order(ctx context.Context, client, orderID string) ([]stock.Deduction, error) {
	return s.ledger.Order(ctx, client, orderID)
}

// CommitOrder takes what the deductions of an order hold, all or none.
func (s *Service) CommitOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return s.ledger.CommitOrder(ctx, r)
}

// ReleaseOrder gives back what the deductions of an order hold, all or none.
func (s *Service) ReleaseOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return s.ledger.ReleaseOrder(ctx, r)
}

// ReturnOrder books that everything came back that was committed for an order, or nothing.
func (s *Service) ReturnOrder(ctx context.Context, r *stock.OrderRequest) (*stock.OrderOutcome, error) {
	return s.ledger.ReturnOrder(ctx, r)
}

// Adjust changes what is physically there.
func (s *Service) Adjust(ctx context.Context, r *stock.AdjustRequest) (*stock.Adjustment, error) {
	return s.ledger.Adjust(ctx, r)
}

// Operation is what happened under a key; [stock.ErrNotFound] when nothing has yet.
func (s *Service) Operation(ctx context.Context, key stock.Keyed) (*stock.Operation, error) {
	return s.ledger.Operation(ctx, key)
}

// Void makes sure that nothing will happen under a key, or finds what did. The gate is not asked: what a request under
// the key holds there is dropped when the ledger has refused it.
func (s *Service) Void(ctx context.Context, key stock.Keyed) (*stock.Operation, error) {
	return s.ledger.Void(ctx, key)
}

// MaxImport is how many rows one call of [Service.Import] should have.
const MaxImport = ledger.MaxImport

// Import does many rows, each by itself, and answers all of them in order.
func (s *Service) Import(ctx context.Context, client string, rows []stock.ImportRow) []stock.Imported {
	return s.ledger.Import(ctx, client, rows)
}

// Retain prepares to roll old movements up into checkpoints, step by step; see [ledger.Retention].
func (s *Service) Retain(before time.Time, archive *ledger.Archive, f stock.Fence) *ledger.Retention {
	return s.ledger.Retain(before, archive, f)
}

// Configure creates an item or changes its settings.
func (s *Service) Configure(ctx context.Context, r *stock.ConfigureRequest) (*stock.Configured, error) {
	return s.ledger.Configure(ctx, r)
}

// Deduction by id; [stock.ErrNotFound] when it is not the client's.
func (s *Service) Deduction(ctx context.Context, client string, id stock.DeductionID) (*stock.Outcome, error) {
	return s.ledger.Deduction(ctx, client, id)
}

// Deductions of one order, oldest first.
func (s *Service) Deductions(ctx context.Context, q stock.DeductionQuery) (*stock.DeductionPage, error) {
	return s.ledger.Deductions(ctx, q)
}

// Item with its figures; [stock.ErrNotFound] when there is none.
func (s *Service) Item(ctx context.Context, item stock.Item) (stock.Stock, error) {
	return s.ledger.Item(ctx, item)
}

// Locations lists every location of one SKU; [stock.ErrNotFound] when there is none.
func (s *Service) Locations(ctx context.Context, sku stock.SKU) ([]stock.Stock, error) {
	return s.ledger.Locations(ctx, sku)
}

// List items in item order.
func (s *Service) List(ctx context.Context, q stock.ListQuery) ([]stock.Stock, error) {
	return s.ledger.List(ctx, q)
}

// Movements of one item by version; [stock.ErrNotFound] when there is no such item.
func (s *Service) Movements(ctx context.Context, q stock.MovementQuery) ([]stock.Movement, error) {
	return s.ledger.Movements(ctx, q)
}

// BeginRun claims a tick of a job and its fence; false if there is nothing to do.
func (s *Service) BeginRun(ctx context.Context, t *stock.Tick) (bool, error) {
	return s.ledger.BeginRun(ctx, t)
}

// EndRun writes down how a tick of a job ended.
func (s *Service) EndRun(ctx context.Context, t *stock.Tick, e stock.Ended) error {
	return s.ledger.EndRun(ctx, t, e)
}

// Runs of a job, the latest tick first.
func (s *Service) Runs(ctx context.Context, job string, limit int) ([]stock.Run, error) {
	return s.ledger.Runs(ctx, job, limit)
}

// Settle settles every day that is over, under a fence, and returns how many items it settled.
func (s *Service) Settle(ctx context.Context, f stock.Fence) (int64, error) {
	return s.ledger.Settle(ctx, f)
}

// Settlements of one day; [stock.ErrNotFound] when it is not settled.
func (s *Service) Settlements(ctx context.Context, q stock.SettlementQuery) (*stock.SettlementPage, error) {
	return s.ledger.Settlements(ctx, q)
}

// OpenStocktake begins an exclusive count of an item.
func (s *Service) OpenStocktake(ctx context.Context, r *stock.OpenStocktakeRequest) (*stock.Stocktake, error) {
	return s.ledger.OpenStocktake(ctx, r)
}

// CompleteStocktake writes a count.
func (s *Service) CompleteStocktake(ctx context.Context, r *stock.CompleteStocktakeRequest) (*stock.Stocktake, error) {
	return s.ledger.CompleteStocktake(ctx, r)
}

// Stocktake by id; [stock.ErrNotFound] when it is not the client's.
func (s *Service) Stocktake(ctx context.Context, client string, id stock.DeductionID) (*stock.Stocktake, error) {
	return s.ledger.Stocktake(ctx, client, id)
}

// Events behind a place, in an order in which a reader skips none.
func (s *Service) Events(ctx context.Context, q stock.EventQuery) ([]stock.Event, error) {
	return s.ledger.Events(ctx, q)
}

// Ready reports why this instance cannot serve, or nil. A lost gate does not make it unready.
func (s *Service) Ready(ctx context.Context) error { return s.ledger.Ready(ctx) }
