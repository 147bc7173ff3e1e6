package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Kind is what happened to a lock.
type Kind string

// The kinds of events, a closed set that may label a metric.
const (
	Acquired    Kind = "acquired"     // Wait: how long it took
	Contended   Kind = "contended"    // somebody else held the key first; an acquired follows in the same instant
	Refused     Kind = "refused"      // held by another, or the waiting ended
	Failed      Kind = "failed"       // could not be asked; Err says why
	Renewed     Kind = "renewed"      // Margin: how much of the lease was left
	RenewFailed Kind = "renew_failed" // it is tried again until the lease ends; Err says why
	Lost        Kind = "lost"         // the lease ended without being released; Hold: how long it lasted
	Late        Kind = "late"         // released after it was lost; Late: how long the work went on uncovered
	Released    Kind = "released"     // Hold: how long it was held
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{Acquired, Contended, Refused, Failed, Renewed, RenewFailed, Lost, Late, Released}
}

// Event is something that happened to a lock.
type Event struct {
	Kind    Kind
	Backend string
	Key     string
	Owner   string // the owner value, as the back end stores it
	Wait    time.Duration
	Hold    time.Duration
	Margin  time.Duration
	Late    time.Duration
	Err     error
}

// Observer is told what happens. Nil is one that does not care.
type Observer func(Event)

// Observers tells several.
func Observers(all ...Observer) Observer {
	return func(e Event) {
		for _, o := range all {
			o.tell(e)
		}
	}
}

func (o Observer) tell(e Event) {
	if o != nil {
		o(e)
	}
}

func (o Observer) acquired(e Event, waited bool) {
	if o == nil {
		return
	}
	if waited {
		e.Kind = Contended
		o(e)
	}
	e.Kind = Acquired
	o(e)
}

func (o Observer) failed(e Event, err error, ended bool) {
	e.Kind, e.Err = Failed, err
	if ended || errors.Is(err, ErrHeld) {
		e.Kind = Refused
	}
	o.tell(e)
}

// Log is an observer that writes a line for each event, with the owner value: what went wrong as warnings, the
// rest for debugging.
func Log(logger *slog.Logger) Observer {
	return func(e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case Lost, Late, Failed, RenewFailed:
			level = slog.LevelWarn
		}
		attrs := []slog.Attr{
			slog.String("backend", e.Backend), slog.String("key", e.Key), slog.String("owner", e.Owner),
			slog.Duration("wait", e.Wait), slog.Duration("hold", e.Hold),
		}
		switch e.Kind {
		case Renewed:
			attrs = append(attrs, slog.Duration("margin", e.Margin))
		case Late:
			attrs = append(attrs, slog.Duration("late", e.Late))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		logger.LogAttrs(context.Background(), level, "lock "+string(e.Kind), attrs...)
	}
}
