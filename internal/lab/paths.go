package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Path is one way to sell a unit: Holdfast's own, or one with layers taken away.
type Path struct {
	Name string
	Text string // what it consists of
	open func(ctx context.Context, args sellerArgs, pool *pgxpool.Pool) (sell sellOne, stop func(), err error)
	// service: it sells items of the ledger, not rows of the lab.
	service bool
	masters int    // independent Redis servers it needs; 0: the shared one
	lock    string // kind of lock in front, if any
}

// sellOne sells one unit of an item to an order. No error: acknowledged.
type sellOne func(ctx context.Context, order, item string) error

// Paths lists what is compared, Holdfast's own first.
func Paths() []*Path {
	return []*Path{
		{Name: "the full stack", Text: "gate, sequencer, optimistic batch with keys", service: true, open: openService(true)},
		{Name: "no gate", Text: "sequencer, optimistic batch with keys", service: true, open: openService(false)},
		{Name: "no sequencer", Text: "optimistic lock and key, row by row, with retries", open: openRows(sellOptimistically)},
		{Name: "FOR UPDATE", Text: "read, then write, the row locked in Postgres; no key", open: openRows(sellForUpdate)},
		{Name: "advisory lock", Text: "read, then write, under a Postgres advisory lock; no key", open: openRows(sellUnderAdvisory)},
		{Name: "Redis lock", Text: "read, then write, under a lock of 2 s in Redis; no key", lock: redisOne, open: openLocked},
		{Name: "Redlock", Text: "read, then write, under a lock of 2 s in five Redis; no key", lock: redlock, masters: 5, open: openLocked},
		{Name: "etcd lock", Text: "read, then write, under a lease of 2 s in etcd; no key", lock: etcd, open: openLocked},
	}
}

func pathOf(name string) *Path {
	paths := Paths()
	if i := slices.IndexFunc(paths, func(p *Path) bool { return p.Name == name }); i >= 0 {
		return paths[i]
	}
	return nil
}

// IsOurs reports whether a path is one of the product: with the full stack, or with the gate taken away as when Redis is gone.
func IsOurs(path string) bool {
	p := pathOf(path)
	return p != nil && p.service
}

// Right reports whether nothing was sold or taken twice.
func (r PathResult) Right() bool { return r.SoldTwice == 0 && r.TakenTwice == 0 }

// arrange starts the servers that a path needs, and stocks its items.
func (p *Path) arrange(ctx context.Context, s *Stage, trouble Trouble) (sellerArgs, error) {
	args := sellerArgs{Path: p.Name, Name: s.Name(), Items: 1, Twice: trouble == Retrying}
	if trouble == ManyItems {
		args.Items = spreadItems
	}
	var err error
	if args.Postgres, err = s.Postgres(ctx); err != nil {
		return args, err
	}
	if p.masters > 0 {
		masters, err := s.OwnMasters(ctx, p.masters)
		if err != nil {
			return args, err
		}
		args.Redis = masters.Addrs()
	} else {
		addr, err := s.Redis(ctx)
		if err != nil {
			return args, err
		}
		args.Redis = []string{addr}
	}
	if p.lock == etcd {
		if args.Etcd, err = s.Etcd(ctx); err != nil {
			return args, err
		}
	}
	pool, err := s.store(ctx)
	if err != nil {
		return args, err
	}
	return args, p.fill(ctx, pool, args)
}

// fill stocks the items of a run.
func (p *Path) fill(ctx context.Context, pool *pgxpool.Pool, args sellerArgs) error {
	const names = `FROM generate_series(0, $2::int - 1) AS n`
	if !p.service {
		_, err := pool.Exec(ctx, `INSERT INTO stock (name, on_hand) SELECT $1 || '-' || n, $3::bigint `+names, args.Name, args.Items, pathUnits)
		return err
	}
	_, err := pool.Exec(ctx, `WITH made AS (
			INSERT INTO items (sku, location, on_hand, version) SELECT $1 || '-' || n, 'default', $3::bigint, 1 `+names+` RETURNING id, on_hand)
		INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind, actor)
		SELECT id, 1, on_hand, 0, on_hand, 0, now(), 'receive', 'lab' FROM made`, args.Name, args.Items, pathUnits)
	return err
}

// left sums what the items of a run still have.
func (a sellerArgs) left(ctx context.Context, s *Stage) (left int64, err error) {
	pool, err := s.store(ctx)
	if err != nil {
		return 0, err
	}
	err = pool.QueryRow(ctx, `SELECT (SELECT coalesce(sum(on_hand), 0) FROM stock WHERE starts_with(name, $1))
		+ (SELECT coalesce(sum(on_hand), 0) FROM items WHERE starts_with(sku, $1))`, a.Name+"-").Scan(&left)
	return left, err
}

// openService sells by the product itself, with a gate or without one.
func openService(gated bool) func(context.Context, sellerArgs, *pgxpool.Pool) (sellOne, func(), error) {
	return func(_ context.Context, args sellerArgs, _ *pgxpool.Pool) (sellOne, func(), error) {
		config := inventory.Config{Ledger: ledger.Config{URL: args.Postgres}}
		stop := func() {}
		if gated {
			client, err := gate.Dial("redis://" + args.Redis[0])
			if err != nil {
				return nil, nil, err
			}
			stop = func() { _ = client.Close() }
			config.Redis, config.Gate = client, gate.Config{Prefix: args.Name, Ample: -1} // every request takes a ticket
		}
		service, err := inventory.Open(config)
		if err != nil {
			return nil, nil, err
		}
		sell := func(ctx context.Context, order, item string) error {
			_, err := service.Deduct(ctx, &stock.DeductRequest{
				Keyed: stock.Keyed{Client: "lab", Key: order}, OrderID: order,
				Lines: []stock.WantedLine{{Item: stock.Item{SKU: stock.SKU(item), Location: stock.DefaultLocation}, Quantity: 1}},
			})
			return err
		}
		return sell, func() { service.Close(); stop() }, nil
	}
}

// openRows sells by statements on the lab's own rows.
func openRows(sell func(ctx context.Context, pool *pgxpool.Pool, order, item string) error) func(context.Context, sellerArgs, *pgxpool.Pool) (sellOne, func(), error) {
	return func(_ context.Context, _ sellerArgs, pool *pgxpool.Pool) (sellOne, func(), error) {
		return func(ctx context.Context, order, item string) error { return sell(ctx, pool, order, item) }, func() {}, nil
	}
}

// sellOptimistically is the ledger's promise without the ledger's speed: key, version and stock in one transaction, tried
// again when another was faster.
func sellOptimistically(ctx context.Context, pool *pgxpool.Pool, order, item string) error {
	var none pgx.TxOptions
	for ctx.Err() == nil {
		err := pgx.BeginTxFunc(ctx, pool, none, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `INSERT INTO register (name) VALUES ($1) ON CONFLICT DO NOTHING`, order)
			if err != nil || tag.RowsAffected() == 0 {
				return err // the order has had its effect
			}
			left, version, err := look(ctx, tx, item)
			if err != nil {
				return err
			}
			tag, err = tx.Exec(ctx, `UPDATE stock SET on_hand = $2, version = version + 1 WHERE name = $1 AND version = $3`, item, left-1, version)
			if err == nil && tag.RowsAffected() == 0 {
				return errStale
			}
			return err
		})
		if !errors.Is(err, errStale) {
			return err
		}
	}
	return ctx.Err()
}

// look reads how many are left of an item, and the version of the row.
func look(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, item string) (left, version int64, err error) {
	err = db.QueryRow(ctx, `SELECT on_hand, version FROM stock WHERE name = $1`, item).Scan(&left, &version)
	return left, version, err
}

func sellForUpdate(ctx context.Context, pool *pgxpool.Pool, _, item string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var left int64
		if err := tx.QueryRow(ctx, `SELECT on_hand FROM stock WHERE name = $1 FOR UPDATE`, item).Scan(&left); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE stock SET on_hand = $2 WHERE name = $1`, item, left-1)
		return err
	})
}

func sellUnderAdvisory(ctx context.Context, pool *pgxpool.Pool, _, item string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, item); err != nil {
			return err
		}
		left, _, err := look(ctx, tx, item)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE stock SET on_hand = $2 WHERE name = $1`, item, left-1)
		return err
	})
}

// openLocked sells by a plain read and write under a lock, each statement by itself: what the lock is for.
func openLocked(ctx context.Context, args sellerArgs, pool *pgxpool.Pool) (sellOne, func(), error) {
	kind := pathOf(args.Path).lock
	spec := lockSpec{Kind: kind, Servers: args.Redis, TTL: pathLockTTL}
	if kind == etcd {
		spec.Servers = []string{args.Etcd}
	}
	acquire, err := spec.open(ctx, pool)
	if err != nil {
		return nil, nil, err
	}
	sell := func(ctx context.Context, order, item string) error {
		held, err := acquire(ctx, item, order)
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		left, _, err := look(ctx, pool, item)
		if err != nil {
			return errors.Join(err, held.lease.Release())
		}
		_, err = pool.Exec(ctx, `UPDATE stock SET on_hand = $2 WHERE name = $1`, item, left-1)
		_ = held.lease.Release() // the unit is sold; a lock that was lost meanwhile is what this shows
		return err
	}
	return sell, func() {}, nil
}
