package lock

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// MinTTL is the shortest lease there is. Below it the margin, the round trips and the scheduler's delays leave
// nothing to work with; a back end may ask for more.
const MinTTL = 50 * time.Millisecond

// MaxTTL bounds how long a dead holder can keep others out.
const MaxTTL = 24 * time.Hour

const (
	maxKeyBytes  = 200
	maxMetaBytes = 200
)

// Option changes how a lock is acquired, for one call or, given to a constructor, for all calls.
type Option func(*options)

type options struct {
	ttl      time.Duration
	wait     time.Duration // 0: only ctx bounds the waiting
	pause    Backoff
	noRenew  bool
	meta     string
	holder   string
	observer Observer
}

func defaultOptions() options {
	return options{ttl: 10 * time.Second, pause: Backoff{Min: 10 * time.Millisecond, Max: time.Second}}
}

// TTL is how long a lease lasts without renewal, from [MinTTL] to [MaxTTL]; 10 s if not given. It is how long
// others wait when the holder dies, not how long the work may take.
func TTL(ttl time.Duration) Option { return func(o *options) { o.ttl = ttl } }

// Wait is how long Acquire waits at most, besides its ctx. When it is over the error is [ErrHeld].
func Wait(limit time.Duration) Option { return func(o *options) { o.wait = limit } }

// Pause is how to pause between looks at a held key on back ends that have to look; 10 ms to 1 s if not given.
func Pause(b Backoff) Option { return func(o *options) { o.pause = b } }

// NoRenew lets the lease end after its TTL.
func NoRenew() Option { return func(o *options) { o.noRenew = true } }

// Meta is shown with the owner, up to 200 bytes: what the lock is held for.
func Meta(meta string) Option { return func(o *options) { o.meta = meta } }

// As names who acquires, on a re-entrant back end: who holds the key already gets it once more. The name has to be
// unique to one thread of work, say a request id; it is all that tells re-entering from intruding.
func As(holder string) Option { return func(o *options) { o.holder = holder } }

// Observe tells what happens to locks. It is called synchronously and must not block.
func Observe(observer Observer) Option { return func(o *options) { o.observer = observer } }

// with returns the options changed.
func (o options) with(changes []Option) options {
	for _, change := range changes {
		change(&o)
	}
	o.ttl = o.ttl.Truncate(time.Millisecond)
	return o
}

func (o options) check(key string, p Properties) error {
	if err := checkText("key", key, maxKeyBytes); err != nil {
		return err
	}
	if key == "" {
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	}
	if err := checkText("meta", o.meta, maxMetaBytes); err != nil {
		return err
	}
	if err := checkText("holder", o.holder, maxKeyBytes); err != nil {
		return err
	}
	if o.holder != "" && !p.Reenter {
		return fmt.Errorf("%w: %s is not re-entrant", ErrInvalid, p.Backend)
	}
	if shortest := max(MinTTL, p.MinTTL); o.ttl < shortest || o.ttl > MaxTTL {
		return fmt.Errorf("%w: a TTL of %s is not within %s and %s", ErrInvalid, o.ttl, shortest, MaxTTL)
	}
	if o.pause.Min < time.Millisecond || o.pause.Max < o.pause.Min {
		return fmt.Errorf("%w: a pause of %s to %s is not within 1ms and more", ErrInvalid, o.pause.Min, o.pause.Max)
	}
	return nil
}

// checkText refuses what some back end could not store or a terminal not show.
func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%w: the %s is longer than %d bytes", ErrInvalid, what, limit)
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return fmt.Errorf("%w: the %s contains a control character", ErrInvalid, what)
		}
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	}
	return nil
}
