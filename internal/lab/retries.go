package lab

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// idempotency: what a client does that does not hear.
func idempotency() *Experiment {
	return &Experiment{
		Number: 18, Name: "retry-without-key",
		Question: "What does a retry after a timeout do?",
		Claim: "It does it again: whoever did not hear the answer cannot know whether there was one. No lock helps, since the first " +
			"request is over. A key that is stored in the transaction of the effect does.",
		Setup:       "A client that deducts three of twenty units; the wire loses the reply, and the client sends its request again.",
		Anomalies:   []Case{{"two deductions for one order", retryBlindly}},
		Protections: []Case{{"the key in the same transaction: one deduction, and the retry is answered with it", retryByKey}},
	}
}

func retryBlindly(ctx context.Context, s *Stage) (bool, error) {
	url, err := s.Postgres(ctx)
	if err != nil {
		return false, err
	}
	direct, err := s.Pool(ctx, url)
	if err != nil {
		return false, err
	}
	if _, err := direct.Exec(ctx, `INSERT INTO stock (name, on_hand) VALUES ($1, $2)`, s.Name(), units); err != nil {
		return false, err
	}
	client, lost, err := s.lossy(ctx, url, "update stock")
	if err != nil {
		return false, err
	}
	const deduct = `UPDATE stock SET on_hand = on_hand - 3 WHERE name = $1 AND on_hand >= 3`
	_, first := client.Exec(ctx, deduct, s.Name())
	s.Mark("client", Plain, "deducts 3: %v", first)
	if _, err := client.Exec(ctx, deduct, s.Name()); err != nil {
		return false, err
	}
	s.Mark("client", Wrong, "sends it again")
	left, err := register{pool: direct, name: s.Name()}.left(ctx)
	s.Note("%d of %d are left: 6 are gone for an order of 3", left, units)
	return happened(lost) && first != nil && left == units-6, err
}

// lossy connects to a database through a wire that loses the reply to the first request that mentions a word.
func (s *Stage) lossy(ctx context.Context, url, word string) (*pgxpool.Pool, <-chan struct{}, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip, so that the one request is the effect
	wire, err := s.wireOf(config)
	if err != nil {
		return nil, nil, err
	}
	lost := wire.OnRequest(mentions(word), fault.LoseReply)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s.onEnd(pool.Close)
	return pool, lost, nil
}

// wireOf leads the connections of a pool through a wire that can be broken.
func (s *Stage) wireOf(config *pgxpool.Config) (*fault.Proxy, error) {
	to := config.ConnConfig
	wire, err := s.Proxy(net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(wire.Addr())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	to.Host, to.Port, to.Fallbacks = host, uint16(number), nil
	return wire, err
}

func retryByKey(ctx context.Context, s *Stage) (bool, error) {
	item := stock.Item{SKU: "lab", Location: stock.DefaultLocation}
	l, err := s.ledgerOf(ctx, item, units)
	if err != nil {
		return false, err
	}
	order := &stock.DeductRequest{
		Keyed: stock.Keyed{Client: "lab", Key: "order-1"}, OrderID: "order-1", Lines: []stock.WantedLine{{Item: item, Quantity: 3}},
	}
	first, err := l.Deduct(ctx, order)
	if err != nil {
		return false, err
	}
	s.Mark("client", Plain, "deducts 3; the answer never arrives")
	again, err := l.Deduct(ctx, order)
	if err != nil {
		return false, err
	}
	s.Mark("client", Right, "sends it again: replayed %v", again.Replayed)
	left, err := l.Item(ctx, item)
	s.Note("%d of %d are left", left.OnHand, units)
	return again.Replayed && again.Deduction.ID == first.Deduction.ID && left.OnHand == units-3, err
}

// readBack: whether looking tells what became of a commit.
func readBack() *Experiment {
	return &Experiment{
		Number: 25, Name: "read-back-after-cut-commit",
		Question: "The connection broke during the commit. May one look whether it is there?",
		Claim: "One may, but not believe it: a statement that waits for a lock in the server outlives its connection, and commits " +
			"after the look. Writing the same key again waits for whatever became of the first, and is told.",
		Setup: "A inserts a row in a transaction that has to wait in the server, and its connection is cut. Then whoever wants to " +
			"know looks, before the wait is over.",
		Anomalies:   []Case{{"not there; and then it is", lookAfterCut}},
		Protections: []Case{{"the same key once more: the second insert waits for the first, and finds it", insertAfterCut}},
	}
}

// cutCommit has A commit a row while the server makes it wait, and cuts its connection. Calling go lets the server go on.
func cutCommit(ctx context.Context, s *Stage) (pool *pgxpool.Pool, goOn func() error, err error) {
	url, err := s.Postgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	if pool, err = s.Pool(ctx, url); err != nil {
		return nil, nil, err
	}
	gatekeeper, err := pool.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.onEnd(func() { _ = gatekeeper.Rollback(context.WithoutCancel(ctx)) })
	if _, err := gatekeeper.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, s.Name()); err != nil {
		return nil, nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	wire, err := s.wireOf(config)
	if err != nil {
		return nil, nil, err
	}
	a, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s.onEnd(a.Close)
	done := make(chan error, 1)
	go func() {
		// The simple protocol: all of it is one message, which the server works off whoever still listens.
		_, err := a.Exec(ctx, `BEGIN; INSERT INTO register (name) VALUES ('`+s.Name()+`');
			SELECT pg_advisory_xact_lock(hashtext('`+s.Name()+`')); COMMIT`, pgx.QueryExecModeSimpleProtocol)
		done <- err
	}()
	s.Begin("A", Plain, "commits")
	if err := s.Until(ctx, "A waits in the server", func() (waits bool, err error) {
		err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND query LIKE 'BEGIN; INSERT INTO register%' || $1 || '%')`, s.Name()).Scan(&waits)
		return waits, err
	}); err != nil {
		return nil, nil, err
	}
	wire.Cut()
	broke := <-done
	s.End("A", Plain)
	s.Mark("A", Plain, "its connection breaks: %v", broke != nil)
	if broke == nil {
		return nil, nil, errors.New("the connection of A did not break")
	}
	return pool, func() error { return gatekeeper.Rollback(ctx) }, nil
}

// there reports whether the row of this run is.
func (s *Stage) there(ctx context.Context, pool *pgxpool.Pool) (there bool, err error) {
	err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM register WHERE name = $1)`, s.Name()).Scan(&there)
	return there, err
}

func lookAfterCut(ctx context.Context, s *Stage) (bool, error) {
	pool, goOn, err := cutCommit(ctx, s)
	if err != nil {
		return false, err
	}
	before, err := s.there(ctx, pool)
	if err != nil {
		return false, err
	}
	s.Mark("B", Wrong, "looks: there %v", before)
	if err := goOn(); err != nil {
		return false, err
	}
	err = s.Until(ctx, "the row is there after all", func() (bool, error) { return s.there(ctx, pool) })
	s.Mark("B", Plain, "looks again: there")
	return !before && err == nil, err
}

func insertAfterCut(ctx context.Context, s *Stage) (bool, error) {
	pool, goOn, err := cutCommit(ctx, s)
	if err != nil {
		return false, err
	}
	told := make(chan bool, 1)
	failed := make(chan error, 1)
	go func() {
		tag, err := pool.Exec(ctx, `INSERT INTO register (name) VALUES ($1) ON CONFLICT DO NOTHING`, s.Name())
		told <- tag.RowsAffected() == 0
		failed <- err
	}()
	s.Begin("B", Plain, "inserts the same key")
	if err := s.Until(ctx, "B waits for A", func() (waits bool, err error) {
		err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND query LIKE 'INSERT INTO register (name) VALUES ($1)%')`).Scan(&waits)
		return waits, err
	}); err != nil {
		return false, err
	}
	early := len(told) > 0
	if err := goOn(); err != nil {
		return false, err
	}
	found := <-told
	s.End("B", Plain)
	s.Mark("B", Right, "is told that A's commit is there: %v", found)
	return !early && found, <-failed
}
