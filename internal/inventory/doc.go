// Package inventory keeps ledger and gate one. It settles in which order the two stores are asked, whose word
// counts, and when a hold is over; it refuses to answer anything on the gate's word that the ledger might know
// better.
//
// # The two-store protocol
//
// The ledger (Postgres) is the authority. The gate (Redis) may refuse, never grant.
//
//  1. The gate is asked for a ticket for all lines. It answers: granted, shared (a duplicate of the same order
//     is on its way), short, unknown item, or nothing at all (bypassed).
//  2. Granted, shared, bypassed: the ledger decides. What it wrote or read is told to the gate right after the
//     commit, before any caller is answered, as absolute figures with epoch and version, so that lost, late
//     and reordered news do no harm.
//  3. Short, unknown: the ledger is asked whether this key, or another one for this order, had its effect
//     before. Only if not is the refusal answered.
//  4. The ticket is dropped once the ledger has answered. An unknown outcome frees nothing: the ticket's
//     deadline does.
//
// # What each failure comes to
//
//   - The gate is slow, gone, flushed, or set back to an old state: it lets too much through, or nothing is
//     asked of it. The ledger refuses what cannot be; each refusal tells the gate the true figures.
//   - The gate is set back to a state that refuses too much: it may say short only on figures confirmed with
//     the ledger less than a second ago.
//   - This process dies between ticket and commit: the ticket runs out, nothing was sold.
//   - It dies between commit and news: the figures in the gate are older than the ledger's, and the ticket
//     still covers the units until it runs out; the next news, or the next confirmation, puts them right.
//
// # Expiry
//
// A hold is over when the ledger's clock says so; commit, extend and release are guarded by that clock in the
// statement that carries them out. The sweeper, and the confirmation of a short item, only make figures follow.
package inventory
