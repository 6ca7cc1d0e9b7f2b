// Train steps by time: which version the trainer had when, and how stale a step's batch was. Read from a series of
// the run, which stands for several steps a point where the run is long.

/**
 * @typedef {object} Steps
 * @property {number[]} step
 * @property {number[]} timeUS the end of each
 * @property {Record<string, (number|null)[]>} columns
 */

/** @param {{step: number[], time_s: number[], columns: Record<string, (number|null)[]>}} series @returns {Steps} */
export function stepsOf(series) {
  return { step: series.step ?? [], timeUS: (series.time_s ?? []).map((s) => s * 1e6), columns: series.columns ?? {} };
}

/** How many of a sorted list are at most x. */
function countUpTo(/** @type {number[]} */ sorted, /** @type {number} */ x) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The newest step that had ended at a time, between two points by their distance; the first point's before it. */
export function stepAtTime(/** @type {Steps} */ steps, /** @type {number} */ us) {
  const n = steps.step.length, i = countUpTo(steps.timeUS, us);
  if (n === 0 || us <= 0) return 0;
  const before = i > 0 ? steps.step[i - 1] : 0, beforeUS = i > 0 ? steps.timeUS[i - 1] : 0;
  if (i === n) return before;
  const span = steps.timeUS[i] - beforeUS;
  return Math.floor(before + (span > 0 ? ((us - beforeUS) / span) * (steps.step[i] - before) : 0) + 1e-9);
}

/** When a step ended, in microseconds; between two points by its number. */
export function timeOfStep(/** @type {Steps} */ steps, /** @type {number} */ step) {
  const n = steps.step.length, i = countUpTo(steps.step, step);
  if (n === 0) return 0;
  if (i > 0 && steps.step[i - 1] === step) return steps.timeUS[i - 1];
  if (i === n) return steps.timeUS[n - 1];
  const before = i > 0 ? steps.step[i - 1] : 0, beforeUS = i > 0 ? steps.timeUS[i - 1] : 0;
  return beforeUS + ((step - before) / (steps.step[i] - before)) * (steps.timeUS[i] - beforeUS);
}

/** A column's value for a step: that of the point that stands for it, NaN where there is none. */
export function valueOfStep(/** @type {Steps} */ steps, /** @type {string} */ column, /** @type {number} */ step) {
  const values = steps.columns[column];
  const i = Math.min(steps.step.length - 1, countUpTo(steps.step, step - 1));
  if (!values || i < 0) return NaN;
  return values[i] ?? NaN;
}
