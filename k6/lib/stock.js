import { sleep } from 'k6';
import { noteMovement } from './books.js';
import { adjust, content, putItem, sendAll } from './client.js';

/** @typedef {import('./client.js').Call} Call */
/** @typedef {import('./client.js').Movement} Movement */

/** Requests that setup() and teardown() send at the same time. */
export const AT_ONCE = 50;

/** For how long a gate may refuse what has just been received through another process, in seconds, with a margin. */
const STALENESS = 1.1;

/**
 * Makes items with some stock of each, and waits as long as a gate may not know of it.
 * @param {string[]} skus
 * @param {number | ((sku: string) => number)} units
 */
export function stockUp(skus, units) {
  const of = typeof units === 'number' ? () => units : units;
  all(skus, (sku) => putItem(sku), 201);
  all(skus, (sku) => adjust(sku, { kind: 'receive', delta: of(sku), reference: `stock-${sku}` }), 201, (sku, response) => {
    noteMovement(sku, content(response).movement);
  });
  sleep(STALENESS);
}

/**
 * Sends one request for each SKU, some at a time.
 * @param {string[]} skus
 * @param {(sku: string) => Call} make
 * @param {number} status that each must be answered with
 * @param {(sku: string, response: import('./client.js').Response) => void} [then]
 */
export function all(skus, make, status, then) {
  for (let from = 0; from < skus.length; from += AT_ONCE) {
    const some = skus.slice(from, from + AT_ONCE);
    sendAll(some.map(make)).forEach((response, n) => {
      if (response.status !== status) {
        throw new Error(`${response.request.method} ${response.request.url}: ${response.status} ${response.error} ${response.body}`);
      }
      then?.(some[n], response);
    });
  }
}
