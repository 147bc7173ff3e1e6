import { Counter, Rate } from 'k6/metrics';

/** Orders that were granted, replays not counted. */
export const granted = new Counter('granted');
/** Units of them. */
export const unitsSold = new Counter('units_sold');
/** Orders that were refused because there is not enough. */
export const refused = new Counter('refused');
/** Answers that repeat an earlier one. */
export const replayed = new Counter('replayed');
/** Requests that were refused because too much was under way. */
export const shed = new Counter('shed');
/** Orders of which the script does not know how they ended. */
export const unresolved = new Counter('unresolved');
/** Share of the answers that should not have been given. */
export const wrongAnswers = new Rate('wrong_answers');

let complaints = 0;

/**
 * Judges an answer, and says what is wrong with the first few that are.
 * @param {boolean} right
 * @param {() => string} what is wrong
 */
export function judge(right, what) {
  wrongAnswers.add(!right);
  if (!right && complaints++ < 3) {
    console.error(what());
  }
  return right;
}

/**
 * An iteration in which an exception counts as a wrong answer: k6 only logs it, and the run would pass.
 * @template Data
 * @param {(data: Data) => unknown} iteration
 */
export function guard(iteration) {
  return (/** @type {Data} */ data) => {
    try {
      iteration(data);
    } catch (error) {
      judge(false, () => `an iteration ended in ${error}`);
    }
  };
}
