// Colours of the timeline, as pixels. A version has one colour in every row, so that one sees it move from the
// sync to the rollouts to the train step. The ramp is a circle of equal steps to the eye (OKLCH), walked once in
// a number of versions that grows by powers of two with what is in view: panning never changes a colour.

import { kindColour, oklch } from "../core/colour.js";
import { KINDS } from "./timeline_tiles.js";

const STEPS = 256;

const pixel = (/** @type {number[]} */ [r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
/** "#abc" or "#aabbcc" as [r, g, b]. */
function hex(/** @type {string} */ text) {
  const digits = text.trim().replace("#", "");
  const long = digits.length === 3 ? [...digits].map((d) => d + d).join("") : digits;
  return [0, 2, 4].map((at) => parseInt(long.slice(at, at + 2), 16) || 0);
}

const mix = (/** @type {number[]} */ x, /** @type {number[]} */ y, /** @type {number} */ share) => x.map((/** @type {number} */ c, /** @type {number} */ i) => Math.round(c + (y[i] - c) * share));

/** @param {number} value a pixel */
export const css = (value) => `rgb(${value & 255},${(value >> 8) & 255},${(value >> 16) & 255})`;

// How far each kind is blended into the background: what is not generating is paler, so that the eye follows
// generation, queue and training. The order is that of KINDS.
const PALE = [0, 0.55, 0.3, 0.45, 0.2, 0.35, 0, 0.15, 0, 0.5];

// Staleness goes from fresh (blue, calm) to stale (yellow, red).
const STALE = [[0.68, 0.12, 240], [0.72, 0.11, 200], [0.76, 0.12, 160], [0.8, 0.14, 110], [0.78, 0.15, 80], [0.7, 0.17, 50], [0.6, 0.2, 28], [0.48, 0.18, 15]];
export const STALE_MOST = STALE.length - 1;

/**
 * Palette is a theme's colours as pixels.
 * @typedef {object} Palette
 * @property {string} key
 * @property {Uint32Array[]} version by kind, a circle of STEPS
 * @property {Uint32Array} kind
 * @property {Uint32Array} stale
 * @property {number} background
 * @property {number} band
 * @property {string} ink
 * @property {string} muted
 * @property {string} rule
 * @property {string} accent
 */

/**
 * The palette of the theme in force.
 * @param {boolean} dark
 * @param {(name: string) => string} variable a colour of the theme
 * @returns {Palette}
 */
export function palette(dark, variable) {
  const background = hex(variable("--card"));
  const circle = Array.from({ length: STEPS }, (_, i) => {
    const turn = i / STEPS;
    const lightness = (dark ? 0.68 : 0.66) + 0.1 * Math.cos(2 * Math.PI * (turn - 0.1));
    return oklch(lightness, 0.135, 260 + 360 * turn);
  });
  return {
    key: dark ? "dark" : "light",
    version: PALE.map((share) => Uint32Array.from(circle, (rgb) => pixel(mix(rgb, background, share)))),
    kind: Uint32Array.from(KINDS, (kind) => pixel(kind === "failed" ? mix(hex(kindColour[kind]), background, 0.45) : hex(kindColour[kind]))),
    stale: Uint32Array.from(STALE, ([l, c, h]) => pixel(oklch(l, c, h))),
    background: pixel(background),
    band: pixel(hex(variable("--sunk"))),
    ink: variable("--ink"), muted: variable("--quiet"), rule: variable("--edge"), accent: variable("--ink"),
  };
}

/** Where a version is on the circle of a period: an index into Palette.version. */
export const versionStep = (/** @type {number} */ version, /** @type {number} */ period) => Math.floor(((((version % period) + period) % period) * STEPS) / period);

/**
 * The period of the circle for so many versions in view: the power of two above, so that no two of them look alike.
 * @param {number} versions
 */
export function versionPeriod(versions) {
  let period = 8;
  while (period < versions) period *= 2;
  return period;
}

/** Black or white, whichever can be read on a pixel. */
export function inkOn(/** @type {number} */ value) {
  const light = 0.299 * (value & 255) + 0.587 * ((value >> 8) & 255) + 0.114 * ((value >> 16) & 255);
  return light > 140 ? "#10141a" : "#ffffff";
}
