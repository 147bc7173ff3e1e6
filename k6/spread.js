/**
 * Question: are orders of several lines across many items taken whole, each once, without deadlock or delay?
 *
 * Scenario: ITEMS items with more of each than will be asked for. Orders of one to five lines, in any order of the items, come at RATE a second for
 * DURATION seconds, whatever the answers take. Besides, somebody orders from a whole shelf at one process, while others order single items of it at
 * another one: the news of both reach the gate at the same time, in any order.
 *
 * It fails when
 *   - an order is not granted just as it was asked for;
 *   - the gate is left with the older of two figures;
 *   - any item's history has a gap, goes below zero or does not sum up to its figures, or is not what was acknowledged;
 *   - orders could not be sent at their time, or waited too long.
 *
 * Settings: ITEMS, RATE (a second), DURATION (seconds), P99 (milliseconds).
 */
import { sleep } from 'k6';
import { Rate } from 'k6/metrics';
import { note } from './lib/books.js';
import { content, deduct, explainCall, read, send, sendAll, settle } from './lib/client.js';
import { number } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { dice, newRun, orderName, skus, some } from './lib/keys.js';
import { guard, judge } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { buy } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const ITEMS = number('ITEMS', { full: 10_000, short: 100 });
const RATE = number('RATE', { full: 1000, short: 150 });
const DURATION = number('DURATION', { full: 60, short: 2 });
const ENOUGH = 1_000_000;

/** Items on the shelf, and how many of them others want at the same time. */
const SHELF = 300;
const WANTED = 10;

/** So little that the gate has to be asked, and enough for all that come. */
const SCARCE = 900;
const MOST = 100; // seconds

const leftBehind = new Rate('left_behind');

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: {
    orders: arrivals('order', { rate: RATE, seconds: DURATION, vus: 200 }),
    shelf: { executor: 'constant-vus', exec: 'clear', vus: 1, duration: `${Math.min(DURATION, MOST)}s` },
  },
  thresholds: {
    ...always,
    granted: [`count>${(RATE * DURATION) / 4}`],
    refused: ['count==0'],
    left_behind: ['rate<0.02'], // news may get lost as well, when the gate is slow
    ...latency('POST /v1/deductions', number('P99', { full: 100, short: 100 })),
  },
};

export function setup() {
  const run = newRun('spread');
  stockUp([...skus(run, ITEMS), ...shelf(run)], (sku) => (sku.startsWith(`${run}-shelf`) ? SCARCE : ENOUGH));
  return { run };
}

/** @type {string[] | undefined} */
let items;

/** @type {(data: { run: string }) => void} */
export const order = guard(({ run }) => {
  items ??= skus(run, ITEMS);
  buy({ order_id: orderName(run), lines: some(items, dice(1, 5)).map((sku) => ({ sku, quantity: dice(1, 3) })) });
});

/** @param {string} run */
const shelf = (run) => skus(`${run}-shelf`, SHELF);

/** @type {(data: { run: string }) => void} */
export const clear = guard(({ run }) => {
  const all = shelf(run);
  const wanted = some(all, WANTED);
  const name = orderName(run);
  /** @param {string[]} items @param {string} suffix */
  const orderOf = (items, suffix) => ({ order_id: `${name}${suffix}`, lines: items.map((sku) => ({ sku, quantity: 1 })) });
  const orders = [orderOf(all, ''), ...wanted.map((sku, n) => orderOf([sku], `-${n}`))];
  const answers = sendAll(orders.map((body, n) => deduct(body, { at: n === 0 ? 0 : 1 })));
  answers.forEach((answer, n) => {
    const { response } = read(answer).verdict === 'done' ? { response: answer } : settle(() => deduct(orders[n]), true);
    judge(response.status === 201, () => `an order from the shelf was answered ${response.status} ${response.body}`);
    note(content(response));
  });
  wanted.forEach((sku) => leftBehind.add(staysBehind(sku)));
  sleep(0.15);
});

/**
 * Whether the gate is left with an older figure than the ledger has, when nothing happens any more.
 * @param {string} sku
 */
function staysBehind(sku) {
  for (let tries = 0; tries < 10; tries++) {
    /** @type {{ gate: { state: string, behind?: number } }} */
    const { gate } = content(send(explainCall(sku)));
    if (gate.state !== 'known' || gate.behind === 0) {
      return false;
    }
    sleep(0.03);
  }
  return true;
}

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, [...skus(run, ITEMS), ...shelf(run)]);
}

export const handleSummary = summary('spread');
