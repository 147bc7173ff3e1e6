// Package gate tells requests that cannot succeed so, in one round trip to Redis, before they reach the ledger.
//
// It settles who may try. It refuses to promise anything: the ledger is the authority, and all the gate has can be
// rebuilt from it at any time. It may only refuse. Whoever it lets pass is decided by the ledger as if there were no
// gate, so no failure of it, of Redis or of a clock can sell a unit twice; what they can do is listed below.
//
// # What Redis has
//
// For each item a hash (gate.lua tells its fields): the base, which is what the ledger said last, under which epoch
// and version, and when; and tickets, each the units one order part is about to take, with a deadline on Redis's
// clock. Available at the gate is the base's figure less the tickets that count.
//
//	           Take: the units fit                     Drop, or the deadline passes
//	(nothing) ─────────────────────► ticket, counts ─────────────────────────────► (nothing)
//	                                   │ a newer base                              ▲
//	                                   ▼                                           │
//	                                 ticket, does not count ───────────────────────┘
//
// A ticket counts only while the base is the one it was taken from. When a newer one comes, the ticket's units may
// be part of it already, and nobody can tell from outside the ledger. Counting them twice would call an item sold
// out that is not, and a caller who was told "sold out" does not come back; not counting them lets a request pass
// that the ledger then refuses. So they are not counted. The price is bounded: while an item runs out, each newer
// base lets no more requests pass in vain than are under way at that moment.
//
// A ticket that does not count is still of use: a duplicate of its order finds it, and takes none of its own.
//
// # How a request is answered
//
// Requests of a process that arrive while a call is on its way gather, and the next call decides them all, in order,
// all lines of each or none ([Gate.Take]). News ([Gate.Settle]) and finished tickets ([Gate.Drop]) ride on the same
// call; they are figures with a version and names, not changes, so each may be lost, late, repeated or out of order.
//
// A request that takes what there is ([Terms.Partial]) gets a ticket for that, and is refused only if nothing is there. A line
// that may come from several locations takes no ticket, because nobody knows from which: it is only looked whether
// anything is left at any of them. What a customer may have of an item is an item of its own for the gate: its figure is
// what he has, below zero, which his limit allows to be overdrawn, and the tickets of his requests count as those of others
// do. An allowance nobody has told of counts as nothing had, so the first request of a customer needs no look into the ledger.
//
// "Short" is said only on a base that the ledger confirmed less than [Freshness] ago. Otherwise, and for items Redis
// does not know, [Config.Confirm] is asked, once for all requests that wait for the item, and then the script again.
//
// Two answers need no call at all. An item of which many times the wanted quantity was left when the ledger spoke
// last cannot be refused, so it needs no ticket ([Ample]): the gate costs nothing until an item becomes scarce. And an
// item that was short with no ticket in the way is short for the next 10 ms too, unless this process hears of it.
//
// On Cluster a request's items are asked for in groups, one call a slot (keys.go). If one group refuses, the tickets
// of the others are dropped: for that moment they are refused to others, which is all that atomicity over slots costs.
//
// # What can go wrong
//
//	failure                          result
//	reply lost, script not applied   The call's requests pass without a ticket. Its news are sent again.
//	reply lost, script applied       The same; the tickets it may have written are dropped by the next call, or, when
//	                                 the ghost of this one comes after it, run out at their deadline.
//	process dies holding tickets     They are refused to others until their deadline, or a newer base.
//	news lost, or the process dies   The base is old. Who passes on it in vain is refused by the ledger, whose answer is
//	before telling them              news. Who is refused on it is refused for at most Freshness.
//	news late or out of order        Older than the base by (epoch, version): ignored by the script.
//	Redis restarted empty, flushed,  Items are unknown: confirmed, one look for all requests that wait. Tickets are
//	or a key ran out or was deleted  forgotten: their units may be let through once more, and refused by the ledger.
//	Redis set back to older data     The base is old: as when news were lost. Tickets that come back have passed their
//	(failover, snapshot)             deadline, or pass it within their life.
//	ledger set back (failover)       Its epoch is higher, so its lower versions are news.
//	base ahead of the ledger, same   Confirming it changes nothing, so it stays too old to refuse: requests pass as
//	epoch (another ledger's Redis)   [Unsettled], until reconciliation forgets the item ([Gate.Forget]).
//	Redis's clock jumps forward      Tickets run out early, bases are confirmed: once more work, no wrong answer.
//	Redis's clock jumps back         Deadlines further away than a life, and bases confirmed in the future, are not
//	                                 believed. A jump back by less than a base's age prolongs its freshness by as much.
//	Redis slow, paused, gone, a      The call ends after [Config.CallTimeout] at the latest, its requests pass, and a
//	replica, loading, out of         breaker opens: nobody else waits. A probe every 50 to 500 ms closes it when the
//	memory, or moved its slots       node is a master that takes writes within the time of a call.
//	the ledger is out of reach       Nobody can be refused on old figures: requests pass to the ledger's own error.
//	a key of another type or form    Replaced as if it were missing.
//
// Everything that waits is bounded: requests in the queue ([QueueFull]), items with news, tickets to drop, tickets of
// an item ([Crowded]), what a call carries. What exceeds a bound passes, or is forgotten and confirmed later.
package gate
