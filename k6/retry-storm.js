/**
 * Question: does a request have one effect, however often, from wherever and in whatever way it is repeated?
 *
 * Scenario: orders come at RATE a second for DURATION seconds. Each is sent one to five times under its key: at the same time at all processes, or one
 * after the other; every sixth order by a client that hangs up after a few milliseconds; every fifth with a rival of another
 * body under the same key. Afterwards it is sent once more, and once under another key. The items run out on the way, so that a retry of whoever took the
 * last unit meets "sold out".
 *
 * It fails when
 *   - two answers to one key name two deductions, or a key serves two bodies, or an order has two deductions;
 *   - an order that was granted is refused later;
 *   - the ledger has another movement than one for each order that was granted.
 *
 * Settings: ITEMS, STOCK (units of each), RATE (orders a second), DURATION (seconds).
 */
import { note } from './lib/books.js';
import { content, deduct, isReplay, nameOf, problemOf, read, sendAll, settle } from './lib/client.js';
import { number } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { dice, newRun, orderName, skuOf, skus } from './lib/keys.js';
import { granted, guard, judge, refused, replayed, unitsSold } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { isFor, isShort } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

/** @typedef {import('./lib/client.js').Order} Order */
/** @typedef {import('./lib/client.js').Deduction} Deduction */
/** @typedef {import('./lib/client.js').Response} Response */

const ITEMS = number('ITEMS', { full: 20, short: 4 });
const STOCK = number('STOCK', { full: 400, short: 30 });
const RATE = number('RATE', { full: 150, short: 80 });
const DURATION = number('DURATION', { full: 60, short: 2 });

// Clients that hang up have no answer, which is not the service's failure.
const { http_req_failed: _, ...thresholds } = always;

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: { orders: arrivals('storm', { rate: RATE, seconds: DURATION, vus: 400 }) },
  thresholds: {
    ...thresholds,
    granted: [`count>${(ITEMS * STOCK) / 8}`],
    refused: ['count>0'],
    replayed: [`count>${(RATE * DURATION) / 8}`],
    ...latency('POST /v1/deductions', number('P99', { full: 250, short: 250 })),
  },
};

export function setup() {
  const run = newRun('retry-storm');
  stockUp(skus(run, ITEMS), STOCK);
  return { run };
}

/** @type {(data: { run: string }) => void} */
export const storm = guard(({ run }) => {
  /** @type {Order} */
  const order = { order_id: orderName(run), lines: [{ sku: skuOf(run, dice(0, ITEMS - 1)), quantity: dice(1, 3) }] };
  const rival = dice(1, 5) === 1 ? { ...order, lines: [{ ...order.lines[0], quantity: 4 }] } : null;
  /** @type {Set<string>} */
  const ids = new Set();
  const together = dice(1, 2) === 1;
  const answers = sendSeveral(order, rival, together);
  answers.forEach(([sent, response]) => judgeAnswer(sent, response, { ids, together, contested: rival !== null }));
  const open = answers.some(([, response]) => read(response).verdict === 'unknown');
  const winner = conclude(order, rival, { ids, open });
  if (!winner) {
    refused.add(1);
    return;
  }
  note(winner);
  granted.add(1);
  unitsSold.add(winner.lines[0].quantity);
  anotherKey(order, winner);
});

/**
 * @param {Order} order
 * @param {Order | null} rival
 * @param {boolean} together at the same time
 * @returns {[Order, Response][]} each order that was sent, and its answer
 */
function sendSeveral(order, rival, together) {
  const sent = Array.from({ length: dice(1, 5) }, () => order);
  if (rival) {
    sent.splice(dice(0, sent.length), 0, rival);
  }
  const hangsUp = dice(1, 6) === 1;
  const calls = sent.map((body) => deduct(body, hangsUp ? { timeout: `${dice(1, 8)}ms` } : {}));
  const answers = together ? sendAll(calls) : calls.flatMap((call) => sendAll([call]));
  return answers.map((answer, n) => [sent[n], answer]);
}

/**
 * @param {Order} order
 * @param {Response} response
 * @param {{ ids: Set<string>, together: boolean, contested: boolean }} about `ids`: of the deductions that its key was answered with
 */
function judgeAnswer(order, response, { ids, together, contested }) {
  const { verdict, problem } = read(response);
  if (verdict === 'unknown' || verdict === 'shed') {
    return;
  }
  // Of those that came together, one may have been refused while units were on their way to others, and another granted when they came back.
  let right = ((ids.size === 0 || together) && isShort(order, problem)) || (contested && nameOf(problem) === 'idempotency-key-reused');
  if (verdict === 'done') {
    /** @type {Deduction} */
    const deduction = content(response);
    right = response.status === 201 && isFor(deduction, order) && ids.add(deduction.id).size === 1;
    if (isReplay(response)) replayed.add(1);
  }
  judge(right, () => `order ${order.order_id}, sent several times, was answered ${response.status} ${response.body}; before: ${[...ids]}`);
}

/**
 * Sends everything once more until it is known which body has the key, if any.
 * @param {Order} order
 * @param {Order | null} rival
 * @param {{ ids: Set<string>, open: boolean }} before `open`: some were not answered and may be under way still
 * @returns {Deduction | null}
 */
function conclude(order, rival, { ids, open }) {
  /** @type {Deduction | null} */
  let winner = null;
  for (const body of rival ? [order, rival] : [order]) {
    const { verdict, response, problem } = settle(() => deduct(body), open);
    const told = () => `order ${order.order_id}, sent once more, was answered ${response.status} ${response.body}; before: ${[...ids]}`;
    if (verdict === 'done') {
      /** @type {Deduction} */
      const deduction = content(response);
      if (judge(isFor(deduction, body) && ids.add(deduction.id).size === 1, told)) winner = deduction;
    } else if (verdict !== 'unresolved') {
      const lost = rival !== null && nameOf(problem) === 'idempotency-key-reused' && (winner !== null || body === order);
      judge(lost || (ids.size === 0 && isShort(body, problem)), told);
    }
  }
  return winner;
}

/**
 * The same order under another key is refused, and told which deduction it has.
 * @param {Order} order
 * @param {Deduction} winner
 */
function anotherKey(order, winner) {
  const { response } = settle(() => deduct(order, { key: `${order.order_id}-again` }));
  const problem = problemOf(response);
  judge(nameOf(problem) === 'order-already-deducted' && response.json('deduction_id') === winner.id, () =>
    `order ${order.order_id} under another key was answered ${response.status} ${response.body}`);
}

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, skus(run, ITEMS));
}

export const handleSummary = summary('retry-storm');
