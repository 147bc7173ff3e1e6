package run_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/option"
	"github.com/holdfast-stock/holdfast/cmd/k6lite/internal/run"
)

func TestSetupHandsItsDataToAll(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		import { Counter } from 'k6/metrics';
		const c = new Counter('c'), set = new Counter('set');
		export const options = { vus: 3, iterations: 9, thresholds: {
			'http_reqs{group:::setup}': ['count==1'], 'http_reqs{group:::teardown}': ['count==2'] } };
		export function setup() {
			if (__VU !== 0) throw new Error('__VU is ' + __VU);
			set.add(1);
			return { list: [1, 2, { deep: http.get('BASE/echo').json('method') }], gone: undefined, when: new Date(0) };
		}
		export default function (data) {
			if (JSON.stringify(data) !== '{"list":[1,2,{"deep":"GET"}],"when":"1970-01-01T00:00:00.000Z"}') throw new Error(JSON.stringify(data));
			data.list.length = 3;
			c.add(data.list[0]);
		}
		export function teardown(data) {
			http.get('BASE/'); http.get('BASE/');
			if (data.list[2].deep !== 'GET') throw new Error('teardown got ' + JSON.stringify(data));
		}`)}.run(t)
	r.wantCode(t, 0)
	r.want(t, "c", "count", 9)
	r.want(t, "set", "count", 1)
	r.want(t, "iterations", "count", 9)
}

func TestWithoutSetupThereIsNoData(t *testing.T) {
	t.Parallel()
	r := play{script: `
		export default function (data) { if (data !== undefined) throw new Error('got ' + data); }
		export function teardown(data) { if (data !== undefined) throw new Error('got ' + data); }`}.run(t)
	r.wantCode(t, 0)
	if r.stderr != "" {
		t.Error(r.stderr)
	}
}

func TestLifecycleMayBeAsync(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		export async function setup() { return (await http.asyncRequest('GET', 'BASE/echo')).json('method'); }
		export default async function (data) { if (data !== 'GET') throw new Error(data); }
		export async function teardown(data) { await new Promise((r) => setTimeout(r, 10)); console.log('down', data); }
		export async function handleSummary(data) {
			const echo = await http.asyncRequest('POST', 'BASE/echo', String(data.metrics.iterations.values.count));
			return { stdout: echo.json('body') };
		}`)}.run(t)
	r.wantCode(t, 0)
	r.logged(t, "down GET")
	if r.stdout != "1" {
		t.Errorf("handleSummary wrote %q", r.stdout)
	}
}

func TestExitCodesByWhatWentWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		code         int
		log          []string
	}{
		{"nothing", `export default function () {}`, 0, nil},
		{"exception in an iteration", `export default function () { throw new Error('oops'); }`, 0, []string{"oops", "script.js:1"}},
		{"rejection in an iteration", `export default async function () { throw new Error('oops'); }`, 0, []string{"oops"}},
		{"exception in init", `throw new Error('oops'); export default function () {}`, 107, []string{"oops"}},
		{"syntax", `export default function () {`, 107, []string{"script.js"}},
		{"unknown name in init", `export default function () {}; nothing();`, 107, []string{"nothing"}},
		{"rejection in init", `await Promise.reject(new Error('oops')); export default function () {}`, 107, []string{"oops"}},
		{"no such export", `import { chekc } from 'k6'; export default function () {}`, 107, []string{"chekc"}},
		{"exception in setup", `export function setup() { throw new Error('oops'); } export default function () { console.log('ran'); }
			export function teardown() { console.log('torn'); }`, 107, []string{"oops"}},
		{"exception in teardown", `export default function () {} export function teardown() { throw new Error('oops'); }`, 107, []string{"oops"}},
		{"exception in handleSummary", `export default function () {} export function handleSummary() { throw new Error('oops'); }`, 107, []string{"oops"}},
		{"summary of the wrong type", `export default function () {} export function handleSummary() { return { stdout: 5 }; }`, 107, []string{"stdout"}},
		{"setup timeout", `import { sleep } from 'k6'; export const options = { setupTimeout: '100ms' };
			export function setup() { sleep(10); } export default function () {}`, 100, []string{"timed out"}},
		{"setup timeout in busy code", `export const options = { setupTimeout: '100ms' };
			export function setup() { for (;;) {} } export default function () {}`, 100, []string{"timed out"}},
		{"teardown timeout", `import { sleep } from 'k6'; export const options = { teardownTimeout: '100ms' };
			export function teardown() { sleep(10); } export default function () {}`, 101, []string{"timed out"}},
		{"abort", `import exec from 'k6/execution'; export default function () { exec.test.abort('enough'); console.log('not here'); }
			export function teardown() { console.log('torn down'); }`, 108, []string{"enough", "torn down"}},
		{"abort cannot be caught", `import exec from 'k6/execution'; export default function () { try { exec.test.abort('a'); } catch { console.log('not here'); } }`, 108, nil},
		{"abort in init", `import exec from 'k6/execution'; exec.test.abort('early'); export default function () {}`, 108, []string{"early"}},
		{"abort in setup", `import exec from 'k6/execution'; export function setup() { exec.test.abort('early'); } export default function () { console.log('not here'); }`, 108, []string{"early"}},
		{"abort in teardown", `import exec from 'k6/execution'; export default function () {} export function teardown() { exec.test.abort('late'); }`, 108, []string{"late"}},
		{"marked as failed", `import exec from 'k6/execution'; export const options = { iterations: 3 };
			export default function () { exec.test.fail('bad'); console.log('went on', __ITER); }`, 110, []string{"bad", "went on 2"}},
		{"thresholds win over marked as failed", `import exec from 'k6/execution'; export const options = { thresholds: { iterations: ['count>5'] } };
			export default function () { exec.test.fail('bad'); }`, 99, nil},
		{"abort wins over thresholds", `import exec from 'k6/execution'; export const options = { thresholds: { iterations: ['count>5'] } };
			export default function () { exec.test.abort('bad'); }`, 108, []string{"iterations"}},
		{"bad options", `export const options = { vuss: 1 }; export default function () {}`, 104, []string{"vuss"}},
		{"no default function", `export function other() {}`, 104, []string{"default"}},
		{"no such exec", `export const options = { scenarios: { a: { executor: 'constant-vus', duration: '1s', exec: 'nope' } } }; export default function () {}`, 104, []string{"nope"}},
	} {
		r := play{script: c.script}.run(t)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.name, r.code, c.code, r.stderr)
		}
		r.logged(t, c.log...)
		for _, never := range []string{"not here", "ran", "torn\n"} {
			if contains(r.stderr, never) {
				t.Errorf("%s: %q was reached\n%s", c.name, never, r.stderr)
			}
		}
	}
}

func TestAnIterationThatThrowsIsStillAnIteration(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { fail } from 'k6';
		import { Counter } from 'k6/metrics';
		const before = new Counter('before'), after = new Counter('after');
		export const options = { iterations: 4 };
		export default function () {
			before.add(1);
			if (__ITER % 2) fail('on purpose');
			after.add(1);
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "iterations", "count", 4)
	r.want(t, "before", "count", 4)
	r.want(t, "after", "count", 2)
	r.logged(t, "on purpose")
}

func TestStoppedFromOutside(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	r := play{ctx: ctx, script: `
		import { sleep } from 'k6';
		export const options = { vus: 2, duration: '30s' };
		export default function () { sleep(20); }
		export function teardown() { console.log('torn down'); }`}.run(t)
	r.wantCode(t, 105)
	r.logged(t, "torn down", "stopped")
	if r.took > 5*time.Second {
		t.Errorf("took %s", r.took)
	}
}

func TestHandleSummaryWritesFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := play{env: map[string]string{"DIR": dir}, script: `
		export default function () {}
		export function handleSummary(data) {
			return { stdout: 'out', stderr: 'err', [__ENV.DIR + '/a/b.txt']: 'text',
				[__ENV.DIR + '/c.bin']: new Uint8Array([1, 0, 255]).buffer };
		}`}.run(t)
	r.wantCode(t, 0)
	if r.stdout != "out" || r.stderr != "err" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if got := read(t, dir, "a/b.txt"); got != "text" {
		t.Errorf("a/b.txt holds %q", got)
	}
	if got := read(t, dir, "c.bin"); got != "\x01\x00\xff" {
		t.Errorf("c.bin holds %q", got)
	}
}

func TestSummaryDataHasItsDocumentedShape(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		import { check, group } from 'k6';
		import { Gauge } from 'k6/metrics';
		const g = new Gauge('g');
		export const options = { iterations: 2, summaryTrendStats: ['avg', 'count', 'p(99.9)'], summaryTimeUnit: 'ms',
			thresholds: { 'http_req_duration{kind:a}': ['p(95)<5000'], iterations: ['count>5'] } };
		export default function () {
			g.add(7 - __ITER);
			group('outer', () => {
				http.get('BASE/', { tags: { kind: 'a' } });
				check(1, { 'is one': (v) => v === 1 });
				group('inner', () => check(1, { 'is two': (v) => v === 2 }));
			});
		}`)}.run(t)
	r.wantCode(t, 99)
	g := r.data.RootGroup
	if len(g.Groups) != 1 || len(g.Checks) != 0 || g.Path != "" {
		t.Fatalf("root group: %+v", g)
	}
	outer := g.Groups[0]
	if outer.Path != "::outer" || outer.Checks[0].Path != "::outer::is one" || outer.Checks[0].Passes != 2 || outer.Checks[0].Fails != 0 {
		t.Errorf("outer: %+v", outer)
	}
	if inner := outer.Groups[0]; inner.Path != "::outer::inner" || inner.Checks[0].Passes != 0 || inner.Checks[0].Fails != 2 {
		t.Errorf("inner: %+v", inner)
	}
	if diff := cmp.Diff([]string{"avg", "count", "p(99.9)"}, r.data.Options.SummaryTrendStats); diff != "" || r.data.Options.SummaryTimeUnit != "ms" {
		t.Errorf("options: %+v", r.data.Options)
	}
	d := r.data.Metrics["http_req_duration{kind:a}"]
	if d.Type != "trend" || d.Contains != "time" || len(d.Values) != 3 || d.Values["count"] != 2 || !d.Thresholds["p(95)<5000"].OK {
		t.Errorf("http_req_duration{kind:a}: %+v", d)
	}
	if m := r.data.Metrics["iterations"]; m.Type != "counter" || m.Contains != "default" || m.Thresholds["count>5"].OK {
		t.Errorf("iterations: %+v", m)
	}
	r.want(t, "g", "value", 6)
	r.want(t, "g", "min", 6)
	r.want(t, "g", "max", 7)
	r.want(t, "checks", "rate", 0.5)
	r.want(t, "checks", "passes", 2)
	r.want(t, "group_duration", "count", 4)
	if m := r.data.Metrics["data_sent"]; m.Contains != "data" {
		t.Errorf("data_sent: %+v", m)
	}
	if _, ok := r.data.Metrics["http_req_duration{expected_response:true}"]; !ok {
		t.Error("no sub-metric of the expected responses")
	}
}

func TestTextSummaryWithoutHandleSummary(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import { check } from 'k6';
		import { Trend } from 'k6/metrics';
		const waits = new Trend('waits', true);
		export const options = { iterations: 2, thresholds: { checks: ['rate>0.9'], waits: ['avg<2000'] } };
		export default function () { check(0, { 'is one': (v) => v === 1, 'is zero': (v) => v === 0 }); waits.add(1500); }
		// handleSummary is only named here, so that the test does not add one`}.run(t)
	r.wantCode(t, 99)
	for _, want := range []string{"THRESHOLDS", "✗ 'rate>0.9' got 0.5", "✓ 'avg<2000'", "✗ is one  (2 of 2 failed)", "✓ is zero", "avg=1.5s", "iterations"} {
		if !contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
}

func TestCommandLineWinsOverTheScript(t *testing.T) {
	t.Parallel()
	n, vus := 6, 3
	r := play{cli: option.CommandLine{Iterations: &n, VUs: &vus}, script: `
		import exec from 'k6/execution';
		export const options = { scenarios: { a: { executor: 'constant-vus', duration: '1h' } } };
		export default function () {
			const o = exec.test.options;
			if (o.scenarios.default.iterations !== 6 || o.scenarios.a || o.paused !== null) throw new Error(JSON.stringify(o));
		}`}.run(t)
	r.wantCode(t, 0)
	if r.stderr != "" {
		t.Error(r.stderr)
	}
	r.want(t, "iterations", "count", 6)
	r.want(t, "vus_max", "value", 3)
}

func TestMinIterationDuration(t *testing.T) {
	t.Parallel()
	r := play{script: `
		export const options = { iterations: 3, minIterationDuration: '200ms' };
		export default function () {}`}.run(t)
	r.wantCode(t, 0)
	if r.took < 600*time.Millisecond {
		t.Errorf("three iterations of at least 200 ms took %s", r.took)
	}
}

func TestProgressIsShownOnATerminalOnly(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.js")
	text := `export const options = { iterations: 2 }; export default function () {} export function handleSummary() { return {}; }`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ terminal, quiet, progress, introduction bool }{
		{terminal: true, progress: true, introduction: true},
		{introduction: true},
		{terminal: true, quiet: true},
	} {
		var stderr bytes.Buffer
		code := run.Run(context.Background(), run.Config{
			Script: script, Env: map[string]string{}, Quiet: c.quiet, Stdout: io.Discard, Stderr: &stderr, StderrTerminal: c.terminal,
		})
		if code != 0 || contains(stderr.String(), "running (") != c.progress || contains(stderr.String(), "2 iterations shared") != c.introduction {
			t.Errorf("%+v: exit code %d\n%s", c, code, stderr.String())
		}
	}
}
