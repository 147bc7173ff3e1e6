package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// What the experiments about overselling sell, and to how many.
const (
	units  = 20
	buyers = 100
)

// oversell is the reason why all this is done.
func oversell() *Experiment {
	return &Experiment{
		Number: 17, Name: "oversell",
		Question: "Twenty units, a hundred buyers: how many are sold?",
		Claim: "Read, then write: a hundred. Under a lock: as many as there are, and more when a holder is paused. Compare and set " +
			"without a retry: too few. A conditional update, an optimistic one with retries, a CHECK, or Holdfast's ledger: twenty.",
		Setup: "A hundred clients that each want one of twenty units of a row in Postgres; all have read before the first writes.",
		Anomalies: []Case{
			{"read, then write: every buyer is sold one", sell(readThenWrite, func(sold int) bool { return sold == buyers })},
			{"a lock around read and write, and a holder that is paused: the last unit is sold twice", sellPaused},
			{"compare and set without a retry: fewer than there are", sell(compareAndSet, func(sold int) bool { return 0 < sold && sold < units })},
		},
		Protections: []Case{
			{"conditional update: exactly what is there", sell(conditionally, soldOut)},
			{"optimistic update with retries: exactly what is there", sell(optimistically, soldOut)},
			{"a CHECK below a careless decrement: exactly what is there", sell(checked, soldOut)},
			{"the ledger: exactly what is there, and a refusal for everybody else", sellByLedger},
		},
		Roles: holderRole,
	}
}

func soldOut(sold int) bool { return sold == units }

// errSoldOut: a buyer is told that there is nothing left.
var errSoldOut = errors.New("sold out")

// buyer buys one unit; ready is called when it has looked, and returns when all have.
type buyer func(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error

// sell has all buyers buy at once, and judges how many were told that they have one.
func sell(buy buyer, seen func(sold int) bool) func(context.Context, *Stage) (bool, error) {
	return func(ctx context.Context, s *Stage) (bool, error) {
		pool, err := s.store(ctx)
		if err != nil {
			return false, err
		}
		if _, err := pool.Exec(ctx, `INSERT INTO stock (name, on_hand, checked) VALUES ($1, $2, $2)`, s.Name(), units); err != nil {
			return false, err
		}
		var looked, buying sync.WaitGroup
		looked.Add(buyers)
		var sold atomic.Int64
		errs := make([]error, buyers)
		for i := range buyers {
			buying.Go(func() {
				var once sync.Once
				ready := func() { once.Do(looked.Done); looked.Wait() }
				defer once.Do(looked.Done)
				switch err := buy(ctx, pool, s.Name(), ready); {
				case err == nil:
					sold.Add(1)
				case !errors.Is(err, errSoldOut):
					errs[i] = err
				}
			})
		}
		buying.Wait()
		s.Mark("buyers", Plain, "%d of %d were sold one; there were %d", sold.Load(), buyers, units)
		s.Note("%d units, %d buyers, %d sold", units, buyers, sold.Load())
		return seen(int(sold.Load())), errors.Join(errs...)
	}
}

func readThenWrite(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error {
	left, _, err := look(ctx, pool, name)
	if err != nil {
		return err
	}
	ready()
	if left < 1 {
		return errSoldOut
	}
	_, err = pool.Exec(ctx, `UPDATE stock SET on_hand = $2 WHERE name = $1`, name, left-1)
	return err
}

func compareAndSet(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error {
	left, version, err := look(ctx, pool, name)
	if err != nil {
		return err
	}
	ready()
	if left < 1 {
		return errSoldOut
	}
	return changed(pool.Exec(ctx, `UPDATE stock SET on_hand = $2, version = version + 1 WHERE name = $1 AND version = $3`, name, left-1, version))
}

// changed is errSoldOut if a guarded statement changed nothing.
func changed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errSoldOut
	}
	return err
}

func conditionally(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error {
	ready()
	return changed(pool.Exec(ctx, `UPDATE stock SET on_hand = on_hand - 1 WHERE name = $1 AND on_hand >= 1`, name))
}

// optimistically tries again as long as others are faster: at most once for each of them.
func optimistically(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error {
	for range buyers + 1 {
		err := compareAndSet(ctx, pool, name, ready)
		if !errors.Is(err, errSoldOut) {
			return err
		}
		if left, _, err := look(ctx, pool, name); err != nil || left < 1 {
			return errors.Join(errSoldOut, err)
		}
	}
	return errors.New("overtaken more often than there are others")
}

func checked(ctx context.Context, pool *pgxpool.Pool, name string, ready func()) error {
	ready()
	_, err := pool.Exec(ctx, `UPDATE stock SET checked = checked - 1 WHERE name = $1`, name)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.ConstraintName == "stock_checked_not_negative" {
		return errSoldOut
	}
	return err
}

// sellPaused sells the last unit under a lock whose holder is paused after it looked.
func sellPaused(ctx context.Context, s *Stage) (bool, error) {
	pool, err := s.store(ctx)
	if err != nil {
		return false, err
	}
	if _, err := pool.Exec(ctx, `INSERT INTO stock (name, on_hand) VALUES ($1, 1)`, s.Name()); err != nil {
		return false, err
	}
	where, err := onRedis(false)(ctx, s)
	if err != nil {
		return false, err
	}
	p, err := scene{A: where, B: where, How: sellSeen, Befalls: standStill}.play(ctx, s)
	s.Note("one unit was left; A and B each sold it")
	return err == nil && p.overwritten(), err
}

// ledgerOf opens a ledger on a fresh database with some units of one item.
func (s *Stage) ledgerOf(ctx context.Context, item stock.Item, quantity stock.Quantity) (*ledger.Ledger, error) {
	url, err := s.migrated(ctx)
	if err != nil {
		return nil, err
	}
	l, err := ledger.Open(ledger.Config{URL: url})
	if err != nil {
		return nil, err
	}
	s.onEnd(l.Close)
	if _, err := l.Configure(ctx, &stock.ConfigureRequest{Item: item}); err != nil {
		return nil, fmt.Errorf("create the item: %w", err)
	}
	_, err = l.Adjust(ctx, &stock.AdjustRequest{
		Keyed: stock.Keyed{Client: "lab", Key: "receive"}, Item: item, Kind: stock.Receive, Delta: quantity,
	})
	return l, err
}

func sellByLedger(ctx context.Context, s *Stage) (bool, error) {
	item := stock.Item{SKU: "lab", Location: stock.DefaultLocation}
	l, err := s.ledgerOf(ctx, item, units)
	if err != nil {
		return false, err
	}
	var sold, refused atomic.Int64
	var buying sync.WaitGroup
	for i := range buyers {
		buying.Go(func() {
			order := fmt.Sprint("order-", i)
			_, err := l.Deduct(ctx, &stock.DeductRequest{
				Keyed: stock.Keyed{Client: "lab", Key: order}, OrderID: order, Lines: []stock.WantedLine{{Item: item, Quantity: 1}},
			})
			switch {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, stock.ErrInsufficientStock):
				refused.Add(1)
			}
		})
	}
	buying.Wait()
	left, err := l.Item(ctx, item)
	s.Mark("buyers", Right, "%d sold, %d refused", sold.Load(), refused.Load())
	s.Note("%d units, %d buyers, %d sold, %d refused, %d left, version %d", units, buyers, sold.Load(), refused.Load(), left.OnHand, left.Version)
	return sold.Load() == units && refused.Load() == buyers-units && left.OnHand == 0, err
}
