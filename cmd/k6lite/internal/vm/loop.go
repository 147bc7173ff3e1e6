package vm

import (
	"container/heap"
	"sync"
	"time"

	"github.com/grafana/sobek"
)

// maxTimers bounds the timers of one virtual user.
const maxTimers = 100_000

// loop is the event loop of one virtual user. Promise reactions run inside the runtime as soon as its stack is empty;
// the loop adds what comes from outside: timers, in order of their time and then of their creation, and the ends of
// asynchronous work, in the order they came.
type loop struct {
	vu     *VU
	timers timerHeap
	byID   map[int64]*timer
	nextID int64
	alarm  *time.Timer

	unhandled []*sobek.Promise // rejected and nobody looked

	mu       sync.Mutex // guards all below
	done     []func() error
	working  int // pieces of asynchronous work on their way
	wake     chan struct{}
	finished sync.WaitGroup
}

type timer struct {
	id    int64
	due   time.Time
	every time.Duration // 0 for once
	call  sobek.Callable
	args  []sobek.Value
	index int
}

func newLoop(vu *VU) *loop {
	l := &loop{vu: vu, byID: map[int64]*timer{}, wake: make(chan struct{}, 1)}
	vu.rt.SetPromiseRejectionTracker(l.track)
	return l
}

func (l *loop) track(p *sobek.Promise, op sobek.PromiseRejectionOperation) {
	if op == sobek.PromiseRejectionReject {
		l.unhandled = append(l.unhandled, p)
		return
	}
	for i, known := range l.unhandled {
		if known == p {
			l.unhandled = append(l.unhandled[:i], l.unhandled[i+1:]...)
			return
		}
	}
}

// start begins asynchronous work: work runs on a goroutine of its own, and what it returns is run on the loop.
func (l *loop) start(work func() func() error) {
	l.mu.Lock()
	l.working++
	l.mu.Unlock()
	l.finished.Go(func() {
		then := work()
		l.mu.Lock()
		l.done = append(l.done, then)
		l.mu.Unlock()
		select {
		case l.wake <- struct{}{}:
		default:
		}
	})
}

// run works until nothing is left to wait for, an error comes up or the virtual user is halted.
func (l *loop) run() error {
	for {
		if err := l.rejected(); err != nil {
			return err
		}
		if then := l.next(); then != nil {
			if err := then(); err != nil {
				return err
			}
			continue
		}
		if len(l.timers) > 0 && !time.Now().Before(l.timers[0].due) {
			if err := l.fire(); err != nil {
				return err
			}
			continue
		}
		if waiting := l.wait(); !waiting {
			return nil
		}
		if l.vu.halted() {
			return ErrInterrupted
		}
	}
}

// next takes the oldest finished work.
func (l *loop) next() func() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) == 0 {
		return nil
	}
	then := l.done[0]
	l.done = l.done[1:]
	l.working--
	return then
}

// wait sleeps until something may have to be done; it returns false when there is nothing to wait for.
func (l *loop) wait() bool {
	l.mu.Lock()
	working := l.working
	l.mu.Unlock()
	if working == 0 && len(l.timers) == 0 {
		return false
	}
	var due <-chan time.Time
	if len(l.timers) > 0 {
		if l.alarm == nil {
			l.alarm = time.NewTimer(time.Until(l.timers[0].due))
		} else {
			l.alarm.Reset(time.Until(l.timers[0].due))
		}
		due = l.alarm.C
	}
	select {
	case <-l.wake:
	case <-due:
	case <-l.vu.halt():
	}
	return true
}

func (l *loop) fire() error {
	t := l.timers[0]
	if t.every > 0 {
		t.due = t.due.Add(t.every)
		heap.Fix(&l.timers, 0)
	} else {
		l.clear(t.id)
	}
	_, err := t.call(sobek.Undefined(), t.args...)
	return err
}

// rejected reports the first rejection that nobody handled.
func (l *loop) rejected() error {
	if len(l.unhandled) == 0 {
		return nil
	}
	reason := l.unhandled[0].Result()
	l.unhandled = nil
	return &Exception{"Uncaught (in promise) " + describe(reason)}
}

// set adds a timer and returns its id.
func (l *loop) set(call sobek.Callable, delay, every time.Duration, args []sobek.Value) int64 {
	if len(l.timers) >= maxTimers {
		l.vu.throw("more than %d timers", maxTimers)
	}
	l.nextID++
	t := &timer{id: l.nextID, due: time.Now().Add(delay), every: every, call: call, args: args}
	l.byID[t.id] = t
	heap.Push(&l.timers, t)
	return t.id
}

func (l *loop) clear(id int64) {
	if t := l.byID[id]; t != nil {
		delete(l.byID, id)
		heap.Remove(&l.timers, t.index)
	}
}

// reset drops whatever is left after an iteration that ended early. Work on its way is waited for: the caller has cut
// the connections, or it would end by its own timeout.
func (l *loop) reset() {
	l.finished.Wait()
	l.mu.Lock()
	l.done, l.working = nil, 0
	l.mu.Unlock()
	l.timers, l.unhandled = nil, nil
	clear(l.byID)
}

// timerHeap orders timers by due time, then by age.
type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].id < h[j].id
	}
	return h[i].due.Before(h[j].due)
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
