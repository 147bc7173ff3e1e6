package stock

import "time"

// Token is a fencing token: of two holders of a key the later has the greater one. A function that writes what only
// the newest holder may write takes a Token, so that whoever holds a lock that has none cannot call it.
type Token int64

// Fence is what a guarded write is made under: it is refused as [ErrStale] once a greater token of the key was
// claimed, or the time of the claim is over by the ledger's clock. The zero Fence guards nothing.
type Fence struct {
	Key   string
	Token Token
}

// Tick is one time at which a job is to run, as whoever begins it says.
type Tick struct {
	Job         string
	ScheduledAt time.Time
	Token       Token         // of the lease under which it is begun
	Runner      string        // who runs it, for people
	Limit       time.Duration // how long its writes are accepted
}

// Fence is what the tick's writes are made under.
func (t *Tick) Fence() Fence { return Fence{Key: "job/" + t.Job, Token: t.Token} }

// RunOutcome is how a run of a job ended.
type RunOutcome string

// The outcomes of a run. One that is running may be abandoned; then the next holder takes it over.
const (
	RunRunning RunOutcome = "running"
	RunDone    RunOutcome = "done"
	RunFailed  RunOutcome = "failed"
)

// Run is what is known of one tick that was begun.
type Run struct {
	Job         string
	ScheduledAt time.Time
	StartedAt   time.Time
	EndedAt     *time.Time // nil while it is running
	Token       Token
	Runner      string
	Attempts    int
	Outcome     RunOutcome
	Rows        int64
	Error       string
}

// Ended is how a tick ended, as whoever ran it says.
type Ended struct {
	Outcome RunOutcome
	Rows    int64 // changed by it
	Error   string
}
