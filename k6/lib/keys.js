import exec from 'k6/execution';

/**
 * A name that no other run has, for setup() to hand to everybody: keys and orders are never forgotten by the service.
 * @param {string} script
 */
export function newRun(script) {
  const random = Math.floor(Math.random() * 2 ** 32).toString(36);
  return `${script}-${Date.now().toString(36)}-${random}`;
}

/**
 * The order of this iteration, which no other iteration of any scenario has. It is the idempotency key as well.
 * @param {string} run
 */
export function orderName(run) {
  return `${run}-${exec.scenario.name}-${exec.scenario.iterationInTest}`;
}

/**
 * One of the SKUs of a run.
 * @param {string} run
 * @param {number} n from 0
 */
export function skuOf(run, n) {
  return `${run}-${String(n).padStart(6, '0')}`;
}

/**
 * The SKUs of a run, in order. For setup and teardown: an iteration that names all to use a few keeps the orders of others waiting.
 * @param {string} run
 * @param {number} count
 */
export function skus(run, count) {
  return Array.from({ length: count }, (_, n) => skuOf(run, n));
}

/**
 * Different SKUs out of so many of a run, as the dice fall.
 * @param {string} run
 * @param {number} of
 * @param {number} count
 */
export function someSkus(run, of, count) {
  return numbers(of, count).map((n) => skuOf(run, n));
}

/**
 * A whole number from low to high.
 * @param {number} low
 * @param {number} high
 */
export function dice(low, high) {
  return low + Math.floor(Math.random() * (high - low + 1));
}

/**
 * Different entries of a list, as the dice fall.
 * @template T
 * @param {T[]} list
 * @param {number} count
 */
export function some(list, count) {
  return numbers(list.length, count).map((n) => list[n]);
}

/**
 * Different numbers from 0 to below `of`.
 * @param {number} of
 * @param {number} count
 */
function numbers(of, count) {
  /** @type {Set<number>} */
  const chosen = new Set();
  while (chosen.size < Math.min(count, of)) {
    chosen.add(dice(0, of - 1));
  }
  return [...chosen];
}
