package run

import (
	"errors"
	"fmt"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/vm"
)

// The exit codes that k6 documents, and 2 for what only k6 itself can run.
const (
	exitUnsupported = 2
	exitThresholds  = 99
	exitConfig      = 104
	exitStopped     = 105
	exitScript      = 107
	exitAborted     = 108
	exitFailed      = 110
)

var (
	errStopped = errors.New("the run was stopped from outside")
	errFailed  = errors.New("the script marked the test as failed")
)

// configError is about the options of a script.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// scriptFault is an exception in init, setup, teardown or handleSummary.
type scriptFault struct{ err error }

func (e *scriptFault) Error() string { return e.err.Error() }
func (e *scriptFault) Unwrap() error { return e.err }

// timeoutError is a lifecycle function that ran out of time.
type timeoutError struct {
	err  error
	code int
}

func (e *timeoutError) Error() string { return e.err.Error() }
func (e *timeoutError) Unwrap() error { return e.err }

// thresholdError lists the thresholds that failed.
type thresholdError struct{ names []string }

func (e *thresholdError) Error() string {
	return fmt.Sprintf("thresholds on metrics %q have been crossed", e.names)
}

func exitCode(err error) int {
	var (
		unsupported *vm.Unsupported
		aborted     *vm.Aborted
		config      *configError
		script      *scriptFault
		timeout     *timeoutError
		thresholds  *thresholdError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unsupported):
		return exitUnsupported
	case errors.As(err, &config):
		return exitConfig
	case errors.As(err, &aborted):
		return exitAborted
	case errors.As(err, &thresholds):
		return exitThresholds
	case errors.Is(err, errStopped):
		return exitStopped
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(err, &timeout):
		return timeout.code
	case errors.As(err, &script):
		return exitScript
	default:
		return 1
	}
}
