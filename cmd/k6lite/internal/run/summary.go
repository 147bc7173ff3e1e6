package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/summary"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// summarise calls the script's handleSummary() and writes what it returns; without one it prints the default text.
// When handleSummary() fails the default text is printed as well, so that the figures are not lost.
func (r *run) summarise(ctx context.Context) error {
	in := summary.Input{
		Registry: r.host.Registry, Outline: r.host.Outline, Options: r.host.Options, Elapsed: r.elapsed,
		Stdout: r.cfg.StdoutTerminal, Stderr: r.cfg.StderrTerminal,
	}
	handled, err := r.handleSummary(context.WithoutCancel(ctx), in)
	if handled && err == nil {
		return nil
	}
	_, printed := fmt.Fprintln(r.cfg.Stdout, summary.Text(in))
	if err != nil {
		return &scriptFault{fmt.Errorf("handleSummary: %w", err)}
	}
	return printed
}

// handleSummary reports whether the script has such a function.
func (r *run) handleSummary(ctx context.Context, in summary.Input) (bool, error) {
	vu, err := vm.NewVU(r.host, 0)
	if err != nil || !vu.Has("handleSummary") {
		return false, err
	}
	defer vu.Close()
	data, err := summary.New(in).JSON()
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.host.Options.HandleSummaryTimeout)
	defer cancel()
	outputs, err := vu.CallForFiles(ctx, "handleSummary", data)
	if err != nil {
		return true, err
	}
	names := make([]string, 0, len(outputs))
	for name := range outputs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		err = errors.Join(err, r.write(name, outputs[name]))
	}
	return true, err
}

// write puts one output of handleSummary() where its name says; a report is for everyone to read.
func (r *run) write(name string, content []byte) error {
	to := map[string]io.Writer{"stdout": r.cfg.Stdout, "stderr": r.cfg.Stderr}[name]
	if to != nil {
		_, err := to.Write(content)
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}
