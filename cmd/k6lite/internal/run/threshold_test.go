package run_test

import (
	"testing"
	"time"
)

func TestThresholdsOnEveryKindAndExitCode(t *testing.T) {
	t.Parallel()
	script := func(thresholds string) string {
		return `
		import { Counter, Gauge, Rate, Trend } from 'k6/metrics';
		import { check } from 'k6';
		const c = new Counter('c'), g = new Gauge('g'), r = new Rate('r'), t = new Trend('t', true), unused = new Counter('unused');
		export const options = { iterations: 10, thresholds: { ` + thresholds + ` } };
		export default function () {
			c.add(2, { odd: __ITER % 2 === 1 }); g.add(__ITER); r.add(__ITER < 3); t.add(__ITER * 10);
			check(null, { fine: true, half: () => __ITER < 5 }, { half: true });
		}`
	}
	for thresholds, code := range map[string]int{
		`c: ['count==20']`: 0, `c: ['count<20']`: 99, `c: ['count>=20', 'count>20']`: 99,
		`'c{odd:true}': ['count==10']`: 0, `'c{odd:maybe}': ['count>0']`: 99,
		`unused: ['count==0']`: 0, `unused: ['count>0']`: 99,
		`g: ['value==9']`: 0, `g: ['value<9']`: 99,
		`r: ['rate==0.3']`: 0, `r: ['rate>0.3']`: 99, `'r{a:b}': ['rate<1']`: 99,
		`t: ['avg==45', 'min==0', 'max==90', 'med>44.8', 'med<45.2', 'p(90)>80.7', 'p(90)<81.3']`: 0,
		`t: ['p(90)<80']`:        99,
		`checks: ['rate==0.75']`: 0, `'checks{check:fine}': ['rate==1']`: 0, `'checks{check:half}': ['rate>0.5']`: 99,
		`'checks{half:true}': ['rate==0.75']`: 0,
		`iterations: ['count==10']`:           0, `http_req_duration: ['p(95)<1000']`: 99, // no request was made
	} {
		r := play{script: script(thresholds)}.run(t)
		if r.code != code {
			t.Errorf("%s: exit code %d, want %d\n%s", thresholds, r.code, code, r.stderr)
		}
	}
}

func TestThresholdsThatCannotBeJudgedStopTheRunBeforeItBegins(t *testing.T) {
	t.Parallel()
	for _, thresholds := range []string{
		`nothing: ['count>0']`, `iterations: ['p(95)<1']`, `iterations: ['count ~ 5']`, `checks: ['rate']`,
		`http_req_duration: ['p(101)<1']`, `'iterations{a}': ['count>1']`, `iterations: []`,
	} {
		r := play{script: `export const options = { thresholds: { ` + thresholds + ` } };
			export default function () { console.log('ran'); }`}.run(t)
		r.wantCode(t, 104)
		if r.stdout != "" {
			t.Errorf("%s: it ran", thresholds)
		}
	}
}

func TestAbortOnFailEndsTheRunAndStillTearsDown(t *testing.T) {
	t.Parallel()
	script := func(delay string) string {
		return `
		import { sleep } from 'k6';
		import { Rate } from 'k6/metrics';
		const bad = new Rate('bad');
		export const options = { vus: 2, duration: '20s',
			thresholds: { bad: [{ threshold: 'rate<0.5', abortOnFail: true, delayAbortEval: '` + delay + `' }] } };
		export default function () { bad.add(true); sleep(0.05); }
		export function teardown() { console.log('torn down'); }`
	}
	r := play{script: script("0s")}.run(t)
	r.wantCode(t, 99)
	r.logged(t, "torn down", `["bad"]`)
	if r.took > 5*time.Second {
		t.Errorf("took %s", r.took)
	}
	if ok := r.data.Metrics["bad"].Thresholds["rate<0.5"]; ok.OK {
		t.Error("the summary says the threshold held")
	}
	later := play{script: script("2500ms")}.run(t)
	later.wantCode(t, 99)
	if later.took < 2500*time.Millisecond || later.took > 7*time.Second {
		t.Errorf("with delayAbortEval 2.5 s: took %s", later.took)
	}
}

func TestThresholdsSeeWhatTeardownCounts(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { Counter } from 'k6/metrics';
		const violations = new Counter('violations'), judged = new Counter('judged');
		export const options = { thresholds: { violations: ['count==0'], judged: ['count>0'] } };
		export default function () {}
		export function teardown() { judged.add(1); violations.add(1); }`}.run(t)
	r.wantCode(t, 99)
	r.logged(t, `["violations"]`)
}
