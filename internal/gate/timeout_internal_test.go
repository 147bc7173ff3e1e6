package gate

import (
	"testing"
	"time"
)

// TestAWideOrderHasMoreTime: a call of a thousand items must not open the breaker for everybody.
func TestAWideOrderHasMoreTime(t *testing.T) {
	t.Parallel()
	g := &Gate{cfg: Config{CallTimeout: 100 * time.Millisecond}}
	for items, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, maxItems - 1: 100 * time.Millisecond, maxItems: 200 * time.Millisecond, 2 * maxItems: 300 * time.Millisecond,
	} {
		b := batch{gate: g, items: make([]batchItem, items)}
		if got := b.timeout(); got != want {
			t.Errorf("%d items have %v, want %v", items, got, want)
		}
	}
}
