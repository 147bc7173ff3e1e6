package run_test

import (
	"math"
	"testing"
)

func TestSharedIterationsAreExact(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { Counter } from 'k6/metrics';
		import exec from 'k6/execution';
		const sum = new Counter('sum'), squares = new Counter('squares'), users = new Counter('users');
		export const options = { scenarios: { s: { executor: 'shared-iterations', vus: 7, iterations: 1000 } } };
		export default function () {
			const n = exec.scenario.iterationInTest;
			sum.add(n); squares.add(n * n);
			if (exec.vu.iterationInScenario === 0) users.add(1);
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "iterations", "count", 1000)
	r.want(t, "sum", "count", 1000*999/2) // every number once: both sums fit only then
	r.want(t, "squares", "count", 999*1000*1999/6)
	if got := r.value(t, "users", "count"); got < 1 || got > 7 {
		t.Errorf("%v virtual users had a first iteration, want 1 to 7", got)
	}
	r.want(t, "vus_max", "value", 7)
}

func TestPerVUIterationsAreExactForEach(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { Counter } from 'k6/metrics';
		import exec from 'k6/execution';
		const first = new Counter('first'), last = new Counter('last'), ids = new Counter('ids');
		export const options = { scenarios: { s: { executor: 'per-vu-iterations', vus: 5, iterations: 20 } } };
		export default function () {
			if (exec.vu.iterationInScenario === 0) { first.add(1); ids.add(10 ** (exec.vu.idInTest - 1)); }
			if (exec.vu.iterationInScenario === 19) last.add(1);
			if (exec.vu.iterationInInstance !== __ITER || exec.vu.idInInstance !== __VU) throw new Error('numbers differ');
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "iterations", "count", 100)
	r.want(t, "first", "count", 5)
	r.want(t, "last", "count", 5)
	r.want(t, "ids", "count", 11111) // one each of 1 to 5
}

func TestConstantVUsLoopForTheirTime(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		export const options = { vus: 4, duration: '1s' };
		export default function () { sleep(0.1); }`}.run(t)
	r.wantCode(t, 0)
	r.between(t, "iterations", "count", 12, 40) // 4 × 10 at most, fewer on a busy machine
	r.between(t, "iteration_duration", "min", 100, 200)
	if r.data.State.TestRunDurationMs < 1000 || r.data.State.TestRunDurationMs > 2500 {
		t.Errorf("took %v ms, want a second and the end of the last iteration", r.data.State.TestRunDurationMs)
	}
}

func TestConstantArrivalRateIsKept(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		import { Trend } from 'k6/metrics';
		import exec from 'k6/execution';
		const off = new Trend('off');
		export const options = {
			scenarios: { s: { executor: 'constant-arrival-rate', rate: 100, duration: '2s', preAllocatedVUs: 100 } },
			thresholds: { dropped_iterations: ['count==0'] },
			summaryTrendStats: ['med', 'p(90)', 'max'],
		};
		export default function () {
			off.add(Math.abs(Date.now() - exec.scenario.startTime - 10 * exec.scenario.iterationInTest));
			sleep(0.1); // ten times the distance between two starts: the rate must not depend on it
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "iterations", "count", 200)
	r.between(t, "off", "med", 0, 30) // of the start from its time, in ms
}

func TestRampingArrivalRateHasItsShape(t *testing.T) {
	t.Parallel()
	// 0 to 100 a second in a second: 50 starts, a quarter of them (12 or 13) in the first half. Then 100 a second for
	// half a second: 50.
	r := play{script: `
		import { Counter } from 'k6/metrics';
		import exec from 'k6/execution';
		const early = new Counter('early'), ramp = new Counter('ramp'), flat = new Counter('flat');
		export const options = { scenarios: { s: { executor: 'ramping-arrival-rate', startRate: 0, preAllocatedVUs: 30,
			stages: [{ target: 100, duration: '1s' }, { target: 100, duration: '500ms' }] } } };
		export default function () {
			const at = Date.now() - exec.scenario.startTime;
			(at < 500 ? early : at < 1000 ? ramp : flat).add(1);
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "iterations", "count", 100)
	// A busy machine begins late, never early: each bound is one that lateness cannot break.
	early, ramp := r.value(t, "early", "count"), r.value(t, "ramp", "count")
	if early < 2 || early > 13 || early+ramp > 50 {
		t.Errorf("%v in the first half, %v in the second, want at most 13 and together at most 50", early, ramp)
	}
	r.between(t, "flat", "count", 50, 80)
}

func TestDroppedIterationsAreCountedNotMadeUpFor(t *testing.T) {
	t.Parallel()
	// 50 a second for a second, but two virtual users that need 400 ms each: at 0, 400 and 800 ms two can begin.
	r := play{script: `
		import { sleep } from 'k6';
		export const options = { scenarios: { s: { executor: 'constant-arrival-rate', rate: 50, duration: '1s', preAllocatedVUs: 2 } },
			thresholds: { dropped_iterations: ['count<10'], 'dropped_iterations{scenario:s}': ['count>=43'] } };
		export default function () { sleep(0.4); }`}.run(t)
	r.wantCode(t, 99)
	dropped, done := r.value(t, "dropped_iterations", "count"), r.value(t, "iterations", "count")
	if dropped+done != 50 || done < 4 || done > 6 {
		t.Errorf("%v done and %v dropped, want 6 and 44", done, dropped)
	}
	r.logged(t, `["dropped_iterations"]`)
}

func TestMoreVUsAreMadeUpToMaxVUs(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		export const options = { scenarios: { s: { executor: 'constant-arrival-rate', rate: 20, duration: '1s',
			preAllocatedVUs: 1, maxVUs: 5 } } };
		export default function () { sleep(3); }`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "vus_max", "value", 5)
	r.want(t, "iterations", "count", 5)
	r.want(t, "dropped_iterations", "count", 15)
}

func TestRampingVUsFollowTheirStages(t *testing.T) {
	t.Parallel()
	// 0 to 4 in 800 ms, held for 400 ms, down to 0 in 800 ms: virtual user k (1…4) is wanted from 200·k ms to
	// 1200+200·(5−k) ms, that is for 2200−400·k ms, together 4800 ms.
	r := play{script: `
		import { sleep } from 'k6';
		import { Gauge, Counter } from 'k6/metrics';
		import exec from 'k6/execution';
		const most = new Gauge('most'), busy = new Counter('busy');
		export const options = { scenarios: { s: { executor: 'ramping-vus', startVUs: 0, gracefulRampDown: '5s',
			stages: [{ duration: '800ms', target: 4 }, { duration: '400ms', target: 4 }, { duration: '800ms', target: 0 }] } } };
		export default function () {
			const began = Date.now();
			sleep(0.02);
			most.add(exec.instance.vusActive);
			busy.add(Date.now() - began);
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "most", "max", 4)
	r.between(t, "busy", "count", 2500, 5300)
	if r.data.State.TestRunDurationMs < 2000 || r.data.State.TestRunDurationMs > 3500 {
		t.Errorf("took %v ms, want 2000", r.data.State.TestRunDurationMs)
	}
}

func TestRampDownInterruptsAfterItsGrace(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		export const options = { scenarios: { s: { executor: 'ramping-vus', startVUs: 3, gracefulRampDown: '100ms',
			stages: [{ duration: '0s', target: 0 }, { duration: '600ms', target: 0 }] } } };
		export default function () { sleep(5); }
		export function handleSummary(d) { return { stdout: d.metrics.iterations ? 'some' : 'none' }; }`}.run(t)
	r.wantCode(t, 0)
	if r.stdout != "none" || r.took.Seconds() > 3 {
		t.Errorf("%s iterations were complete after %s, want none after 0.6 s", r.stdout, r.took)
	}
}

func TestAVirtualUserThatIsWantedAgainGoesOn(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { Counter } from 'k6/metrics';
		import { sleep } from 'k6';
		import exec from 'k6/execution';
		const late = new Counter('late');
		export const options = { scenarios: { s: { executor: 'ramping-vus', startVUs: 1, gracefulRampDown: '50ms', gracefulStop: '0s',
			stages: [{ duration: '200ms', target: 1 }, { duration: '0s', target: 0 }, { duration: '300ms', target: 0 },
				{ duration: '0s', target: 1 }, { duration: '300ms', target: 1 }] } } };
		export default function () {
			if (Date.now() - exec.scenario.startTime > 480) { late.add(1); sleep(0.02); } else sleep(5);
		}`}.run(t)
	r.wantCode(t, 0)
	r.between(t, "late", "count", 1, 16)
}

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	script := func(grace string) string {
		return `
		import { sleep } from 'k6';
		import { Counter } from 'k6/metrics';
		const began = new Counter('began');
		export const options = { scenarios: { s: { executor: 'constant-vus', vus: 3, duration: '300ms', gracefulStop: '` + grace + `' } } };
		export default function () { began.add(1); sleep(0.8); }
		export function teardown() {}`
	}
	patient := play{script: script("5s")}.run(t)
	patient.wantCode(t, 0)
	patient.want(t, "iterations", "count", 3)
	hasty := play{script: script("100ms")}.run(t)
	hasty.wantCode(t, 0)
	hasty.want(t, "began", "count", 3)
	if n := hasty.data.Metrics["iterations"].Values["count"]; n != 0 {
		t.Errorf("%v iterations were complete, want all interrupted", n)
	}
	if ms := hasty.data.State.TestRunDurationMs; ms < 400 {
		t.Errorf("took %v ms, want 400", ms)
	}
}

func TestGracefulStopInterruptsBusyCodeAndRequests(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		export const options = { scenarios: {
			spin: { executor: 'constant-vus', duration: '100ms', gracefulStop: '100ms', exec: 'spin' },
			call: { executor: 'constant-vus', duration: '100ms', gracefulStop: '100ms', exec: 'call' },
			wait: { executor: 'constant-vus', duration: '100ms', gracefulStop: '100ms', exec: 'wait' } },
			thresholds: { http_reqs: ['count==0'] } };
		export function spin() { try { for (;;) {} } finally { for (let i = 0; i < 1e9; i++) {} } }
		export function call() { http.get('BASE/sleep/5000'); }
		export async function wait() { await new Promise((done) => setTimeout(done, 5000)); }`)}.run(t)
	r.wantCode(t, 0) // a request that was cut says nothing about the server and is not counted
	if r.took.Seconds() > 2 {
		t.Errorf("took %s, want 0.2 s", r.took)
	}
}

func TestMaxDurationDropsTheRest(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		export const options = { scenarios: {
			shared: { executor: 'shared-iterations', vus: 2, iterations: 100, maxDuration: '300ms' },
			each: { executor: 'per-vu-iterations', vus: 2, iterations: 100, maxDuration: '300ms' } },
			thresholds: { 'dropped_iterations{scenario:shared}': ['count>=94', 'count<=98'],
				'dropped_iterations{scenario:each}': ['count>=194', 'count<=198'],
				'iterations{scenario:shared}': ['count>=2', 'count<=6'] } };
		export default function () { sleep(0.12); }`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "dropped_iterations", "count", 300-r.value(t, "iterations", "count"))
}

func TestStartTimeExecEnvAndTagsBelongToTheScenario(t *testing.T) {
	t.Parallel()
	r := play{env: map[string]string{"WHO": "run", "KEPT": "yes"}, script: `
		import { Counter } from 'k6/metrics';
		import exec from 'k6/execution';
		const c = new Counter('c');
		export const options = {
			tags: { run: 'r1', colour: 'none' },
			scenarios: {
				a: { executor: 'per-vu-iterations', exec: 'first', env: { WHO: 'a' }, tags: { colour: 'red' } },
				b: { executor: 'per-vu-iterations', exec: 'second', startTime: '500ms', env: { WHO: 'b' } },
			},
			thresholds: { 'c{colour:red}': ['count==1'], 'c{colour:none}': ['count==10'], 'c{run:r1}': ['count==11'],
				'c{scenario:b}': ['count==10'], 'iterations{scenario:a,colour:red}': ['count==1'] },
		};
		let began = Date.now();
		export function first() {
			if (__ENV.WHO !== 'a' || __ENV.KEPT !== 'yes' || exec.scenario.name !== 'a') throw new Error(__ENV.WHO);
			c.add(1);
		}
		export function second() {
			if (__ENV.WHO !== 'b' || exec.scenario.executor !== 'per-vu-iterations') throw new Error(__ENV.WHO);
			if (exec.instance.currentTestRunDuration < 500) throw new Error('too early');
			c.add(10);
		}`}.run(t)
	r.wantCode(t, 0)
}

func TestProgressRunsFromZeroToOne(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { sleep } from 'k6';
		import { Trend } from 'k6/metrics';
		import exec from 'k6/execution';
		const p = new Trend('p'), q = new Trend('q');
		export const options = { scenarios: {
			time: { executor: 'constant-vus', duration: '500ms', exec: 'time' },
			count: { executor: 'shared-iterations', iterations: 10, exec: 'count' } } };
		export function time() { p.add(exec.scenario.progress); sleep(0.05); }
		export function count() { q.add(exec.scenario.progress); }`}.run(t)
	r.wantCode(t, 0)
	r.between(t, "p", "min", 0, 0.4)
	r.between(t, "p", "max", 0.6, 1)
	r.want(t, "q", "min", 0)
	if got := r.value(t, "q", "max"); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("after nine of ten iterations: %v", got)
	}
}
