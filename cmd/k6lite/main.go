// Command k6lite runs the k6 scripts of this repository on machines that do not have k6. It is a checker of those
// scripts: a documented subset of k6, written from k6's public documentation, not a replacement. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/run"
)

const usage = `usage: k6lite run [flags] script.js

  -e, --env NAME=VALUE   a variable for the script's __ENV; may be repeated
  -u, --vus N            virtual users
  -d, --duration 30s     how long; replaces the scenarios of the script
  -i, --iterations N     how often, all virtual users together; replaces the scenarios of the script
  -q, --quiet            no progress, no introduction
  -v, --verbose          print console.debug lines

k6lite checks the k6 scripts of this repository where k6 itself is not installed. It knows a documented subset of k6
and refuses the rest. Exit codes: 0 passed, 2 wrong use or beyond the subset, 99 a threshold failed, 100 setup or
101 teardown timed out, 104 bad options, 105 stopped by a signal, 107 exception, 108 aborted, 110 marked as failed.
`

func main() {
	os.Exit(start(os.Args[1:]))
}

func start(args []string) int {
	if len(args) == 0 || args[0] != "run" {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	cfg, err := parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		if _, err := fmt.Print(usage); err != nil {
			return 1
		}
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "k6lite: %s\n\n%s", err, usage)
		return 2
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // many small objects, little memory: collect less often
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run.Run(ctx, cfg)
}

// parse reads the flags; they may stand before or after the script.
func parse(args []string) (run.Config, error) {
	cfg := run.Config{
		Env: map[string]string{}, Stdout: os.Stdout, Stderr: os.Stderr,
		StdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		StderrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if option.IsVariable(name) {
			return cfg, fmt.Errorf("%s is set: k6 would read an option from it, k6lite takes options from the script and its flags only", name)
		}
		cfg.Env[name] = value
	}
	flags := flags(&cfg)
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return cfg, err
		}
		args = flags.Args()
		if len(args) > 0 {
			if cfg.Script != "" {
				return cfg, fmt.Errorf("one script at a time: %s and %s", cfg.Script, args[0])
			}
			cfg.Script, args = args[0], args[1:]
		}
	}
	if cfg.Script == "" {
		return cfg, errors.New("no script")
	}
	return cfg, nil
}

func flags(cfg *run.Config) *flag.FlagSet {
	set := flag.NewFlagSet("k6lite run", flag.ContinueOnError)
	set.SetOutput(io.Discard) // the caller prints the error and the usage
	env := func(pair string) error {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return errors.New("write NAME=VALUE")
		}
		cfg.Env[name] = value
		return nil
	}
	count := func(to **int) func(string) error {
		return func(text string) error {
			n := 0
			if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < 1 || fmt.Sprint(n) != text {
				return errors.New("write a number of at least 1")
			}
			*to = &n
			return nil
		}
	}
	duration := func(text string) error {
		d, err := option.ParseDuration(text)
		given := option.Duration(d)
		cfg.CLI.Duration = &given
		return err
	}
	for _, names := range [][2]string{{"e", "env"}, {"u", "vus"}, {"d", "duration"}, {"i", "iterations"}, {"q", "quiet"}, {"v", "verbose"}} {
		for _, name := range names {
			switch names[1] {
			case "env":
				set.Func(name, "", env)
			case "vus":
				set.Func(name, "", count(&cfg.CLI.VUs))
			case "duration":
				set.Func(name, "", duration)
			case "iterations":
				set.Func(name, "", count(&cfg.CLI.Iterations))
			case "quiet":
				set.BoolVar(&cfg.Quiet, name, false, "")
			case "verbose":
				set.BoolVar(&cfg.Verbose, name, false, "")
			}
		}
	}
	return set
}
