import { close, weigh } from './books.js';
import { call, content, movementsCall, settle } from './client.js';
import { judge } from './metrics.js';
import { all } from './stock.js';

/** @typedef {import('./client.js').Levels} Levels */
/** @typedef {import('./client.js').Movement} Movement */

/**
 * What is wrong with the figures of an item, whenever they were read.
 * @param {Levels} item
 */
export function impossible(item) {
  const { on_hand, held, available } = item;
  if (on_hand < 0 || held < 0 || available < 0 || held > on_hand || available !== on_hand - held) {
    return `${item.sku}: ${on_hand} on hand, ${held} held, ${available} available at version ${item.version}`;
  }
  return '';
}

/**
 * Looks at one item again and again: never negative, and its version never goes back, whichever process answers.
 * @param {string} sku
 */
export function watcher(sku) {
  let last = 0;
  /** @param {Levels} item */
  return (item) => {
    const wrong = impossible(item) || (item.version < last ? `${sku}: version ${item.version} after ${last}` : '');
    last = Math.max(last, item.version);
    judge(wrong === '', () => wrong);
  };
}

/**
 * Follows the history of one item, page after page.
 * @param {string} sku
 */
export function follow(sku) {
  let version = 0;
  let onHand = 0;
  let held = 0;
  let weight = 0;
  /** @type {string[]} */
  const wrong = [];
  /** @param {Movement} m */
  const step = (m) => {
    version++;
    onHand += m.delta_on_hand;
    held += m.delta_held;
    if (m.version !== version) {
      wrong.push(`${sku}: movement ${m.version} where ${version} was due`);
      version = m.version;
    }
    if (m.on_hand !== onHand || m.held !== held) {
      wrong.push(`${sku}: movement ${version} says ${m.on_hand} on hand and ${m.held} held, the sum of all is ${onHand} and ${held}`);
    }
    if (onHand < 0 || held < 0 || held > onHand) {
      wrong.push(`${sku}: ${onHand} on hand and ${held} held after movement ${version}`);
    }
    if (m.kind !== 'configure') {
      weight += weigh(sku, m);
    }
  };
  return {
    wrong,
    /** Reads what came after the last page, as many pages as there are. */
    readOn() {
      for (let next = version; ; ) {
        const response = settle(() => movementsCall(sku, next)).response;
        if (response.status !== 200) {
          throw new Error(`movements of ${sku}: ${response.status} ${response.body}`);
        }
        if (!this.take(content(response))) {
          return;
        }
        next = version;
      }
    },
    /**
     * @param {{ movements: Movement[], next_after_version?: number }} page
     * @returns whether there is more
     */
    take(page) {
      page.movements.forEach(step);
      return page.next_after_version !== undefined;
    },
    /** @param {Levels} item as it must be now */
    compare(item) {
      const { on_hand, held: held_, version: version_ } = item;
      if (impossible(item) !== '') {
        wrong.push(impossible(item));
      }
      if (on_hand !== onHand || held_ !== held || version_ !== version) {
        wrong.push(`${sku}: ${on_hand} on hand and ${held_} held at version ${version_}, its ${version} movements come to ${onHand} and ${held}`);
      }
    },
    weight: () => weight,
  };
}

/**
 * Asks the service for the final truth about all items of a run, for teardown(): every movement of each, without gaps, never below zero, summing up to
 * the figures of the item; enters them in the books, and fails the run when anything is wrong.
 * @param {string} run
 * @param {string[]} skus
 * @param {(items: Levels[]) => string[]} [also] what the script wants to be true of them besides; it returns what is not
 */
export function audit(run, skus, also = () => []) {
  const items = listItems(run);
  const histories = new Map(skus.map((sku) => [sku, follow(sku)]));
  const history = (/** @type {string} */ sku) => /** @type {ReturnType<typeof follow>} */ (histories.get(sku));
  /** @type {string[]} */
  const more = [];
  all(skus, (sku) => movementsCall(sku, 0), (sku, response) => {
    if (history(sku).take(content(response))) {
      more.push(sku);
    }
  });
  more.forEach((sku) => history(sku).readOn());
  items.forEach((item) => history(item.sku).compare(item));
  close([...histories.values()].reduce((sum, h) => sum + h.weight(), 0));
  const wrong = [...histories.values()].flatMap((h) => h.wrong).concat(also(items));
  if (items.length !== skus.length) {
    wrong.push(`${items.length} items of ${skus.length} are there`);
  }
  const found = () => `the ledger is wrong in ${wrong.length} places: ${wrong.slice(0, 10).join('; ')}`;
  if (!judge(wrong.length === 0, found)) { // a threshold sees it, and so does the summary
    throw new Error(found());
  }
}

/**
 * All items of a run.
 * @param {string} run
 * @returns {Levels[]}
 */
function listItems(run) {
  /** @type {Levels[]} */
  const items = [];
  for (let cursor = ''; ; ) {
    const response = settle(() => call('GET', '/v1/stock', `/v1/stock?limit=1000&sku_prefix=${encodeURIComponent(run)}${cursor}`)).response;
    if (response.status !== 200) {
      throw new Error(`list of items: ${response.status} ${response.body}`);
    }
    /** @type {{ items: Levels[], next_cursor?: string }} */
    const page = content(response);
    items.push(...page.items);
    if (page.next_cursor === undefined) {
      return items;
    }
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}
