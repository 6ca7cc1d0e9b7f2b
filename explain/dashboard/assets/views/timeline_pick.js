// Which span is under a point, and which comes next in its track.

import { KINDS, tileStart } from "./timeline_tiles.js";

/** @typedef {import("./timeline_paint.js").Focus} Focus */

/** @returns {Focus} */
function focusOf(/** @type {import("./timeline_tiles.js").Entry} */ entry, /** @type {number} */ i) {
  const { tile } = entry, start = tileStart(entry.level, entry.index), pixelUS = 2 ** entry.level;
  return {
    track: tile.track[i], fromUS: start + tile.start[i] * pixelUS, toUS: start + tile.end[i] * pixelUS,
    version: tile.version[i], count: tile.count[i], ref: tile.ref[i], kind: tile.kind[i],
  };
}

/**
 * The span of a track at a time, or the nearest within a few pixels; the shortest where several are there.
 * @param {import("./timeline_tiles.js").Entry[]} entries
 * @param {number} slackUS
 * @returns {Focus|null}
 */
export function spanAt(entries, /** @type {number} */ track, /** @type {number} */ us, slackUS) {
  let best = null, bestFar = Infinity, bestLong = Infinity;
  for (const entry of entries) {
    const { tile } = entry, pixelUS = 2 ** entry.level;
    const x = (us - tileStart(entry.level, entry.index)) / pixelUS, slack = slackUS / pixelUS;
    for (let i = 0; i < tile.spans; i++) {
      if (tile.track[i] !== track) continue;
      const far = Math.max(0, tile.start[i] - x, x - tile.end[i]);
      if (far > slack) continue;
      const long = tile.end[i] - tile.start[i];
      if (far > bestFar || (far === bestFar && long >= bestLong)) continue;
      best = focusOf(entry, i);
      bestFar = far;
      bestLong = long;
    }
  }
  return best;
}

/**
 * The next span of a track after a time, or the last before it.
 * @param {import("./timeline_tiles.js").Entry[]} entries
 * @param {1|-1} direction
 * @returns {Focus|null}
 */
export function spanBeside(entries, /** @type {number} */ track, /** @type {number} */ us, direction) {
  let best = null;
  for (const entry of entries) {
    const { tile } = entry, pixelUS = 2 ** entry.level;
    const x = (us - tileStart(entry.level, entry.index)) / pixelUS;
    for (let i = 0; i < tile.spans; i++) {
      if (tile.track[i] !== track) continue;
      if (direction > 0 ? tile.start[i] <= x : tile.start[i] >= x) continue;
      const focus = focusOf(entry, i);
      if (!best || (direction > 0 ? focus.fromUS < best.fromUS : focus.fromUS > best.fromUS)) best = focus;
    }
  }
  return best;
}

/** @type {Record<string, string>} */
const WHAT = {
  generate: "generating", environment: "in its environment", interrupted: "interrupted", load: "loading weights", switch: "switching weights",
  queued: "waiting in the queue", train: "train step", sync: "weight sync", failed: "failed", validate: "validating",
};

/**
 * A span in words: what, version, how long, staleness.
 * @param {Focus} focus
 * @param {{trackName: string, behind: number, from: string, to: string, lasting: string}} facts
 */
export function describe(focus, { trackName, behind, from, to, lasting }) {
  const kind = KINDS[focus.kind], what = [];
  if (focus.count > 1) what.push(focus.count + " spans too short to tell apart, mostly " + WHAT[kind]);
  else if (kind === "train") what.push("train step " + focus.ref + ", which makes version " + focus.version);
  else if (kind === "sync" || kind === "load" || kind === "switch") what.push(WHAT[kind] + " of version " + focus.version);
  else {
    what.push("group " + focus.ref + " " + WHAT[kind]);
    if (focus.version >= 0) what.push("version " + focus.version);
  }
  if (!Number.isNaN(behind)) {
    if (kind === "train") what.push("mean staleness " + behind.toFixed(2));
    else if (focus.count === 1 && focus.version >= 0 && !["sync", "load", "switch"].includes(kind)) {
      what.push(behind <= 0 ? "as new as the trainer's" : behind + (behind === 1 ? " version" : " versions") + " behind at its end");
    }
  }
  what.push(from + " to " + to + " (" + lasting + ")");
  return trackName + ": " + what.join(", ");
}
