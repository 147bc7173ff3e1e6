// Package ledger is what is true: every table, every transaction, every idempotency key. It settles whether an
// operation happened, in which order, and what the figures are after it; nothing else in Holdfast writes stock.
// It refuses to know HTTP, Redis or what a lock is: its promises rest on unique indexes, versions, CHECK
// constraints and one commit, which no pause, failover or clock of anybody else can break.
//
// # One operation
//
// An operation (deduct, commit, release, extend, return, adjust, expire) is a value with a pure decide: it reads
// a [view] of rows and either refuses, leaving the view as it was, or grants and changes it. The sequencer
// gathers operations; a writer takes a batch, decides it first come, first served, and writes the sum of it in
// one statement:
//
//	submit ──► queue ──► take ──► decide on last known rows ──► one statement ──► commit ──► answers
//	                      ▲               │ a refusal, or no row known     │ a row is not as seen
//	                      │               ▼                                ▼
//	                      │         read rows, keys, orders          lock the rows, read, decide
//	                      └── items of the batch are free again ◄── in the same transaction
//
// There is no timer. While one batch is on its way the next gathers; an idle ledger sends a single operation at
// once, by a statement of its own. An item is in at most one batch at a time, and nobody overtakes on an item:
// a request that must wait blocks its items for those behind it. A deduction is changed once a batch at most.
//
// Many requests may enter the queue together; each is still an operation of its own. Two kinds are about more, or less,
// than one change: an operation on several deductions of an order is tried on a copy of the view and carried out only
// if none of them refuses; a rehearsal is tried on a copy of rows just read and never carried out. Voiding a key is an
// operation whose only effect is the key: from then on the unique index refuses whoever comes with it.
//
// # What is remembered, and what it may do
//
// The process remembers the last row it saw of each item. A remembered row may only grant: the statement locks
// the rows it rests on, in one order, if their version is as seen, and writes nothing unless all of them are. A
// refusal has nothing that would prove it, so it is decided on rows, keys and orders just read. Rows are read
// before keys: whoever sees what a deduction left also finds its key.
//
// What a customer has of an item (customer_units) is not remembered: whoever may change it reads it with keys and
// orders, after the item's row. It changes only with a movement of the item, so the item's version, which the write checks,
// proves it too, and no two processes can count past each other. A deduction that is granted in part rests on an item being
// short, as a refusal does, and one that is taken from another location than the first: both are decided on rows just
// read. A line of a request that is split over locations is stored as several lines with one line id, each with its own
// number; request_line says which line they serve.
//
// # When two processes want the same item
//
// The one that comes second finds another version and nothing is written. It reads the rows FOR UPDATE, decides
// and writes in that transaction, and goes on doing so for that item for a second: the two then take turns in
// the server's lock queue instead of starving each other. A process that is stopped while it holds such locks is
// thrown out by idle_in_transaction_session_timeout after a second, and finds that out before it can commit.
//
// # Failures, and what each comes to
//
//   - A key or an order was used meanwhile (unique violation): nothing was written. The batch is decided again
//     with keys read; what was done before is answered as a replay. For the next second keys are read first,
//     because retries come in storms.
//   - The connection breaks before the statement was sent: it is sent on another one.
//   - It breaks later, so the outcome is unknown: the batch is decided again on rows that are locked. Waiting for
//     the lock is waiting for whatever became of the first sending. If that committed, its keys are found, and
//     it is answered as done; if not, its versions are stale and it never will be. Looking without locking would
//     not do: a statement that waited could commit after the look.
//     Whoever first asked is told that it was done now, not that it was done before: what was found is compared with
//     what was sent.
//   - The ledger stays out of reach until the batch's time is over: [stock.ErrUnknownOutcome] if a statement was
//     sent and never answered, else [stock.ErrLedgerUnavailable]. Never a guess.
//   - A batch's time is over while its statement is at work: the session is left to itself, not cancelled. A cancel would
//     end the wait of a commit for its standby and show it to everybody, though a failover could still lose it.
//   - The server warns that it committed without waiting for its standby: unknown, and not sent again by us,
//     because finding it would call it done.
//   - The statement breaks a constraint, which is a defect of ours: the batch's requests are sent one by one, so
//     that one cannot take the others with it.
//   - A caller leaves while its request is queued: it is taken out, nothing was done ([stock.ErrOverloaded]).
//     Later it runs to its end, and the caller is told that the outcome is unknown.
//   - Too much is waiting: refused at once, [stock.ErrOverloaded].
//   - A failover or a restore sets rows back: their epoch (the WAL timeline) goes up, and whoever compares
//     figures compares epoch first.
//
// # Time
//
// Whether a hold is over is decided by the server's clock, in the statement that writes ("live" and "due" are
// guards of a change, like the revision), so commit and expiry at the same instant have one winner whether or
// not anybody sweeps. Reading shows a hold that is over as expired.
package ledger
