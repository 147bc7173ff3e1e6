package lab

import (
	"fmt"
	"sync"
	"time"
)

// Tone says how a moment or a span is meant; the report gives each its own colour and shape.
type Tone string

// The tones.
const (
	Plain   Tone = "plain"   // something happened
	Holds   Tone = "holds"   // somebody holds the lock, or believes so
	Paused  Tone = "paused"  // somebody stands still
	Gone    Tone = "gone"    // somebody is dead or cut off
	Wrong   Tone = "wrong"   // what must not happen
	Refused Tone = "refused" // what a protection turned away
	Right   Tone = "right"   // what should happen
)

// Moment is an event of a case, or a span if it lasts.
type Moment struct {
	Actor string        `json:"actor"`
	Text  string        `json:"text"`
	Tone  Tone          `json:"tone"`
	At    time.Duration `json:"at_ns"` // since the case began
	Lasts time.Duration `json:"lasts_ns,omitempty"`
}

// timeline collects what happened in one run of a case.
type timeline struct {
	began time.Time

	mu      sync.Mutex // protects what follows
	moments []Moment
	open    map[string]int // by actor and tone: the span that has no end yet
	notes   []string
}

func newTimeline() *timeline { return &timeline{began: time.Now(), open: map[string]int{}} }

func (t *timeline) mark(m Moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.At = time.Since(t.began)
	t.moments = append(t.moments, m)
}

// begin starts a span; one of the same actor and tone that is open ends.
func (t *timeline) begin(m Moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(m.Actor, m.Tone)
	m.At = time.Since(t.began)
	t.open[m.Actor+"\x00"+string(m.Tone)] = len(t.moments)
	t.moments = append(t.moments, m)
}

func (t *timeline) end(actor string, tone Tone) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(actor, tone)
}

func (t *timeline) endLocked(actor string, tone Tone) {
	name := actor + "\x00" + string(tone)
	if i, ok := t.open[name]; ok {
		t.moments[i].Lasts = max(time.Since(t.began)-t.moments[i].At, time.Microsecond)
		delete(t.open, name)
	}
}

func (t *timeline) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// close ends all spans and returns what was collected, with time beginning at the first moment: what was arranged before
// it tells nothing.
func (t *timeline) close() (moments []Moment, notes []string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took = time.Since(t.began)
	for name, i := range t.open {
		t.moments[i].Lasts = max(took-t.moments[i].At, time.Microsecond)
		delete(t.open, name)
	}
	if len(t.moments) > 0 {
		first := t.moments[0].At
		for i := range t.moments {
			t.moments[i].At -= first
		}
		took -= first
	}
	return t.moments, t.notes, took
}
