// Package pglock keeps leases on Postgres, as a row or as an advisory lock of a session, and draws the fencing
// tokens of leases that are kept elsewhere.
//
// It settles how a token is drawn so that it grows in the order of grants. It refuses to trust a client's clock: a
// lease row ends on the server's, a session when the server has not heard from it for a TTL. Its tables are part of
// the service's migrations (db/migrations/00003_jobs.sql).
package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// Tokens draws the tokens of leases that are kept elsewhere; see [lock.WithTokens].
type Tokens struct{ pool *pgxpool.Pool }

// NewTokens returns a source of tokens. The pool stays the caller's.
func NewTokens(pool *pgxpool.Pool) *Tokens { return &Tokens{pool} }

// Origin implements [lock.TokenSource].
func (*Tokens) Origin() lock.TokenOrigin { return lock.PostgresSequence }

// The token of a new hold is drawn in DO UPDATE, when the row is locked: one drawn in VALUES could be overtaken while
// it waits for the row. Only the first of all draws of a key takes that of VALUES.
const drawToken = `
INSERT INTO lock_hold AS h (key, hold, token)
VALUES ($1, $2, lock_next_token())
ON CONFLICT (key) DO UPDATE
SET hold  = excluded.hold,
    token = CASE WHEN h.hold = excluded.hold THEN h.token ELSE lock_next_token() END
RETURNING token`

// Draw implements [lock.TokenSource].
func (s *Tokens) Draw(ctx context.Context, key, hold string) (lock.Token, error) {
	var token lock.Token
	if err := s.pool.QueryRow(ctx, drawToken, key, hold).Scan(&token); err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	return token, nil
}

const lastTokens = `
SELECT key, token
FROM lock_hold
WHERE key = ANY ($1)`

// Last implements [lock.TokenSource].
func (s *Tokens) Last(ctx context.Context, keys []string) (map[string]lock.Token, error) {
	rows, err := s.pool.Query(ctx, lastTokens, keys)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	tokens := make(map[string]lock.Token, len(keys))
	var key string
	var token lock.Token
	if _, err := pgx.ForEachRow(rows, []any{&key, &token}, func() error {
		tokens[key] = token
		return nil
	}); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return tokens, nil
}

// Lease keeps each lease in a row.
type Lease struct {
	pool   *pgxpool.Pool
	poller lock.Poller
}

// New returns a back end on lease rows. The pool stays the caller's.
func New(pool *pgxpool.Pool) *Lease { return &Lease{pool: pool} }

// Properties says what the lease promises.
func (*Lease) Properties() lock.Properties {
	return lock.Properties{
		Backend: "postgres", Clock: lock.ServerWall, MinTTL: lock.MinTTL, Fencing: lock.PostgresSequence,
		Wake: lock.Polled, Death: lock.AfterTTL, Restart: lock.Keeps, Failover: lock.AsReplicated,
	}
}

// Fencing implements [lock.FencedBackend].
func (*Lease) Fencing() lock.TokenOrigin { return lock.PostgresSequence }

// Acquire implements [lock.Backend].
func (l *Lease) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	return l.poller.Acquire(ctx, c, lock.Source{Try: l.try})
}

// The row of a key is locked before the clock is read and the token is drawn, so both are as of when this request's
// turn came, not of when it began.
const acquireRow = `
INSERT INTO lock_lease AS l (key, grant_id, owner, token, expires_at)
SELECT $1, $2, $3, lock_next_token(), clock_timestamp() + $4::interval
WHERE NOT EXISTS (SELECT FROM lock_given_up WHERE grant_id = $2)
ON CONFLICT (key) DO UPDATE
SET grant_id   = excluded.grant_id,
    owner      = excluded.owner,
    token      = CASE WHEN l.grant_id = excluded.grant_id THEN l.token ELSE lock_next_token() END,
    expires_at = clock_timestamp() + $4::interval
WHERE l.expires_at <= clock_timestamp() OR l.grant_id = excluded.grant_id
RETURNING token`

const remainingOf = `
SELECT expires_at - clock_timestamp()
FROM lock_lease
WHERE key = $1 AND expires_at > clock_timestamp()`

func (l *Lease) try(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	g := lock.Grant{Claim: c, Sent: time.Now(), Lasts: c.TTL, Hold: c.Owner.Grant}
	err := l.pool.QueryRow(ctx, acquireRow, c.Key, c.Owner.Grant, c.Value, c.TTL).Scan(&g.Token)
	if err == nil {
		return g, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return lock.Grant{}, classify(err)
	}
	held := &lock.HeldError{}
	if err := l.pool.QueryRow(ctx, remainingOf, c.Key).Scan(&held.Remaining); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		held.Remaining = 0 // the next look will tell
	}
	return lock.Grant{}, held
}

const renewRow = `
UPDATE lock_lease
SET expires_at = clock_timestamp() + $3::interval
WHERE key = $1 AND grant_id = $2 AND expires_at > clock_timestamp()`

// Renew implements [lock.Backend].
func (l *Lease) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	g.Sent, g.Lasts = time.Now(), g.TTL
	tag, err := l.pool.Exec(ctx, renewRow, g.Key, g.Owner.Grant, g.TTL)
	if err != nil {
		return lock.Grant{}, classify(err)
	}
	if tag.RowsAffected() == 0 {
		return lock.Grant{}, lock.ErrLost
	}
	return g, nil
}

const releaseRow = `
UPDATE lock_lease
SET grant_id = NULL, owner = '', expires_at = '-infinity'
WHERE key = $1 AND grant_id = $2 AND expires_at > clock_timestamp()`

// Release implements [lock.Backend].
func (l *Lease) Release(ctx context.Context, g lock.Grant) error {
	if g.Uncertain {
		if err := l.mark(ctx, g.Claim); err != nil {
			return err
		}
	}
	tag, err := l.pool.Exec(ctx, releaseRow, g.Key, g.Owner.Grant)
	if err != nil {
		return classify(err)
	}
	if tag.RowsAffected() == 0 {
		return lock.ErrLost
	}
	return nil
}

// A row that an acquire on its way is about to insert, or has locked, makes this statement wait for it.
const abandonRow = `
INSERT INTO lock_lease AS l (key, expires_at)
VALUES ($1, '-infinity')
ON CONFLICT (key) DO UPDATE
SET grant_id   = CASE WHEN l.grant_id = $2 THEN NULL ELSE l.grant_id END,
    owner      = CASE WHEN l.grant_id = $2 THEN '' ELSE l.owner END,
    expires_at = CASE WHEN l.grant_id = $2 THEN '-infinity' ELSE l.expires_at END`

// Abandon implements [lock.Backend].
func (l *Lease) Abandon(ctx context.Context, c lock.Claim) error {
	if err := l.mark(ctx, c); err != nil {
		return err
	}
	if _, err := l.pool.Exec(ctx, abandonRow, c.Key, c.Owner.Grant); err != nil {
		return classify(err)
	}
	return nil
}

const markGivenUp = `
WITH old AS (
  DELETE FROM lock_given_up
  WHERE until < clock_timestamp()
)
INSERT INTO lock_given_up (grant_id, until)
VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (grant_id) DO NOTHING`

// mark keeps acquires of the grant that begin from now on from holding the key, for as long as its TTL.
func (l *Lease) mark(ctx context.Context, c lock.Claim) error {
	if _, err := l.pool.Exec(ctx, markGivenUp, c.Owner.Grant, c.TTL); err != nil {
		return classify(err)
	}
	return nil
}

const listRows = `
SELECT key, owner, token, expires_at - clock_timestamp()
FROM lock_lease
WHERE expires_at > clock_timestamp()
LIMIT $1`

// List implements [lock.Backend].
func (l *Lease) List(ctx context.Context, limit int) ([]lock.Held, error) {
	rows, err := l.pool.Query(ctx, listRows, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: list: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (lock.Held, error) {
		var key, owner string
		var token lock.Token
		var remaining time.Duration
		err := row.Scan(&key, &owner, &token, &remaining)
		h := lock.NewHeld(key, owner)
		h.Token, h.Remaining, h.Waiting = token, remaining, -1
		return h, err
	})
}

// Close implements [lock.Backend].
func (*Lease) Close() error { return nil }

// classify tells what an error means for the statement: nothing was done, or nobody knows.
func classify(err error) error {
	var refused *pgconn.PgError
	switch {
	case unsent(err), errors.As(err, &refused) && !ending(refused):
		return fmt.Errorf("postgres: %w", err)
	default:
		return fmt.Errorf("postgres: %w: %w", lock.ErrUnknownOutcome, err)
	}
}

// unsent reports whether a statement surely never left. One whose answer was lost can end in "conn closed" too, which
// pgx calls safe to send again.
func unsent(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

// ending reports whether the server ended the session, which it may do after a commit and before its answer.
func ending(e *pgconn.PgError) bool {
	return e.Severity == "FATAL" || e.Severity == "PANIC" || strings.HasPrefix(e.Code, "57P")
}
