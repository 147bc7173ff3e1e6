package pglock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// Advisory keeps each lease as an advisory lock of a database session of its own.
//
// Postgres frees such a lock when the session ends, and ends the session of a process that died at once, because its
// connection closes. That alone would let a holder whose machine or network is gone keep the key for hours. So every
// session that holds a lock has idle_session_timeout set to the TTL: a holder that does not renew, for whatever
// reason, is ended by the server. Waiters are watched by client_connection_check_interval.
//
// A session is a connection: behind a pooler that hands connections from one client to another between statements
// this cannot work, and a lock taken there would belong to a stranger.
type Advisory struct {
	pool *pgxpool.Pool // its own, for sessions only

	mu       sync.Mutex
	sessions map[string]*session // by grant id; guarded by mu
}

// session is a connection that holds or may hold the lock of a key.
type session struct {
	pid  uint32
	key  string
	wire net.Conn // under conn

	mu      sync.Mutex
	conn    *pgxpool.Conn // nil once it was closed because an answer did not come; guarded by mu
	renewal chan error    // of the renewal on its way; nil if none is; guarded by mu
	sent    time.Time     // when that was sent; guarded by mu
}

// lockSpace keeps our advisory locks apart from those of others in the same database: it seeds the hash of the key.
const lockSpace = "7463021895"

// NewAdvisory returns a back end on advisory locks, with a pool of at most maxSessions connections of its own to the
// given pool's database. Every lease and every waiter occupies one. Postgres 14 or newer is needed.
func NewAdvisory(ctx context.Context, pool *pgxpool.Pool, maxSessions int32) (*Advisory, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxSessions, 0, 0
	config.ConnConfig.RuntimeParams["client_connection_check_interval"] = "1s"
	config.ConnConfig.RuntimeParams["application_name"] = "holdfast-lock"
	config.ConnConfig.DialFunc = dialWatched(config.ConnConfig.DialFunc)
	// A waiter that is cancelled asks the server to end the statement, and keeps its session: when Acquire returns
	// nobody waits any more. A server that does not react in time loses the session.
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelLimit}
	}
	sessions, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the pool of lock sessions: %w", err)
	}
	return &Advisory{pool: sessions, sessions: make(map[string]*session)}, nil
}

// Properties says what the lease promises.
func (*Advisory) Properties() lock.Properties {
	return lock.Properties{
		Backend: "postgres-advisory", Clock: lock.ServerTimer, MinTTL: lock.MinTTL, Fencing: lock.PostgresSequence,
		FIFO: true, Wake: lock.Queued, Death: lock.OnDisconnect, Restart: lock.Forgets, Failover: lock.MayForget,
		Sessions: true,
	}
}

// Fencing implements [lock.FencedBackend].
func (*Advisory) Fencing() lock.TokenOrigin { return lock.PostgresSequence }

const (
	tryAdvisory = `
SELECT set_config('idle_session_timeout', $2, false), pg_try_advisory_lock(hashtextextended($1, ` + lockSpace + `))`

	// A waiting session is not idle, so its timeout starts when it has the lock.
	waitAdvisory = `
SELECT set_config('idle_session_timeout', $2, false), pg_advisory_lock(hashtextextended($1, ` + lockSpace + `)) IS NOT NULL`

	// Drawn by the session that has the lock: no other draw of the key can come between.
	enterSession = `
INSERT INTO lock_session AS s (key, owner, token, pid, ttl)
VALUES ($1, $2, lock_next_token(), pg_backend_pid(), $3::interval)
ON CONFLICT (key) DO UPDATE
SET owner = excluded.owner, token = lock_next_token(), pid = excluded.pid, ttl = excluded.ttl
RETURNING token`

	leaveSession = `
SELECT pg_advisory_unlock(hashtextextended($1, ` + lockSpace + `)), set_config('idle_session_timeout', '0', false)`

	clearSession = `
SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)`

	// Ends a session if it holds or waits for the lock of the key: process ids are used again.
	endSession = `
SELECT count(*) FILTER (WHERE NOT pg_terminate_backend(pid, $3))
FROM pg_locks
WHERE locktype = 'advisory' AND pid = $1 AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::bigint << 32 | objid::bigint) = hashtextextended($2, ` + lockSpace + `)`

	listSessions = `
SELECT s.key, s.owner, s.token, s.ttl - (clock_timestamp() - a.state_change),
  (SELECT count(*) FROM pg_locks w
   WHERE NOT w.granted AND w.locktype = l.locktype AND w.database = l.database AND w.objsubid = l.objsubid
     AND w.classid = l.classid AND w.objid = l.objid)
FROM lock_session s
JOIN pg_locks l ON l.pid = s.pid AND l.granted AND l.locktype = 'advisory' AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(s.key, ` + lockSpace + `)
JOIN pg_stat_activity a ON a.pid = s.pid
LIMIT $1`
)

const cancelLimit = 500 * time.Millisecond

// acquireLimit bounds an acquire that does not wait for the holder: a connection and two statements.
const acquireLimit = 2 * time.Second

// Acquire implements [lock.Backend].
func (a *Advisory) Acquire(ctx context.Context, c lock.Claim) (lock.Grant, error) {
	statement := waitAdvisory
	if !c.Wait {
		statement = tryAdvisory
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, acquireLimit)
		defer cancel()
	}
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return lock.Grant{}, fmt.Errorf("postgres: a session for %s: %w", c.Key, err) // nothing was sent yet
	}
	s := &session{conn: conn, wire: conn.Conn().PgConn().Conn(), pid: conn.Conn().PgConn().PID(), key: c.Key}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.keep(c, s)
	started := time.Now()
	grant, err := s.take(ctx, statement, c)
	switch {
	case err == nil:
		const uncontended = 10 * time.Millisecond // the statement does not say whether it waited; good enough to count
		grant.Waited = c.Wait && time.Since(started) > uncontended
		return grant, nil
	case s.giveBackLocked():
		a.forget(c)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return lock.Grant{}, err
	default:
		return lock.Grant{}, fmt.Errorf("postgres: %w: %w", err, lock.ErrUnknownOutcome)
	}
}

// take locks the key in the session and draws the token.
func (s *session) take(ctx context.Context, statement string, c lock.Claim) (lock.Grant, error) {
	g := lock.Grant{Claim: c, Lasts: c.TTL, Hold: c.Owner.Grant}
	var setting string
	var locked bool
	timeout := strconv.FormatInt(c.TTL.Milliseconds(), 10) // ms is the setting's unit
	if err := s.conn.QueryRow(ctx, statement, c.Key, timeout).Scan(&setting, &locked); err != nil {
		return g, err
	}
	if !locked {
		return g, &lock.HeldError{}
	}
	g.Ended = ended(s.conn)
	g.Sent = time.Now() // the session is not idle before this statement is done
	ctx, cancel := context.WithTimeout(ctx, acquireLimit)
	defer cancel()
	err := s.conn.QueryRow(ctx, enterSession, c.Key, c.Value, c.TTL).Scan(&g.Token)
	return g, err
}

// giveBackLocked returns the connection to the pool, holding nothing: a lock may have been granted to a statement that
// failed after it. False if the session does not answer; it is closed then.
func (s *session) giveBackLocked() bool {
	if !s.conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := s.conn.Exec(ctx, clearSession); err == nil {
			s.conn.Release()
			return true
		}
	}
	s.closeLocked()
	return false
}

// closeLocked ends our side of the session. The server's side may go on for a while; end sees to that.
func (s *session) closeLocked() {
	if s.renewal != nil { // it uses the connection
		_ = s.wire.Close() // which ends it, whatever it says
		<-s.renewal        //nolint:errcheck // it ended with the connection, there is nothing else to do
		s.renewal = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Conn().Close(ctx) // all that can fail is saying goodbye
	s.conn.Release()             // the pool forgets a closed connection
	s.conn = nil
}

// abort closes the session without waiting for a call that uses it: the call ends with its connection.
func (s *session) abort() {
	_ = s.wire.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.closeLocked()
	}
}

func (a *Advisory) keep(c lock.Claim, s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions[c.Owner.Grant] = s
}

func (a *Advisory) forget(c lock.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, c.Owner.Grant)
}

func (a *Advisory) session(c lock.Claim) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[c.Owner.Grant]
}

// Renew implements [lock.Backend]: any statement keeps the session from being idle.
//
// A renewal is not cancelled with ctx, because that would close the session, and the server would free the key while
// the holder still counts on it. It goes on for as long as the server can keep the session, and the next call takes
// it over.
func (a *Advisory) Renew(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	s := a.session(g.Claim)
	if s == nil {
		return lock.Grant{}, lock.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return lock.Grant{}, lock.ErrLost
	}
	if s.renewal == nil {
		s.renewal, s.sent = make(chan error, 1), time.Now()
		go ping(s.conn, s.renewal, g.Sent.Add(g.Lasts))
	}
	select {
	case err := <-s.renewal:
		s.renewal = nil
		if err != nil {
			return lock.Grant{}, fmt.Errorf("postgres: the session of %s: %w: %w", g.Key, lock.ErrLost, err)
		}
		g.Sent, g.Lasts = s.sent, g.TTL
		return g, nil
	case <-ctx.Done():
		return lock.Grant{}, fmt.Errorf("postgres: the session of %s does not answer: %w", g.Key, ctx.Err())
	}
}

func ping(conn *pgxpool.Conn, answer chan<- error, until time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT 1")
	answer <- err
}

// settleLocked waits for a renewal on its way: a connection serves one statement at a time.
func (s *session) settleLocked(ctx context.Context) error {
	if s.renewal == nil {
		return nil
	}
	select {
	case err := <-s.renewal:
		s.renewal = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements [lock.Backend].
func (a *Advisory) Release(ctx context.Context, g lock.Grant) error {
	s := a.session(g.Claim)
	if s == nil {
		return lock.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return a.end(ctx, g.Claim, s)
	}
	if err := s.settleLocked(ctx); err != nil {
		s.closeLocked()
		return fmt.Errorf("postgres: %w: %w", lock.ErrUnknownOutcome, err)
	}
	var unlocked bool
	var setting string
	if err := s.conn.QueryRow(ctx, leaveSession, g.Key).Scan(&unlocked, &setting); err != nil {
		s.closeLocked()
		return classify(err)
	}
	a.forget(g.Claim)
	s.conn.Release()
	if !unlocked {
		return lock.ErrLost
	}
	return nil
}

// Abandon implements [lock.Backend].
func (a *Advisory) Abandon(ctx context.Context, c lock.Claim) error {
	s := a.session(c)
	if s == nil {
		return nil // its session was given back: it held nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.closeLocked()
	}
	if err := a.end(ctx, c, s); err != nil && !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

// end makes sure, over another connection, that a session we do not hear from any more is gone.
func (a *Advisory) end(ctx context.Context, c lock.Claim, s *session) error {
	const patience = 500 // ms for the session to end
	var alive int64
	if err := a.pool.QueryRow(ctx, endSession, int32(s.pid), s.key, patience).Scan(&alive); err != nil {
		return classify(err)
	}
	if alive > 0 {
		return fmt.Errorf("postgres: %w: session %d does not end", lock.ErrUnknownOutcome, s.pid)
	}
	a.forget(c)
	return lock.ErrLost
}

// List implements [lock.Backend].
func (a *Advisory) List(ctx context.Context, limit int) ([]lock.Held, error) {
	rows, err := a.pool.Query(ctx, listSessions, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: list: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (lock.Held, error) {
		var key, owner string
		var token lock.Token
		var remaining time.Duration
		var waiting int
		err := row.Scan(&key, &owner, &token, &remaining, &waiting)
		h := lock.NewHeld(key, owner)
		h.Token, h.Remaining, h.Waiting = token, max(remaining, 0), waiting
		return h, err
	})
}

// Close implements [lock.Backend]: it closes the sessions, and with them frees what is still held.
func (a *Advisory) Close() error {
	a.mu.Lock()
	sessions := slices.Collect(maps.Values(a.sessions))
	clear(a.sessions)
	a.mu.Unlock()
	for _, s := range sessions {
		s.abort()
	}
	a.pool.Close()
	return nil
}
