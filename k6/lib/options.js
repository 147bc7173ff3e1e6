import { balanced } from './books.js';
import { SHORT } from './config.js';

/** @typedef {import('k6/options').Threshold} Threshold */
/** @typedef {Record<string, Threshold[]>} Thresholds */

/** Parts that a full run is cut into, to show how it went over time. A short one is not cut. */
export const SLICES = SHORT ? 0 : 20;

/**
 * The tag of a slice.
 * @param {number} progress of the scenario, 0 to 1
 */
export function sliceOf(progress) {
  return String(Math.min(SLICES - 1, Math.floor(progress * SLICES))).padStart(2, '0');
}

/** k6 shows the figures of a tag only where a threshold is on it: this one asks that there was an answer in every slice. */
function slices() {
  /** @type {Thresholds} */
  const thresholds = {};
  for (let n = 0; n < SLICES; n++) {
    const tag = sliceOf(n / SLICES);
    thresholds[`http_reqs{slice:${tag}}`] = ['count>0'];
    thresholds[`http_req_duration{slice:${tag}}`] = ['p(99)>0'];
  }
  return thresholds;
}

/**
 * The thresholds of every script: no wrong answer, nothing left open, no request that was due and not sent, and books that balance. A short run
 * shares its machine with other work, so there requests may be late.
 * @type {Thresholds}
 */
export const always = {
  ...balanced,
  ...slices(),
  wrong_answers: ['rate==0'],
  unresolved: ['count==0'],
  ...(SHORT ? {} : { dropped_iterations: ['count==0'] }),
  http_req_failed: ['rate==0'],
};

/** What every script's options have in common. */
export const common = {
  batch: 50,
  batchPerHost: 50,
  setupTimeout: '10m',
  teardownTimeout: '10m',
  summaryTrendStats: ['avg', 'min', 'med', 'p(95)', 'p(99)', 'p(99.9)', 'max'],
};

/**
 * A limit on how long one kind of request takes. In a short run it is only there to find what hangs.
 * @param {string} name of the requests, as in "POST /v1/deductions"
 * @param {number} p99 in milliseconds
 * @returns {Thresholds}
 */
export function latency(name, p99) {
  return { [`http_req_duration{name:${name}}`]: [`p(99)<${SHORT ? 30_000 : p99}`] };
}

/**
 * Requests at a rate that does not wait for answers.
 * @param {string} exec the function that makes one
 * @param {{ rate: number, seconds: number, vus: number }} pace `vus`: how many may be under way at once
 * @returns {import('k6/options').ConstantArrivalRateScenario}
 */
export function arrivals(exec, { rate, seconds, vus }) {
  return {
    executor: 'constant-arrival-rate', exec, rate, timeUnit: '1s', duration: `${seconds}s`, preAllocatedVUs: vus, maxVUs: 4 * vus,
  };
}
