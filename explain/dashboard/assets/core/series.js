// The run step by step, in bounded memory: a column per figure, all of one length.
import { signal } from "./html.js";

/** @typedef {import("../../types/wire.js").Series} Series */

const POINTS = 800; // asked for: more than a plot has pixels to show apart
const MOST = 2 * POINTS; // held: then all of it is asked for again, thinned by the server

export class SeriesBuffer {
  constructor() {
    /** @type {number[]} */ this.step = [];
    /** @type {number[]} */ this.time = [];
    /** @type {Map<string, (number | null)[]>} */ this.columns = new Map();
    /** Counts changes: what draws the series reads it. */
    this.changes = signal(0);
  }

  get length() { return this.step.length; }

  /** A column, all null where there is none. @param {string} name @returns {(number | null)[]} */
  column(name) { return this.columns.get(name) ?? this.step.map(() => null); }

  /** Whether a column has any figure. @param {string} name */
  has(name) { return this.columns.get(name)?.some(value => value !== null) ?? false; }

  /** The newest figure of a column. @param {string} name @returns {number | null} */
  last(name) { return this.columns.get(name)?.findLast(value => value !== null) ?? null; }

  /** Takes the place of all there was. @param {Series} series */
  replace(series) {
    this.step = series.step ?? [];
    this.time = series.time_s ?? [];
    this.columns = new Map(Object.entries(series.columns ?? {}));
    this.changes.value++;
  }

  /**
   * Appends what is newer. Returns false where it is time to ask for all of it again.
   * @param {Series} series
   */
  append(series) {
    const steps = series.step ?? [];
    const newest = this.step.at(-1) ?? -1;
    const first = steps.findIndex(step => step > newest);
    if (first < 0) return true;
    const gap = this.length > 0 && steps[first] - newest > 2 * this.stride();
    const old = this.length;
    this.step.push(...steps.slice(first));
    this.time.push(...(series.time_s ?? []).slice(first));
    for (const [name, values] of Object.entries(series.columns ?? {})) {
      const column = this.columns.get(name) ?? new Array(old).fill(null);
      column.push(...values.slice(first));
      this.columns.set(name, column);
    }
    for (const column of this.columns.values()) while (column.length < this.length) column.push(null);
    this.changes.value++;
    return !gap && this.length <= MOST;
  }

  /** Steps from one point to the next, at most. */
  stride() {
    let most = 1;
    for (let i = Math.max(1, this.length - 8); i < this.length; i++) most = Math.max(most, this.step[i] - this.step[i - 1]);
    return most;
  }
}

/** The path of all of it. */
export const seriesPath = "series?points=" + POINTS;
