/**
 * Question: are orders of several lines across many items taken whole, each once, without deadlock or delay?
 *
 * Scenario: ITEMS items with more of each than will be asked for. Orders of one to five lines, in any order of the items, come at RATE a second for
 * DURATION seconds, whatever the answers take.
 *
 * It fails when
 *   - an order is not granted just as it was asked for;
 *   - any item's history has a gap, goes below zero or does not sum up to its figures, or is not what was acknowledged;
 *   - orders could not be sent at their time, or waited too long.
 *
 * Settings: ITEMS, RATE (a second), DURATION (seconds), P99 (milliseconds).
 */
import { number } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { dice, newRun, orderName, skus, someSkus } from './lib/keys.js';
import { guard } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { buy } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const ITEMS = number('ITEMS', { full: 10_000, short: 100 });
const RATE = number('RATE', { full: 500, short: 150 });
const DURATION = number('DURATION', { full: 60, short: 2 });
const ENOUGH = 1_000_000;

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: { orders: arrivals('order', { rate: RATE, seconds: DURATION, vus: 200 }) },
  thresholds: {
    ...always,
    granted: [`count>${(RATE * DURATION) / 4}`],
    refused: ['count==0'],
    ...latency('POST /v1/deductions', number('P99', { full: 100, short: 100 })),
  },
};

export function setup() {
  const run = newRun('spread');
  stockUp(skus(run, ITEMS), ENOUGH);
  return { run };
}

/** @type {(data: { run: string }) => void} */
export const order = guard(({ run }) => {
  buy({ order_id: orderName(run), lines: someSkus(run, ITEMS, dice(1, 5)).map((sku) => ({ sku, quantity: dice(1, 3) })) });
});

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, skus(run, ITEMS));
}

export const handleSummary = summary('spread');
