// Package job runs what the service does by itself: at its times, in one process of many, each tick once. It settles
// who runs a tick, for how long its writes count, and what is written down about it. It refuses to know what a job
// does, and to make stock safe by a lock: what a job writes is guarded where it is written.
//
// # One tick
//
//	due ──► has it ended? ──► lease ──► claim fence, begin row ──► work ──► end row ──► release
//	            │ yes           │ held          │ ended, or a later tick
//	            ▼               ▼               ▼
//	          nothing      look again        nothing
//
// Four things, each for what the others cannot do:
//
//   - The lease (internal/lock) keeps all processes but one from trying. It is there to save effort. It may fail:
//     back ends forget, processes are paused for longer than their lease.
//   - The row of the tick, unique by job and scheduled time, makes a tick run once even if two processes hold the
//     lease, or come one after the other. A row that was begun and never ended is taken over by the next holder.
//   - The fence makes a paused process harmless. Whoever begins a tick claims its lease's token first; every
//     transaction of the work then compares and locks the claim. So a process that wakes up after another one took
//     over writes nothing, not even before the other one's first write.
//   - The deadline is the ledger's as well: a claim's writes are accepted for the job's limit, by the ledger's clock.
//     In this process it ends the work's ctx; work that does not look at it loses its lease all the same.
//
// The work gets the fence and nothing else. A Locker of leases without tokens does not compile here: [Config] takes
// one of [lock.Fenced].
//
// # Ticks and clocks
//
// Ticks are times that all processes compute alike: those of a cron expression in UTC, or the multiples of an interval.
// A process whose clock is ahead runs a tick early, one whose clock is behind finds it done; neither runs it twice. A
// tick that is older than one already begun is not run any more.
//
// Ticks that were missed, because nothing ran or no lock could be had, are not run one by one: the latest of them is run
// late, once, as soon as possible. Every job here does all there is to do, so one run does the work of those missed.
//
// # Failures and their results
//
//   - The lock's back end is gone: no new run begins, one under way ends when its lease does. Deductions, readiness and
//     everything else go on; holds that are over are released by whoever needs their units. Tried again with growing
//     pauses.
//   - The process dies, or is told to stop: the row stays begun; another process takes it over, after the lease at the
//     latest.
//   - It is paused beyond its lease: the same, and what it still tries to write is refused (stock.ErrStale).
//   - The work fails, panics or takes too long: the tick has failed and is not tried again; the next one is.
//   - The ledger is gone: nothing begins; a run under way fails, and how it ended is not written down. It is taken over.
//   - The answer to "begin" is lost: the next lease has a greater token and takes the row over. To "end": the row says
//     that it ended, or it is taken over and the work finds nothing to do.
//
// So the work of a tick may begin more than once, never twice at the same time with effect, and each of its
// transactions counts only for the newest holder. Work must therefore be such that going on where another one was cut
// short is right; all jobs of this service look at what is there and do what is left.
package job
