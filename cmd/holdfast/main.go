// Command holdfast is the inventory deduction service and the tools to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFine  = 0
	exitNo    = 1 // the answer is no, or it did not work
	exitUsage = 2
)

// commandLine is every command and flag. Values come from flags, then HOLDFAST_* variables, then defaults; they
// are read nowhere else.
type commandLine struct {
	Dev       devCommand       `cmd:"" help:"Run the service with a private Postgres and Redis, for trying and developing."`
	Serve     serveCommand     `cmd:"" help:"Run the service."`
	Migrate   migrateCommand   `cmd:"" help:"Bring the database to the newest schema, or show how far it is."`
	Health    healthCommand    `cmd:"" help:"Ask a running service whether it is ready; for container health checks."`
	Bench     benchCommand     `cmd:"" help:"Measure deductions per second, and that each of them was right."`
	Replay    replayCommand    `cmd:"" help:"Send an order log to a running service, and check that stock, ledger and answers agree."`
	Import    importCommand    `cmd:"" help:"Bring stock from a CSV or NDJSON file into a running service."`
	Export    exportCommand    `cmd:"" help:"Write the stock of a running service as CSV or NDJSON."`
	Retain    retainCommand    `cmd:"" help:"Roll old movements up and archive them."`
	Locks     locksCommand     `cmd:"" help:"Show who holds which lock, for how long, and who waits; or what each kind of lock promises."`
	Jobs      jobsCommand      `cmd:"" help:"Show what a running service does by itself: schedules, last runs, next run, who is at it."`
	Explain   explainCommand   `cmd:"" help:"Say why an item's available stock is what it is."`
	Reconcile reconcileCommand `cmd:"" help:"Check that the ledger agrees with itself and the gate with the ledger."`
	Version   versionCommand   `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings given.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cli commandLine
	exited, code := false, exitFine
	parser, err := kong.New(&cli,
		kong.Name("holdfast"),
		kong.Description("Inventory deduction that never sells a unit twice."),
		kong.UsageOnError(),
		kong.Writers(stdout, stderr),
		kong.Exit(func(c int) { exited, code = true, c }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams{stdout, stderr}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	switch {
	case exited: // --help
		return code
	case err != nil:
		fmt.Fprintln(stderr, "holdfast:", err)
		fmt.Fprintln(stderr, "Run \"holdfast --help\" or \"holdfast COMMAND --help\".")
		return exitUsage
	}
	if err := command.Run(); err != nil {
		if !errors.Is(err, errNo) {
			fmt.Fprintln(stderr, "holdfast:", err)
		}
		return exitNo
	}
	return exitFine
}

// errNo: the command has said what is wrong; only the exit code is left to give.
var errNo = errors.New("no")

// streams are where a command prints.
type streams struct{ out, err io.Writer }

type versionCommand struct{}

// Run prints the version that was built.
func (versionCommand) Run(s streams) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	_, err := fmt.Fprintln(s.out, "holdfast", version)
	return err
}
