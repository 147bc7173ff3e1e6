/**
 * Double-entry bookkeeping between what the script was told and what the ledger says.
 *
 * Virtual users share no memory, teardown() cannot read metrics, and a threshold compares a metric with a constant only. So every movement is
 * given a weight, a hash of what it did. Whoever is told of one adds its weight to the counter `books`. In the end teardown() reads the ledger
 * and adds 2^52 less the weights of all movements it finds there. Only if both sides had the same movements the sum is 2^52, which
 * the threshold asks for: an acknowledged effect that is missing, one that is there twice, and one that nobody was told of all fail the run.
 */
import { md5 } from 'k6/crypto';
import { Counter } from 'k6/metrics';

/** @typedef {import('./client.js').Deduction} Deduction */
/** @typedef {import('./client.js').Movement} Movement */

const books = new Counter('books');

const BALANCED = 2 ** 52;

/** The threshold. */
export const balanced = { books: [`count==${BALANCED}`] };

/**
 * From 1 to 2^28, so that sixteen million movements can be summed without losing one.
 * @param {string} of the deduction's id, or an adjustment's reference
 * @param {string} kind
 * @param {string} sku
 * @param {number} onHand what was added to it
 * @param {number} held what was added to it
 */
function weight(of, kind, sku, onHand, held) {
  return 1 + parseInt(md5(`${of} ${kind} ${sku} ${onHand} ${held}`, 'hex').slice(0, 7), 16);
}

/**
 * Notes everything that a deduction has come to. It must be noted once, when nothing more will happen to it, and each of its steps
 * must have been one request.
 * @param {Deduction} deduction
 */
export function note(deduction) {
  const wasHeld = deduction.expires_at !== undefined;
  const givenBack = deduction.state === 'expired' ? 'expire' : 'release';
  let sum = 0;
  for (const { sku, quantity, committed, released, returned } of deduction.lines) {
    /** @param {string} kind @param {number} onHand @param {number} held */
    const moved = (kind, onHand, held) => (sum += weight(deduction.id, kind, sku, onHand, held));
    if (!wasHeld) {
      moved('deduct', -quantity, 0);
    } else {
      moved('hold', 0, quantity);
      if (committed > 0) moved('commit', -committed, -committed);
      if (released > 0) moved(givenBack, 0, -released);
    }
    if (returned > 0) moved('return', returned, 0);
  }
  books.add(sum);
}

/**
 * Notes an adjustment.
 * @param {string} sku
 * @param {Movement} movement
 */
export function noteMovement(sku, movement) {
  books.add(weigh(sku, movement));
}

/**
 * @param {string} sku
 * @param {Movement} m
 */
export function weigh(sku, m) {
  return weight(m.deduction_id ?? m.reference, m.kind, sku, m.delta_on_hand, m.delta_held);
}

/**
 * Enters the ledger's side.
 * @param {number} sum of the weights of all movements
 */
export function close(sum) {
  books.add(BALANCED - sum);
}
