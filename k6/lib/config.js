/**
 * Everything that can be set from outside, as an environment variable or by `-e NAME=VALUE`:
 *
 *   HOLDFAST_URL    where the service is; several processes of one service: with commas between. They are used in turn.
 *   HOLDFAST_TOKEN  a token with the scope admin
 *   SIZE            full (the default) or short: seconds instead of minutes, for a machine that has other things to do
 *   REPORT          folder for the report as JSON and HTML; empty: none
 *
 * and the settings of a script, which are in its head comment (RATE, DURATION …).
 */

/** Processes of one service. */
export const URLS = (__ENV.HOLDFAST_URL || 'http://127.0.0.1:8080').split(',').map((url) => url.trim().replace(/\/$/, ''));

/** A token with the scope admin; the default is the one of docker-compose.yml. */
export const TOKEN = __ENV.HOLDFAST_TOKEN || 'holdfast-demo-token';

/** Whether the run is a short one. */
export const SHORT = isShort(__ENV.SIZE);

/** Folder for the report; empty: none. */
export const REPORT = __ENV.REPORT || '';

/** How long a request may live in the service (HOLDFAST_REQUEST_DEADLINE and a margin), in seconds: what it has not done by then it never will. */
export const LIFETIME = 6;

/** @param {string | undefined} size */
function isShort(size) {
  if (size && size !== 'full' && size !== 'short') {
    throw new Error(`SIZE is ${size}: it must be full or short`);
  }
  return size === 'short';
}

/**
 * A number that a script can be given.
 * @param {string} name of the variable
 * @param {{ full: number, short: number }} defaults
 */
export function number(name, defaults) {
  const text = __ENV[name];
  if (!text) {
    return SHORT ? defaults.short : defaults.full;
  }
  const value = Number(text);
  if (!(value > 0)) {
    throw new Error(`${name} is ${text}: it must be a positive number`);
  }
  return value;
}
