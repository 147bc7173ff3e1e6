/**
 * Question: does a log of real orders come out right?
 *
 * Scenario: the orders of a CSV file with the columns invoice, stock_code, quantity and at, in their order, at RATE a second. All lines of an
 * invoice are one order. An invoice that begins with C is a cancellation: its goods, whose quantities are negative, are received again. Other lines
 * without a positive quantity, which are corrections of stock, are left out. Of each item there are so many units as all orders together want, times
 * FACTOR.
 *
 * It fails when
 *   - an order or a cancellation of the log was not sent, or answered in another way than the contract allows;
 *   - with FACTOR 1 or more, an order is refused; below, none is;
 *   - an item's history does not sum up, goes below zero, or is not what was acknowledged.
 *
 * Settings: ORDERS (the file, seen from here; a small invented one when left out), FACTOR, RATE (invoices a second), LIMIT (invoices).
 */
import exec from 'k6/execution';
import { SharedArray } from 'k6/data';
import { Counter } from 'k6/metrics';
import { noteMovement } from './lib/books.js';
import { adjust, content, settle } from './lib/client.js';
import { number, SHORT } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { newRun } from './lib/keys.js';
import { guard, judge } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { buy } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

/** @typedef {{ invoice: string, lines: { sku: string, quantity: number }[] }} Invoice */

const RATE = number('RATE', { full: 200, short: 150 });
const FACTOR = number('FACTOR', { full: 0.9, short: 0.9 });
const LIMIT = number('LIMIT', { full: 1_000_000, short: 250 });

const log = new SharedArray('invoices', () => invoices(open(__ENV.ORDERS || './data/orders.csv')).slice(0, LIMIT));

/** A little longer than the log at its rate: every invoice has its turn, and every part of the run has invoices. */
const SECONDS = Math.ceil((1.02 * log.length) / RATE * 1000) / 1000;

const sent = new Counter('invoices_sent');

/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: { invoices: arrivals('replay', { rate: RATE, seconds: SECONDS, vus: SHORT ? log.length : 150 }) },
  thresholds: {
    ...always,
    dropped_iterations: ['count==0'], // each stands for an invoice
    invoices_sent: [`count==${log.length}`],
    granted: [`count>${log.length / 2}`],
    refused: [FACTOR < 1 ? 'count>0' : 'count==0'],
    ...latency('POST /v1/deductions', number('P99', { full: 250, short: 250 })),
  },
};

/**
 * Reads the log: all lines of an invoice as one, in the order of the invoices' first lines.
 * @param {string} text
 * @returns {Invoice[]}
 */
function invoices(text) {
  /** @type {Map<string, Invoice>} */
  const all = new Map();
  for (const row of text.trim().split('\n').slice(1)) {
    const [invoice, sku, quantity] = row.split(',');
    const units = Number(quantity) * (invoice.startsWith('C') ? -1 : 1);
    if (!Number.isInteger(units)) {
      throw new Error(`${row}: not a line of an order`);
    }
    if (units > 0) {
      const known = all.get(invoice) ?? { invoice, lines: [] };
      known.lines.push({ sku, quantity: units });
      all.set(invoice, known);
    }
  }
  return [...all.values()];
}

export function setup() {
  const run = newRun('replay');
  /** @type {Map<string, number>} */
  const wanted = new Map();
  for (const { invoice, lines } of log) {
    for (const { sku, quantity } of lines) {
      wanted.set(sku, (wanted.get(sku) ?? 0) + (invoice.startsWith('C') ? 0 : quantity));
    }
  }
  const skus = [...wanted.keys()].map((sku) => `${run}-${sku}`);
  stockUp(skus, (name) => Math.max(1, Math.floor((wanted.get(name.slice(run.length + 1)) ?? 0) * FACTOR)));
  return { run, skus };
}

/** @typedef {ReturnType<typeof setup>} Data */

/** @type {(data: Data) => void} */
export const replay = guard(({ run }) => {
  const entry = log[exec.scenario.iterationInTest];
  if (!entry) {
    return; // the run is a little longer than the log
  }
  const lines = entry.lines.map(({ sku, quantity }) => ({ sku: `${run}-${sku}`, quantity }));
  if (entry.invoice.startsWith('C')) {
    lines.forEach(({ sku, quantity }, n) => receive(sku, quantity, `${run}-${entry.invoice}-${n}`));
  } else {
    buy({ order_id: `${run}-${entry.invoice}`, lines });
  }
  sent.add(1);
});

/**
 * @param {string} sku
 * @param {number} units
 * @param {string} reference
 */
function receive(sku, units, reference) {
  const { verdict, response } = settle(() => adjust(sku, { kind: 'receive', delta: units, reference }));
  if (judge(verdict === 'done', () => `${units} units of ${sku} that came back were answered ${response.status} ${response.body}`)) {
    noteMovement(sku, content(response).movement);
  }
}

/** @param {Data} data */
export function teardown({ run, skus }) {
  audit(run, skus);
}

export const handleSummary = summary('replay');
