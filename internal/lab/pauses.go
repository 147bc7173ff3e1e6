package lab

import (
	"context"
	"time"
)

// onRedis is a lock of one second on the shared Redis, with a token from Postgres.
func onRedis(renew bool) func(context.Context, *Stage) (lockSpec, error) {
	return func(ctx context.Context, s *Stage) (lockSpec, error) {
		addr, err := s.Redis(ctx)
		return lockSpec{Kind: redisTok, Servers: []string{addr}, TTL: time.Second, Renew: renew}, err
	}
}

// onEtcd is a lease of the shortest time that etcd has.
func onEtcd(ctx context.Context, s *Stage) (lockSpec, error) {
	url, err := s.Etcd(ctx)
	return lockSpec{Kind: etcd, Servers: []string{url}, TTL: 2 * time.Second, Renew: true}, err
}

// onZooKeeper is a session of the shortest time that ZooKeeper grants.
func onZooKeeper(ctx context.Context, s *Stage) (lockSpec, error) {
	addr, err := s.ZooKeeper(ctx)
	return lockSpec{Kind: zookeeper, Servers: []string{addr}, TTL: 4 * time.Second, Renew: true}, err
}

// onRedlock is a lock of one second and a half on five independent Redis servers.
func onRedlock(ctx context.Context, s *Stage) (lockSpec, error) {
	masters, err := s.OwnMasters(ctx, 5)
	if err != nil {
		return lockSpec{}, err
	}
	return lockSpec{Kind: redlockTk, Servers: masters.Addrs(), TTL: 1500 * time.Millisecond}, nil
}

// pausedHolder is the founding example of the argument: Kleppmann, "How to do distributed locking", 2016.
func pausedHolder() *Experiment {
	return &Experiment{
		Number: 1, Name: "paused-holder",
		Question: "Is whoever holds a Redis lock the only one who writes?",
		Claim: "No. A process that stands still after it looked at its lock goes on when the lock has long been granted to " +
			"another, and writes. Nothing in the lock can know that; the storage can.",
		Setup: "Two processes, one lock with a TTL of one second in Redis, one row in Postgres. A gets the lock and is stopped " +
			"(SIGSTOP) right before it writes, until the lock has run out and B got it and wrote. Then A goes on.",
		Anomalies: []Case{{"the old holder writes after the new one", on(onRedis(false), blindly, played.overwritten)}},
		Protections: []Case{
			{"fencing token: the row knows a newer holder", on(onRedis(false), withToken, refusedByStore)},
			{"version: the row is not as the old holder read it", on(onRedis(false), withVersion, refusedByStore)},
		},
		Roles: holderRole,
	}
}

// watchdogAndPause is the usual answer to the first experiment, and why it is none.
func watchdogAndPause() *Experiment {
	return &Experiment{
		Number: 2, Name: "watchdog-and-pause",
		Question: "Does a watchdog that renews the lock help?",
		Claim: "Not against a pause: the watchdog is part of the process and stands still with it. It helps against work that is " +
			"slow. A holder that asks its own clock right before it writes finds that the lease is over, which closes the gap but " +
			"for the moment between looking and writing; the token closes that, too.",
		Setup:     "As paused-holder, with a lease that is renewed every third of its TTL.",
		Anomalies: []Case{{"the old holder writes after the new one, watchdog or not", on(onRedis(true), blindly, played.overwritten)}},
		Protections: []Case{
			{"local deadline: the old holder's lease tells that it is lost", on(onRedis(true), withLease, lostItsLease)},
			{"fencing token: the row knows a newer holder", on(onRedis(true), withToken, refusedByStore)},
		},
		Roles: holderRole,
	}
}

// redlockPause is Redlock with a pause after the quorum.
func redlockPause() *Experiment {
	return &Experiment{
		Number: 7, Name: "redlock-pause",
		Question: "Does Redlock's majority keep a paused holder from writing?",
		Claim: "No. Five servers agree on who holds the lock, and on when it runs out; the holder that stands still after it heard " +
			"of its majority knows neither. And Redlock has no token to tell the storage.",
		Setup:       "As paused-holder, with a lock on five independent Redis servers.",
		Anomalies:   []Case{{"the old holder writes after the new one", on(onRedlock, blindly, played.overwritten)}},
		Protections: []Case{{"fencing token from Postgres: the row knows a newer holder", on(onRedlock, withToken, refusedByStore)}},
		Roles:       holderRole,
	}
}

// etcdPause and zookeeperPause show that consensus is not what was missing.
func etcdPause() *Experiment {
	return &Experiment{
		Number: 11, Name: "etcd-paused-holder",
		Question: "Is a lock in etcd safe where one in Redis is not?",
		Claim: "It cannot be lost by a failover, but its holder can be paused like any other: the lease runs out in etcd, and the " +
			"process goes on. What etcd adds is the revision, a token that grows with every grant and is never forgotten.",
		Setup:     "As watchdog-and-pause, with a lease of two seconds in etcd.",
		Anomalies: []Case{{"the old holder writes after the new one", on(onEtcd, blindly, played.overwritten)}},
		Protections: []Case{
			{"revision as fencing token: the row knows a newer holder", on(onEtcd, withToken, refusedByStore)},
			{"local deadline: the old holder's lease tells that it is lost", on(onEtcd, withLease, lostItsLease)},
		},
		Roles: holderRole,
	}
}

func zookeeperPause() *Experiment {
	return &Experiment{
		Number: 12, Name: "zookeeper-session-loss",
		Question: "Is a lock in ZooKeeper safe where one in Redis is not?",
		Claim: "As with etcd: the ephemeral node goes with the session, and the paused process does not. The creation zxid of the " +
			"node is a token.",
		Setup:     "As etcd-paused-holder, with an ephemeral sequence node in ZooKeeper and a session of four seconds.",
		Anomalies: []Case{{"the old holder writes after the new one", on(onZooKeeper, blindly, played.overwritten)}},
		Protections: []Case{
			{"czxid as fencing token: the row knows a newer holder", on(onZooKeeper, withToken, refusedByStore)},
			{"local deadline: the old holder's lease tells that it is lost", on(onZooKeeper, withLease, lostItsLease)},
		},
		Roles: holderRole,
	}
}

// staleFirstWrite is the usual way to check tokens, and the gap in it.
func staleFirstWrite() *Experiment {
	write := func(how string, seen func(played) bool) func(context.Context, *Stage) (bool, error) {
		return func(ctx context.Context, s *Stage) (bool, error) {
			where, err := onRedis(false)(ctx, s)
			if err != nil {
				return false, err
			}
			p, err := scene{A: where, B: where, How: how, Befalls: standStill, First: "A"}.play(ctx, s)
			return err == nil && seen(p), err
		}
	}
	return &Experiment{
		Number: 20, Name: "stale-first-write",
		Question: "Is it enough that the storage refuses smaller tokens than it has seen?",
		Claim: "No. Between the grant and the new holder's first write the storage has not seen the new token, so the stale write " +
			"is let in, and the new holder goes on from a state that it did not read. The holder has to claim its token first.",
		Setup: "As paused-holder, but A goes on after B got the lock and before B writes.",
		Anomalies: []Case{{"the old holder's write is accepted while the new one holds the lock", write(ifNotOlder, func(p played) bool {
			return p.endA == "wrote" && len(p.accepted) == 2 && p.accepted[0] == "A"
		})}},
		Protections: []Case{{"claim first: the token is in the row before the work begins", write(withToken, refusedByStore)}},
		Roles:       holderRole,
	}
}
