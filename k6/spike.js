/**
 * Question: when far more comes than can be done, is the rest turned away early and politely, is nothing lost that was acknowledged, and is it over
 * when the rush is over?
 *
 * Scenario: orders come at BASE a second, then within seconds at PEAK, stay there, and fall back to BASE. During the rush others send orders of a thousand
 * lines, so that requests run out of time while they are being written. An order that is turned away is given up; one whose outcome is open is sent again
 * until it is known. The service must be one that this overloads: `make load` lets it have at most 64 requests under way (HOLDFAST_MAX_IN_FLIGHT) and each
 * take half a second at most (HOLDFAST_REQUEST_DEADLINE).
 *
 * It fails when
 *   - nothing is turned away, or not by 503 with Retry-After and "nothing happened";
 *   - an order that was acknowledged is not in the ledger, or one that was turned away is;
 *   - afterwards orders are still turned away, or slow.
 *
 * Settings: BASE, PEAK (orders a second), STAGE (seconds of each of the five stages), ITEMS, VUS, P99 (milliseconds, after the rush).
 */
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';
import { number, SHORT } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { dice, newRun, orderName, skuOf, skus, someSkus } from './lib/keys.js';
import { guard } from './lib/metrics.js';
import { always, common, latency } from './lib/options.js';
import { buy } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

const BASE = number('BASE', { full: 200, short: 50 });
const PEAK = number('PEAK', { full: 20_000, short: 3000 });
const STAGE = number('STAGE', { full: 10, short: 1 });
const ITEMS = number('ITEMS', { full: 100, short: 10 });
const VUS = number('VUS', { full: 1000, short: 150 });
const ENOUGH = 10_000_000;

/** How many send orders of LINES lines: more than can be written in time. */
const BULK = 24;
const LINES = 1000;

/** Of the five stages, the last one shows whether the rush is over; it may begin with what the one before left. */
const STAGES = [BASE, PEAK, PEAK, BASE, BASE];
const RECOVERED = 4.2 / STAGES.length;

const grantedAfterwards = new Counter('granted_afterwards');
const turnedAwayAfterwards = new Counter('turned_away_afterwards');
const orderAfterwards = new Trend('order_duration_afterwards', true);

// An order that finds no free client is not sent at all: that is what a rush is, so iterations may be dropped here.
const { dropped_iterations: _, ...thresholds } = always;

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: {
    orders: {
      executor: 'ramping-arrival-rate', exec: 'order', startRate: BASE, timeUnit: '1s', preAllocatedVUs: VUS, maxVUs: VUS,
      stages: STAGES.map((target) => ({ target, duration: `${STAGE}s` })),
    },
    bulk: { executor: 'constant-vus', exec: 'bulk', vus: BULK, startTime: `${STAGE}s`, duration: `${2 * STAGE}s` },
  },
  thresholds: {
    ...thresholds,
    shed: ['count>0'],
    refused: ['count==0'],
    granted: [`count>${BASE * STAGE}`],
    granted_afterwards: [`count>${(BASE * STAGE) / 8}`],
    ...(SHORT ? {} : { turned_away_afterwards: ['count==0'] }), // a short run may meet another rush on its machine
    ...latency('POST /v1/deductions', 5000), // in the rush, too, everybody is answered, if only to be turned away
    order_duration_afterwards: [`p(99)<${number('P99', { full: 100, short: 30_000 })}`],
  },
};

export function setup() {
  const run = newRun('spike');
  stockUp(skus(run, ITEMS), ENOUGH);
  return { run };
}

/** @type {(data: { run: string }) => void} */
export const order = guard(({ run }) => {
  const afterwards = exec.scenario.progress >= RECOVERED;
  const began = Date.now();
  const items = someSkus(run, ITEMS, dice(1, 3));
  const granted = buy({ order_id: orderName(run), lines: items.map((sku) => ({ sku, quantity: 1 })) });
  if (afterwards) {
    orderAfterwards.add(Date.now() - began);
    (granted ? grantedAfterwards : turnedAwayAfterwards).add(1);
  }
});

/** @type {(data: { run: string }) => void} */
export const bulk = guard(({ run }) => {
  const lines = Array.from({ length: LINES }, (_, n) => ({ sku: skuOf(run, n % ITEMS), quantity: 1 }));
  buy({ order_id: orderName(run), lines });
});

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, skus(run, ITEMS));
}

export const handleSummary = summary('spike');
