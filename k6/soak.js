/**
 * Question: does it stay right and fast for as long as it runs?
 *
 * Scenario: for DURATION seconds sales at RATE a second, of which every fourth is a hold that is committed or released, and deliveries that make up for
 * them. Somebody audits the history of every item all along, while it grows.
 *
 * It fails when
 *   - any answer is wrong, or an item's history has a gap, goes below zero or does not sum up, at any time;
 *   - the last third of the run is slower than the limit, even if the first was not;
 *   - the ledger is not what was acknowledged in the end.
 *
 * Settings: ITEMS, STOCK (units of each), RATE (a second), DURATION (seconds), P99 (milliseconds).
 */
import { sleep } from 'k6';
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';
import { number } from './lib/config.js';
import { audit, follow } from './lib/invariants.js';
import { dice, newRun, skus } from './lib/keys.js';
import { guard, judge } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import * as shop from './lib/shop.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const ITEMS = number('ITEMS', { full: 200, short: 5 });
const STOCK = number('STOCK', { full: 1000, short: 200 });
const RATE = number('RATE', { full: 200, short: 60 });
const DURATION = number('DURATION', { full: 1800, short: 3 });
const P99 = number('P99', { full: 100, short: 30_000 });

const orderDuration = new Trend('order_duration', true);
const audits = new Counter('audits');

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: {
    sales: arrivals('order', { rate: RATE, seconds: DURATION, vus: 100 }),
    deliveries: arrivals('restock', { rate: RATE / 4, seconds: DURATION, vus: 20 }),
    auditor: { executor: 'constant-vus', exec: 'check', vus: 1, duration: `${DURATION}s` },
  },
  thresholds: {
    ...always,
    granted: [`count>${(RATE * DURATION) / 4}`],
    audits: ['count>0'],
    ...latency('POST /v1/deductions', P99),
    ...Object.fromEntries(['first', 'middle', 'last'].map((third) => [`order_duration{third:${third}}`, [`p(99)<${P99}`]])),
  },
};

export function setup() {
  const run = newRun('soak');
  const items = skus(run, ITEMS);
  stockUp(items, STOCK);
  return { run, items };
}

/** @typedef {ReturnType<typeof setup>} Data */

/** @type {(data: Data) => void} */
export const order = guard(({ run, items }) => {
  const third = ['first', 'middle', 'last'][Math.min(2, Math.floor(exec.scenario.progress * 3))];
  const began = Date.now();
  (dice(1, 4) === 1 ? shop.checkOut : shop.sell)(run, items);
  orderDuration.add(Date.now() - began, { third });
});

/** @type {(data: Data) => void} */
export const restock = guard(({ run, items }) => shop.restock(run, items));

/** @type {ReturnType<typeof follow>[]} */
let histories = [];

/** @type {(data: Data) => void} */
export const check = guard(({ items }) => {
  if (histories.length === 0) {
    histories = items.map(follow);
  }
  const history = histories[exec.vu.iterationInScenario % histories.length];
  history.readOn();
  judge(history.wrong.length === 0, () => history.wrong.join('; '));
  audits.add(1);
  sleep(0.1);
});

/** @param {Data} data */
export function teardown({ run, items }) {
  audit(run, items);
}

export const handleSummary = summary('soak');
