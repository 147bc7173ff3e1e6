/**
 * Question: does each hold end in one way, and is what is held at any time just what is promised?
 *
 * Scenario: holds come at RATE a second for DURATION seconds, on items that have not enough for all. Each goes one of these ways: committed, or
 * in part; released; extended and committed; committed and sent back; committed and released at the same moment, at two processes;
 * left to expire; committed in the very moment in which it expires; left open beyond the end of the run.
 *
 * It fails when
 *   - a hold ends in two ways, or not as it was answered, or an expired one is committed;
 *   - in the end an item holds more or less than the open holds come to;
 *   - an item's history goes below zero, holds more than there is, or is not what was acknowledged.
 *
 * Settings: ITEMS, STOCK (units of each), RATE (a second), DURATION (seconds).
 */
import { sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { note } from './lib/books.js';
import { content, deductionCall, nameOf, onDeduction, problemOf, send, sendAll, settle } from './lib/client.js';
import { number } from './lib/config.js';
import { audit } from './lib/invariants.js';
import { dice, newRun, orderName, skus, someSkus } from './lib/keys.js';
import { guard, judge } from './lib/metrics.js';
import { always, arrivals, common, latency } from './lib/options.js';
import { place } from './lib/orders.js';
import { stockUp } from './lib/stock.js';
import { summary } from './lib/summary.js';

/** @typedef {import('./lib/client.js').Deduction} Deduction */
/** @typedef {import('./lib/client.js').Response} Response */

const ITEMS = number('ITEMS', { full: 50, short: 5 });
const STOCK = number('STOCK', { full: 250, short: 60 });
const RATE = number('RATE', { full: 120, short: 80 });
const DURATION = number('DURATION', { full: 60, short: 2 });

/** Longer than any run. */
const OPEN = 24 * 3600;

const ended = new Counter('ended');

/** @type {Record<string, { seconds: number, end: (hold: Deduction) => Deduction | null }>} */
const WAYS = {
  committed: { seconds: 60, end: (hold) => step(hold, 'commit') },
  in_part: { seconds: 60, end: (hold) => step(hold, 'commit', { lines: [{ line: 1, quantity: 1 }] }) },
  released: { seconds: 60, end: (hold) => step(hold, 'release') },
  extended: { seconds: 60, end: (hold) => step(hold, 'extend', { hold_seconds: 90 }) && step(hold, 'commit') },
  returned: { seconds: 60, end: (hold) => step(hold, 'commit') && step(hold, 'returns', {}) },
  contested: { seconds: 60, end: contest },
  expired: { seconds: 1, end: expire },
  in_time: { seconds: 1, end: commitAtTheEnd },
  too_late: { seconds: 1, end: commitAtTheEnd },
  open: { seconds: OPEN, end: (hold) => hold },
};


/** @type {import('k6/options').Options} */
export const options = {
  ...common,
  scenarios: { holds: arrivals('hold', { rate: RATE, seconds: DURATION, vus: 200 }) },
  thresholds: {
    ...always,
    granted: [`count>${(RATE * DURATION) / 8}`],
    ...Object.fromEntries(Object.keys(WAYS).map((way) => [`ended{way:${way}}`, ['count>0']])),
    ...latency('POST /v1/deductions', number('P99', { full: 250, short: 250 })),
    ...latency('POST /v1/deductions/{id}/commit', number('P99', { full: 250, short: 250 })),
  },
};

export function setup() {
  const run = newRun('holds');
  stockUp(skus(run, ITEMS), STOCK);
  return { run };
}

/** @type {(data: { run: string }) => void} */
export const hold = guard(({ run }) => {
  const names = Object.keys(WAYS);
  const way = names[dice(0, names.length - 1)];
  const lines = someSkus(run, ITEMS, dice(1, 2)).map((sku) => ({ sku, quantity: dice(2, 3) }));
  const held = place({ order_id: orderName(run), lines, hold_seconds: WAYS[way].seconds });
  if (!held || !judge(held.state === 'held' && held.expires_at !== undefined, () => `a hold is ${JSON.stringify(held)}`)) {
    return;
  }
  const end = WAYS[way].end(held);
  if (end) {
    note(end);
    ended.add(1, { way });
  }
});

/** The states that may come of each step. @type {Record<string, string>} */
const AFTER = { commit: 'committed', release: 'released', extend: 'held', returns: 'returned' };

/**
 * Takes a step that must succeed.
 * @param {Deduction} hold
 * @param {'commit' | 'release' | 'extend' | 'returns'} name
 * @param {object} [body]
 * @returns {Deduction | null}
 */
function step(hold, name, body) {
  const { response } = settle(() => onDeduction(hold.id, name, { key: `${name}-${hold.id}`, body }));
  /** @type {Deduction} */
  const after = content(response);
  const right = response.status === (name === 'returns' ? 201 : 200) && after.state === AFTER[name];
  return judge(right, () => `${name} of a hold was answered ${response.status} ${response.body}`) ? after : null;
}

/**
 * Commits and releases at the same moment: one of them happens, the other is told so.
 * @param {Deduction} hold
 */
function contest(hold) {
  const answers = sendAll([onDeduction(hold.id, 'commit'), onDeduction(hold.id, 'release')]);
  const done = answers.filter(({ status }) => status === 200);
  const end = look(hold);
  const right = done.length === 1 && done[0].json('state') === end.state &&
    answers.every((answer) => answer.status === 200 || nameOf(problemOf(answer)) === 'wrong-state');
  return judge(right, () => `commit and release at once: ${answers.map(({ body }) => body)}`) ? end : null;
}

/**
 * Waits until a hold has expired and the ledger has written that down.
 * @param {Deduction} hold
 */
function expire(hold) {
  sleepUntil(hold, 0);
  for (let n = 0; n < 200; n++) {
    const end = look(hold);
    if (end.state !== 'held' && end.revision > hold.revision) {
      return judge(end.state === 'expired', () => `a hold that was left alone is ${end.state}`) ? end : null;
    }
    sleep(0.1);
  }
  judge(false, () => `hold ${hold.id} has not expired`);
  return null;
}

/**
 * Commits within a few milliseconds of the end: in time, or refused as expired, and then really so.
 * @param {Deduction} hold
 */
function commitAtTheEnd(hold) {
  sleepUntil(hold, dice(-15, 10));
  const { verdict, response, problem } = settle(() => onDeduction(hold.id, 'commit'));
  if (verdict === 'done') {
    const end = expiryIsOver(hold);
    return judge(end.state === 'committed', () => `a commit was acknowledged, and the hold is ${JSON.stringify(end)}`) ? end : null;
  }
  return judge(nameOf(problem) === 'hold-expired', () => `a commit at the end was answered ${response.status} ${response.body}`) ? expire(hold) : null;
}

/**
 * What a hold is once nobody can be about to end it any more.
 * @param {Deduction} hold
 */
function expiryIsOver(hold) {
  sleepUntil(hold, 1500);
  return look(hold);
}

/**
 * @param {Deduction} hold
 * @param {number} more milliseconds after it expires
 */
function sleepUntil(hold, more) {
  const left = Date.parse(/** @type {string} */ (hold.expires_at)) + more - Date.now();
  sleep(Math.max(0, left) / 1000);
}

/**
 * @param {Deduction} hold
 * @returns {Deduction}
 */
function look(hold) {
  return content(send(deductionCall(hold.id)));
}

/** @param {{ run: string }} data */
export function teardown({ run }) {
  audit(run, skus(run, ITEMS));
}

export const handleSummary = summary('holds');
