package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/ledger/internal/dbsqlc"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// connection is one session with the ledger's database. A session lives on one server, so it is of one epoch.
type connection struct {
	conn    *pgx.Conn
	queries *dbsqlc.Queries
	epoch   uint32
	warned  *atomic.Bool // the server sent a warning since this was last cleared
}

// sessionSettings hold for every session that decides.
//
// plan_cache_mode, enable_*: the batch statement takes arrays, and planned anew at each call it costs more to
// plan than to run; the one plan that is right at any size joins by index. The timeouts bound what a session
// whose process was paused can keep locked: the server ends it, and the others go on.
var sessionSettings = map[string]string{
	"application_name":                    "holdfast",
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"jit":                                 "off",
	"statement_timeout":                   "3s",
	"lock_timeout":                        "2500ms",
	"idle_in_transaction_session_timeout": "1s",
	"tcp_user_timeout":                    "5s",
}

// configure makes a pgx configuration for a session that decides.
func configure(cfg *pgx.ConnConfig, warned *atomic.Bool) {
	maps.Copy(cfg.RuntimeParams, sessionSettings)
	if defect.On(defect.AnswerBeforeCommit) {
		cfg.RuntimeParams["synchronous_commit"] = "off"
	}
	cfg.ConnectTimeout = 2 * time.Second
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			warned.Store(true)
		}
	}
}

// connect makes sure that the writer has a session with a server that takes writes.
func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil && !w.conn.conn.IsClosed() {
		return nil
	}
	warned := new(atomic.Bool)
	cfg := w.ledger.connConfig.Copy()
	configure(cfg, warned)
	connected := neverCancel(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return outage{err}
	}
	connected()
	registerArrays(conn.TypeMap())
	queries := dbsqlc.New(defect.SQL(conn))
	epoch, err := queries.ReadEpoch(ctx)
	if err != nil {
		w.conn = &connection{conn: conn}
		w.disconnect()
		return outage{err}
	}
	w.conn = &connection{conn: conn, queries: queries, epoch: uint32(epoch), warned: warned}
	return nil
}

// neverCancel has a session that is given up left to itself, once it is connected. pgx would ask the server to cancel what it does, and a
// server that is asked so while a commit waits for its synchronous standby ends the wait and shows the commit to everybody: whoever
// sends the same key again would find it done, though the standby lacks it. Left alone, it is seen when the standby has it. Everything else
// that a session can wait for has a timeout of its own.
func neverCancel(cfg *pgx.ConnConfig) (connected func()) {
	var is atomic.Bool
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if is.Load() {
			return nil, errLeftAlone
		}
		return dial(ctx, network, addr)
	}
	return func() { is.Store(true) }
}

var errLeftAlone = errors.New("what a session does is not cancelled")

// disconnect ends the session, if there is one.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.conn.Close(ctx) // the session is given up, whatever Close says
	w.conn = nil
	w.ledger.losses.note()
}

// losses remembers when a session ended last. A server that restarts ends all of them: those that were idle then are
// asked whether they live before they read, so that only what was under way sees the end of the server.
type losses struct{ last atomic.Pointer[time.Time] }

func (l *losses) note() {
	now := time.Now()
	l.last.Store(&now)
}

// since reports whether a session ended within the last d.
func (l *losses) since(d time.Duration) bool {
	last := l.last.Load()
	return last != nil && time.Since(*last) <= d
}

// outage is an error that says nothing about the request: the database is out of reach, or out of something.
type outage struct{ error }

func (o outage) Unwrap() error { return o.error }

func isOutage(err error) bool {
	var o outage
	return errors.As(err, &o)
}

// expected reports whether an error is an answer that callers are prepared for.
func expected(err error) bool {
	return errors.Is(err, stock.ErrUnknownOutcome) || errors.Is(err, stock.ErrLedgerUnavailable) || errors.Is(err, stock.ErrOverloaded)
}

// broken names what an error of the database means for the batch. sent: it came in answer to a write, or
// instead of an answer.
func (w *writer) broken(err error, sent bool) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" {
		return refused(answer)
	}
	w.disconnect()
	if sent && !unsent(err) {
		return fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return outage{err}
}

// unsent reports whether a statement surely never left. A reply that was lost can end in "conn closed" too, which pgx calls safe to
// send again.
func unsent(err error) bool { return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) }

// refused names what it means that the server refused a statement: nothing of it was applied.
func refused(answer *pgconn.PgError) error {
	switch {
	case answer.Code == pgerrcode.UniqueViolation &&
		(answer.ConstraintName == "operations_pkey" || answer.ConstraintName == "deductions_live_key"):
		return errUsed
	case answer.Code == pgerrcode.UniqueViolation && answer.ConstraintName == "deductions_number_key":
		return errNumberTaken
	case answer.Code == pgerrcode.UniqueViolation && answer.ConstraintName == "movements_pkey",
		answer.Code == pgerrcode.SerializationFailure, answer.Code == pgerrcode.DeadlockDetected,
		answer.Code == pgerrcode.LockNotAvailable, answer.Code == pgerrcode.QueryCanceled:
		return errNotAsSeen
	case pgerrcode.IsInsufficientResources(answer.Code), pgerrcode.IsOperatorIntervention(answer.Code),
		pgerrcode.IsSystemError(answer.Code), answer.Code == pgerrcode.ReadOnlySQLTransaction,
		answer.Code == pgerrcode.UndefinedTable:
		return outage{answer}
	}
	return fmt.Errorf("write batch: %w", answer)
}
