// What part of the run is in view, and how it moves: plain arithmetic, which the browser's events call.

import { TILE_WIDTH } from "./timeline_tiles.js";
import { levelFor } from "./timeline_paint.js";

const LEAST_PIXEL_US = 0.25;
const REFRESH_MS = 500;

/** Window is the stretch of time in view, and how far the bands are scrolled. Times are microseconds. */
export class Window {
  constructor() {
    this.fromUS = 0;
    this.pixelUS = 1000;
    this.top = 0;
    this.width = 1;
    this.height = 1;
    this.endUS = 0;
    this.contentHeight = 0;
    this.follow = false;
  }

  get toUS() {
    return this.fromUS + this.width * this.pixelUS;
  }

  /** The whole run, and a little beside it. */
  fit() {
    this.follow = false;
    this.show(0, Math.max(1000, this.endUS));
  }

  /** Shows from one time to another. */
  show(/** @type {number} */ fromUS, /** @type {number} */ toUS) {
    const margin = (toUS - fromUS) * 0.02;
    this.pixelUS = (toUS - fromUS + 2 * margin) / this.width;
    this.fromUS = fromUS - margin;
    this.hold();
  }

  /** Keeps what is in view within the run. */
  hold() {
    const most = Math.max(1000, this.endUS * 1.04) / this.width;
    this.pixelUS = Math.min(Math.max(this.pixelUS, LEAST_PIXEL_US), most);
    const spare = this.width * this.pixelUS * 0.02;
    this.fromUS = Math.max(-spare, Math.min(this.fromUS, Math.max(-spare, this.endUS + spare - this.width * this.pixelUS)));
    this.top = Math.max(0, Math.min(this.top, this.contentHeight - this.height));
  }

  /** @param {number} factor below 1 to see more closely @param {number} x what stays where it is */
  zoom(factor, x = this.width / 2) {
    const us = this.fromUS + x * this.pixelUS;
    const before = this.pixelUS;
    this.pixelUS *= factor;
    this.hold();
    if (this.follow && factor < 1) this.fromUS = this.endUS + this.width * this.pixelUS * 0.02 - this.width * this.pixelUS;
    else if (this.pixelUS !== before) this.fromUS = us - x * this.pixelUS;
    this.hold();
  }

  /** Moves by CSS pixels. */
  pan(/** @type {number} */ dx, dy = 0) {
    if (dx < 0) this.follow = false;
    this.fromUS += dx * this.pixelUS;
    this.top += dy;
    this.hold();
  }

  /** The run has come further. */
  advance(/** @type {number} */ endUS) {
    if (endUS <= this.endUS) return false;
    const whole = this.pixelUS * this.width >= this.endUS;
    this.endUS = endUS;
    if (whole && !this.follow) this.show(0, endUS);
    else if (this.follow) this.fromUS = endUS - this.width * this.pixelUS * 0.98;
    this.hold();
    return true;
  }

  resize(/** @type {number} */ width, /** @type {number} */ height) {
    const { fromUS, toUS } = this;
    const fresh = this.width <= 1;
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (fresh) this.fit();
    else {
      this.pixelUS = (toUS - fromUS) / this.width;
      this.hold();
    }
  }

  /**
   * The tiles to have: those in view and, once they are here, the neighbours and those for the next zoom.
   * @param {number} ratio device pixels of a CSS pixel
   * @param {number} levelMin
   * @param {number} levelMax
   * @param {boolean} ahead whether more than those in view are wanted
   */
  wantedTiles(ratio, levelMin, levelMax, ahead) {
    const level = levelFor(this.pixelUS / ratio, levelMin, levelMax);
    /** @type {{ level: number, index: number, maxAgeMS: number }[]} */ const wanted = [];
    const add = (/** @type {number} */ at, /** @type {number} */ first, /** @type {number} */ last, /** @type {number} */ maxAgeMS) => {
      const widthUS = TILE_WIDTH * 2 ** at;
      const most = Math.floor(Math.max(0, this.endUS - 1) / widthUS);
      for (let i = Math.max(0, first); i <= Math.min(last, most); i++) wanted.push({ level: at, index: i, maxAgeMS });
    };
    const indexOf = (/** @type {number} */ us, /** @type {number} */ at) => Math.floor(us / (TILE_WIDTH * 2 ** at));
    const first = indexOf(this.fromUS, level), last = indexOf(this.toUS, level);
    add(level, first, last, REFRESH_MS);
    if (!ahead) return wanted;
    add(level, last + 1, last + 2, 10 * REFRESH_MS);
    add(level, first - 2, first - 1, 10 * REFRESH_MS);
    for (const up of [1, 3]) if (level + up <= levelMax) add(level + up, indexOf(this.fromUS, level + up), indexOf(this.toUS, level + up), 20 * REFRESH_MS);
    if (level > levelMin) {
      const middle = (this.fromUS + this.toUS) / 2;
      add(level - 1, indexOf(middle, level - 1), indexOf(middle, level - 1), 20 * REFRESH_MS);
    }
    return wanted;
  }
}
