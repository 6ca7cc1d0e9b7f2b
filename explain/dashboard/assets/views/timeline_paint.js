// One frame of the timeline: bands from the tiles' pixels, then what stands over them (ticks, words, the span in
// focus, flows). The bands are composed in one array of pixels and put on the canvas at once: a few million copies,
// whatever the number of spans.

import { KINDS, TILE_WIDTH, tileStart } from "./timeline_tiles.js";
import { css, inkOn } from "./timeline_colour.js";
import { rasterise, spanBehind, spanColour } from "./timeline_raster.js";
import { placeOf } from "./timeline_layout.js";
import { axisTicks } from "./timeline_scale.js";

export const AXIS = 22;
// So long are tiles made into pixels in one frame; the rest of it is for what is seen.
const RASTER_MS = 4;
// Nothing moves yet before the first picture.
const FIRST_RASTER_MS = 60;
const WORDS_MOST = 500;
const TRAIN = KINDS.indexOf("train");
const FONT = "11px system-ui, sans-serif";

/**
 * @typedef {object} Focus a span by value, so that it survives its tile
 * @property {number} track
 * @property {number} fromUS
 * @property {number} toUS
 * @property {number} version
 * @property {number} count
 * @property {number} ref
 * @property {number} kind
 *
 * @typedef {object} Scene what a frame shows
 * @property {number} fromUS time at the left edge
 * @property {number} pixelUS microseconds of a CSS pixel
 * @property {number} top how far the bands are scrolled, CSS pixels
 * @property {number} endUS how far the run has come
 * @property {import("./timeline_layout.js").Layout} layout
 * @property {import("./timeline_raster.js").Colouring} colouring
 * @property {number} levelMin
 * @property {number} levelMax
 * @property {boolean} first whether nothing has been seen yet
 * @property {Focus|null} hover
 * @property {Focus|null} focus
 * @property {{x0: number, x1: number}|null} box
 */

/**
 * What a frame draws from.
 * @typedef {{ entry: import("./timeline_tiles.js").Entry, fromUS: number, toUS: number }} Part
 * @typedef {{ level: number, parts: Part[], unfinished: boolean, deadline: number }} Found
 * @typedef {(us: number) => number} X where a time is, in CSS pixels
 */

/** The level whose pixels are no wider than those of the screen. */
export function levelFor(/** @type {number} */ pixelUS, /** @type {number} */ levelMin, /** @type {number} */ levelMax) {
  return Math.max(levelMin, Math.min(levelMax, Math.floor(Math.log2(pixelUS) + 1e-9)));
}

/** Painter draws scenes on one canvas. */
export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {import("./timeline_tiles.js").TileStore} tiles */
  constructor(canvas, tiles) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.tiles = tiles;
    this.width = this.height = 0;
    this.ratio = 1;
    /** @type {ImageData|null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    this.line = new Uint32Array(0);
  }

  /** @param {number} width in CSS pixels @param {number} height */
  resize(width, height, /** @type {number} */ ratio) {
    // Beyond two device pixels a CSS pixel nothing more is seen, and a frame takes twice as long.
    const scale = Math.min(2, ratio);
    if (width === this.width && height === this.height && scale === this.ratio) return;
    Object.assign(this, { width, height, ratio: scale });
    const w = (this.canvas.width = Math.max(1, Math.round(width * scale)));
    const h = (this.canvas.height = Math.max(1, Math.round(height * scale)));
    this.image = new ImageData(w, h);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.line = new Uint32Array(w);
  }

  /**
   * Draws a scene.
   * @param {Scene} scene
   * @returns {boolean} whether something is left to draw in a next frame
   */
  paint(scene) {
    if (!this.image) return false;
    // Whole device pixels from the beginning of time: what is drawn of a span does not shimmer as it moves.
    const stepUS = scene.pixelUS / this.ratio;
    const fromUS = Math.round(scene.fromUS / stepUS) * stepUS;
    const found = this.findTiles(scene, fromUS, stepUS);
    this.pixels.fill(scene.colouring.palette.background);
    for (const band of scene.layout.bands) this.paintBand(scene, band, found, fromUS, stepUS);
    this.context.putImageData(this.image, 0, 0);
    this.paintOver(scene, found, fromUS);
    return found.unfinished;
  }

  /** The tiles in view, the nearest there are, with their pixels. */
  findTiles(/** @type {Scene} */ scene, /** @type {number} */ fromUS, /** @type {number} */ stepUS) {
    const level = levelFor(stepUS, scene.levelMin, scene.levelMax);
    const widthUS = TILE_WIDTH * 2 ** level;
    const toUS = Math.min(scene.endUS, fromUS + stepUS * this.canvas.width);
    /** @type {Found} */ const found = { level, parts: [], unfinished: false, deadline: performance.now() + (scene.first ? FIRST_RASTER_MS : RASTER_MS) };
    for (let index = Math.max(0, Math.floor(fromUS / widthUS)); index * widthUS < toUS; index++) {
      const exact = this.tiles.get(level, index);
      if (exact && this.rasterOf(exact, scene, found)) {
        found.parts.push({ entry: exact, fromUS: index * widthUS, toUS: (index + 1) * widthUS });
      } else this.findCoarser(scene, found, level, index);
    }
    return found;
  }

  /** What stands in for a tile that is not here yet. */
  findCoarser(/** @type {Scene} */ scene, /** @type {Found} */ found, /** @type {number} */ level, /** @type {number} */ index) {
    const widthUS = TILE_WIDTH * 2 ** level;
    for (let up = 1; level + up <= scene.levelMax; up++) {
      const entry = this.tiles.get(level + up, Math.floor(index / 2 ** up));
      if (!entry || !this.rasterOf(entry, scene, found)) continue;
      found.parts.push({ entry, fromUS: index * widthUS, toUS: (index + 1) * widthUS });
      return;
    }
  }

  /** Whether a tile has pixels to show; they are drawn on where there is time. */
  rasterOf(/** @type {import("./timeline_tiles.js").Entry} */ entry, /** @type {Scene} */ scene, /** @type {Found} */ found) {
    const { key } = scene.colouring, { rows, rowOf } = scene.layout;
    if (entry.raster && entry.rasterKey === key) return true;
    if (performance.now() < found.deadline) {
      if (entry.drawing?.key !== key) entry.drawing = { key, pixels: new Uint32Array(rows * TILE_WIDTH), next: 0 };
      if (rasterise(entry, entry.drawing, rowOf, scene.colouring, found.deadline)) {
        this.tiles.keepRaster(entry, entry.drawing.pixels, key);
        return true;
      }
    }
    found.unfinished = true;
    return entry.raster !== null && entry.raster.length === rows * TILE_WIDTH; // the colours of before
  }

  paintBand(/** @type {Scene} */ scene, /** @type {import("./timeline_layout.js").Band} */ band, /** @type {Found} */ found, /** @type {number} */ fromUS, /** @type {number} */ stepUS) {
    const w = this.canvas.width, h = this.canvas.height;
    const y0 = Math.round((AXIS + band.y - scene.top) * this.ratio);
    const y1 = Math.round((AXIS + band.y + band.height - scene.top) * this.ratio);
    const first = Math.max(y0, Math.round(AXIS * this.ratio)), last = Math.min(y1, h);
    let shown = -1;
    for (let y = first; y < last; y++) {
      const row = band.rows[Math.floor(((y - y0) * band.rows.length) / (y1 - y0))];
      if (row !== shown) {
        this.composeLine(row, found, fromUS, stepUS, scene.colouring.palette.band);
        shown = row;
      }
      this.pixels.set(this.line, y * w);
    }
  }

  /** One row of a raster as it is seen: the pixel of the tile at each pixel of the screen. */
  composeLine(/** @type {number} */ row, /** @type {Found} */ found, /** @type {number} */ fromUS, /** @type {number} */ stepUS, /** @type {number} */ background) {
    const { line } = this;
    line.fill(background);
    for (const part of found.parts) {
      const { level, index } = part.entry, raster = /** @type {Uint32Array} */ (part.entry.raster);
      const pixelUS = 2 ** level, step = stepUS / pixelUS, base = row * TILE_WIDTH;
      const offset = (fromUS - tileStart(level, index)) / pixelUS + 1e-6;
      const a = Math.max(0, Math.ceil((part.fromUS - fromUS) / stepUS - 1e-6));
      const b = Math.min(line.length, Math.ceil((part.toUS - fromUS) / stepUS - 1e-6));
      for (let x = a; x < b; x++) {
        const at = Math.floor(offset + x * step);
        const colour = at >= 0 && at < TILE_WIDTH ? raster[base + at] : 0;
        if (colour !== 0) line[x] = colour;
      }
    }
  }

  paintOver(/** @type {Scene} */ scene, /** @type {Found} */ found, /** @type {number} */ fromUS) {
    const c = this.context;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.font = FONT;
    c.textBaseline = "middle";
    const x = (/** @type {number} */ us) => (us - fromUS) / scene.pixelUS;
    c.save();
    c.beginPath();
    c.rect(0, AXIS, this.width, this.height - AXIS);
    c.clip();
    this.paintWords(scene, found, x);
    this.paintEnd(scene, x);
    this.paintFlows(scene, found, x);
    if (scene.hover) this.outline(scene, scene.hover, x, 1);
    if (scene.focus) this.outline(scene, scene.focus, x, 2);
    if (scene.box) this.paintBox(scene);
    c.restore();
    this.paintAxis(scene, fromUS, x);
    c.setTransform(1, 0, 0, 1, 0, 0);
  }

  paintWords(/** @type {Scene} */ scene, /** @type {Found} */ found, /** @type {X} */ x) {
    const c = this.context, viewUS = Math.max(0, scene.fromUS);
    let words = 0;
    for (const { entry, fromUS, toUS } of found.parts) {
      const { tile } = entry;
      const start = tileStart(entry.level, entry.index), pixelUS = 2 ** entry.level;
      for (const i of tile.wide) {
        const beginUS = start + tile.start[i] * pixelUS, endUS = start + tile.end[i] * pixelUS;
        const seenUS = Math.max(beginUS, viewUS); // a span is in every tile that it crosses: one of them says its word
        if (seenUS < fromUS || seenUS >= toUS || words >= WORDS_MOST) continue;
        const a = Math.max(0, x(beginUS)), b = Math.min(this.width, x(endUS));
        if (b - a < 26) continue;
        const place = placeOf(scene.layout, tile.track[i]);
        if (!place || place.height < 10) continue;
        const text = wordOf(tile, i);
        const behind = scene.colouring.by === "staleness" ? spanBehind(scene.colouring, tile.kind[i], tile.version[i], endUS) : 0;
        c.fillStyle = inkOn(spanColour(scene.colouring, tile.kind[i], tile.version[i], behind));
        if (c.measureText(text).width > b - a - 6) continue;
        c.fillText(text, a + 4, AXIS + place.y - scene.top + place.height / 2 + 0.5);
        words++;
      }
    }
  }

  /** Where the run has come to: beyond is nothing yet. */
  paintEnd(/** @type {Scene} */ scene, /** @type {X} */ x) {
    const at = Math.round(x(scene.endUS)) + 0.5;
    if (at < 0 || at > this.width) return;
    this.context.strokeStyle = scene.colouring.palette.muted;
    this.line1(at, AXIS, at, this.height);
  }

  /** What the span in focus led to: its group's way to the train step, or the rollouts of a step. */
  paintFlows(/** @type {Scene} */ scene, /** @type {Found} */ found, /** @type {X} */ x) {
    const { focus } = scene, c = this.context;
    if (!focus) return;
    c.lineWidth = 1;
    for (const { entry, fromUS, toUS } of found.parts) {
      const { tile } = entry;
      const start = tileStart(entry.level, entry.index), pixelUS = 2 ** entry.level;
      for (let i = 0; i < tile.flows; i++) {
        const x0 = start + tile.flowX0[i] * pixelUS, x1 = start + tile.flowX1[i] * pixelUS;
        if (!flowsWith(focus, tile, i, x1, pixelUS) || x1 < fromUS || x1 >= toUS) continue;
        const from = placeOf(scene.layout, tile.flowTrack0[i]), to = placeOf(scene.layout, tile.flowTrack1[i]);
        if (!from || !to) continue;
        const y0 = AXIS + from.y + from.height / 2 - scene.top, y1 = AXIS + to.y + to.height / 2 - scene.top;
        const a = x(x0), b = x(x1), bend = Math.max(12, (b - a) / 2);
        c.strokeStyle = scene.colouring.palette.ink;
        c.globalAlpha = 0.75;
        c.beginPath();
        c.moveTo(a, y0);
        c.bezierCurveTo(a + bend, y0, b - bend, y1, b, y1);
        c.stroke();
        c.globalAlpha = 1;
      }
    }
  }

  outline(/** @type {Scene} */ scene, /** @type {any} */ span, /** @type {X} */ x, /** @type {number} */ width) {
    const place = placeOf(scene.layout, span.track);
    if (!place) return;
    const c = this.context;
    const a = Math.max(-2, x(span.fromUS)), b = Math.min(this.width + 2, Math.max(x(span.toUS), a + 2));
    const y = AXIS + place.y - scene.top, height = Math.max(3, place.height);
    c.lineWidth = width;
    c.strokeStyle = scene.colouring.palette.accent;
    c.strokeRect(Math.round(a) - 0.5, Math.round(y) - 0.5, Math.round(b - a) + 1, Math.round(height) + 1);
  }

  paintBox(/** @type {Scene} */ scene) {
    if (!scene.box) return;
    const c = this.context, { x0, x1 } = scene.box;
    c.fillStyle = scene.colouring.palette.accent;
    c.globalAlpha = 0.15;
    c.fillRect(Math.min(x0, x1), AXIS, Math.abs(x1 - x0), this.height - AXIS);
    c.globalAlpha = 1;
  }

  paintAxis(/** @type {Scene} */ scene, /** @type {number} */ fromUS, /** @type {X} */ x) {
    const c = this.context, { palette } = scene.colouring;
    c.fillStyle = css(palette.background);
    c.fillRect(0, 0, this.width, AXIS);
    c.strokeStyle = palette.rule;
    c.lineWidth = 1;
    this.line1(0, AXIS - 0.5, this.width, AXIS - 0.5);
    c.fillStyle = palette.muted;
    for (const { us, text } of axisTicks(fromUS, fromUS + this.width * scene.pixelUS, this.width)) {
      const at = Math.round(x(us)) + 0.5;
      this.line1(at, AXIS - 6, at, AXIS - 1);
      if (at + 4 + c.measureText(text).width < this.width) c.fillText(text, at + 4, AXIS / 2 - 1);
    }
  }

  line1(/** @type {number} */ x0, /** @type {number} */ y0, /** @type {number} */ x1, /** @type {number} */ y1) {
    const c = this.context;
    c.beginPath();
    c.moveTo(x0, y0);
    c.lineTo(x1, y1);
    c.stroke();
  }
}

function flowsWith(/** @type {Focus} */ focus, /** @type {import("./timeline_tiles.js").Tile} */ tile, /** @type {number} */ i, /** @type {number} */ x1, /** @type {number} */ pixelUS) {
  if (focus.kind === TRAIN) return tile.flowTrack1[i] === focus.track && x1 >= focus.fromUS - pixelUS && x1 <= focus.toUS + pixelUS;
  return focus.count === 1 && focus.ref === tile.flowRef[i];
}

function wordOf(/** @type {import("./timeline_tiles.js").Tile} */ tile, /** @type {number} */ i) {
  const kind = tile.kind[i];
  if (tile.count[i] > 1) return tile.count[i] + "×";
  if (kind === TRAIN) return "step " + tile.ref[i] + " → v" + tile.version[i];
  if (KINDS[kind] === "load" || KINDS[kind] === "switch" || KINDS[kind] === "sync") return "v" + tile.version[i];
  return "g" + tile.ref[i] + " v" + tile.version[i];
}
