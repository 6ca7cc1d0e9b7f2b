// What is in view, in words and figures, for those who read rather than see.
import { fixed, percent } from "../core/format.js";
import { clock } from "./timeline_scale.js";
import { stepAtTime } from "./timeline_steps.js";

const ROWS = 40;

/** The first and the last train step that end in view. */
function stepsInView(/** @type {import("./timeline_controller.js").Timeline} */ model) {
  const w = model.window;
  return { first: stepAtTime(model.steps, w.fromUS) + 1, last: stepAtTime(model.steps, Math.min(w.toUS, w.endUS)) };
}

/**
 * Asks for the steps in view, one question at a time, and gives the answer on.
 * @param {any} api
 * @param {(series: any) => void} take
 */
export function fetchSteps(api, take) {
  let asked = "";
  /** @type {AbortController|null} */ let flying = null;
  return {
    async ask(/** @type {import("./timeline_controller.js").Timeline} */ model) {
      const { first, last } = stepsInView(model);
      const path = `series?from=${first}&to=${last}&points=${ROWS}`;
      if (last < first) {
        asked = "";
        return take(null);
      }
      if (path === asked) return;
      asked = path;
      flying?.abort();
      const mine = (flying = new AbortController());
      try {
        take(await api.get(path, mine.signal));
      } catch {
        if (asked === path) asked = ""; // the picture says what could not be fetched; the next rest asks again
      }
    },
    close() { flying?.abort(); },
  };
}

/** The mean of what is known in a column. */
function mean(/** @type {any} */ series, /** @type {string} */ name) {
  const values = (series?.columns?.[name] ?? []).filter((/** @type {any} */ v) => v !== null);
  return values.length ? values.reduce((/** @type {number} */ sum, /** @type {any} */ v) => sum + v, 0) / values.length : NaN;
}

/** What is in view, in a sentence. */
export function sentence(/** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {any} */ series) {
  const w = model.window, { first, last } = stepsInView(model);
  const step = Math.min(1e6, (w.width * w.pixelUS) / 100);
  const from = Math.max(0, w.fromUS), to = Math.min(w.toUS, w.endUS);
  const parts = [`In view: ${clock(from, step)} to ${clock(to, step)} of ${clock(w.endUS, 1e6)}`];
  parts.push(last < first ? "no train step ends in it" : first === last ? `train step ${first}` : `train steps ${first} to ${last}`);
  /** @type {[string, string, (n: number) => string][]} */
  const known = [["staleness", "mean staleness ", (/** @type {any} */ n) => fixed(n, 2)], ["trainer_idle", "trainer idle ", percent], ["queue_groups", "groups in the queue ", (/** @type {any} */ n) => fixed(n, 1)]];
  for (const [name, says, text] of known) {
    const value = mean(series, name);
    if (!Number.isNaN(value)) parts.push(says + text(value));
  }
  return parts.join(", ") + ".";
}
