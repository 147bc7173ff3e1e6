package httpapi

import (
	"bufio"
	"context"
	"io"
	"sync"
	"time"
)

// LogBuffer gathers log lines, so that a busy service makes one write of a thousand of them. What was not flushed yet is lost when the
// process is killed; nothing that must last is in a log.
type LogBuffer struct {
	mu  sync.Mutex
	buf *bufio.Writer // guarded by mu
}

// logBufferSize, in bytes, is some 300 lines.
const logBufferSize = 64 << 10

// NewLogBuffer writes to w when its 64 KiB are full, at each [LogBuffer.Flush], and as [LogBuffer.Run] does.
func NewLogBuffer(w io.Writer) *LogBuffer {
	return &LogBuffer{buf: bufio.NewWriterSize(w, logBufferSize)}
}

// Write takes in one line.
func (l *LogBuffer) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

// Flush writes out what is there.
func (l *LogBuffer) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Flush()
}

// Run flushes at this interval until ctx ends, and then a last time. An error stays with the buffer and is
// that of every later write.
func (l *LogBuffer) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.Flush()
		case <-tick.C:
			_ = l.Flush()
		}
	}
}
