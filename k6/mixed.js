/**
 * Question: do figures stay right when everything that a shop does happens at once on the same items?
 *
 * Scenario: on ITEMS items with little of each, for DURATION seconds: sales at RATE a second; besides, each at a tenth of that: holds that are committed or
 * released, sales that come back, deliveries, stocktakes that set a figure, and readers. Two items are wanted more than all others; somebody at each process
 * orders a billion of them all along, and looks at what the refusal says.
 *
 * It fails when
 *   - any answer is not what the contract has for it, a refusal is not for a lack of stock, or a stocktake overwrites a sale;
 *   - an item is ever seen below zero, is answered as unchanged when it is not, or is refused on older news than one process gave before;
 *   - an item's history has a gap, does not sum up to its figures, or is not what was acknowledged.
 *
 * Settings: ITEMS, STOCK (units of each), RATE (a second), DURATION (seconds), P99 (milliseconds).
 */
import { number, SHORT } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { newRun, skus } from './lib/keys.js';
import { guard } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import * as shop from './lib/shop.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const ITEMS = number('ITEMS', { full: 100, short: 5 });
const STOCK = number('STOCK', { full: 100, short: 20 });
const RATE = number('RATE', { full: 300, short: 80 });
const DURATION = number('DURATION', { full: 60, short: 2 });

const P99 = number('P99', { full: 250, short: 250 });

/** Of a short run's few holds it may be that none is released. */
const STEPS = SHORT ? [] : ['commit', 'release', 'returns'];

/** @param {string} what */
const atATenth = (what) => arrivals(what, { rate: RATE / 10, seconds: DURATION, vus: 50 });

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: {
    sales: arrivals('sell', { rate: RATE, seconds: DURATION, vus: 100 }),
    holds: atATenth('checkOut'),
    returns: atATenth('sellAndReturn'),
    deliveries: atATenth('restock'),
    stocktakes: atATenth('count'),
    readers: atATenth('browse'),
    greedy: { executor: 'constant-vus', exec: 'greed', vus: 2, duration: `${DURATION}s` },
  },
  thresholds: {
    ...always,
    granted: [`count>${ITEMS * STOCK / 8}`],
    refused: ['count>0'],
    ...latency('POST /v1/deductions', P99),
    ...Object.assign({}, ...STEPS.map((step) => latency(`POST /v1/deductions/{id}/${step}`, P99))),
    ...latency('POST /v1/stock/{sku}/adjustments', P99),
    ...latency('GET /v1/stock/{sku}', P99),
  },
};

export function setup() {
  const run = newRun('mixed');
  const items = skus(run, ITEMS);
  stockUp(items, STOCK);
  return { run, items };
}

/** @typedef {ReturnType<typeof setup>} Data */

/** @param {(run: string, items: string[]) => void} what */
const iteration = (what) => guard((/** @type {Data} */ { run, items }) => what(run, items));

export const sell = iteration(shop.sell);
export const checkOut = iteration(shop.checkOut);
export const sellAndReturn = iteration(shop.sellAndReturn);
export const restock = iteration(shop.restock);
export const count = iteration(shop.count);
export const browse = iteration(shop.browse);
export const greed = iteration(shop.greed);

/** @param {Data} data */
export function teardown({ run, items }) {
  audit(run, items);
}

export const handleSummary = summary('mixed');
