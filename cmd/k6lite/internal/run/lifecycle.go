package run

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// setup runs the script's setup(), if there is one, and keeps what it returned for the others.
func (r *run) setup(ctx context.Context) error {
	data, err := r.lifecycle(ctx, "setup", r.host.Options.SetupTimeout)
	r.setupData = data
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vm.ErrTimeout):
		return &timeoutError{err, 100}
	case errors.Is(err, vm.ErrInterrupted):
		return errStopped
	default:
		return scriptError(err)
	}
}

// teardown runs the script's teardown(), if there is one, also after the run was ended early.
func (r *run) teardown(ctx context.Context) error {
	arguments := []string{r.setupData}
	if r.setupData == "" {
		arguments = nil
	}
	_, err := r.lifecycle(context.WithoutCancel(ctx), "teardown", r.host.Options.TeardownTimeout, arguments...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vm.ErrTimeout):
		return &timeoutError{err, 101}
	default:
		return scriptError(err)
	}
}

// lifecycle runs one exported function in a runtime of its own.
func (r *run) lifecycle(ctx context.Context, name string, timeout time.Duration, arguments ...string) (string, error) {
	vu, err := vm.NewVU(r.host, 0)
	if err != nil {
		return "", err
	}
	if !vu.Has(name) {
		return "", nil
	}
	defer vu.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	result, err := vu.Call(ctx, name, arguments...)
	vu.RecordLifecycle(name, time.Since(began))
	return result, err
}
