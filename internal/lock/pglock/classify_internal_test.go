package pglock

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// The driver says "conn closed", and that it is safe to send again, of a session that closed before a statement and of one
// that closed under it. Only the second may have had its effect, and nothing tells the two apart.
func TestClosedConnectionSaysNothingAboutTheStatement(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "SELECT 1")
	if !pgconn.SafeToRetry(err) {
		t.Fatalf("%v is not called safe to retry any more: then unsent can go", err)
	}
	if err := classify(err); !errors.Is(err, lock.ErrUnknownOutcome) {
		t.Errorf("%v is taken for a statement that was not sent", err)
	}
}

// What surely had no effect is not called unknown, or nobody could tell that a key is free.
func TestRefusedStatementHadNoEffect(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "SELECT no_such_column")
	if err := classify(err); err == nil || errors.Is(err, lock.ErrUnknownOutcome) {
		t.Errorf("refused: %v", err)
	}
	_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
	if err := classify(err); !errors.Is(err, lock.ErrUnknownOutcome) {
		t.Errorf("a session that the server ended: %v", err)
	}
	_, err = pgx.Connect(t.Context(), "postgres://127.0.0.1:1/none")
	if err := classify(err); err == nil || errors.Is(err, lock.ErrUnknownOutcome) {
		t.Errorf("no server: %v", err)
	}
}
