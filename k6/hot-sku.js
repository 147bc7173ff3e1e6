/**
 * Question: when far more buyers than there are units want one item at once, are exactly these units sold?
 *
 * Scenario: an item with STOCK units. Buyers come at RATE a second for DURATION seconds, whatever the answers take, and order one unit; every
 * tenth orders two, as two lines. All along somebody else looks at the item. What nobody bought in the end is bought out.
 *
 * It fails when
 *   - not exactly STOCK units are acknowledged as sold, or an answer is neither a sale nor a refusal that names all short lines and what is left;
 *   - the item is ever seen below zero, or its version going back;
 *   - the ledger has other movements than those that were acknowledged, a gap in the versions, or a sum that is not the figure;
 *   - buyers could not be sent at their time, or waited too long.
 *
 * Settings: STOCK, RATE (a second), DURATION (seconds), P99 (milliseconds).
 */
import { sleep } from 'k6';
import { content, itemCall, send } from './lib/client.js';
import { number } from './lib/config.js';
import { audit, watcher } from './lib/invariants.js';
import { dice, newRun, orderName, skus } from './lib/keys.js';
import { guard } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { buy } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const STOCK = number('STOCK', { full: 1000, short: 100 });
const RATE = number('RATE', { full: 1200, short: 300 });
const DURATION = number('DURATION', { full: 90, short: 2 });

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: {
    buyers: arrivals('order', { rate: RATE, seconds: DURATION, vus: 300 }),
    watcher: { executor: 'constant-vus', exec: 'watch', vus: 1, duration: `${DURATION}s` },
  },
  thresholds: {
    ...always,
    units_sold: [`count==${STOCK}`],
    refused: [`count>${(RATE * DURATION) / 4}`],
    ...latency('POST /v1/deductions', number('P99', { full: 100, short: 100 })),
    'http_reqs{name:GET /v1/stock/{sku}}': [`count>${DURATION}`],
  },
};

export function setup() {
  const run = newRun('hot-sku');
  const [sku] = skus(run, 1);
  stockUp([sku], STOCK);
  return { run, sku };
}

/** @type {(data: { run: string, sku: string }) => void} */
export const order = guard(({ run, sku }) => {
  const line = { sku, quantity: 1 };
  buy({ order_id: orderName(run), lines: dice(1, 10) === 1 ? [line, line] : [line] });
});

/** @type {ReturnType<typeof watcher> | undefined} */
let look;

/** @type {(data: { sku: string }) => void} */
export const watch = guard(({ sku }) => {
  look ??= watcher(sku);
  look(content(send(itemCall(sku))));
  sleep(0.01);
});

/** @param {{ run: string, sku: string }} data */
export function teardown({ run, sku }) {
  /** @type {import('./lib/client.js').Levels} */
  const { available } = content(send(itemCall(sku)));
  if (available > 0) {
    buy({ order_id: `${run}-rest`, lines: [{ sku, quantity: available }] });
  }
  audit(run, [sku], ([item]) => (item.on_hand === 0 ? [] : [`${item.on_hand} of ${STOCK} units were not sold to anybody`]));
}

export const handleSummary = summary('hot-sku');
