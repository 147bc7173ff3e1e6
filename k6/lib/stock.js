import { sleep } from 'k6';
import { noteMovement } from './books.js';
import { adjust, content, putItem, read, sendAll } from './client.js';

/** @typedef {import('./client.js').Call} Call */
/** @typedef {import('./client.js').Response} Response */

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
  all(skus, (sku) => putItem(sku));
  all(skus, (sku) => adjust(sku, { kind: 'receive', delta: of(sku), reference: `stock-${sku}` }), (sku, response) => {
    noteMovement(sku, content(response).movement);
  });
  sleep(STALENESS);
}

/**
 * Sends one request for each SKU, some at a time, and again what the service was too busy for.
 * @param {string[]} skus
 * @param {(sku: string) => Call} make
 * @param {(sku: string, response: Response) => void} [then]
 */
export function all(skus, make, then) {
  for (let from = 0; from < skus.length; from += AT_ONCE) {
    let left = skus.slice(from, from + AT_ONCE);
    for (let pause = 0.1; left.length > 0; pause *= 2) {
      const answers = sendAll(left.map(make));
      left = left.filter((sku, n) => !isDone(answers[n], sku, then));
      if (left.length > 0) {
        if (pause > 30) {
          throw new Error(`${left.length} requests were not answered`);
        }
        sleep(pause);
      }
    }
  }
}

/**
 * @param {Response} response
 * @param {string} sku
 * @param {((sku: string, response: Response) => void)} [then]
 */
function isDone(response, sku, then) {
  const { verdict } = read(response);
  if (verdict === 'refused' || verdict === 'wrong') {
    throw new Error(`${response.request.method} ${response.request.url}: ${response.status} ${response.body}`);
  }
  if (verdict === 'done') {
    then?.(sku, response);
  }
  return verdict === 'done';
}
