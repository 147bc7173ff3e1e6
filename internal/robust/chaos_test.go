package robust_test

import (
	"testing"
	"time"
)

// TestAQuietRun: two processes under load and nothing broken but what clients cut; the history is sound.
func TestAQuietRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{command: product(t)})
	l := w.begin()
	l.awaitAnswers(200, 3*time.Second)
	h := l.end()
	if found := w.finish(h); len(found) > 0 {
		w.keep(h, found)
	}
	t.Logf("seed %d: %d operations, %d movements", w.seed, len(h.Ops), len(h.Ledger.Movements))
	if len(h.Ledger.Movements) < 100 {
		t.Error("too little happened")
	}
}
