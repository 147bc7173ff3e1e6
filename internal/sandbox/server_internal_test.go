package sandbox

import (
	"errors"
	"testing"
)

// TestPortIsChosenAgain has another process take the first port between its choice and the start of the server.
func TestPortIsChosenAgain(t *testing.T) {
	t.Parallel()
	first := OwnRedis(t, RedisConfig{})
	r, err := newRedis(t.Context(), RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	choices := 0
	if err := r.start(t.Context(), func() (int, error) {
		if choices++; choices == 1 {
			return first.Port(), nil
		}
		return freePort()
	}); err != nil {
		t.Fatal(errors.Join(err, r.dir.close()))
	}
	if choices != 2 || r.Port() == first.Port() {
		t.Errorf("on port %d after %d choices; %d was taken", r.Port(), choices, first.Port())
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
