package bench_test

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/bench"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// secretHash is the SHA-256 of "secret".
const secretHash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

// baseline runs the ordinary service on a database of its own.
func baseline(t *testing.T) (bench.Target, string) {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(tokens, []byte(`[{"name":"bench","sha256":"`+secretHash+`","scopes":["admin"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	database := sandbox.Database(t)
	b, err := bench.OpenBaseline(t.Context(), bench.BaselineConfig{Database: database, Sessions: 8, TokensFile: tokens})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b.Handler())
	t.Cleanup(func() {
		server.Close()
		b.Close()
	})
	return bench.Target{Addrs: []string{server.Listener.Addr().String()}, Token: "secret"}, database
}

func TestBaselineIsCorrect(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]bench.Shape{
		"hot, with duplicates": {Items: 1, Lines: 1, Stock: bench.Plenty, Duplicates: 0.3},
		"orders of many lines": {Items: 5, Lines: 4, Stock: bench.Plenty},
		"until all is gone":    {Items: 3, Lines: 2, Stock: 4, Duplicates: 0.4}, // soon: a busy machine sends few
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, database := baseline(t)
			w := bench.NewWorkload(shape)
			if err := w.Insert(t.Context(), database); err != nil {
				t.Fatal(err)
			}
			got := load(t, target, w, 16, bench.Pace{For: 500 * time.Millisecond})
			if got.Wrong != 0 || got.Taken == 0 {
				t.Fatalf("%d taken, %d wrong: %v", got.Taken, got.Wrong, got.Reasons)
			}
			if err := w.VerifyLedger(t.Context(), database); err != nil {
				t.Error(err)
			}
			if refused := got.Statuses[409] > 0; refused != (shape.Stock < bench.Plenty) {
				t.Errorf("with a stock of %d the answers were %v", shape.Stock, got.Statuses)
			}
			if replayed := got.Replays > 0; replayed != (shape.Duplicates > 0) {
				t.Errorf("%d replays", got.Replays)
			}
		})
	}
}

func TestLedgersThatDoNotAgreeWithTheAnswersAreFound(t *testing.T) {
	t.Parallel()
	target, database := baseline(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, damage := range []string{
		"UPDATE items SET on_hand = on_hand + 1",
		"UPDATE items SET held = 1",
		"UPDATE items SET version = version + 1",
		"DELETE FROM movements WHERE version = 2",
		"UPDATE movements SET delta_on_hand = 0 WHERE version = 2",
		"DELETE FROM operations WHERE key = (SELECT max(key) FROM operations)",
		"DELETE FROM deductions WHERE id = (SELECT max(id::text) FROM deductions)::uuid",
		"UPDATE deductions SET state = 'released' WHERE id = (SELECT max(id::text) FROM deductions)::uuid",
	} {
		t.Run(damage, func(t *testing.T) {
			w := bench.NewWorkload(bench.Shape{Items: 2, Lines: 1, Stock: bench.Plenty})
			if err := w.Insert(t.Context(), database); err != nil {
				t.Fatal(err)
			}
			if got := load(t, target, w, 2, bench.Pace{For: 50 * time.Millisecond}); got.Wrong != 0 {
				t.Fatal(got.Reasons)
			}
			if err := w.VerifyLedger(t.Context(), database); err != nil {
				t.Fatalf("before the damage: %v", err)
			}
			tag, err := conn.Exec(t.Context(), damage)
			if err != nil || tag.RowsAffected() == 0 {
				t.Fatalf("%s: %v", tag, err)
			}
			if err := w.VerifyLedger(t.Context(), database); err == nil {
				t.Error("the damage was not found")
			}
		})
	}
}
