// Package lock keeps at most one holder a key, on Redis, Redlock, etcd, ZooKeeper or Postgres, and says exactly how
// far that can be trusted.
//
// It settles what a lease is (one grant, with an id, a deadline and at most one holder), how a lost answer is told
// from a refusal, and where a fencing token may come from. It refuses to be a mutex object that anybody can unlock,
// a lease without an end, a token that its back end can forget, and to make stock safe: the ledger is right without it.
//
// # What a lock can promise, and what it cannot
//
// A lease promises that two holders do not work at the same time as long as processes run and clocks tick evenly.
// It cannot promise more, whatever the back end: a process can be stopped between looking at its lease and writing
// (experiments 1 and 2 of the lab, on Redis; 11 on etcd; 12 on ZooKeeper; 7 on Redlock), and no server can know that.
// What must never be done twice is therefore guarded where it is written, by a fencing [Token]. Work that may run
// twice, only not usefully so, needs no more than the lease.
//
// Who is the authority for what:
//
//	the back end        who was granted a key, and in which order
//	the holder's clock  until when the holder may act on it; the monotonic one, never the wall clock
//	the token's origin  who is the newest holder; it survives what the back end does not
//	the guarded store   whether a write is from the newest holder: the only answer that counts
//
// # The states of a grant
//
//	asked ──► held ──► released        Release: nil
//	  │        │
//	  │        └─────► lost            Lost, ctx cause ErrLost; Release: ErrLost
//	  ├──────────────► refused         ErrHeld, or the ctx of the caller
//	  └──────────────► unknown         given up in the background until it is certain that nothing is held
//
// Asked. A claim has an id before the first request leaves, and acquiring is idempotent by it: a request that is
// sent again because its answer was lost finds its own grant (experiment 24). If no answer comes at all, or the
// caller's ctx ended meanwhile, the claim is given up: the back end is told to free it and to refuse it should the
// request arrive later still.
//
// Held. The deadline counts from the moment before the request left, so the server's clock for the lease started
// later, and ends [Margin] before. The ctx of [Lease.Bind] and of Do thus ends before the back end can grant the key
// to anybody else, even if no message gets through any more (experiments 2 and 14). A renewal is sent every third of
// the TTL, awaited no longer than the lease lasts, and counts from before it left, too. It never creates a key.
//
// Released. Whoever releases compares the owner value whole, its grant id included, in the same script, transaction
// or node name that frees the key (experiments 3 and 4): a release that is late, or sent twice, frees nobody else's
// grant. If the answer to a release is lost and the second one finds nothing although the lease cannot have run out,
// then the first one did its work, and that is what Release answers.
//
// Lost. Nobody renewed in time, or the back end says that it does not know the grant. The work's ctx has ended. That
// is a request, not a barrier: work that does not look at its ctx, or was stopped, goes on.
//
// # Failures and their results
//
//	answer to acquire lost            asked again by the same id; one grant                            lab 24
//	request delayed, claim given up   refused when it arrives, for a TTL
//	answer to release lost            asked again; the truth about the first
//	holder cut off                    its ctx ends first, then the key is free; no overlap
//	holder paused                     overlap possible; the stale one's writes are refused by token    lab 1, 2, 7, 11, 12
//	holder dies                       key free after the TTL, or at once (see [Properties])            lab 5
//	work slower than the TTL          renewed; work without an end needs a ctx of its own              lab 13, 14
//	server forgets (failover, flush)  two holders; tokens from elsewhere still differ and still grow   lab 6, 8
//	server's wall clock jumps         two holders where [Properties] says it is that clock; token      lab 9
//	slow servers                      a grant that came too late to be worth anything is given back    lab 10
//
// # Tokens
//
// A token orders the holders of a key. It is worth nothing if it can be forgotten together with the lock: a Redis
// counter on a promoted replica gives the next holder the number of the last one (experiment 6). So only these are
// tokens: the revision of an etcd cluster and the zxid of a ZooKeeper ensemble, which a majority remembers, and a
// Postgres sequence under the number of its timeline, which grows when a standby is promoted. Sequence numbers of
// ZooKeeper nodes are not: they begin anew when the parent is removed.
//
// The type system says so. A [Locker] of [*Lease] has no Fence method to call; only a back end that is a
// [FencedBackend] makes a Locker of [*Fenced]. A function that must be safe takes a Token, and a bare Redis lease has
// none to give. [WithTokens] adds tokens from Postgres to a lease kept anywhere; Redis with Postgres tokens is what
// the service uses if nothing else is configured, because it runs both anyway.
//
// How to check one: the holder first claims its token in the guarded store (insert or update where the stored one
// is smaller), and every transaction of its work then compares for equality and locks that row against a newer
// claim. Comparing at each write only, "refuse smaller tokens", lets the stale holder's write in if it comes before
// the new holder's first one (experiment 20).
//
// # Choosing
//
// [Properties] is the table, as data, checked against real servers by the tests of this package. In short: Redis is
// fast and may forget; confirmed by replicas it may not, unless another is promoted; Redlock trades one clock for a
// majority of clocks, and has no token (experiments 7 to 10); etcd and ZooKeeper decide by majority, keep a fair
// queue, and prolong leases when they restart; a Postgres row needs nothing extra to run; an advisory lock frees at
// once when its holder dies, costs a connection for each holder and waiter, and must not be taken by a transaction
// that reads under it in REPEATABLE READ (experiment 21).
//
// For scheduled work a lock alone runs a tick twice when two clocks differ by more than the work takes (experiment
// 16): what makes it once is a unique row for each tick, and the lock only saves the others the effort.
package lock
