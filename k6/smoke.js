/**
 * Question: does every call of the contract answer as it says?
 *
 * Scenario: one client, once: an item is made and filled, units are taken, refused, held, committed, released, extended and sent back, keys are used again,
 * and everything is looked up.
 *
 * It fails when
 *   - any answer is not what the contract says, or a step was not reached;
 *   - the item's history is not what was done.
 */
import { check } from 'k6';
import { Counter } from 'k6/metrics';
import { note, noteMovement } from './lib/books.js';
import { adjust, call, content, deduct, deductionCall, isReplay, itemCall, movementsCall, nameOf, onDeduction, problemOf, putItem, send } from './lib/client.js';
import { audit } from './lib/invariants.js';
import { newRun, skus } from './lib/keys.js';
import { guard, judge } from './lib/metrics.js';
import { always, common } from './lib/options.js';
import { summary } from './lib/summary.js';

/** @typedef {import('./lib/client.js').Call} Call */
/** @typedef {import('./lib/client.js').Deduction} Deduction */
/** @typedef {import('./lib/client.js').Response} Response */

const answers = new Counter('answers_checked');

/** How many answers the script checks; fewer mean that it did not get to its end. */
const ANSWERS = 32;

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: { everything: { executor: 'per-vu-iterations', exec: 'everything', vus: 1, iterations: 1, maxDuration: '1m' } },
  thresholds: {
    wrong_answers: always.wrong_answers,
    http_req_failed: always.http_req_failed,
    books: always.books,
    checks: ['rate==1'],
    answers_checked: [`count==${ANSWERS}`],
  },
};

/**
 * Sends a request, and checks the answer's status and what else must be true of it.
 * @param {string} what
 * @param {Call} request
 * @param {number} status
 * @param {(response: Response) => boolean} [also]
 * @returns {Response}
 */
function expect(what, request, status, also = () => true) {
  const response = send(request);
  const right = check(response, { [what]: (r) => r.status === status && also(r) });
  judge(right, () => `${what}: ${response.status} ${response.body}`);
  answers.add(1);
  return response;
}

/**
 * @param {string} what
 * @param {Call} request
 * @param {number} status
 * @param {string} problem
 * @param {(response: Response) => boolean} [also]
 */
function refuse(what, request, status, problem, also = () => true) {
  expect(what, request, status, (r) => nameOf(problemOf(r)) === problem && r.json('outcome') === 'none' && also(r));
}

export function setup() {
  return { run: newRun('smoke') };
}

/** @type {(data: { run: string }) => void} */
export const everything = guard(({ run }) => {
  const [sku] = skus(run, 1);
  shelf(run, sku);
  take(run, sku);
  holds(run, sku);
  settings(run, sku);
});

/** @param {string} run @param {string} sku */
function shelf(run, sku) {
  expect('a new item is empty', putItem(sku), 201, (r) => r.json('on_hand') === 0);
  const received = expect('goods are received', adjust(sku, { kind: 'receive', delta: 100, reference: `${run}-po` }), 201, (r) => r.json('item.on_hand') === 100);
  noteMovement(sku, content(received).movement);
  expect('they are received once', adjust(sku, { kind: 'receive', delta: 100, reference: `${run}-po` }), 201, (r) => isReplay(r));
  const item = expect('the item shows them', itemCall(sku), 200, (r) => r.json('available') === 100);
  expect('and has not changed since', itemCall(sku, { headers: { 'If-None-Match': item.headers.Etag } }), 304);
}

/** @param {string} run @param {string} sku */
function take(run, sku) {
  const order = { order_id: `${run}-a`, lines: [{ sku, quantity: 2 }, { sku, quantity: 3 }] };
  const sold = expect('an order is granted', deduct(order), 201, (r) => r.json('state') === 'committed' && r.json('items.0.available') === 95);
  const { id } = /** @type {Deduction} */ (content(sold));
  expect('its retry is the same deduction', deduct(order), 201, (r) => isReplay(r) && r.json('id') === id);
  refuse('its key serves no other order', deduct({ ...order, lines: [{ sku, quantity: 1 }] }), 422, 'idempotency-key-reused');
  refuse('the order is taken once', deduct(order, { key: `${run}-b` }), 409, 'order-already-deducted', (r) => r.json('deduction_id') === id);
  const greedy = { order_id: `${run}-c`, lines: [{ sku, quantity: 95 }, { sku, quantity: 1 }] };
  refuse('too much is refused, with every short line', deduct(greedy), 409, 'insufficient-stock', (r) => r.json('short.#') === 2 && r.json('short.1.requested') === 96);
  refuse('an unknown item is named', deduct({ order_id: `${run}-d`, lines: [{ sku: `${run}-none`, quantity: 1 }] }), 422, 'unknown-item');
  refuse('a key is needed', call('POST', '/v1/deductions', '/v1/deductions', { body: order }), 400, 'idempotency-key-missing');
  const back = expect('goods come back', onDeduction(id, 'returns', { key: `${run}-r`, body: { lines: [{ line: 1, quantity: 2 }, { line: 2, quantity: 3 }] } }), 201, (r) => r.json('state') === 'returned');
  refuse('but never more than went out', onDeduction(id, 'returns', { key: `${run}-r2`, body: { lines: [{ line: 1, quantity: 1 }] } }), 409, 'return-exceeds-deducted');
  note(content(back));
}

/** @param {string} run @param {string} sku */
function holds(run, sku) {
  /** @param {string} name */
  const hold = (name) => {
    const held = expect(`${name}: held`, deduct({ order_id: `${run}-${name}`, lines: [{ sku, quantity: 10 }], hold_seconds: 60 }), 201, (r) => r.json('state') === 'held');
    return /** @type {Deduction} */ (content(held)).id;
  };
  const paid = hold('paid');
  expect('what is held is not available', itemCall(sku), 200, (r) => r.json('held') === 10 && r.json('available') === 90);
  expect('a hold is extended', onDeduction(paid, 'extend', { body: { hold_seconds: 120 } }), 200, (r) => r.json('state') === 'held');
  const committed = expect('and committed', onDeduction(paid, 'commit'), 200, (r) => r.json('state') === 'committed' && r.json('items.0.on_hand') === 90);
  expect('twice is once', onDeduction(paid, 'commit'), 200, (r) => isReplay(r));
  refuse('then it cannot be released', onDeduction(paid, 'release'), 409, 'wrong-state');
  note(content(committed));
  const left = hold('left');
  const released = expect('another is released', onDeduction(left, 'release'), 200, (r) => r.json('state') === 'released' && r.json('items.0.held') === 0);
  refuse('then it cannot be committed', onDeduction(left, 'commit'), 409, 'wrong-state');
  note(content(released));
  expect('a deduction is found by its id', deductionCall(paid), 200, (r) => r.json('order_id') === `${run}-paid`);
  expect('and by its order', call('GET', '/v1/deductions', `/v1/deductions?order_id=${run}-paid`), 200, (r) => r.json('deductions.0.id') === paid);
}

/** @param {string} run @param {string} sku */
function settings(run, sku) {
  const count = /** @type {const} */ ({ kind: 'count', set_to: 80 });
  refuse('a figure is not set blindly', adjust(sku, { ...count, reference: `${run}-s1` }), 428, 'precondition-required');
  refuse('nor over another one', adjust(sku, { ...count, expected_on_hand: 91, reference: `${run}-s2` }), 412, 'precondition-failed', (r) => r.json('item.on_hand') === 90);
  const counted = expect('but over the one it replaces', adjust(sku, { ...count, expected_on_hand: 90, reference: `${run}-s3` }), 201, (r) => r.json('item.on_hand') === 80);
  noteMovement(sku, content(counted).movement);
  expect('a safety stock is kept back', putItem(sku, { body: { safety_stock: 80 } }), 200, (r) => r.json('available') === 0);
  refuse('from sales', deduct({ order_id: `${run}-e`, lines: [{ sku, quantity: 1 }] }), 409, 'insufficient-stock');
  expect('until it is lifted', putItem(sku, { body: {} }), 200, (r) => r.json('available') === 80);
  expect('the history has it all', movementsCall(sku, 0), 200, (r) => r.json('movements.#') === 12);
}

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, skus(run, 1));
}

export const handleSummary = summary('smoke');
