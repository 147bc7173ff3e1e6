package run_test

import (
	"strings"
	"testing"
	"time"
)

func TestModulesAreNative(t *testing.T) {
	t.Parallel()
	r := play{
		files: map[string]string{
			"lib/a.js":      `import { b } from './deep/b.js'; export * from './deep/b.js'; export const a = 'a' + b; export default class A { hi() { return 'hi'; } }`,
			"lib/deep/b.js": `import * as all from '../a.js'; import { sleep } from 'k6'; export const b = 'b'; export let n = 0; export function count() { n++; return typeof all.a + typeof sleep; }`,
			"data.txt":      "text",
			"lib/data.txt":  "other",
			"lib/open.js":   `export const mine = open(import.meta.resolve('./data.txt'));`,
		},
		script: assert + `
		import A, { a, b, n, count } from './lib/a.js';
		import * as whole from './lib/a.js';
		import { mine } from './lib/open.js';
		import k6, { check as c } from 'k6';
		const text = open('./data.txt'), same = open('data.txt'), binary = open('data.txt', 'b');
		export { scenario as default } from './main.js';
		export function other() {}
		export const use = () => {
			is([new A().hi(), a, b, n, typeof c, typeof k6.check], ['hi', 'ab', 'b', 0, 'function', 'function']);
			is(count(), 'stringfunction'); is(n, 1); is(whole.n, 1); is(Object.keys(whole).sort(), ['a', 'b', 'count', 'default', 'n']);
			is([text, same, mine, [...new Uint8Array(binary)]], ['text', 'text', 'other', [116, 101, 120, 116]]);
		};`,
	}
	p := r
	p.files["main.js"] = `import { use } from './script.js'; export function scenario() { use(); }`
	p.run(t).clean(t)
}

func TestWhatCannotBeImportedOrOpenedStopsTheRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		code   int
		log    string
	}{
		{`import x from 'https://jslib.k6.io/k6-utils/1.4.0/index.js';`, 2, "remote modules"},
		{`import x from 'k6/websockets';`, 2, "k6/websockets"},
		{`import x from 'k6/experimental/fs';`, 2, "k6/experimental/fs"},
		{`import x from 'k6/html';`, 2, "it has k6, k6/crypto"},
		{`import x from 'lodash';`, 107, "relative path"},
		{`import x from './nolib';`, 107, "no such file"},
		{`import { x } from './bad.js';`, 107, "bad.js"},
		{`import { nothing } from './good.js';`, 107, "nothing"},
		{`import { opened } from './lib/opens.js';`, 107, "relative to which file"},
		{`open('./missing.txt');`, 107, "missing.txt"},
		{`open('./bytes.bin');`, 107, "not UTF-8"},
		{`require('k6');`, 107, "require"},
	} {
		r := play{script: c.script + `
			export default function () { console.log('it ran'); }`, files: map[string]string{
			"bad.js": "export const x = ;", "good.js": "export const x = 1;", "bytes.bin": "\xff\xfe",
			"lib/opens.js": "export const opened = open('./x.txt');", "lib/x.txt": "", "x.txt": "",
		}}.run(t)
		if r.code != c.code || !contains(r.stderr, c.log) || contains(r.stderr, "it ran") {
			t.Errorf("%s: exit code %d, want %d and a word about %q\n%s", c.script, r.code, c.code, c.log, r.stderr)
		}
	}
}

func TestUnsupportedAPIEndsTheRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, call := range []string{
		`http.get('BASE/').html()`, `http.get('BASE/').cookies`, `http.get('BASE/').ocsp`, `http.get('BASE/').submitForm()`,
		`http.get('BASE/').clickLink()`, `http.cookieJar()`, `new http.CookieJar()`, `http.file('x')`, `http.get('BASE/', { cookies: {} })`,
		`http.get('BASE/', { jar: {} })`, `http.get('BASE/', { auth: 'basic' })`, `http.get('BASE/', { compression: 'gzip' })`,
		`http.get('BASE/', { headers: { cookie: 'a=b' } })`, `http.get('BASE/cookie')`, `http.get('BASE/'.replace('//', '//me:secret@'))`, `http.get('http://proxied.example/')`, `http.TLS_1_3`, `FileData`, `crypto.md4('a', 'hex')`,
		`crypto.createHash('ripemd160')`,
	} {
		r := play{env: map[string]string{"HTTP_PROXY": "http://127.0.0.1:1"}, script: s.with(`
			import http, { FileData } from 'k6/http';
			import crypto from 'k6/crypto';
			export const options = { vus: 2, iterations: 1000 };
			export default function () { try { ` + call + ` } finally { console.log('not here'); } console.log('not here'); }`)}.run(t)
		r.wantCode(t, 2)
		if !contains(r.stderr, "not supported by k6lite") || contains(r.stderr, "not here") || r.took > 10*time.Second {
			t.Errorf("%s after %s: %s", call, r.took, r.stderr)
		}
	}
}

func TestAsyncOrder(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		import timers from 'k6/timers';
		const later = (ms, v) => new Promise((done) => setTimeout(done, ms, v));
		export const options = { iterations: 2 };
		export default async function () {
			const log = [];
			setTimeout(() => log.push('t20'), 20);
			setTimeout(() => { log.push('t0'); Promise.resolve().then(() => log.push('after t0')); }, 0);
			setTimeout(() => log.push('t0 too'), 0);
			const cancelled = setTimeout(() => log.push('never'), 5);
			clearTimeout(cancelled); timers.clearTimeout(12345);
			Promise.resolve().then(() => log.push('micro 1')).then(() => log.push('micro 2'));
			(async () => { log.push('sync'); await null; log.push('after await'); })();
			log.push('end of sync');
			await later(60);
			is(log, ['sync', 'end of sync', 'micro 1', 'after await', 'micro 2', 't0', 'after t0', 't0 too', 't20']);

			let ticks = 0;
			await new Promise((done) => { const id = setInterval(() => { if (++ticks === 3) { clearInterval(id); done(); } }, 5); });
			is(ticks, 3);

			const order = [];
			const slow = http.asyncRequest('GET', 'BASE/sleep/200').then((r) => { order.push('slow'); return r.status; });
			const fast = http.asyncRequest('GET', 'BASE/sleep/20').then((r) => { order.push('fast'); return r.status; });
			order.push('sent');
			is(await Promise.all([slow, fast]), [200, 200]);
			is(order, ['sent', 'fast', 'slow']);
			is((await Promise.race([later(10, 'a'), later(100, 'b')])), 'a');
			try { await Promise.reject(new Error('seen')); } catch (e) { is(e.message, 'seen'); }
			is((await Promise.allSettled([Promise.reject(1), later(1, 2)])).map((x) => x.status), ['rejected', 'fulfilled']);
		}`)}.run(t)
	r.clean(t)
	r.want(t, "iterations", "count", 2)
	r.between(t, "iteration_duration", "min", 270, 20_000) // the iteration ends when everything has
}

func TestAnIterationWaitsForWhatItLeftBehind(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		import { Counter } from 'k6/metrics';
		const late = new Counter('late');
		export const options = { iterations: 3 };
		export default function () {
			setTimeout(() => late.add(1), 50);
			http.asyncRequest('GET', 'BASE/sleep/50').then(() => late.add(1));
		}`)}.run(t)
	r.clean(t)
	r.want(t, "late", "count", 6)
}

func TestRejectionsNobodyHandlesAreReported(t *testing.T) {
	t.Parallel()
	r := play{script: `
		export const options = { iterations: 2 };
		export default async function () {
			setTimeout(() => { Promise.reject(new Error('lost')); }, 1);
			setTimeout(() => console.log('not reached'), 200);
			await new Promise(() => {});
		}`}.run(t)
	r.wantCode(t, 0)
	r.logged(t, "lost")
	if strings.Count(r.stderr, "lost") != 2 || contains(r.stderr, "not reached") {
		t.Errorf("want the error once an iteration:\n%s", r.stderr)
	}
	forever := play{script: `export default async function () { await new Promise(() => {}); }`}.run(t)
	forever.logged(t, "nothing will ever resolve")
}

func TestChecksAndGroups(t *testing.T) {
	t.Parallel()
	r := play{script: assert + `
		import { check, group, fail } from 'k6';
		import { Counter } from 'k6/metrics';
		const c = new Counter('c');
		export const options = { thresholds: { 'c{group:::a}': ['count==1'], 'c{group:::a::b}': ['count==2'], 'c{group:}': ['count==4'],
			'group_duration{group:::a}': ['min>=0'], 'checks{group:::a::b}': ['rate==1'] } };
		export default function () {
			is(check(5, { five: (v) => v === 5, truthy: 'yes' }), true);
			is(check(5, { six: (v) => v === 6, five: (v) => v === 5 }), false);
			is(check(5, { falsy: 0 }), false);
			is(group('a', () => { c.add(1); return group('b', () => { c.add(2); check(1, { one: true }); return 'x'; }); }), 'x');
			c.add(4);
			let thrown = [];
			for (const f of [
				() => check(1, { bad: () => { throw new Error('inside'); } }), () => check(1, { p: async () => true }),
				() => group('g', async () => {}), () => group('g', () => fail('out')), () => check(1), () => group('x::y', () => {}),
				() => fail(), () => c.add('5'), () => c.add(NaN), () => c.add(-1), () => c.add(), () => new Counter('late'),
			]) { try { f(); thrown.push('nothing'); } catch (e) { thrown.push(e.message || e.value?.message); } }
			is(thrown.length, 12); is(thrown.includes('nothing'), false, JSON.stringify(thrown));
			is([thrown[0], thrown[3]], ['inside', 'out']);
			c.add(0);
		}`}.run(t)
	r.clean(t)
	r.want(t, "checks", "passes", 4)
	r.want(t, "checks", "fails", 3) // six, falsy and the one that threw
}

func TestCustomMetricsWithTags(t *testing.T) {
	t.Parallel()
	r := play{script: assert + `
		import { Counter, Gauge, Rate, Trend } from 'k6/metrics';
		import exec from 'k6/execution';
		const c = new Counter('c'), g = new Gauge('g'), r = new Rate('r'), t = new Trend('t'), again = new Counter('c');
		export const options = { iterations: 2, thresholds: { 'c{a:b}': ['count==4'], 'c{mine:1}': ['count==8'], 'c{a:over}': ['count==32'] } };
		export default function () {
			is([c.name, t.name], ['c', 't']);
			c.add(1); c.add(2, { a: 'b' }); again.add(true);
			g.add(5); r.add(true); r.add(0); r.add(2); t.add(1.5); t.add(false);
			exec.vu.metrics.tags.mine = 1; exec.vu.metrics.tags['a'] = 'over';
			is([exec.vu.metrics.tags.mine, exec.vu.metrics.tags.scenario, exec.vu.tags.a, 'mine' in exec.vu.tags], ['1', 'default', 'over', true]);
			c.add(4, { a: 'own' });
			delete exec.vu.metrics.tags.mine;
			c.add(16);
			delete exec.vu.tags.a;
			is(exec.vu.metrics.tags.mine, undefined);
			let thrown = 0;
			for (const f of [() => { exec.vu.tags.x = {}; }, () => { exec.vu.tags.group = 'x'; }, () => { c.name = 'd'; }]) try { f(); } catch { thrown++; }
			is(thrown, 3);
		}`}.run(t)
	r.clean(t)
	r.want(t, "c", "count", 48)
	r.want(t, "r", "passes", 4)
	r.want(t, "r", "fails", 2)
	r.want(t, "t", "avg", 0.75)
}

func TestSharedArrayIsMadeOnceAndRead(t *testing.T) {
	t.Parallel()
	r := play{script: assert + `
		import { SharedArray } from 'k6/data';
		import { Counter } from 'k6/metrics';
		const ok = new Counter('ok');
		const big = new SharedArray('big', () => { console.log('made'); return Array.from({ length: 1000 }, (_, i) => ({ i, s: 'ü' + i, n: null })); });
		const other = new SharedArray('other', () => ['a', 1, [2]]);
		export const options = { scenarios: { s: { executor: 'per-vu-iterations', vus: 5, iterations: 2 } } };
		export default function () {
			is([big.length, big[999], other.length, other[2]], [1000, { i: 999, s: 'ü999', n: null }, 3, [2]]);
			big[0].i = 99; is(big[0].i, 0);
			let sum = 0; for (const e of big) sum += e.i; is(sum, 499500);
			is([big[1000], big[-1], Array.isArray(big), JSON.stringify(other)], [undefined, undefined, true, '["a",1,[2]]']);
			let thrown = 0;
			for (const f of [() => { other[0] = 5; }, () => { other.length = 0; }, () => other.push(1), () => new SharedArray('late', () => [])]) try { f(); } catch { thrown++; }
			is(thrown, 4);
			ok.add(1);
		}`}.run(t)
	r.wantCode(t, 0)
	r.want(t, "ok", "count", 10)
	if strings.Count(r.stderr, "made") != 1 {
		t.Errorf("want it made once:\n%s", r.stderr)
	}
	for _, bad := range []string{`() => 5`, `() => ({})`, `async () => []`, `() => [undefined]`, `() => { throw new Error('x'); }`} {
		play{script: `import { SharedArray } from 'k6/data'; new SharedArray('a', ` + bad + `); export default function () {}`}.run(t).wantCode(t, 107)
	}
}

// The digests of "hello world!" are those in k6's documentation; the rest are from RFC 4231 (case 2) and coreutils.
func TestCrypto(t *testing.T) {
	t.Parallel()
	r := play{script: assert + `
		import crypto from 'k6/crypto';
		import { sha256, hmac } from 'k6/crypto';
		export default function () {
			is(sha256('hello world!', 'hex'), '7509e5bda0c762d2bac7f90d758b5b2263fa01ccbc542ab5e3df163be08e6ca9');
			is(crypto.sha256('hello world!', 'base64'), 'dQnlvaDHYtK6x/kNdYtbImP6Acy8VCq1498WO+CObKk=');
			is(crypto.sha256('hello world!', 'base64url'), 'dQnlvaDHYtK6x_kNdYtbImP6Acy8VCq1498WO-CObKk=');
			is(crypto.sha256('hello world!', 'base64rawurl'), 'dQnlvaDHYtK6x_kNdYtbImP6Acy8VCq1498WO-CObKk');
			is([...new Uint8Array(crypto.sha256('hello world!', 'binary'))].slice(0, 3), [117, 9, 229]);
			is(crypto.md5('', 'hex'), 'd41d8cd98f00b204e9800998ecf8427e');
			is(crypto.sha1('abc', 'hex'), 'a9993e364706816aba3e25717850c26c9cd0d89d');
			is(crypto.sha512('abc', 'hex').slice(0, 16), 'ddaf35a193617aba');
			is(crypto.sha384('abc', 'hex').slice(0, 16), 'cb00753f45a35e8b');
			is(crypto.md5(new Uint8Array([97, 98, 99]).buffer, 'hex'), crypto.md5('abc', 'hex'));
			is(hmac('sha256', 'Jefe', 'what do ya want for nothing?', 'hex'), '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843');
			const h = crypto.createHash('sha256'); h.update('hello '); h.update('world!');
			is([h.digest('hex'), h.digest('hex')], [sha256('hello world!', 'hex'), sha256('hello world!', 'hex')]);
			const m = crypto.createHMAC('sha256', 'Jefe'); m.update('what do ya want '); m.update('for nothing?');
			is(m.digest('hex').slice(0, 8), '5bdcc146');
			const a = crypto.randomBytes(16), b = crypto.randomBytes(16);
			is([a.byteLength, String(new Uint8Array(a)) === String(new Uint8Array(b))], [16, false]);
			let thrown = 0;
			for (const f of [() => crypto.md5('a'), () => crypto.md5('a', 'hexx'), () => crypto.md5(5, 'hex'), () => crypto.hmac('sha3', 'a', 'b', 'hex'),
				() => crypto.randomBytes(-1), () => crypto.createHash('nope')]) try { f(); } catch { thrown++; }
			is(thrown, 6);
		}`}.run(t)
	r.clean(t)
}

func TestGlobalsAndExecution(t *testing.T) {
	t.Parallel()
	r := play{env: map[string]string{"GIVEN": "x=y"}, script: assert + `
		import exec from 'k6/execution';
		import { randomSeed, sleep } from 'k6';
		export const options = { vus: 2, iterations: 2 };
		let thrown = '';
		try { exec.scenario.name; } catch (e) { thrown = e.message; }
		is(thrown.includes('init context'), true, thrown);
		export function setup() {
			let thrown = '';
			try { exec.scenario.name; } catch (e) { thrown = e.message; }
			is(thrown.includes('no scenario'), true, thrown);
		}
		export default function () {
			is([__ENV.GIVEN, __ENV.MISSING], ['x=y', undefined]);
			__ENV.OWN = 'mine'; is(__ENV.OWN, 'mine');
			is([exec.scenario.name, exec.scenario.executor, exec.test.options.vus, exec.test.options.duration], ['default', 'shared-iterations', 2, null]);
			is([__VU === exec.vu.idInTest, __VU === 1 || __VU === 2, exec.instance.vusInitialized, exec.instance.vusActive > 0], [true, true, 2, true]);
			is(Math.abs(Date.now() - exec.scenario.startTime) < 5000, true);
			randomSeed(7); const a = [Math.random(), Math.random()]; randomSeed(7); is([Math.random(), Math.random()], a);
			let thrown = 0;
			for (const f of [() => open('x'), () => sleep(), () => sleep('x'), () => { exec.vu.idInTest = 5; }]) try { f(); } catch { thrown++; }
			is(thrown, 4);
			sleep(0.2); // so that each virtual user gets one
			console.log('a', 1, { b: [true, null] }, undefined, [1], new Error('e').message);
			console.warn('w'); console.error('e'); console.info('i'); console.debug('never shown');
		}`}.run(t)
	r.wantCode(t, 0)
	r.logged(t, `INFO[0000] a 1 {"b":[true,null]} undefined [1] e`, "WARN[0000] w", "ERRO[0000] e")
	if contains(r.stderr, "never shown") || contains(r.stderr, "Error") {
		t.Error(r.stderr)
	}
}
