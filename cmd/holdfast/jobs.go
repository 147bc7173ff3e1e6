package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/job"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/lock/lockprom"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// jobsConfig says what the service does by itself. Where its leases are kept is in [lockConfig].
type jobsConfig struct {
	Lease         time.Duration `env:"HOLDFAST_JOBS_LEASE" default:"10s" help:"How long the work of an instance that died waits for another one; 2s to 10m."`
	Settle        string        `env:"HOLDFAST_JOBS_SETTLE" default:"5 0 * * *" help:"When the days that are over are settled: a cron expression in UTC, \"every 1h\", or empty for never."`
	Reconcile     string        `env:"HOLDFAST_JOBS_RECONCILE" default:"30 3 * * *" help:"When everything is checked from the beginning, beside the continuous check; as above."`
	Retain        string        `env:"HOLDFAST_JOBS_RETAIN" help:"When old movements are rolled up, as above; never unless this is set."`
	RetainDays    int           `env:"HOLDFAST_JOBS_RETAIN_DAYS" default:"400" help:"How many days movements are kept one by one; 31 to 36500."`
	RetainArchive string        `env:"HOLDFAST_JOBS_RETAIN_ARCHIVE" help:"Directory for files of what was rolled up, or \"discard\" to keep none. Needed if HOLDFAST_JOBS_RETAIN is set."`
}

// discard is the archive that keeps nothing.
const discard = "discard"

// leastLease is the shortest lease of a job: shorter ones are lost to busy machines.
const leastLease = 2 * time.Second

func (c *jobsConfig) check() error {
	var wrong []error
	if c.Lease < leastLease || c.Lease > 10*time.Minute {
		wrong = append(wrong, fmt.Errorf("HOLDFAST_JOBS_LEASE is %v: it must be 2s to 10m", c.Lease))
	}
	for _, setting := range [][2]string{
		{"HOLDFAST_JOBS_SETTLE", c.Settle}, {"HOLDFAST_JOBS_RECONCILE", c.Reconcile}, {"HOLDFAST_JOBS_RETAIN", c.Retain},
	} {
		if _, err := job.ParseSchedule(setting[1]); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", setting[0], err))
		}
	}
	if c.RetainDays < 31 || c.RetainDays > 36_500 {
		wrong = append(wrong, fmt.Errorf("HOLDFAST_JOBS_RETAIN_DAYS is %d: it must be 31 to 36500", c.RetainDays))
	}
	if c.Retain != "" && c.RetainArchive == "" {
		wrong = append(wrong, errors.New("HOLDFAST_JOBS_RETAIN is set: HOLDFAST_JOBS_RETAIN_ARCHIVE must be a directory, or \"discard\""))
	}
	return errors.Join(wrong...)
}

// jobs are those of the service; their schedules have been checked.
func (c *config) jobs(s *inventory.Service) []job.Job {
	at := func(text string) job.Schedule {
		schedule, _ := job.ParseSchedule(text) // checked before
		return schedule
	}
	sweep := job.Schedule{}
	if c.Sweep > 0 {
		sweep = job.Every(c.Sweep)
	}
	return []job.Job{
		{Name: "expire-holds", Schedule: sweep, Limit: time.Minute, Work: s.Sweep},
		{Name: "settle", Schedule: at(c.Jobs.Settle), Limit: time.Hour, Work: s.Settle},
		{Name: "reconcile", Schedule: at(c.Jobs.Reconcile), Limit: 6 * time.Hour, Work: recheck(s)},
		{Name: "retain", Schedule: at(c.Jobs.Retain), Limit: 6 * time.Hour, Work: c.Jobs.retain(s)},
	}
}

// retain rolls up what is older than the days that are kept. Each run has a file of its own, named by its token: a run
// that was taken over and goes on writes to no file of another.
func (c *jobsConfig) retain(s *inventory.Service) job.Work {
	return func(ctx context.Context, fence stock.Fence) (movements int64, err error) {
		before := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -c.RetainDays)
		var archive *ledger.Archive
		if c.RetainArchive != discard {
			archive = ledger.NewArchive(archiveIn(c.RetainArchive, before, fmt.Sprint("-", fence.Token)))
		}
		err = rollUp(ctx, s.Retain(before, archive, fence), func(done ledger.Retained) { movements += int64(done.Movements) })
		return movements, err
	}
}

// recheck checks everything from the beginning. It writes nothing to the ledger, so it needs no fence.
func recheck(s *inventory.Service) job.Work {
	return func(ctx context.Context, _ stock.Fence) (int64, error) {
		verdict, err := s.ReconcileAll(ctx, inventory.FullCheck{Repair: true})
		if err == nil && !verdict.Clean() {
			err = fmt.Errorf("%d findings, the first: %+v", len(verdict.Findings), verdict.Findings[0])
		}
		return verdict.Checked.Items, err
	}
}

// openJobs makes what runs the jobs.
func (s *service) openJobs(registry *prometheus.Registry) error {
	observer, err := lockprom.New(registry)
	if err != nil {
		return err
	}
	s.locker = lock.NewFenced(s.locks.Chosen, lock.TTL(s.cfg.Jobs.Lease), lock.Observe(observer))
	s.jobs = job.New(job.Config{Stock: s.stock, Locker: s.locker, Jobs: s.cfg.jobs(s.stock), Log: s.log, Registerer: registry})
	return nil
}

// closeLocker waits for claims that are being given up. What is not in time ends with its lease.
func (s *service) closeLocker() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.locker.Close(ctx); err != nil {
		s.log.Warn("close the locker of jobs", "error", err)
	}
}

type jobsCommand struct {
	adminTarget
	JSON bool `help:"Print what the admin listener answers."`
}

// Run shows the jobs of a running service.
func (c *jobsCommand) Run(ctx context.Context, s streams) error {
	body, err := c.get(ctx, "/jobs")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := s.out.Write(body)
		return err
	}
	var answer struct {
		Jobs []job.Status `json:"jobs"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return printJobs(s.out, answer.Jobs)
}

func printJobs(to io.Writer, jobs []job.Status) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSCHEDULE\tNEXT\tHOLDER\tLAST RUN\tTOOK\tOUTCOME\tROWS\tTOKEN\tRUNNER")
	for i := range jobs {
		j := &jobs[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", j.Job, or(j.Schedule, "never"), moment(j.Next), holder(j))
		for n := range j.Runs {
			if n > 0 {
				fmt.Fprint(w, "\t\t\t")
			}
			printRun(w, &j.Runs[n])
		}
		if len(j.Runs) == 0 {
			fmt.Fprintln(w, "\t-\t\t\t\t\t")
		}
	}
	return w.Flush()
}

func printRun(w io.Writer, r *job.RunInfo) {
	took := "-"
	if r.EndedAt != nil {
		took = r.EndedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
	}
	outcome := string(r.Outcome)
	if r.Error != "" {
		outcome += ": " + r.Error
	}
	fmt.Fprintf(w, "\t%s\t%s\t%s\t%d\t%d\t%s\n", moment(r.ScheduledAt), took, outcome, r.Rows, r.Token, r.Runner)
}

func holder(s *job.Status) string {
	switch {
	case s.HolderUnknown != "":
		return "unknown"
	case s.Holder == nil:
		return "-"
	}
	return heldBy(s.Holder)
}

func heldBy(h *lock.Held) string { return fmt.Sprintf("%s %d", h.Owner.Host, h.Owner.PID) }

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return strings.TrimSpace(s)
}
