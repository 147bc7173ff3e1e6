/** The report as one HTML page that needs nothing else: charts are SVG, colours follow the reader's light or dark setting. */
import { SLICES, sliceOf } from './options.js';
import { latencies, OUTCOMES } from './summary.js';

/** @typedef {import('./summary.js').Data} Data */
/** @typedef {import('./summary.js').Condition} Condition */

const STYLE = `
:root { color-scheme: light dark; --text: #1b1f24; --soft: #59636e; --line: #d5dae0; --back: #fff; --a: #2563b0; --b: #c2571a; --ok: #1a7f37; --bad: #c62828; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #9aa4af; --line: #383f47; --back: #14171b; --a: #6ea8ea; --b: #f0955b; --ok: #4cc06b; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 60rem; font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
p { margin: .25rem 0; color: var(--soft); }
.verdict { font-weight: 600; } .ok { color: var(--ok); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem; margin: 1.5rem 0 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; } th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; } td, th { white-space: nowrap; } code { font: .85em ui-monospace, monospace; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.legend span { margin-right: 1.25rem; white-space: nowrap; } .legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -1px; }
`;

/** @type {[string, string][]} */
const PERCENTILES = [['med', 'p50'], ['p(95)', 'p95'], ['p(99)', 'p99'], ['p(99.9)', 'p99.9'], ['max', 'max']];

/**
 * @param {string} name of the script
 * @param {Data} data
 * @param {Condition[]} conditions
 */
export function page(name, data, conditions) {
  const failed = conditions.filter(({ ok }) => !ok).length;
  const seconds = (data.state.testRunDurationMs / 1000).toFixed(1);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(name)}: ${failed === 0 ? 'passed' : 'failed'}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escape(name)}</h1>
<p><span class="verdict ${failed === 0 ? 'ok' : 'bad'}">${failed === 0 ? '✓ passed' : `✗ failed ${failed} of ${conditions.length} thresholds`}</span>, ${seconds} s</p>
${outcomes(data)}
${percentiles(data)}
${overTime(data)}
<h2>Thresholds</h2>
<div class="wide"><table><thead><tr><th></th><th>metric</th><th>condition</th><th class="n">value</th></tr></thead><tbody>
${conditions.map((c) => threshold(data, c)).join('\n')}
</tbody></table></div>
</body>
</html>
`;
}

/** @param {Data} data */
function outcomes({ metrics }) {
  const known = OUTCOMES.filter((outcome) => metrics[outcome]);
  const entry = (/** @type {string} */ o) => `<div><dt>${o.replace(/_/g, ' ')}</dt><dd>${integer(metrics[o].values.count)}</dd></div>`;
  return `<dl>${known.map(entry).join('')}</dl>`;
}

/**
 * @param {Data} data
 * @param {Condition} condition
 */
function threshold({ metrics }, { metric, condition, ok }) {
  const stat = condition.replace(/\s*[<>=!].*$/, '');
  const value = metrics[metric].values[stat];
  return `<tr><td class="${ok ? 'ok' : 'bad'}">${ok ? '✓' : '✗'}</td><td><code>${escape(metric)}</code></td><td><code>${escape(condition)}</code></td><td class="n">${value === undefined ? '' : short(value)}</td></tr>`;
}

/**
 * Percentiles of each kind of request, on a logarithmic scale, since a tail is a multiple and not a difference.
 * @param {Data} data
 */
function percentiles(data) {
  const rows = latencies(data).filter(([, values]) => values.max > 0);
  if (rows.length === 0) {
    return '';
  }
  const WIDTH = 800;
  const LEFT = 8;
  const low = Math.min(...rows.map(([, v]) => v.med)) / 2;
  const high = Math.max(...rows.map(([, v]) => v.max)) * 1.5;
  const x = (/** @type {number} */ ms) => LEFT + ((Math.log(ms) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (WIDTH - 2 * LEFT);
  const height = rows.length * 56 + 24;
  const steps = high / low > 100 ? [1] : [1, 2, 5];
  const powers = Array.from({ length: 12 }, (_, n) => steps.map((step) => step * 10 ** (n - 3))).flat().filter((p) => p > low && p < high);
  const grid = powers.map((p) => `<line x1="${x(p)}" x2="${x(p)}" y1="0" y2="${height - 20}" stroke="var(--line)"/><text x="${x(p)}" y="${height - 4}" text-anchor="middle">${short(p)} ms</text>`);
  const marks = rows.map(([request, values], n) => {
    const y = n * 56 + 36;
    const dots = PERCENTILES.map(([stat, label], at) =>
      `<circle cx="${x(values[stat])}" cy="${y}" r="5" fill="var(--a)" fill-opacity="${1 - at * 0.17}"><title>${label}: ${short(values[stat])} ms</title></circle>`);
    return `<text x="${LEFT}" y="${y - 18}">${escape(request)}</text><line x1="${x(values.med)}" x2="${x(values.max)}" y1="${y}" y2="${y}" stroke="var(--a)" stroke-width="2"/>${dots.join('')}`;
  });
  const cells = (/** @type {[string, Record<string, number>]} */ [request, values]) => `<tr><td>${escape(request)}</td>${PERCENTILES.map(([stat]) => `<td class="n">${short(values[stat])}</td>`).join('')}</tr>`;
  return `<h2>Latency</h2>
<div class="wide"><svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Percentiles of each kind of request">${grid.join('')}${marks.join('')}</svg></div>
<div class="wide"><table><thead><tr><th>milliseconds</th>${PERCENTILES.map(([, label]) => `<th class="n">${label}</th>`).join('')}</tr></thead><tbody>${rows.map(cells).join('')}</tbody></table></div>`;
}

/**
 * Answers a second and their latency in each slice of the run.
 * @param {Data} data
 */
function overTime({ metrics, state }) {
  if (SLICES === 0) {
    return '';
  }
  const tags = Array.from({ length: SLICES }, (_, n) => sliceOf(n / SLICES));
  const seconds = state.testRunDurationMs / 1000 / SLICES;
  const rate = tags.map((tag) => (metrics[`http_reqs{slice:${tag}}`]?.values.count ?? 0) / seconds);
  const median = tags.map((tag) => metrics[`http_req_duration{slice:${tag}}`]?.values.med ?? 0);
  const p99 = tags.map((tag) => metrics[`http_req_duration{slice:${tag}}`]?.values['p(99)'] ?? 0);
  return `<h2>Answers a second</h2>${chart([{ name: 'answers/s', colour: 'var(--a)', values: rate }], '/s', seconds)}
<h2>Latency over time</h2>${chart([{ name: 'p50', colour: 'var(--a)', values: median }, { name: 'p99', colour: 'var(--b)', values: p99 }], ' ms', seconds)}`;
}

/**
 * @param {{ name: string, colour: string, values: number[] }[]} series
 * @param {string} unit
 * @param {number} seconds of one slice
 */
function chart(series, unit, seconds) {
  const [WIDTH, HEIGHT, LEFT, BOTTOM] = [800, 220, 64, 24];
  const top = Math.max(...series.flatMap(({ values }) => values)) * 1.1 || 1;
  const x = (/** @type {number} */ n) => LEFT + ((n + 0.5) / SLICES) * (WIDTH - LEFT);
  const y = (/** @type {number} */ v) => (HEIGHT - BOTTOM) * (1 - v / top) + 4;
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const at = y((part * top) / 1.1);
    return `<line x1="${LEFT}" x2="${WIDTH}" y1="${at}" y2="${at}" stroke="var(--line)"/><text x="${LEFT - 8}" y="${at + 4}" text-anchor="end">${short((part * top) / 1.1)}${unit}</text>`;
  });
  const times = [0, 5, 10, 15].map((n) => `<text x="${x(n)}" y="${HEIGHT - 2}" text-anchor="middle">${short(n * seconds)} s</text>`);
  const lines = series.map(({ name, colour, values }) => `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${values.map((v, n) => `${x(n).toFixed(1)},${y(v).toFixed(1)}`).join(' ')}"/>${
    values.map((v, n) => `<circle cx="${x(n).toFixed(1)}" cy="${y(v).toFixed(1)}" r="4" fill="${colour}"><title>${name} at ${short(n * seconds)} s: ${short(v)}${unit}</title></circle>`).join('')}`);
  const legend = series.length > 1 ? `<p class="legend">${series.map(({ name, colour }) => `<span><i style="background:${colour}"></i>${name}</span>`).join('')}</p>` : '';
  return `${legend}<div class="wide"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${series.map(({ name }) => name).join(' and ')} over time">${grid.join('')}${times.join('')}${lines.join('')}</svg></div>`;
}

/** @param {number} n */
function integer(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ' ');
}

/** @param {number} n */
function short(n) {
  if (n >= 1000 || Number.isInteger(n)) {
    return integer(n);
  }
  return n.toFixed(n >= 100 ? 0 : n >= 10 ? 1 : 2);
}

/** @param {string} text */
function escape(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}
