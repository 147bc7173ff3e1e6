package lock_test

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-stock/holdfast/internal/lock"
)

// A Go program takes the time from the kernel's vDSO, past any library that is preloaded. This is where the runtime keeps
// the address of that function.
//
//go:linkname clockGettime runtime.vdsoClockgettimeSym
var clockGettime uintptr //nolint:modernize // it is the runtime's

// ahead is what the wall clock of this process is ahead of the machine's, in seconds.
var ahead atomic.Int64

// takeTheClock makes this process ask the kernel for the time and add ahead to the wall clock, as if an administrator or
// NTP had set it. The monotonic clock is left alone, as it is then.
func takeTheClock(t *testing.T) {
	t.Helper()
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x10, // jne to ret
		0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // movabs rcx, &ahead
		0x48, 0x8b, 0x09, // mov rcx, [rcx]
		0x48, 0x01, 0x0e, // add [rsi], rcx: the seconds
		0xc3, // ret
	}
	binary.LittleEndian.PutUint64(code[13:], uint64(uintptr(unsafe.Pointer(&ahead))))
	page, err := syscall.Mmap(-1, 0, len(code), syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	copy(page, code) // and there it stays: another thread may be in it at any time
	ours, kernels := uintptr(unsafe.Pointer(&page[0])), atomic.LoadUintptr(&clockGettime)
	atomic.StoreUintptr(&clockGettime, ours)
	t.Cleanup(func() {
		atomic.StoreUintptr(&clockGettime, kernels)
		ahead.Store(0)
	})
	before := time.Now()
	ahead.Store(3600)
	if after := time.Now(); after.Round(0).Sub(before.Round(0)) < time.Hour || after.Sub(before) > time.Minute {
		t.Fatalf("the clock cannot be set: %s, then %s", before, after)
	}
	ahead.Store(0)
}

// A holder's wall clock is set forward and back by ten seconds, again and again, while it holds a lease that it renews
// and one that it does not: the first goes on, the second ends when it would have.
//
// It runs before the tests that are parallel: the clock is that of the whole process.
func TestSettingTheClockDoesNothingToALease(t *testing.T) { //nolint:paralleltest // see above
	takeTheClock(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			ahead.Store([]int64{0, 10, 0, -10}[n%4])
			select {
			case <-stop:
				return
			case <-time.After(7 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	forEach(t, func(t *testing.T, w *world) {
		steady, short, other := w.joinFor(t, 4*time.Second), w.joinFor(t, brief), w.join(t)
		renewed, unrenewed := newKey(), newKey()
		lease := mustAcquire(t, steady, renewed)
		over := mustAcquire(t, short, unrenewed, lock.NoRenew())
		next := mustAcquire(t, other, unrenewed)
		if granted := time.Now(); !over.Deadline().Before(granted) {
			t.Errorf("another held the key %s before the holder's deadline", over.Deadline().Sub(granted))
		}
		if err := over.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lease that ended: %v", err)
		}
		for first := lease.Deadline(); lease.Deadline().Equal(first); time.Sleep(20 * time.Millisecond) { // until it is renewed
			if _, err := other.try(t.Context(), renewed); !errors.Is(err, lock.ErrHeld) || lease.Err() != nil {
				t.Fatalf("a lease that is renewed: %v, and another is told %v", lease.Err(), err)
			}
		}
		mustRelease(t, lease)
		mustRelease(t, next)
	})
}
