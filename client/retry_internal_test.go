package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/client/api"
)

func TestWhatIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind           string
		outcome        api.ProblemOutcome
		retry          api.ProblemRetry
		after          time.Duration
		again, unknown bool
	}{
		{"insufficient-stock", api.None, api.SameKey, 0, false, false},
		{"unknown-item", api.None, api.SameKey, 0, false, false},
		{"order-already-deducted", api.None, api.Never, 0, false, false},
		{"idempotency-key-voided", api.None, api.NewKey, 0, false, false},
		{"overloaded", api.None, api.After, time.Second, true, false},
		{"ledger-unavailable", api.None, api.After, time.Second, true, false},
		{"rate-limited", api.None, api.After, 3 * time.Second, true, false},
		{"outcome-unknown", api.Unknown, api.SameKey, time.Second, true, true},
		{"internal", api.Unknown, api.SameKey, 0, true, true},
	} {
		failed := &Error{Problem: Problem{Type: "urn:holdfast:problem:" + c.kind, Outcome: c.outcome, Retry: c.retry}, RetryAfter: c.after}
		again, wait, unknown := judge(failed, firstPause)
		if again != c.again || unknown != c.unknown || wait < c.after || wait > c.after+2*firstPause {
			t.Errorf("%s: again %v after %v, unknown %v", c.kind, again, wait, unknown)
		}
		if !errors.Is(failed, kind(c.kind)) || errors.Is(failed, kind("other")) {
			t.Errorf("%s is not itself", c.kind)
		}
	}
	lost := fmt.Errorf("%w: connection reset", errNoFinalAnswer)
	if again, _, unknown := judge(lost, firstPause); !again || !unknown {
		t.Error("a lost answer is not asked for again")
	}
	if again, _, unknown := judge(errors.New("no such host in a URL"), firstPause); again || unknown {
		t.Error("a request that cannot be made is sent again")
	}
}

func TestPausesEnd(t *testing.T) {
	t.Parallel()
	if err := sleep(t.Context(), time.Hour, time.Now().Add(time.Minute)); !errors.Is(err, errPatience) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sleep(ended, time.Millisecond, time.Now().Add(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOrderKeysAreLegalAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, order := range [][2]string{{"1", ""}, {"1", "a"}, {"1/a", ""}, {"ä 😀", "b"}, {"ä 😀/b", ""}} {
		key := OrderKey(order[0], order[1])
		for i := range len(key) {
			if key[i] < '!' || key[i] > '~' {
				t.Errorf("%q has %q", key, key[i])
			}
		}
		if seen[key] {
			t.Errorf("%q twice", key)
		}
		seen[key] = true
	}
}
