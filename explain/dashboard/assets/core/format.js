// Figures as text. A figure and its unit stay on one line; what is not known is a dash.

const NBSP = "\u00a0";
const NONE = "–";

/** @param {unknown} n @returns {n is number} */
export function known(n) { return typeof n === "number" && Number.isFinite(n); }

/** A whole number, with separators. @param {number | null | undefined} n */
export function count(n) { return known(n) ? Math.round(n).toLocaleString("en") : NONE; }

/** A number with a fixed count of decimals. @param {number | null | undefined} n @param {number} [digits] */
export function fixed(n, digits = 2) { return known(n) ? n.toFixed(digits).replace("-", "−") : NONE; }

/** The same with its sign always. @param {number | null | undefined} n @param {number} [digits] */
export function signed(n, digits = 2) {
  if (!known(n)) return NONE;
  const text = fixed(n, digits);
  return Number(n.toFixed(digits)) > 0 ? "+" + text : Number(n.toFixed(digits)) === 0 ? text.replace("−", "") : text;
}

/** About three figures of any size: 0.031, 4.52, 187, 12.3 k. @param {number | null | undefined} n */
export function short(n) {
  if (!known(n)) return NONE;
  const size = Math.abs(n);
  if (size >= 1e9) return fixed(n / 1e9, size >= 1e11 ? 0 : 1) + NBSP + "G";
  if (size >= 1e6) return fixed(n / 1e6, size >= 1e8 ? 0 : 1) + NBSP + "M";
  if (size >= 1e4) return fixed(n / 1e3, size >= 1e5 ? 0 : 1) + NBSP + "k";
  if (size >= 100 || n === 0) return fixed(n, 0);
  if (size >= 10) return fixed(n, 1);
  if (size >= 1) return fixed(n, 2);
  if (size >= 0.001) return fixed(n, 3);
  return n.toExponential(1).replace("-", "−");
}

/** A share of 0 to 1 in per cent. @param {number | null | undefined} n @param {number} [digits] */
export function percent(n, digits) {
  if (!known(n)) return NONE;
  const value = 100 * n;
  return fixed(value, digits ?? (value !== 0 && Math.abs(value) < 9.95 ? 1 : 0)) + NBSP + "%";
}

/** A figure with its unit. @param {number | null | undefined} n @param {string} unit */
export function withUnit(n, unit) { return known(n) ? short(n) + NBSP + unit : NONE; }

/** A length of time. @param {number | null | undefined} s seconds */
export function lasting(s) {
  if (!known(s)) return NONE;
  const size = Math.abs(s);
  if (size === 0) return "0" + NBSP + "s";
  if (size < 1e-3) return fixed(s * 1e6, 0) + NBSP + "µs";
  if (size < 0.0995) return fixed(s * 1e3, size < 0.01 ? 1 : 0) + NBSP + "ms";
  if (size < 0.9995) return fixed(s * 1e3, 0) + NBSP + "ms";
  if (size < 60) return fixed(s, size < 10 ? 1 : 0) + NBSP + "s";
  if (size < 3600) return Math.floor(s / 60) + NBSP + "min" + (size < 600 ? NBSP + Math.floor(s % 60) + NBSP + "s" : "");
  if (size < 86400) return Math.floor(s / 3600) + NBSP + "h" + NBSP + Math.floor(s % 3600 / 60) + NBSP + "min";
  return Math.floor(s / 86400) + NBSP + "d" + NBSP + Math.floor(s % 86400 / 3600) + NBSP + "h";
}

/** A policy version, or none. @param {number | null | undefined} v */
export function version(v) { return known(v) && v >= 0 ? "v" + v : NONE; }

/** A count with its noun. @param {number} n @param {string} one @param {string} [many] */
export function many(n, one, many) { return count(n) + NBSP + (n === 1 ? one : many ?? one + "s"); }

const names = /** @type {Record<string, string>} */ ({
  inner_steps: "inner steps", sync: "weight sync", concurrency: "concurrency over batch", environment: "environment",
  tail: "group tail", queue: "waiting in the queue", fill: "waiting for the batch",
  staleness_mean: "staleness, mean", staleness_p95: "staleness, p95", pqs: "before the queue (PQS)", iqs: "in the queue (IQS)",
  period_s: "train period", trainer_idle_ratio: "trainer idle", rollout_idle_ratio: "engines idle",
  closed_form: "closed form", before_the_run: "before the run", response_tokens: "response length", tail_multiplier: "tail multiplier",
  solve_rate: "solve rate", train_step_s: "train step", in_flight: "in flight",
});

/** A machine's word for people. @param {string} word */
export function words(word) { return names[word] ?? word.replaceAll("_", " "); }
