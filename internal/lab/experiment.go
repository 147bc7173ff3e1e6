package lab

import (
	"context"
	"slices"
)

// Experiment is one claim of the argument: a way in which mutual exclusion fails, and what holds all the same.
type Experiment struct {
	Number   int
	Name     string // of the command line: lower case, hyphens
	Question string
	Claim    string // what the experiment shows, a sentence or two
	Setup    string // what runs, in plain words

	Anomalies   []Case
	Protections []Case
	Roles       map[string]Role // what its child processes do
}

// Case is something to be seen: an anomaly that occurs, or an attack that a protection turns away.
type Case struct {
	Title string // what must be seen
	// Run arranges it and reports whether it was seen. For a protection "seen" means that the attack took place and
	// was turned away: one that did not take place proves nothing. An error is a failure of the arrangement.
	Run func(ctx context.Context, s *Stage) (seen bool, err error)
}

// cases lists the anomalies and the protections.
func (e *Experiment) cases() []Case { return slices.Concat(e.Anomalies, e.Protections) }
