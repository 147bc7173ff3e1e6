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
 * The SKUs of a run, in order.
 * @param {string} run
 * @param {number} count
 */
export function skus(run, count) {
  return Array.from({ length: count }, (_, n) => `${run}-${String(n).padStart(6, '0')}`);
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
  /** @type {Set<T>} */
  const chosen = new Set();
  while (chosen.size < Math.min(count, list.length)) {
    chosen.add(list[dice(0, list.length - 1)]);
  }
  return [...chosen];
}
