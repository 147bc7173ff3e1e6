/** How orders are sent and their answers judged. */
import { note } from './books.js';
import { content, deduct, isReplay, nameOf, settle } from './client.js';
import { granted, judge, refused, replayed, unitsSold } from './metrics.js';

/** @typedef {import('./client.js').Order} Order */
/** @typedef {import('./client.js').Deduction} Deduction */
/** @typedef {import('./client.js').Problem} Problem */

/**
 * Orders until it is known what came of it, and counts that. What was granted is not in the books yet.
 * @param {Order} order
 * @returns {Deduction | null}
 */
export function place(order) {
  const { verdict, response, problem } = settle(() => deduct(order));
  const answered = () => `order ${order.order_id} was answered ${response.status} ${response.body}`;
  if (verdict === 'done') {
    /** @type {Deduction} */
    const deduction = content(response);
    if (!judge(response.status === 201 && isFor(deduction, order), answered)) {
      return null;
    }
    (isReplay(response) ? replayed : granted).add(1);
    unitsSold.add(units(order));
    return deduction;
  }
  if (verdict === 'refused' || verdict === 'wrong') {
    judge(isShort(order, problem), answered);
    refused.add(1);
  }
  return null;
}

/**
 * Takes stock for an order and notes it.
 * @param {Order} order
 */
export function buy(order) {
  const deduction = place(order);
  if (deduction) {
    note(deduction);
  }
  return deduction;
}

/** @param {Order} order */
function units({ lines }) {
  return lines.reduce((sum, line) => sum + line.quantity, 0);
}

/**
 * Whether a deduction is what an order asked for.
 * @param {Deduction} deduction
 * @param {Order} order
 */
export function isFor(deduction, order) {
  return deduction.order_id === order.order_id && deduction.lines.length === order.lines.length &&
    deduction.lines.every(({ sku, quantity }, n) => sku === order.lines[n].sku && quantity === order.lines[n].quantity);
}

/**
 * Whether a refusal names every line whose item has less than all lines of the order want of it, and no other.
 * @param {Order} order
 * @param {Problem | null} problem
 */
export function isShort({ lines }, problem) {
  if (nameOf(problem) !== 'insufficient-stock' || !problem?.short?.length) {
    return false;
  }
  /** @type {Map<string, number>} */
  const wanted = new Map();
  lines.forEach(({ sku, quantity }) => wanted.set(sku, (wanted.get(sku) ?? 0) + quantity));
  const items = new Set(problem.short.map(({ sku }) => sku));
  const expected = lines.flatMap(({ sku }, n) => (items.has(sku) ? [`/lines/${n}/quantity`] : []));
  return expected.join() === problem.short.map(({ pointer }) => pointer).join() &&
    problem.short.every(({ sku, requested, available, version }) =>
      requested === wanted.get(sku) && available >= 0 && available < requested && version > 0);
}
