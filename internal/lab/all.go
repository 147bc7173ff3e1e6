package lab

import "slices"

// All lists the experiments, by number.
func All() []*Experiment {
	all := []*Experiment{
		pausedHolder(), watchdogAndPause(), blindRelease(), getThenDelete(), noTTL(), asyncFailover(), redlockPause(),
		redlockRestart(), redlockClock(), redlockSlowReplies(), etcdPause(), zookeeperPause(), leaseFromP99(), slowCall(), hincrby(), cronByLock(),
		oversell(), idempotency(), gateCrash(), staleFirstWrite(), advisoryRepeatableRead(), keysInProduction(),
		oneConsumer(), lostReply(), readBack(),
	}
	slices.SortFunc(all, func(a, b *Experiment) int { return a.Number - b.Number })
	return all
}
