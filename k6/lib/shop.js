/** What goes on in a shop beside plain orders: the iterations of mixed.js and soak.js. */
import { noteMovement, note } from './books.js';
import { adjust, call, content, itemCall, nameOf, onDeduction, send, settle } from './client.js';
import { impossible } from './invariants.js';
import { dice, orderName, some } from './keys.js';
import { judge } from './metrics.js';
import { place, buy } from './orders.js';

/** @typedef {import('./client.js').Deduction} Deduction */
/** @typedef {import('./client.js').Levels} Levels */
/** @typedef {import('./client.js').Movement} Movement */

/**
 * One to three lines of different items, as the dice fall.
 * @param {string[]} items
 */
function lines(items) {
  return some(items, dice(1, 3)).map((sku) => ({ sku, quantity: dice(1, 4) }));
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

/**
 * A delivery.
 * @param {string} run
 * @param {string[]} items
 */
export function restock(run, items) {
  change(items[dice(0, items.length - 1)], { kind: 'receive', delta: dice(5, 20), reference: orderName(run) });
}

/**
 * A stocktake: finds one unit less than the books say, unless somebody bought meanwhile. Then it is refused, as it must be.
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
    const stale = how.set_to !== undefined && nameOf(problem) === 'precondition-failed';
    judge(stale, () => `an adjustment of ${sku} was answered ${response.status} ${response.body}`);
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
