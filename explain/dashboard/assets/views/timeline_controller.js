// The timeline's state and its frames: it draws when something changed, asks for tiles, and tells the page what
// is in view. It knows no markup.

import { TileStore, TILE_WIDTH } from "./timeline_tiles.js";
import { AXIS, Painter, levelFor } from "./timeline_paint.js";
import { Window } from "./timeline_window.js";
import { layOut, trackAt } from "./timeline_layout.js";
import { palette, versionPeriod } from "./timeline_colour.js";
import { spanBehind } from "./timeline_raster.js";
import { spanAt, spanBeside } from "./timeline_pick.js";
import { stepAtTime, stepsOf, timeOfStep, valueOfStep } from "./timeline_steps.js";

const SETTLE_MS = 180;
const FOLD_FROM = 9;
const HEIGHT_MOST = 0.62;
const MARK = "headway timeline frame";

/** Timeline draws a run's spans on a canvas. */
export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {object} options
   * @param {(level: number, index: number, signal: AbortSignal) => Promise<{buffer: ArrayBuffer, final: boolean}>} options.loadTile
   * @param {{timeline_level_min: number, timeline_level_max: number}} options.info
   * @param {() => void} options.settled what is in view has stopped changing for a moment
   * @param {() => void} options.framed after every frame
   * @param {(error: Error) => void} options.failed
   */
  constructor(canvas, { loadTile, info, settled, framed, failed }) {
    this.canvas = canvas;
    this.levelMin = info.timeline_level_min;
    this.levelMax = info.timeline_level_max;
    this.onSettled = settled;
    this.onFramed = framed;
    this.tiles = new TileStore(loadTile, { changed: () => this.invalidate(), failed });
    this.painter = new Painter(canvas, this.tiles);
    this.window = new Window();
    /** @type {import("./timeline_layout.js").Track[]} */
    this.tracks = [];
    this.folded = new Set();
    this.layout = layOut([], this.folded);
    this.steps = stepsOf({ step: [], time_s: [], columns: {} });
    /** @type {"version"|"kind"|"staleness"} */ this.by = "version";
    /** @type {any} the palette, once the theme is known */ this.theme = null;
    this.period = 8;
    this.generation = 0;
    /** @type {import("./timeline_paint.js").Focus|null} */ this.hover = null;
    /** @type {import("./timeline_paint.js").Focus|null} */ this.focus = null;
    /** @type {{ x0: number, x1: number }|null} */ this.box = null;
    this.frame = this.settleTimer = 0;
    this.drawn = false;
    this.closed = false;
  }

  setTheme(/** @type {boolean} */ dark, /** @type {(name: string) => string} */ variable) {
    this.theme = palette(dark, variable);
    this.invalidate();
  }

  /** @param {import("./timeline_layout.js").Track[]} tracks */
  setTracks(tracks, /** @type {number} */ endUS) {
    const first = this.tracks.length === 0;
    if (first || tracks.length !== this.tracks.length) {
      this.tracks = tracks;
      if (first) this.foldLarge();
      this.relayout();
    }
    if (this.window.advance(endUS)) this.invalidate();
    if (first) this.window.fit();
  }

  /** Engines with many slots begin folded. */
  foldLarge() {
    const sizes = new Map();
    for (const t of this.tracks) if (t.row !== "train") sizes.set(t.group, (sizes.get(t.group) ?? 0) + 1);
    const many = this.tracks.length > 40;
    for (const [group, size] of sizes) if (group && size > 1 && (many || size >= FOLD_FROM)) this.folded.add(group);
  }

  relayout() {
    this.layout = layOut(this.tracks, this.folded);
    this.generation++;
    this.window.contentHeight = this.layout.height;
    this.window.hold();
    this.invalidate();
  }

  /** Folds an engine or unfolds it; all of them where none is named. */
  fold(/** @type {string} */ group, /** @type {boolean} */ folded) {
    const groups = group ? [group] : this.tracks.map((t) => t.group).filter(Boolean);
    for (const name of groups) folded ? this.folded.add(name) : this.folded.delete(name);
    this.relayout();
  }

  setSteps(/** @type {any} */ series) {
    this.steps = stepsOf(series);
    if (this.by === "staleness") this.generation++;
    this.invalidate();
  }

  colourBy(/** @type {"version" | "kind" | "staleness"} */ by) {
    this.by = by;
    this.invalidate();
  }

  /** The height that shows all tracks, or as many as the page has room for. */
  wantedHeight(/** @type {number} */ pageHeight) {
    return Math.round(Math.max(150, Math.min(this.layout.height + AXIS + 4, pageHeight * HEIGHT_MOST)));
  }

  resize(/** @type {number} */ width, /** @type {number} */ height, /** @type {number} */ ratio) {
    this.window.resize(width, height - AXIS);
    this.painter.resize(width, height, ratio);
    this.invalidate();
  }

  invalidate() {
    if (this.frame || this.closed) return;
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    if (!this.theme || this.closed || this.painter.width === 0) return;
    performance.mark(MARK);
    const unfinished = this.painter.paint(this.scene());
    const complete = this.complete();
    this.tiles.want(this.window.wantedTiles(this.painter.ratio, this.levelMin, this.levelMax, complete));
    this.drawn = this.drawn || (complete && !unfinished);
    performance.measure(MARK, MARK);
    performance.clearMarks(MARK);
    performance.clearMeasures(MARK);
    if (unfinished) this.invalidate();
    clearTimeout(this.settleTimer);
    this.settleTimer = setTimeout(() => this.onSettled(), SETTLE_MS);
    this.onFramed();
  }

  /** @returns {import("./timeline_paint.js").Scene} */
  scene() {
    const w = this.window;
    return {
      fromUS: w.fromUS, pixelUS: w.pixelUS, top: w.top, endUS: w.endUS, layout: this.layout, colouring: this.colouring(),
      levelMin: this.levelMin, levelMax: this.levelMax, first: !this.drawn, hover: this.hover, focus: this.focus, box: this.box,
    };
  }

  /** What spans are coloured by. The circle of versions follows the zoom, so that panning changes no colour. @returns {import("./timeline_raster.js").Colouring} */
  colouring() {
    const { steps, window: w } = this;
    const last = steps.step.length ? steps.step[steps.step.length - 1] : 0;
    const inView = w.endUS > 0 ? last * Math.min(1, (w.width * w.pixelUS) / w.endUS) : 0;
    this.period = versionPeriod(inView + 4);
    return {
      key: [this.by, this.period, this.theme.key, this.generation].join(), by: this.by, period: this.period, palette: this.theme,
      versionAt: (/** @type {number} */ us) => stepAtTime(steps, us),
      stalenessOf: (/** @type {number} */ step) => valueOfStep(steps, "staleness", step),
    };
  }

  /** Whether every tile in view is here. */
  complete() {
    const w = this.window, level = levelFor(w.pixelUS / this.painter.ratio, this.levelMin, this.levelMax);
    const widthUS = TILE_WIDTH * 2 ** level;
    for (let i = Math.max(0, Math.floor(w.fromUS / widthUS)); i * widthUS < Math.min(w.endUS, w.toUS); i++) {
      if (!this.tiles.get(level, i)) return false;
    }
    return this.tracks.length > 0;
  }

  /** The tiles in view that are here, of the level in view or the nearest above. */
  entriesInView() {
    const w = this.window;
    const first = levelFor(w.pixelUS / this.painter.ratio, this.levelMin, this.levelMax);
    for (let level = first; level <= this.levelMax; level++) {
      const widthUS = TILE_WIDTH * 2 ** level, found = [];
      for (let i = Math.max(0, Math.floor(w.fromUS / widthUS)); i * widthUS < w.toUS; i++) {
        const entry = this.tiles.get(level, i);
        if (entry) found.push(entry);
      }
      if (found.length) return found;
    }
    return [];
  }

  spanAtPoint(/** @type {number} */ x, /** @type {number} */ y) {
    const hit = trackAt(this.layout, y - AXIS + this.window.top);
    if (!hit || y < AXIS) return null;
    const w = this.window;
    return spanAt(this.entriesInView(), hit.track.id, w.fromUS + x * w.pixelUS, 2 * w.pixelUS);
  }

  /** Puts the focus on a span, and brings it into view. */
  focusOn(/** @type {import("./timeline_paint.js").Focus|null} */ span) {
    this.focus = span;
    const w = this.window;
    if (span && (span.toUS < w.fromUS || span.fromUS > w.toUS)) {
      w.follow = false;
      w.fromUS = (span.fromUS + span.toUS) / 2 - (w.width * w.pixelUS) / 2;
      w.hold();
    }
    this.invalidate();
  }

  /** The span before or after the focus in its track; the nearest to the middle without one. @param {1|-1} direction */
  focusBeside(direction) {
    const w = this.window;
    if (!this.focus) return this.focusOnTrack(0);
    const us = direction > 0 ? this.focus.fromUS + w.pixelUS * 1e-3 : this.focus.fromUS - w.pixelUS * 1e-3;
    const next = spanBeside(this.entriesInView(), this.focus.track, us, direction);
    if (next) this.focusOn(next);
    else {
      w.pan((direction * w.width) / 2);
      this.invalidate();
    }
  }

  /** Moves the focus by tracks, to the span nearest in time. */
  focusOnTrack(/** @type {number} */ by) {
    if (this.tracks.length === 0) return;
    const w = this.window;
    const order = this.layout.bands.flatMap((band) => band.tracks.map((track) => ({ track, band })));
    const at = this.focus ? order.findIndex((o) => o.track.id === this.focus?.track) : -1;
    const { focus } = this;
    const us = focus ? (focus.fromUS + focus.toUS) / 2 : (w.fromUS + Math.min(w.toUS, w.endUS)) / 2;
    const entries = this.entriesInView();
    for (let i = Math.max(0, at + by); i >= 0 && i < order.length; i += by || 1) {
      const span = spanAt(entries, order[i].track.id, us, w.width * w.pixelUS);
      if (!span) continue;
      const { band } = order[i];
      if (band.y < w.top) w.top = band.y - 20;
      if (band.y + band.height > w.top + w.height) w.top = band.y + band.height - w.height;
      w.hold();
      return this.focusOn(span);
    }
  }

  /** How stale a span's work was, NaN where that means nothing. */
  behind(/** @type {import("./timeline_paint.js").Focus} */ span) {
    return span.count > 1 ? NaN : spanBehind(this.colouring(), span.kind, span.version, Math.min(span.toUS, this.window.endUS));
  }

  /** Shows a train step and those beside it. */
  showStep(/** @type {number} */ step) {
    const end = timeOfStep(this.steps, step), before = timeOfStep(this.steps, step - 1);
    const long = Math.max(end - before, this.window.pixelUS);
    this.window.follow = false;
    this.window.show(before - 1.5 * long, end + 1.5 * long);
    this.invalidate();
  }

  close() {
    this.closed = true;
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settleTimer);
    this.tiles.close();
  }
}

