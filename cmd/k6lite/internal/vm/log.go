package vm

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Log writes the lines a script and the runner print, one at a time.
type Log struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
	debug bool
}

// NewLog returns a log that writes to out; debug lines only when debug is set.
func NewLog(out io.Writer, debug bool) *Log {
	return &Log{out: out, began: time.Now(), debug: debug}
}

// Print writes one line with its level (INFO, WARN, ERRO, DEBU) and the seconds since the log began.
func (l *Log) Print(level, text string) {
	if level == "DEBU" && !l.debug {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written has nowhere to say so.
	_, _ = fmt.Fprintf(l.out, "%s[%04d] %s\n", level, int(time.Since(l.began).Seconds()), text)
}

// Printf is Print with a format.
func (l *Log) Printf(level, format string, args ...any) { l.Print(level, fmt.Sprintf(format, args...)) }
