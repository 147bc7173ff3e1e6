import { REPORT, SHORT, URLS } from './config.js';
import { page } from './report.js';

/**
 * @typedef {{ type: string, contains: string, values: Record<string, number>, thresholds?: Record<string, { ok: boolean }> }} Metric
 * @typedef {{ metrics: Record<string, Metric>, state: { testRunDurationMs: number } }} Data
 * @typedef {{ metric: string, condition: string, ok: boolean }} Condition
 */

/**
 * The handleSummary() of a script: a table for the terminal, and a report as JSON and HTML in the folder REPORT.
 * @param {string} name of the script
 */
export function summary(name) {
  return (/** @type {Data} */ data) => {
    /** @type {Record<string, string>} */
    const outputs = { stdout: table(name, data) };
    if (REPORT) {
      outputs[`${REPORT}/${name}.json`] = JSON.stringify({ script: name, ...data }, null, 2);
      outputs[`${REPORT}/${name}.html`] = page(name, data, conditions(data));
    }
    return outputs;
  };
}

/**
 * Every threshold, except those that only show figures over time.
 * @param {Data} data
 * @returns {Condition[]}
 */
export function conditions({ metrics }) {
  return Object.entries(metrics)
    .filter(([metric, { thresholds }]) => thresholds !== undefined && !metric.includes('{slice:'))
    .flatMap(([metric, { thresholds }]) => Object.entries(thresholds ?? {}).map(([condition, { ok }]) => ({ metric, condition, ok })))
    .sort((a, b) => Number(a.ok) - Number(b.ok) || a.metric.localeCompare(b.metric));
}

/**
 * The latencies of each kind of request.
 * @param {Data} data
 * @returns {[string, Record<string, number>][]}
 */
export function latencies({ metrics }) {
  return Object.entries(metrics)
    .filter(([metric]) => metric.startsWith('http_req_duration{name:'))
    .map(([metric, { values }]) => [metric.slice('http_req_duration{name:'.length, -1), values]);
}

/** The counters that tell how it went, in this order. */
export const OUTCOMES = ['granted', 'units_sold', 'refused', 'replayed', 'shed', 'unresolved', 'dropped_iterations', 'http_reqs'];

/**
 * @param {string} name
 * @param {Data} data
 */
function table(name, data) {
  const { metrics, state } = data;
  const all = conditions(data);
  const failed = all.filter(({ ok }) => !ok);
  const lines = [`${name}: ${failed.length === 0 ? 'passed' : 'FAILED'}, ${(state.testRunDurationMs / 1000).toFixed(1)} s${SHORT ? ', short' : ''}, ${URLS.length} process${URLS.length > 1 ? 'es' : ''}`];
  for (const outcome of OUTCOMES.filter((o) => metrics[o])) {
    const { count, rate } = metrics[outcome].values;
    lines.push(`  ${outcome.padEnd(34)} ${String(count).padStart(10)}  ${rate.toFixed(1)}/s`);
  }
  const rows = latencies(data);
  if (rows.length > 0) {
    lines.push(`  ${'ms'.padEnd(34)} ${['p50', 'p95', 'p99', 'p99.9', 'max'].map((p) => p.padStart(9)).join('')}`);
  }
  for (const [request, values] of rows) {
    lines.push(`  ${request.padEnd(34)} ${['med', 'p(95)', 'p(99)', 'p(99.9)', 'max'].map((p) => values[p].toFixed(2).padStart(9)).join('')}`);
  }
  lines.push(`  ${all.length - failed.length} of ${all.length} thresholds hold`);
  failed.forEach(({ metric, condition }) => lines.push(`  ✗ ${metric} ${condition}, got ${JSON.stringify(metrics[metric].values)}`));
  return `${lines.join('\n')}\n`;
}
