package job

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Status is what an operator sees of a job.
type Status struct {
	Job      string    `json:"job"`
	Schedule string    `json:"schedule"` // empty: never
	Limit    string    `json:"limit"`
	Next     time.Time `json:"next,omitzero"`
	// Holder of the job's lock now, nil if nobody. HolderUnknown says why it could not be asked for.
	Holder        *lock.Held `json:"holder,omitempty"`
	HolderUnknown string     `json:"holder_unknown,omitempty"`
	Runs          []RunInfo  `json:"runs"` // the latest tick first
}

// RunInfo is one run as an operator sees it.
type RunInfo struct {
	ScheduledAt time.Time        `json:"scheduled_at"`
	StartedAt   time.Time        `json:"started_at"`
	EndedAt     *time.Time       `json:"ended_at,omitempty"`
	Outcome     stock.RunOutcome `json:"outcome"`
	Rows        int64            `json:"rows"`
	Token       stock.Token      `json:"token"`
	Runner      string           `json:"runner"`
	Attempts    int              `json:"attempts"`
	Error       string           `json:"error,omitempty"`
}

const (
	shownRuns = 5
	maxHeld   = 10_000 // locks looked at for those of jobs
	// askLimit bounds how long the locks' back end is asked for.
	askLimit = 2 * time.Second
)

// Status of every job. It does not fail when the locks cannot be asked, only when the ledger cannot.
func (r *Runner) Status(ctx context.Context) ([]Status, error) {
	holders, unknown := r.holders(ctx)
	list := make([]Status, 0, len(r.workers))
	for _, w := range r.workers {
		j := &w.job
		s := Status{Job: j.Name, Schedule: j.Schedule.String(), Limit: j.Limit.String(), Next: j.Schedule.Next(time.Now())}
		if held, ok := holders[Key(j.Name)]; ok {
			s.Holder = &held
		}
		if unknown != nil {
			s.HolderUnknown = unknown.Error()
		}
		runs, err := r.stock.Runs(ctx, j.Name, shownRuns)
		if err != nil {
			return nil, err
		}
		s.Runs = make([]RunInfo, len(runs))
		for i, run := range runs {
			s.Runs[i] = RunInfo{
				run.ScheduledAt, run.StartedAt, run.EndedAt, run.Outcome, run.Rows, run.Token, run.Runner, run.Attempts, run.Error,
			}
		}
		list = append(list, s)
	}
	return list, nil
}

func (r *Runner) holders(ctx context.Context) (map[string]lock.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	held, err := r.locker.List(ctx, maxHeld)
	holders := make(map[string]lock.Held, len(held))
	for _, h := range held {
		holders[h.Key] = h
	}
	return holders, err
}

// ServeHTTP answers with the status of every job, for the admin listener.
func (r *Runner) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	list, err := r.Status(req.Context())
	if err != nil {
		r.log.Warn("the jobs' history cannot be read", "error", err)
		http.Error(w, "the ledger is out of reach", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jobs": list}) // nobody may be listening any more
}
