// Times of the timeline: ticks of the axis, and times as text.

const SECOND = 1e6;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** The distance of ticks for so many microseconds at most between two. */
function tickStep(/** @type {number} */ leastUS) {
  if (leastUS >= 0.5 * SECOND) {
    const step = STEPS_S.find((s) => s * SECOND >= leastUS);
    return step ? step * SECOND : Math.ceil(leastUS / (86400 * SECOND)) * 86400 * SECOND;
  }
  const power = 10 ** Math.floor(Math.log10(Math.max(1, leastUS)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= leastUS) ?? power * 10;
}

/**
 * Ticks between two times, none nearer than about 90 pixels to the next.
 * @param {number} fromUS @param {number} toUS @param {number} width
 */
export function axisTicks(fromUS, toUS, width) {
  const step = tickStep(((toUS - fromUS) * 90) / Math.max(1, width));
  const ticks = [];
  for (let k = Math.max(0, Math.ceil(fromUS / step)); k * step <= toUS && ticks.length < 200; k++) {
    ticks.push({ us: k * step, text: clock(k * step, step) });
  }
  return ticks;
}

/** A time of the run: 1:02:03.45, with the digits that a step needs. @param {number} us @param {number} stepUS */
export function clock(us, stepUS = 1e4) {
  const digits = stepUS >= SECOND ? 0 : Math.min(6, Math.ceil(-Math.log10(stepUS / SECOND) - 1e-9));
  const total = Math.max(0, us) / SECOND;
  const h = Math.floor(total / 3600), m = Math.floor((total % 3600) / 60), s = (total % 60).toFixed(digits);
  const seconds = s.padStart(digits ? digits + 3 : 2, "0");
  if (h > 0) return h + ":" + String(m).padStart(2, "0") + ":" + seconds;
  if (m > 0 || stepUS >= SECOND) return m + ":" + seconds;
  return s + " s";
}
