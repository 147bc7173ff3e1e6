package vm

import (
	"errors"
	"fmt"

	"github.com/grafana/sobek"
)

// Unsupported is the error of a script that uses what k6 documents and this runner does not have. It ends the run.
type Unsupported struct{ What string }

func (u *Unsupported) Error() string {
	return u.What + ": documented by k6, not supported by k6lite; run this script with k6"
}

func unsupported(format string, args ...any) error {
	return &Unsupported{fmt.Sprintf(format, args...)}
}

// Aborted is the error of a script that called exec.test.abort().
type Aborted struct{ Reason string }

func (a *Aborted) Error() string {
	if a.Reason == "" {
		return "test aborted"
	}
	return "test aborted: " + a.Reason
}

// Exception is an error that the script threw.
type Exception struct{ Text string }

func (e *Exception) Error() string { return e.Text }

// ErrInterrupted is the error of a call that was cut short because the run or its scenario ended.
var ErrInterrupted = errors.New("interrupted")

// ErrTimeout is the error of a lifecycle function that ran out of time.
var ErrTimeout = errors.New("timed out")

// refuse ends the whole run because the script uses something that is not supported, and stops this runtime where it
// stands. Catching it in the script is not possible.
func (vu *VU) refuse(format string, args ...any) {
	vu.end(unsupported(format, args...))
}

// end ends the whole run with err.
func (vu *VU) end(err error) {
	if vu.fatal == nil {
		vu.fatal = err
	}
	vu.host.Abort(err)
	vu.rt.Interrupt(err)
}

// throw raises a JavaScript error that the script can catch.
func (vu *VU) throw(format string, args ...any) {
	panic(vu.rt.NewTypeError(fmt.Sprintf(format, args...)))
}

// fault turns what a call into the runtime returned into one of the errors of this package.
func (vu *VU) fault(err error) error {
	if err == nil {
		return nil
	}
	if vu.fatal != nil {
		return vu.fatal
	}
	if interrupted, ok := errors.AsType[*sobek.InterruptedError](err); ok {
		if inner, ok := interrupted.Value().(error); ok {
			return inner
		}
		return ErrInterrupted
	}
	if u, ok := errors.AsType[*Unsupported](err); ok {
		return u
	}
	if thrown, ok := errors.AsType[*sobek.Exception](err); ok {
		return &Exception{thrown.String()}
	}
	return err
}
