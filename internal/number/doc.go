// Package number gives out numbers for documents, such as a deduction's, without a lock.
//
// It settles that a number is given out once, for ever, and that those of one source grow. It refuses to be without
// gaps: numbers that were drawn and not used, or used for what then failed, are lost, and two sources draw from
// different places, so a greater number need not be the later one. A series without gaps needs its number in the
// transaction of what it numbers, one after another: that is a lock, and as slow.
//
// # Two ways
//
//	Segments    blocks of one counter in Postgres. Short numbers; one small statement a block, off the path
//	Snowflake   time, worker and sequence. Long numbers, roughly in the order of time; Postgres is asked only to lease
//	            the worker's next span, or not at all where an operator numbers the workers
//
// # Failures and their results
//
//	the answer to a draw is lost     its block is lost; the next one begins after it
//	the counter is set back          (a failover, a restored backup) a source never gives a number out twice or goes
//	                                 back, and draws until the counter is past what it gave out; where another source
//	                                 did, the unique index of the numbered rows refuses, and the row gets a new number
//	the clock goes back              while a process runs, nothing: the time is that of its start and a monotonic clock.
//	                                 Across restarts, nothing where the worker is leased: a span is given out once.
//	                                 Where an operator numbers the workers, numbers can come again
//	a process is paused              nothing: what it has was drawn for it alone, however late it uses it
package number

import (
	"context"
	"errors"
)

// Source gives out numbers from 1 to [Max]. It is safe for concurrent use.
type Source interface {
	// Next returns a number greater than all it returned before. It waits for a store, if at all, no longer than ctx.
	Next(ctx context.Context) (int64, error)
	// Close ends what the source does in the background.
	Close()
}

// Max is the greatest number: JSON readers that keep numbers as doubles still have it exactly.
const Max = 1<<53 - 1

// ErrClosed says that the source was closed.
var ErrClosed = errors.New("the source of numbers is closed")
