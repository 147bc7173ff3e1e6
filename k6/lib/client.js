import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { LIFETIME, TOKEN, URLS } from './config.js';
import { shed, unresolved } from './metrics.js';
import { SLICES, sliceOf } from './options.js';

/**
 * @typedef {{ sku: string, location?: string, quantity: number }} Line
 * @typedef {{ order_id: string, lines: Line[], hold_seconds?: number }} Order
 * @typedef {{ sku: string, location: string, on_hand: number, held: number, available: number, version: number }} Levels
 * @typedef {{ line: number, sku: string, quantity: number, held: number, committed: number, released: number, returned: number }} DeductionLine
 * @typedef {{
 *   id: string, order_id: string, state: 'held' | 'committed' | 'released' | 'expired' | 'returned', revision: number,
 *   expires_at?: string, lines: DeductionLine[], items?: Levels[],
 * }} Deduction
 * @typedef {{
 *   version: number, kind: string, delta_on_hand: number, delta_held: number, on_hand: number, held: number,
 *   reference: string, deduction_id?: string,
 * }} Movement
 * @typedef {{ pointer: string, sku: string, requested: number, available: number, version: number }} ShortLine
 * @typedef {{ type: string, status: number, detail: string, outcome: 'none' | 'unknown', retry: string, short?: ShortLine[], deduction?: Deduction }} Problem
 * @typedef {{ method: 'GET' | 'PUT' | 'POST', url: string, body: string | null, params: import('k6/http').RefinedParams<'text'> }} Call
 * @typedef {import('k6/http').RefinedResponse<'text'>} Response
 * @typedef {{ key?: string, at?: number, timeout?: string, body?: object, headers?: Record<string, string> }} How
 */

// What is neither an answer of the contract nor a way to say "too busy" is a failed request to k6 as well.
http.setResponseCallback(http.expectedStatuses({ min: 200, max: 499 }, 503));

let turn = Math.floor(Math.random() * URLS.length);

/**
 * A request, to be sent by [send] or, with others at the same time, by [sendAll].
 * @param {Call['method']} method
 * @param {string} pattern of the path; it groups the figures
 * @param {string} path
 * @param {How} [how] `at`: the number of the process; left out, they take turns
 * @returns {Call}
 */
export function call(method, pattern, path, { key, at, timeout, body, headers } = {}) {
  /** @type {Record<string, string>} */
  const all = { Authorization: `Bearer ${TOKEN}`, ...headers };
  if (body !== undefined) {
    all['Content-Type'] = 'application/json';
  }
  if (key !== undefined) {
    all['Idempotency-Key'] = key;
  }
  return {
    method,
    url: URLS[(at ?? turn++) % URLS.length] + path,
    body: body === undefined ? null : JSON.stringify(body),
    params: { headers: all, tags: tagsOf(`${method} ${pattern}`), responseType: 'text', ...(timeout ? { timeout } : {}) },
  };
}

/**
 * @param {string} name
 * @returns {Record<string, string>}
 */
function tagsOf(name) {
  const inScenario = __VU > 0; // not in setup() and teardown()
  return inScenario && SLICES > 0 ? { name, slice: sliceOf(exec.scenario.progress) } : { name };
}

/** @param {Call} c */
export function send(c) {
  return http.request(c.method, c.url, c.body, c.params);
}

/**
 * Sends requests at the same time.
 * @param {Call[]} calls
 * @returns {Response[]}
 */
export function sendAll(calls) {
  return /** @type {Response[]} */ (http.batch(calls));
}

/**
 * @param {Order} order
 * @param {How} [how] the key is the order's name when left out
 */
export function deduct(order, how = {}) {
  return call('POST', '/v1/deductions', '/v1/deductions', { key: order.order_id, ...how, body: order });
}

/**
 * @param {string} id
 * @param {'commit' | 'release' | 'extend' | 'returns'} step
 * @param {How} [how]
 */
export function onDeduction(id, step, how) {
  return call('POST', `/v1/deductions/{id}/${step}`, `/v1/deductions/${id}/${step}`, how);
}

/** @param {string} id */
export function deductionCall(id) {
  return call('GET', '/v1/deductions/{id}', `/v1/deductions/${id}`);
}

/**
 * @param {string} sku
 * @param {How} [how]
 */
export function itemCall(sku, how) {
  return call('GET', '/v1/stock/{sku}', `/v1/stock/${encodeURIComponent(sku)}?location=default`, how);
}

/**
 * @param {string} sku
 * @param {How} [how] its body: the settings
 */
export function putItem(sku, how) {
  return call('PUT', '/v1/stock/{sku}', `/v1/stock/${encodeURIComponent(sku)}`, { body: {}, ...how });
}

/**
 * @param {string} sku
 * @param {{ kind: 'receive' | 'adjust' | 'count', reference: string, delta?: number, set_to?: number, expected_on_hand?: number }} change its reference is the key as well
 */
export function adjust(sku, change) {
  return call('POST', '/v1/stock/{sku}/adjustments', `/v1/stock/${encodeURIComponent(sku)}/adjustments`, { key: change.reference, body: change });
}

/**
 * @param {string} sku
 * @param {number} after this version
 */
export function movementsCall(sku, after) {
  return call('GET', '/v1/stock/{sku}/movements', `/v1/stock/${encodeURIComponent(sku)}/movements?limit=1000&after_version=${after}`);
}

/**
 * @template T
 * @param {Response} response
 * @returns {T}
 */
export function content(response) {
  return /** @type {T} */ (/** @type {unknown} */ (response.json()));
}

/** @param {Response} response */
export function isReplay(response) {
  return response.headers['Idempotent-Replayed'] === 'true';
}

/**
 * The problem that an answer tells, null when it tells none.
 * @param {Response} response
 * @returns {Problem | null}
 */
export function problemOf(response) {
  if (response.status < 400 || response.headers['Content-Type'] !== 'application/problem+json') {
    return null;
  }
  return content(response);
}

/**
 * The last part of a problem's type.
 * @param {Problem | null} problem
 */
export function nameOf(problem) {
  return problem ? problem.type.replace('urn:holdfast:problem:', '') : '';
}

/**
 * What an answer means:
 *   done     it has its effect, now or before
 *   refused  it has none, for a reason that the problem names
 *   shed     it has none, because too much is under way; it may be sent again after Retry-After
 *   unknown  nobody can say: send it again under the same key
 *   wrong    nothing that the contract knows
 * @param {Response} response
 * @returns {{ verdict: 'done' | 'refused' | 'shed' | 'unknown' | 'wrong', problem: Problem | null }}
 */
export function read(response) {
  if (response.status === 200 || response.status === 201) {
    return { verdict: 'done', problem: null };
  }
  if (response.status === 0) {
    return { verdict: 'unknown', problem: null };
  }
  const problem = problemOf(response);
  if (!problem || problem.status !== response.status || response.status === 500) {
    return { verdict: 'wrong', problem };
  }
  if (response.status === 503 || response.status === 429) {
    if (!(Number(response.headers['Retry-After']) >= 1)) {
      return { verdict: 'wrong', problem };
    }
    if (problem.outcome === 'none') {
      shed.add(1);
      return { verdict: 'shed', problem };
    }
  }
  return { verdict: problem.outcome === 'unknown' ? 'unknown' : 'refused', problem };
}

/**
 * Sends a request until its outcome is known. After an answer that leaves it open, only an effect settles it, or a refusal that comes when
 * nothing of the earlier ones can be under way any more.
 * @param {() => Call} make the request; always the same, under the same key
 * @param {boolean} [open] one was sent before whose outcome is not known
 * @returns {{ verdict: 'done' | 'refused' | 'shed' | 'wrong' | 'unresolved', response: Response, problem: Problem | null }}
 */
export function settle(make, open = false) {
  let openUntil = open ? Date.now() + LIFETIME * 1000 : 0;
  for (let pause = 0.1; ; pause *= 2) {
    const response = send(make());
    const { verdict, problem } = read(response);
    if (verdict === 'unknown') {
      openUntil = Date.now() + LIFETIME * 1000;
    } else if (verdict === 'done' || verdict === 'wrong' || openUntil === 0 || (verdict === 'refused' && Date.now() >= openUntil)) {
      return { verdict, response, problem };
    }
    if (pause > 10) {
      unresolved.add(1);
      return { verdict: 'unresolved', response, problem };
    }
    sleep(pause);
  }
}
