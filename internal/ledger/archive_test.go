package ledger_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestArchiveIsOneProcessesAtATime: the session of a step that stands still may end, and with it the lock that keeps others off the movements.
// The file is kept from them all the same, for as long as the step might write to it.
func TestArchiveIsOneProcessesAtATime(t *testing.T) {
	t.Parallel()
	database := sandbox.Database(t)
	proxy, url := behind(t, database)
	slow, other := openAt(t, url), openAt(t, database)
	stockUp(t, other, "A", 9)
	deduct(t, other, order("o", "A"))
	age(t, database)
	path := filepath.Join(t.TempDir(), "old.ndjson")
	step := func(l *ledger.Ledger) error {
		return second(l.Retain(monthAgo(), ledger.NewArchive(path), stock.Fence{}).Step(t.Context()))
	}
	held := proxy.OnRequest(contains("commit"), fault.HoldRequest)
	done := make(chan error, 1)
	go func() { done <- step(slow) }()
	happens(t, "the commit of the slow step", held)
	proxy.Stall() // it is not told that its session ends
	execute(t, database, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
	if err := step(other); err == nil || !strings.Contains(err.Error(), "another process writes to it") {
		t.Errorf("a step beside it: %v", err)
	}
	proxy.Restore()
	if err := <-done; err == nil {
		t.Error("the slow step was done without its session")
	}
	if err := step(other); err != nil {
		t.Errorf("a step after it: %v", err)
	}
	same(t, "archive", archivedLines(t, path), []string{"A 1 receive 9 0", "A 2 deduct -1 0"})
	same(t, "movements", movements(t, other, "A"), []string{"2 checkpoint 8 0"})
	mustHold(t, database)
}
