package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// assert is a helper for scripts: it throws, which ends up in the log.
const assert = `
	function is(got, want, what) {
		if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error((what || '') + ' got ' + JSON.stringify(got) + ', want ' + JSON.stringify(want));
	}
`

// clean fails the test when the script logged anything, or ended with another code than 0.
func (r result) clean(t *testing.T) {
	t.Helper()
	if r.code != 0 || r.stderr != "" {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

func TestEveryMethodSendsWhatItShould(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		import { get, request } from 'k6/http';
		export default function () {
			const p = { headers: { 'x-thing': 'v' } };
			for (const [res, method, body] of [
				[http.get('BASE/echo', p), 'GET', ''], [http.post('BASE/echo', 'b', p), 'POST', 'b'],
				[http.put('BASE/echo', 'b', p), 'PUT', 'b'], [http.patch('BASE/echo', 'b', p), 'PATCH', 'b'],
				[http.del('BASE/echo', null, p), 'DELETE', ''], [http.options('BASE/echo', null, p), 'OPTIONS', ''],
				[http.request('REPORT', 'BASE/echo', 'b', p), 'REPORT', 'b'], [get('BASE/echo', p), 'GET', ''],
			]) {
				is(res.status, 200); is(res.json('method'), method); is(res.json('body'), body);
				is(res.json('headers.X-Thing.0'), 'v'); is(res.error, ''); is(res.error_code, 0);
			}
			const head = http.head('BASE/echo');
			is([head.status, head.body, Number(head.headers['Content-Length']) > 0], [200, '', true]);
			const form = http.post('BASE/echo', { a: 'x y', n: 5, b: true });
			is(form.json('body'), 'a=x+y&b=true&n=5'); is(form.json('headers.Content-Type.0'), 'application/x-www-form-urlencoded');
			const binary = http.post('BASE/echo', new Uint8Array([104, 105]).buffer);
			is(binary.json('body'), 'hi');
			is(http.post('BASE/echo', 'grüße 🚀').json('body'), 'grüße 🚀');
			is(http.get('BASE/echo').json('headers.User-Agent.0'), 'k6lite');
		}`)}.run(t)
	r.clean(t)
}

func TestResponseHasItsDocumentedProperties(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export default function () {
			const res = http.get('BASE/echo?a=b');
			is(res.url, 'BASE/echo?a=b'); is(res.status_text, '200 OK'); is(res.proto, 'HTTP/1.1');
			is(res.headers['Content-Type'], 'application/json'); is(res.headers['X-Two'], 'a, b');
			is('BASE', 'http://' + res.remote_ip + ':' + res.remote_port);
			is(typeof res.body, 'string'); is(JSON.parse(res.body), res.json()); is(res.json() === res.json(), true);
			is(res.request.method, 'GET'); is(res.request.url, 'BASE/echo?a=b');
			const t = res.timings;
			is(Math.abs(t.duration - t.sending - t.waiting - t.receiving) < 1e-6, true, JSON.stringify(t));
			is([t.tls_handshaking, res.tls_version, 'status' in res, 'nothing' in res, res.nothing], [0, '', true, false, undefined]);
			is(Object.keys(res).includes('headers'), true);
			res.mine = 5; is(res.mine, 5);

			const binary = http.get('BASE/', { responseType: 'binary' });
			is([binary.body instanceof ArrayBuffer, ...new Uint8Array(binary.body)], [true, 111, 107]);
			is(http.get('BASE/', { responseType: 'none' }).body, null);
			is(http.get('BASE/', { responseType: 'text' }).body, 'ok');

			for (const [status, code] of [[204, 0], [302, 0], [404, 1404], [409, 1409], [503, 1503]]) {
				const r = http.get('BASE/status/' + status);
				is([r.status, r.error_code, r.error], [status, code, '']);
			}
		}`)}.run(t)
	r.clean(t)
}

func TestJSONSelectors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export default function () {
			const res = http.post('BASE/echo', '{"lines":[{"sku":"a","n":1},{"sku":"b","n":2.5},{"sku":"c","n":null}],"a.b":true,"big":9007199254740991,"deep":{"":{"x":[]}}}');
			const inner = http.post('BASE/echo', res.json('body'));
			is(inner.json('body'), res.json('body'));
			const e = http.get('BASE/echo', { headers: { 'X-Json': res.json('body') } });
			is(e.json('headers.X-Json.#'), 1);
			is(res.json('method'), 'POST'); is(res.json('nothing'), undefined); is(res.json('headers.nothing.0'), undefined);
			const big = http.post('BASE/echo', 'x').json();
			is(Object.keys(big).sort(), ['body', 'headers', 'method', 'url']);
			const odd = http.get('BASE/json').json();
			is(odd, JSON.parse(http.get('BASE/json').body));
			is([odd.zero, 1 / odd.minus, odd.big, odd.half, odd['ü\n'], Object.keys(odd).includes('__proto__')], [0, -Infinity, 2 ** 53 - 1, 0.5, null, true]);
			let thrown = '';
			try { http.get('BASE/').json(); } catch (e) { thrown = e.message; }
			is(thrown.includes('not JSON'), true, thrown);
			try { http.get('BASE/status/200', { responseType: 'none' }).json(); } catch (e) { thrown = e.message; }
			is(thrown.includes('no body'), true, thrown);
		}`)}.run(t)
	r.clean(t)
}

func TestFailedRequestsAreResponsesWithAnErrorCode(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export const options = { thresholds: {
			http_req_failed: ['rate==1'], http_reqs: ['count==5'], 'http_reqs{error_code:1050}': ['count==2'],
			'http_reqs{error_code:1212}': ['count==1'], 'http_reqs{status:0}': ['count==4'], 'http_reqs{status:503}': ['count==1'],
			'http_req_duration{expected_response:true}': ['count==0'.replace('count', 'max')] } };
		export default function () {
			const began = Date.now();
			const slow = http.get('BASE/sleep/5000', { timeout: '100ms' });
			is([slow.status, slow.error_code, slow.body, slow.error], [0, 1050, null, 'request timeout']);
			is(http.get('BASE/sleep/5000', { timeout: 100 }).error_code, 1050);
			is(Date.now() - began < 2000, true, 'took ' + (Date.now() - began));
			const refused = http.get('http://127.0.0.1:1/');
			is([refused.status, refused.error_code, refused.error.includes('refused')], [0, 1212, true]);
			is(http.get('http://%zz/').error_code, 1020);
			is(http.get('BASE/status/503').error_code, 1503);
		}`)}.run(t)
	// The threshold on the expected responses has no value and fails, which also shows that none was counted as one.
	r.wantCode(t, 99)
	r.logged(t, `["http_req_duration{expected_response:true}"]`, "request failed: GET", "request timeout")
	if strings.Contains(r.stderr, "Error:") {
		t.Error(r.stderr)
	}
}

func TestThrowOption(t *testing.T) {
	t.Parallel()
	r := play{script: `
		import http from 'k6/http';
		import { Counter } from 'k6/metrics';
		const caught = new Counter('caught');
		export const options = { throw: true, thresholds: { caught: ['count==3'] } };
		export default async function () {
			try { http.get('http://127.0.0.1:1/'); } catch (e) { caught.add(1); }
			try { http.batch(['http://127.0.0.1:1/']); } catch (e) { caught.add(1); }
			try { await http.asyncRequest('GET', 'http://127.0.0.1:1/'); } catch (e) { caught.add(1); }
		}`}.run(t)
	r.wantCode(t, 0)
}

func TestExpectedStatuses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		export const options = { iterations: 2, thresholds: {
			'http_req_failed{n:default}': ['rate==0.5'], 'http_reqs{n:default,expected_response:false}': ['count==4'],
			'http_req_failed{n:own}': ['rate==0.25'],
			'http_req_failed{n:none}': ['rate==0'], 'http_reqs{n:none}': ['count==2'],
			'http_req_failed{n:set}': ['rate==0'], 'http_reqs{n:set,expected_response:true}': ['count==2'],
		} };
		const own = http.expectedStatuses(409, { min: 200, max: 204 }, 503);
		export default function () {
			const get = (status, params) => http.get('BASE/status/' + status, params);
			http.setResponseCallback(http.expectedStatuses({ min: 200, max: 399 }));
			for (const status of [200, 399, 400, 503]) get(status, { tags: { n: 'default' } });
			for (const status of [409, 204, 503, 205]) get(status, { tags: { n: 'own' }, responseCallback: own });
			get(500, { tags: { n: 'none' }, responseCallback: null });
			http.setResponseCallback(http.expectedStatuses(418));
			get(418, { tags: { n: 'set' } });
		}`)}.run(t)
	// A request without callback makes no http_req_failed: its threshold has no value and is the only one to fail.
	r.wantCode(t, 99)
	r.logged(t, `["http_req_failed{n:none}"]`)
}

func TestBatchIsParallelWithinItsLimits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export const options = { batch: 20, batchPerHost: 4 };
		export default function () {
			const began = Date.now();
			const all = http.batch(Array.from({ length: 8 }, (_, i) => ['GET', 'BASE/sleep/200?n=' + i]));
			const took = Date.now() - began;
			is(all.map((r) => r.url.split('n=')[1]), ['0', '1', '2', '3', '4', '5', '6', '7']);
			is(took >= 400 && took < 1500, true, 'eight of 200 ms, four at a time: ' + took);
			const named = http.batch({ a: 'BASE/', b: { method: 'POST', url: 'BASE/echo', body: 'x', params: { headers: { 'X-A': '1' } } },
				c: ['PUT', 'BASE/echo', 'y', { tags: { k: 'v' } }] });
			is([named.a.body, named.b.json('body'), named.b.json('headers.X-A.0'), named.c.json('method')], ['ok', 'x', '1', 'PUT']);
		}`)}.run(t)
	r.clean(t)
	if most := s.parallel.Load(); most != 4 {
		t.Errorf("%d requests at once, want the limit, 4", most)
	}
	r.want(t, "http_reqs", "count", 11)
}

func TestConnectionsAreKeptPerVirtualUser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	script := func(option string) string {
		return s.with(`
		import http from 'k6/http';
		import { Counter } from 'k6/metrics';
		const opened = new Counter('opened');
		export const options = { scenarios: { s: { executor: 'per-vu-iterations', vus: 3, iterations: 5 } }, ` + option + ` };
		export default function () {
			for (let i = 0; i < 2; i++) if (http.get('BASE/').timings.connecting > 0) opened.add(1);
		}`)
	}
	for option, want := range map[string]float64{"": 3, "noVUConnectionReuse: true,": 15, "noConnectionReuse: true,": 30} {
		r := play{script: script(option)}.run(t)
		r.wantCode(t, 0)
		r.want(t, "opened", "count", want)
	}
}

func TestRedirectsAreFollowedAndCounted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export const options = { thresholds: { 'http_reqs{status:302}': ['count==5'], http_reqs: ['count==6'], 'http_req_failed{status:302}': ['rate==0.2'] } };
		export default function () {
			const res = http.get('BASE/redirect?to=/redirect%3Fto%3D/echo');
			is([res.status, res.url], [200, 'BASE/echo']);
			is(http.get('BASE/redirect?to=/echo', { redirects: 0 }).status, 302);
			const stopped = http.get('BASE/redirect?to=/redirect%3Fto%3D/echo', { redirects: 1 });
			is(stopped.error.includes('stopped after 1'), true, stopped.error);
		}`)}.run(t)
	r.wantCode(t, 0)
}

func TestNameTagsGroupURLs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		export const options = { iterations: 3, thresholds: {
			'http_reqs{name:BASE/items/${}}': ['count==3'], 'http_reqs{name:item}': ['count==3'], 'http_reqs{url:BASE/x}': ['count==3'],
			'http_reqs{method:DELETE}': ['count==3'], 'http_reqs{proto:HTTP/1.1}': ['count==12'] } };
		export default function () {
			http.get(http.url` + "`BASE/items/${__ITER}`" + `);
			http.get('BASE/items/' + __ITER, { tags: { name: 'item' } });
			http.get('BASE/x');
			http.del('BASE/y');
		}`)}.run(t)
	r.wantCode(t, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.seen, "GET /items/2") {
		t.Errorf("requests: %q", s.seen)
	}
}

func TestBytesAreCounted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(`
		import http from 'k6/http';
		export const options = { discardResponseBodies: true };
		export default function () {
			if (http.post('BASE/echo', 'x'.repeat(1000)).body !== null) throw new Error('a body');
		}`)}.run(t)
	r.clean(t)
	r.between(t, "data_sent", "count", 1080, 1300)
	r.between(t, "data_received", "count", 1150, 1800)
}

func TestMistakesInRequestsAreExceptions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for call, complaint := range map[string]string{
		`http.get('BASE/', { heders: {} })`:                         "heders",
		`http.get('BASE/', 5)`:                                      "params must be an object",
		`http.get('BASE/', { headers: { 'X Y': 'a' } })`:            "not valid",
		`http.get('BASE/', { headers: { A: 'a\nb' } })`:             "not valid",
		`http.get('BASE/', { headers: { A: undefined } })`:          "no value",
		`http.get('BASE/', { headers: { 'content-length': '5' } })`: "client's to set",
		`http.get('BASE/', { timeout: '5 parsecs' })`:               "5 parsecs",
		`http.get('BASE/', { timeout: -1 })`:                        "-1",
		`http.get('BASE/', { responseType: 'json' })`:               "json",
		`http.get('BASE/', { tags: { a: {} } })`:                    "must be a string",
		`http.get('BASE/', { responseCallback: () => true })`:       "expectedStatuses",
		`http.post('BASE/', 5)`:                                     "a body is",
		`http.post('BASE/', { a: [1] })`:                            "form field",
		`http.post('BASE/', new Uint8Array(2))`:                     "a body is",
		`http.request('get', 'BASE/')`:                              "upper case",
		`http.batch([{ method: 'GET', uri: 'BASE/' }])`:             "uri",
		`http.batch('BASE/')`:                                       "needs an array",
		`http.expectedStatuses('200')`:                              "not a status",
		`http.expectedStatuses({ min: 200 })`:                       "min, max",
	} {
		r := play{script: s.with(`import http from 'k6/http'; export default function () { ` + call + `; }`)}.run(t)
		r.wantCode(t, 0)
		if !contains(r.stderr, complaint) || !contains(r.stderr, "ERRO") {
			t.Errorf("%s: no complaint about %q\n%s", call, complaint, r.stderr)
		}
	}
	r := play{script: s.with(`import http from 'k6/http'; http.get('BASE/'); export default function () {}`)}.run(t)
	r.wantCode(t, 107)
	r.logged(t, "init context")
}

func TestTimeoutLeavesTheVirtualUserUsable(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := play{script: s.with(assert + `
		import http from 'k6/http';
		export const options = { iterations: 3 };
		export default function () {
			is(http.get('BASE/sleep/2000', { timeout: 50 }).error_code, 1050);
			is(http.get('BASE/').status, 200);
		}`)}.run(t)
	r.wantCode(t, 0)
	r.want(t, "http_req_failed", "passes", 3)
	if strings.Contains(r.stderr, "Error") || r.took > 3*time.Second {
		t.Errorf("took %s\n%s", r.took, r.stderr)
	}
}
