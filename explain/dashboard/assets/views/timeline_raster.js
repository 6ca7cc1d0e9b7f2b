// A tile as pixels: one row of TILE_WIDTH pixels a track, whatever the height it is shown at. It is drawn once for
// a colouring and then only copied, so that panning costs the same over a thousand spans and over a million. Drawing a tile of many spans takes several
// frames, so that none takes long.

import { KINDS, TILE_WIDTH, tileStart } from "./timeline_tiles.js";
import { STALE_MOST, versionStep } from "./timeline_colour.js";

const TRAIN = KINDS.indexOf("train");
const FAILED = KINDS.indexOf("failed");
const VALIDATE = KINDS.indexOf("validate");

// A span this wide gives its last pixel to the background, so that neighbours of one colour stay two.
const GAP_FROM = 4;

/**
 * Colouring is what pixels are coloured by.
 * @typedef {object} Colouring
 * @property {string} key
 * @property {"version"|"kind"|"staleness"} by
 * @property {number} period
 * @property {import("./timeline_colour.js").Palette} palette
 * @property {(us: number) => number} versionAt the trainer's version at a time
 * @property {(step: number) => number} stalenessOf a step's mean, NaN where it is not known
 */

/**
 * The colour of one span.
 * @param {Colouring} colouring
 * @param {number} behind versions that the trainer was ahead at the span's end
 */
export function spanColour(colouring, /** @type {number} */ kind, /** @type {number} */ version, behind) {
  const { palette } = colouring;
  if (colouring.by === "kind" || kind === FAILED || kind === VALIDATE || version < 0) return palette.kind[kind];
  if (colouring.by === "version") return palette.version[kind][versionStep(version, colouring.period)];
  if (Number.isNaN(behind)) return palette.kind[VALIDATE];
  return palette.stale[Math.max(0, Math.min(STALE_MOST, Math.round(behind)))];
}

/**
 * How stale a span's work was: for a train step the mean of its batch, for the rest the versions that the trainer
 * was ahead when it ended.
 */
export function spanBehind(/** @type {Colouring} */ colouring, /** @type {number} */ kind, /** @type {number} */ version, /** @type {number} */ endUS) {
  if (kind === TRAIN) return colouring.stalenessOf(version);
  return colouring.versionAt(endUS) - version;
}

// So many spans are drawn between two looks at the clock.
const SPANS_AT_ONCE = 2048;

/**
 * Drawing is a raster as far as it has been drawn.
 * @typedef {{ key: string, pixels: Uint32Array, next: number }} Drawing
 */

/**
 * Draws a tile's spans until they are drawn or the time is up, at least some of them.
 * @param {import("./timeline_tiles.js").Entry} entry
 * @param {Drawing} drawing
 * @param {Int32Array} rowOf the row of a track's id, -1 for none
 * @param {Colouring} colouring
 * @param {number} deadline as performance.now has it
 * @returns {boolean} whether all are drawn
 */
export function rasterise(entry, drawing, rowOf, colouring, deadline) {
  const { spans } = entry.tile;
  do {
    const to = Math.min(spans, drawing.next + SPANS_AT_ONCE);
    rasteriseSome(entry, drawing, to, rowOf, colouring);
    drawing.next = to;
  } while (drawing.next < spans && performance.now() < deadline);
  return drawing.next >= spans;
}

function rasteriseSome(/** @type {import("./timeline_tiles.js").Entry} */ entry, /** @type {Drawing} */ drawing, /** @type {number} */ to, /** @type {Int32Array} */ rowOf, /** @type {Colouring} */ colouring) {
  const { tile, level, index } = entry, { pixels } = drawing;
  const { start, end, track, version, kind } = tile;
  const from = tileStart(level, index), pixelUS = 2 ** level;
  const stale = colouring.by === "staleness";
  for (let i = drawing.next; i < to; i++) {
    const row = track[i] < rowOf.length ? rowOf[track[i]] : -1;
    if (row < 0) continue;
    let a = Math.floor(start[i]), b = Math.round(end[i]);
    if (b - a >= GAP_FROM) b--;
    if (b <= a) b = a + 1;
    if (a < 0) a = 0;
    if (b > TILE_WIDTH) b = TILE_WIDTH;
    if (a >= b) continue;
    const behind = stale ? spanBehind(colouring, kind[i], version[i], from + end[i] * pixelUS) : 0;
    const colour = spanColour(colouring, kind[i], version[i], behind);
    const base = row * TILE_WIDTH;
    for (let x = base + a; x < base + b; x++) pixels[x] = colour;
  }
}
