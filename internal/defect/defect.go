// Package defect is where the product is made wrong on purpose: each [Name] is a mistake that one layer of the service exists to
// stop, seeded at the place where somebody could make it, so that checkers and load scripts can be shown to find it.
//
// Without the build tag "defects" nothing of it is left: [On] is the constant false and the branches behind it are not
// compiled. With the tag one defect, named by HOLDFAST_DEFECT, is switched on for the life of the process. The package refuses to
// decide what a defect leads to: that is for whoever looks for it.
package defect

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Name of a defect.
type Name string

// The defects, by the layer that is broken.
const (
	// NoVersionCheck writes rows whatever version they have by now, and without the CHECKs: updates get lost.
	NoVersionCheck Name = "no-version-check"
	// IgnoreKey never looks for what a key or an order did before, and has no unique index that would.
	IgnoreKey Name = "ignore-key"
	// DoubleApply sends a batch whose outcome is unknown again without anything that could tell that it was applied.
	DoubleApply Name = "double-apply"
	// ReleaseOnUnknown calls an unknown outcome a failure: the caller is told that nothing was done, the ticket is freed.
	ReleaseOnUnknown Name = "release-on-unknown"
	// FreeTicketOnUnknown frees the ticket only.
	FreeTicketOnUnknown Name = "free-ticket-on-unknown"
	// SweepWithoutGuard ends every hold the sweeper comes across, whatever its state and time are by then.
	SweepWithoutGuard Name = "sweep-without-guard"
	// CommitIgnoresExpiry commits a hold whose time is over, until it is swept.
	CommitIgnoresExpiry Name = "commit-ignores-expiry"
	// AnswerBeforeCommit answers before the commit is durable.
	AnswerBeforeCommit Name = "answer-before-commit"
	// StaleRead answers with figures that this process saw last, which another one may have changed.
	StaleRead Name = "stale-read"
	// ReplayAcrossClients keeps the keys and orders of all clients together.
	ReplayAcrossClients Name = "replay-across-clients"
	// SettleWithoutVersion has the gate believe what it was told last, however old it is. Load alone shows it where news come late: see [LateNews].
	SettleWithoutVersion Name = "settle-without-version"
	// SettleAdds has the gate add figures to those it has.
	SettleAdds Name = "settle-adds"
)

// All defects.
func All() []Name {
	return []Name{
		NoVersionCheck, IgnoreKey, DoubleApply, ReleaseOnUnknown, FreeTicketOnUnknown, SweepWithoutGuard,
		CommitIgnoresExpiry, AnswerBeforeCommit, StaleRead, ReplayAcrossClients, SettleWithoutVersion, SettleAdds,
	}
}

// Point is a place in the service where a process can be ended or stopped, at exactly that moment, in a build with the tag: the variable
// HOLDFAST_FAILPOINT says where, how and at which passage, such as "ticket-taken kill 100" or "committed stop 1".
type Point string

// The points, in the order in which a deduction passes them.
const (
	BeforeGate  Point = "before-gate"
	TicketTaken Point = "ticket-taken"
	FiguresRead Point = "figures-read" // to confirm what the gate has, which is not told yet
	RowsRead    Point = "rows-read"    // of a batch that is decided on rows just read or locked
	BeforeWrite Point = "before-write" // the batch is decided
	Written     Point = "written"      // inside its transaction, or committed with it where it had none
	Committed   Point = "committed"    // the gate is not told yet
	Settled     Point = "settled"      // the caller is not answered yet
	DueListed   Point = "due-listed"   // holds whose time is over, not ended yet
)

// Points are all of them.
func Points() []Point {
	return []Point{BeforeGate, TicketTaken, FiguresRead, RowsRead, BeforeWrite, Written, Committed, Settled, DueListed}
}

// Statements is what carries out SQL statements: a session, a pool or a transaction.
type Statements interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}
