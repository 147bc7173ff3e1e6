// Command lab runs the experiments of internal/lab: what goes wrong with distributed locks, and what holds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfast-stock/holdfast/internal/lab"
)

type commandLine struct {
	List listCommand `cmd:"" help:"List the experiments."`
	Run  runCommand  `cmd:"" help:"Run experiments; exit 1 unless every anomaly is seen and every protection holds."`

	Layers layersCommand `cmd:"" help:"Sell with layers taken away, one after the other: what each is worth, and what goes wrong without it."`
}

func main() {
	if lab.PlayRole() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errNo: the command has said what is wrong; only the exit code is left to give.
var errNo = errors.New("no")

// run is main with its surroundings given. Exit codes: 0 everything was shown, 1 it was not, 2 wrong use.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cli commandLine
	exited, code := false, 0
	parser, err := kong.New(&cli,
		kong.Name("lab"),
		kong.Description("What a lock can promise, shown on real servers: every anomaly, and what holds against it."),
		kong.UsageOnError(),
		kong.Writers(stdout, stderr),
		kong.Exit(func(c int) { exited, code = true, c }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams{stdout, stderr}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "lab:", err)
		return 2
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	switch {
	case exited: // --help
		return code
	case err != nil:
		fmt.Fprintln(stderr, "lab:", err)
		return 2
	}
	if err := command.Run(); err != nil {
		if !errors.Is(err, errNo) {
			fmt.Fprintln(stderr, "lab:", err)
		}
		return 1
	}
	return 0
}

// streams are where a command prints.
type streams struct{ out, err io.Writer }

type listCommand struct{}

// Run lists the experiments.
func (listCommand) Run(s streams) error {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, e := range lab.All() {
		fmt.Fprintf(table, "%d\t%s\t%s\n", e.Number, e.Name, e.Question)
	}
	return table.Flush()
}

type runCommand struct {
	Names  []string `arg:"" optional:"" help:"Experiments to run; all if none is named."`
	Runs   int      `default:"3" help:"How often each case is run, 1 to 1,000."`
	Report string   `type:"path" placeholder:"FILE" help:"Write a page with all timelines to this file."`
	Docs   string   `type:"path" placeholder:"DIR" help:"Write lab.md with its pictures to this directory."`
	JSON   bool     `name:"json" help:"Print the results as JSON."`
}

// Validate refuses what cannot be run.
func (c *runCommand) Validate() error {
	if c.Runs < 1 || c.Runs > 1000 {
		return fmt.Errorf("--runs is %d, but 1 to 1,000 are possible", c.Runs)
	}
	_, err := c.experiments()
	return err
}

// experiments are those that were named.
func (c *runCommand) experiments() ([]*lab.Experiment, error) {
	all := lab.All()
	if len(c.Names) == 0 {
		return all, nil
	}
	named := map[string]*lab.Experiment{}
	for _, e := range all {
		named[e.Name] = e
	}
	chosen := make([]*lab.Experiment, len(c.Names))
	for i, name := range c.Names {
		if chosen[i] = named[name]; chosen[i] == nil {
			return nil, fmt.Errorf("there is no experiment %q; lab list names them", name)
		}
	}
	return chosen, nil
}

// Run runs the experiments and tells what they showed.
func (c *runCommand) Run(ctx context.Context, s streams) error {
	experiments, err := c.experiments()
	if err != nil {
		return err
	}
	began, done := time.Now(), 0
	results, err := lab.Run(ctx, lab.Config{
		Experiments: experiments, Runs: c.Runs, Progress: s.err,
		Done: func(r *lab.Result) {
			done++
			fmt.Fprintf(s.err, "%d/%d  %-8s %s (%.1f s)\n", done, len(experiments), r.Verdict, r.Name, r.Took.Seconds())
		},
	})
	if err != nil {
		return err
	}
	report := &lab.Report{
		Results: results, Runs: c.Runs, At: began, Took: time.Since(began),
		Machine: machine(),
	}
	if err := c.tell(report, s.out); err != nil {
		return err
	}
	for _, r := range results {
		if r.Verdict == lab.Missing || r.Verdict == lab.Broken {
			return errNo
		}
	}
	return nil
}

// tell prints the results, and writes the pages that are wanted.
func (c *runCommand) tell(report *lab.Report, out io.Writer) error {
	if c.Report != "" {
		file, err := os.Create(c.Report)
		if err != nil {
			return err
		}
		if err := errors.Join(report.Write(file), file.Close()); err != nil {
			return err
		}
	}
	if c.Docs != "" {
		if err := report.WriteDocs(c.Docs); err != nil {
			return err
		}
	}
	if c.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report.Results)
	}
	return table(report, out)
}

// table prints a line for each case.
func table(report *lab.Report, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range report.Results {
		fmt.Fprintf(w, "%d\t%s\t\t\n", r.Number, r.Experiment.Question)
		for i, c := range r.Cases() {
			what := "holds"
			if i < len(r.Anomalies) {
				what = "anomaly"
			}
			fmt.Fprintf(w, "\t%s\t%d of %d  %s\t%s\n", what, c.Seen, c.Runs, c.Verdict, strings.TrimSpace(c.Title+"  "+c.Problem))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d of %d experiments showed what they claim, in %.1f s\n", report.Shown(), len(report.Results), report.Took.Seconds())
	return err
}

// machine says in words what this runs on.
func machine() string {
	return fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
