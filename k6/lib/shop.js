/** What goes on in a shop beside plain orders: the iterations of mixed.js and soak.js. */
import { sleep } from 'k6';
import exec from 'k6/execution';
import { noteMovement, note } from './books.js';
import { adjust, call, content, deduct, itemCall, nameOf, onDeduction, problemOf, send, settle } from './client.js';
import { impossible } from './invariants.js';
import { dice, orderName, some } from './keys.js';
import { judge } from './metrics.js';
import { buy, isShort, place } from './orders.js';

/** @typedef {import('./client.js').Deduction} Deduction */
/** @typedef {import('./client.js').Levels} Levels */
/** @typedef {import('./client.js').Movement} Movement */

/** So many items are those that everybody wants. */
const HOT = 2;

/**
 * One to three lines of different items, half of the time of the hot ones only.
 * @param {string[]} items
 */
function lines(items) {
  return some(dice(1, 2) === 1 ? items.slice(0, HOT) : items, dice(1, 3)).map((sku) => ({ sku, quantity: dice(1, 4) }));
}

/**
 * @param {string} run
 * @param {string[]} items
 */
export function sell(run, items) {
  buy({ order_id: orderName(run), lines: lines(items) });
}

/**
 * Holds, then pays or walks away.
 * @param {string} run
 * @param {string[]} items
 */
export function checkOut(run, items) {
  const hold = place({ order_id: orderName(run), lines: lines(items), hold_seconds: 300 });
  if (hold) {
    finish(hold, dice(1, 4) === 1 ? 'release' : 'commit', 200);
  }
}

/**
 * Sells, and takes everything back.
 * @param {string} run
 * @param {string[]} items
 */
export function sellAndReturn(run, items) {
  const sold = place({ order_id: orderName(run), lines: lines(items) });
  if (sold) {
    finish(sold, 'returns', 201);
  }
}

/**
 * @param {Deduction} deduction
 * @param {'commit' | 'release' | 'returns'} step
 * @param {number} status
 */
function finish(deduction, step, status) {
  const { response } = settle(() => onDeduction(deduction.id, step, { key: `${step}-${deduction.id}` }));
  if (judge(response.status === status, () => `${step} was answered ${response.status} ${response.body}`)) {
    note(content(response));
  }
}

/** @type {Map<string, number>} */
const seen = new Map();

/**
 * Orders more than there can be, again and again at one process. What it is refused with is news of the item that never goes back: whatever a
 * process has told, the gate has been told before.
 * @param {string} run
 * @param {string[]} items
 */
export function greed(run, items) {
  const sku = items[dice(0, Math.min(items.length, HOT) - 1)];
  const order = { order_id: orderName(run), lines: [{ sku, quantity: 1_000_000_000 }] };
  const response = send(deduct(order, { at: exec.vu.idInTest }));
  const problem = problemOf(response);
  sleep(0.01);
  if (response.status === 503) {
    return;
  }
  const version = problem?.short?.[0]?.version ?? 0;
  const last = seen.get(sku) ?? 0;
  judge(isShort(order, problem) && version >= last, () => `an order of a billion, after version ${last}, was answered ${response.status} ${response.body}`);
  seen.set(sku, Math.max(last, version));
}

/**
 * A delivery.
 * @param {string} run
 * @param {string[]} items
 */
export function restock(run, items) {
  const sku = dice(1, 2) === 1 ? items[dice(0, HOT - 1)] : items[dice(0, items.length - 1)];
  change(sku, { kind: 'receive', delta: dice(5, 20), reference: orderName(run) });
}

/**
 * A stocktake: finds one unit less than the books say, unless somebody bought or held meanwhile. Then it is refused, as it must be.
 * @param {string} run
 * @param {string[]} items
 */
export function count(run, items) {
  const sku = items[dice(0, items.length - 1)];
  /** @type {Levels} */
  const { on_hand, available } = content(send(itemCall(sku)));
  if (available > 0) {
    change(sku, { kind: 'count', set_to: on_hand - 1, expected_on_hand: on_hand, reference: orderName(run) });
  }
}

/**
 * @param {string} sku
 * @param {Parameters<typeof adjust>[1]} how
 */
function change(sku, how) {
  const { verdict, response, problem } = settle(() => adjust(sku, how));
  if (verdict === 'done') {
    /** @type {{ movement: Movement, item: Levels }} */
    const { movement, item } = content(response);
    const right = response.status === 201 && movement.reference === how.reference && impossible(item) === '' &&
      (how.set_to === undefined ? movement.delta_on_hand === how.delta : movement.on_hand === how.set_to && movement.delta_on_hand === -1);
    judge(right, () => `an adjustment of ${sku} was answered ${response.body}`);
    noteMovement(sku, movement);
  } else if (verdict !== 'unresolved') {
    // Meanwhile somebody bought, or held so much that the count would leave less than is held.
    const overtaken = how.set_to !== undefined && ['precondition-failed', 'insufficient-stock'].includes(nameOf(problem));
    judge(overtaken, () => `an adjustment of ${sku} was answered ${response.status} ${response.body}`);
  }
}

/**
 * Looks at one item twice, the second time with the version it has, and at a page of all.
 * @param {string} run
 * @param {string[]} items
 */
export function browse(run, items) {
  const sku = items[dice(0, items.length - 1)];
  const first = send(itemCall(sku));
  /** @type {Levels} */
  const item = content(first);
  const again = send(itemCall(sku, { headers: { 'If-None-Match': first.headers.Etag } }));
  const page = send(call('GET', '/v1/stock', `/v1/stock?limit=50&sku_prefix=${encodeURIComponent(run)}`));
  /** @type {{ items: Levels[] }} */
  const { items: listed } = content(page);
  judge(first.status === 200 && first.headers.Etag === `"${item.version}"`, () => `${sku} was answered ${first.status} ${first.body}`);
  judge(again.status === 304 || (again.status === 200 && content(again).version > item.version), () =>
    `${sku}, seen at version ${item.version}, was answered ${again.status} ${again.body}`);
  const wrong = [item, ...listed].map(impossible).filter((what) => what !== '');
  judge(wrong.length === 0 && listed.length === Math.min(items.length, 50), () => `${listed.length} items, of which ${wrong.join('; ')}`);
}
