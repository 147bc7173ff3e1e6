package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-stock/holdfast/internal/bench"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
)

type benchCommand struct {
	Suite    benchSuite    `cmd:"" default:"withargs" help:"Measure everything that is promised, beside an ordinary service, and print a table."`
	Run      benchRun      `cmd:"" help:"Measure one workload, against a private service or running ones."`
	Exec     benchExec     `cmd:"" help:"Run a load generator of your own against a private service, which it finds in HOLDFAST_URL and HOLDFAST_TOKEN."`
	Overload benchOverload `cmd:"" help:"Ask a private service for several times what it can do, and see what it does then."`
	Service  benchService  `cmd:"" hidden:"" help:"The service, until standard input ends."`
	Baseline benchBaseline `cmd:"" hidden:"" help:"What it is compared with, until standard input ends."`
}

type benchSuite struct {
	Only    []string      `enum:"hot,spread,refusals,single,batch,slow-flush,two-processes,prefill" help:"Parts to run: ${enum}. None: all but prefill."`
	Round   time.Duration `default:"5s" help:"How long each measurement takes."`
	Rounds  int           `default:"3" help:"Measurements of each; the median counts."`
	Short   bool          `help:"One round of a second: shows that it works, not how fast it is."`
	Prefill int           `default:"10" help:"Millions of deductions that the part prefill writes."`
	Dir     string        `help:"Where the ledger is kept between runs; none: a temporary one."`
	JSON    bool          `name:"json" help:"Print JSON instead of Markdown."`
}

// Run measures part after part. What was measured before something went wrong is printed too.
func (c *benchSuite) Run(ctx context.Context, s streams) (err error) {
	if c.Short {
		c.Round, c.Rounds = time.Second, 1
	}
	stack, err := startStack(ctx, c.Dir, s)
	if stack != nil {
		defer func() { err = errors.Join(err, stack.Stop()) }()
	}
	if err != nil {
		return err
	}
	rows, err := stack.Suite(ctx, bench.SuiteConfig{Round: c.Round, Rounds: c.Rounds, Only: c.Only, Prefill: c.Prefill, Progress: s.err})
	if c.JSON {
		return errors.Join(err, json.NewEncoder(s.out).Encode(rows))
	}
	_, failed := io.WriteString(s.out, bench.Markdown(rows))
	return errors.Join(err, failed)
}

func startStack(ctx context.Context, dir string, s streams) (*bench.Stack, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return bench.StartStack(ctx, bench.StackConfig{Executable: self, Dir: dir, Progress: s.err})
}

// untilInputEnds is a context that ends with standard input, so that a process which is measured cannot outlive the one that
// measures it.
func untilInputEnds(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		stop()
	}()
	return ctx, stop
}

type benchExec struct {
	Processes int      `default:"1" help:"Service processes on one Postgres and Redis; HOLDFAST_URL has them all, with commas between."`
	Dir       string   `help:"Where the ledger is kept between runs; none: a temporary one."`
	Report    string   `help:"Report that a load script of k6/ leaves, for a row of the table." placeholder:"FILE"`
	Table     string   `help:"File to add the row to: what came of it, how long orders took, who used how much CPU." placeholder:"FILE"`
	Command   []string `arg:"" passthrough:"" help:"The generator and its arguments."`
}

// Run starts everything, runs the command and says who used how much CPU.
func (c *benchExec) Run(ctx context.Context, s streams) (err error) {
	stack, err := startStack(ctx, c.Dir, s)
	if stack != nil {
		defer func() { err = errors.Join(err, stack.Stop()) }()
	}
	if err != nil {
		return err
	}
	service, err := stack.StartService(bench.ServiceConfig{Processes: c.Processes})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, s.out, s.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches it once, through us
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute // to sum up
	cost, err := stack.Exec(service, cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(c.Command[0]), err)
	}
	_, failed := fmt.Fprintln(s.out, cost)
	return errors.Join(err, failed, c.addRow(cost))
}

// addRow adds what the script's report says to a table, which it begins where there is none.
func (c *benchExec) addRow(cost bench.Cost) error {
	if c.Table == "" {
		return nil
	}
	report, err := os.ReadFile(c.Report)
	if err != nil {
		return err
	}
	row, err := bench.ScriptRow(report, cost)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.Table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if info, err := file.Stat(); err == nil && info.Size() == 0 {
		row = bench.ScriptHeader + row
	}
	_, err = file.WriteString(row)
	return errors.Join(err, file.Close())
}

type benchOverload struct {
	For         time.Duration `default:"1m" help:"How long the rush lasts."`
	Factor      float64       `default:"3" help:"How many times its capacity is asked for."`
	Measure     time.Duration `default:"10s" help:"How long its capacity is measured before."`
	AtOnce      int           `default:"256" help:"Requests that the service lets in at once."`
	CommitDelay time.Duration `default:"50ms" help:"That each flush of Postgres takes longer, up to 100ms: what bounds the capacity, so that the load generator does not."`
	Deadline    time.Duration `default:"1s" help:"Of a request."`
	JSON        bool          `name:"json" help:"Print JSON."`
}

// Run fails if a promise was not kept.
func (c *benchOverload) Run(ctx context.Context, s streams) (err error) {
	stack, err := startStack(ctx, "", s)
	if stack != nil {
		defer func() { err = errors.Join(err, stack.Stop()) }()
	}
	if err != nil {
		return err
	}
	found, err := stack.Overload(ctx, bench.OverloadConfig{
		AtOnce: c.AtOnce, CommitDelay: c.CommitDelay, Deadline: c.Deadline, Measure: c.Measure, Factor: c.Factor, For: c.For, Progress: s.err,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(s.out).Encode(found)
	} else {
		_, err = io.WriteString(s.out, found.String())
	}
	return errors.Join(err, found.Broken())
}

type benchService struct {
	Config config `embed:""`
}

// Run serves and says where.
func (c *benchService) Run(ctx context.Context, s streams) error {
	ctx, stop := untilInputEnds(ctx)
	defer stop()
	return serve(ctx, &c.Config, s.err, func(at addresses) error {
		return json.NewEncoder(s.out).Encode(bench.Addresses{API: at.api, Admin: at.admin})
	})
}

type benchBaseline struct {
	Addr        string `env:"HOLDFAST_ADDR" default:"127.0.0.1:0"`
	DatabaseURL string `env:"HOLDFAST_DATABASE_URL" required:""`
	TokensFile  string `env:"HOLDFAST_TOKENS_FILE" required:""`
	Sessions    int    `default:"32"`
}

// Run serves and says where.
func (c *benchBaseline) Run(ctx context.Context, s streams) error {
	ctx, stop := untilInputEnds(ctx)
	defer stop()
	baseline, err := bench.OpenBaseline(ctx, bench.BaselineConfig{Database: c.DatabaseURL, Sessions: c.Sessions, TokensFile: c.TokensFile})
	if err != nil {
		return err
	}
	defer baseline.Close()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	server := httpapi.Server("", baseline.Handler())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := json.NewEncoder(s.out).Encode(bench.Addresses{API: listener.Addr().String()}); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

type benchRun struct {
	Items      int           `default:"1" help:"How many SKUs; 1 is the hot one that everybody wants."`
	Lines      int           `default:"1" help:"Lines of an order."`
	Stock      int64         `default:"1000000000000" help:"Units of each item before the run. Once they are gone orders are refused; 0: all of them."`
	Clients    int           `default:"64" help:"Connections, each with one request under way."`
	Duration   time.Duration `default:"10s" help:"How long to measure."`
	Warmup     time.Duration `default:"2s" help:"How long to run before that."`
	Rate       float64       `help:"Requests a second, whatever the answers take (open loop); 0: a client sends when it has its answer."`
	Duplicates float64       `help:"Share of requests that repeat another one, which may be under way still; 0 to 1."`
	Keys       string        `enum:"counted,random" default:"counted" help:"Keys and order ids: counted, or random like UUIDs of version 4."`
	Hold       bool          `help:"Hold, then commit, instead of taking at once."`
	Batch      int           `help:"Deductions that one call asks for together, up to 1000; 0: one, alone."`

	Processes   int           `default:"1" help:"Service processes on one Postgres and Redis."`
	Gate        bool          `default:"true" negatable:"" help:"With Redis."`
	Baseline    int           `help:"Measure the SELECT FOR UPDATE service instead, with a pool of so many sessions." placeholder:"SESSIONS"`
	CommitDelay time.Duration `help:"That each flush of Postgres takes longer, up to 100ms."`
	Prefill     int           `help:"Millions of deductions to write before."`
	Dir         string        `help:"Where the ledger is kept between runs; none: a temporary one."`

	URL         []string `help:"Running service to measure instead of a private one, http://host:port; several: processes of one." placeholder:"URL"`
	Token       string   `env:"HOLDFAST_TOKEN" help:"Token for it, with the scope admin."`
	MetricsAddr []string `help:"Where its metrics are, host:port." placeholder:"ADDR"`

	CPUProfile string `name:"cpu-profile" help:"File for a CPU profile of the service." placeholder:"FILE"`
	JSON       bool   `name:"json" help:"Print JSON."`
}

// Run measures once.
func (c *benchRun) Run(ctx context.Context, s streams) (err error) {
	stack, service, err := c.start(ctx, s)
	if stack != nil {
		defer func() { err = errors.Join(err, stack.Stop()) }()
	}
	if err != nil {
		return err
	}
	if c.Batch > 0 && (c.Batch > 1000 || c.Hold || c.Baseline > 0 || c.Stock < bench.Plenty) {
		return errors.New("a batch has up to 1000 deductions, which neither hold nor run out of stock, and the baseline takes none")
	}
	w := bench.NewWorkload(bench.Shape{
		Items: c.Items, Lines: c.Lines, Stock: c.Stock, Duplicates: c.Duplicates, RandomKeys: c.Keys == "random", Hold: c.Hold,
		Batch: c.Batch,
	})
	if c.Baseline > 0 {
		err = w.Insert(ctx, stack.DatabaseURL())
	} else {
		err = w.Create(ctx, service.Target)
	}
	if err != nil {
		return err
	}
	m, err := stack.Measure(ctx, service, w, bench.Plan{
		Clients: c.Clients, Warmup: c.Warmup, For: c.Duration, Rate: c.Rate, Profile: c.CPUProfile,
	})
	if err != nil {
		return err
	}
	wrong := m.Check(stack.Verify(ctx, service, w))
	if c.JSON {
		err = json.NewEncoder(s.out).Encode(m.Summary())
	} else {
		_, err = io.WriteString(s.out, m.Summary().String())
	}
	return errors.Join(err, wrong)
}

// start starts what is to be measured, or finds it; then there is no stack.
func (c *benchRun) start(ctx context.Context, s streams) (*bench.Stack, *bench.Service, error) {
	if len(c.URL) > 0 {
		service := &bench.Service{Target: bench.Target{Token: c.Token}, Admins: c.MetricsAddr, API: true}
		for _, url := range c.URL {
			service.Addrs = append(service.Addrs, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
		}
		return nil, service, nil
	}
	stack, err := startStack(ctx, c.Dir, s)
	if err != nil {
		return stack, nil, err
	}
	if err := errors.Join(stack.Prefill(ctx, c.Prefill, s.err), stack.SetCommitDelay(ctx, c.CommitDelay)); err != nil {
		return stack, nil, err
	}
	var service *bench.Service
	if c.Baseline > 0 {
		service, err = stack.StartBaseline(c.Baseline)
	} else {
		service, err = stack.StartService(bench.ServiceConfig{Processes: c.Processes, NoGate: !c.Gate})
	}
	if err != nil {
		return stack, nil, fmt.Errorf("bench: %w", err)
	}
	return stack, service, nil
}
