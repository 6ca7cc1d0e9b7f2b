// Tiles of the timeline: read from the wire into typed arrays, kept in a bounded cache, fetched ahead.
// A span is never an object: everything below works on the columns as they came.

/** Pixels of a tile, whatever its level. A level-L pixel is 2^L microseconds. */
export const TILE_WIDTH = 1024;

const MAGIC = 0x31545748; // "HWT1", little-endian
const HEADER_BYTES = 12;
const WIDE_PIXELS = 24;

/** Kinds of spans, in the order of dashboard.SpanKind. */
export const KINDS = ["generate", "environment", "interrupted", "load", "switch", "queued", "train", "sync", "failed", "validate"];

/**
 * @typedef {object} Tile
 * @property {number} spans
 * @property {Float32Array} start pixels from the tile's beginning
 * @property {Float32Array} end
 * @property {Int32Array} track
 * @property {Int32Array} version
 * @property {Int32Array} count
 * @property {Int32Array} ref
 * @property {Uint8Array} kind
 * @property {number} flows
 * @property {Float32Array} flowX0
 * @property {Float32Array} flowX1
 * @property {Int32Array} flowTrack0
 * @property {Int32Array} flowTrack1
 * @property {Int32Array} flowVersion
 * @property {Int32Array} flowRef
 * @property {Uint32Array} wide the spans that may have room for a word
 */

/**
 * The columns of a tile: views into the buffer, nothing is copied.
 * @param {ArrayBuffer} buffer
 * @returns {Tile}
 */
export function decodeTile(buffer) {
  const head = new DataView(buffer);
  if (buffer.byteLength < HEADER_BYTES || head.getUint32(0, true) !== MAGIC) throw new Error("not a tile of the timeline");
  const spans = head.getUint32(4, true), flows = head.getUint32(8, true);
  let at = HEADER_BYTES;
  const column = (/** @type {any} */ type, /** @type {number} */ length) => {
    const view = new type(buffer, at, length);
    at += Math.ceil((length * type.BYTES_PER_ELEMENT) / 4) * 4;
    return view;
  };
  const tile = {
    spans, flows,
    start: column(Float32Array, spans), end: column(Float32Array, spans),
    track: column(Int32Array, spans), version: column(Int32Array, spans),
    count: column(Int32Array, spans), ref: column(Int32Array, spans),
    kind: column(Uint8Array, spans),
    flowX0: column(Float32Array, flows), flowX1: column(Float32Array, flows),
    flowTrack0: column(Int32Array, flows), flowTrack1: column(Int32Array, flows),
    flowVersion: column(Int32Array, flows), flowRef: column(Int32Array, flows),
    wide: NONE,
  };
  tile.wide = wideSpans(tile);
  return tile;
}

const NONE = new Uint32Array(0);

function wideSpans(/** @type {Tile} */ tile) {
  let n = 0;
  for (let i = 0; i < tile.spans; i++) if (tile.end[i] - tile.start[i] >= WIDE_PIXELS) n++;
  const wide = new Uint32Array(n);
  n = 0;
  for (let i = 0; i < tile.spans; i++) if (tile.end[i] - tile.start[i] >= WIDE_PIXELS) wide[n++] = i;
  return wide;
}

/** @param {number} level @param {number} index */
export const tileStart = (level, index) => index * TILE_WIDTH * 2 ** level;

/**
 * @typedef {object} Entry
 * @property {number} level
 * @property {number} index
 * @property {Tile} tile
 * @property {boolean} final nothing in it can change any more
 * @property {number} at when it was fetched, as performance.now has it
 * @property {Uint32Array|null} raster one row of pixels a track, see timeline_raster.js
 * @property {string} rasterKey what the raster was coloured by
 * @property {import("./timeline_raster.js").Drawing|null} drawing the next raster, where it is not drawn to its end
 * @property {number} bytes
 */

/** TileStore keeps the tiles used last, within a bound, and fetches those that are wanted. */
export class TileStore {
  /**
   * @param {(level: number, index: number, signal: AbortSignal) => Promise<{buffer: ArrayBuffer, final: boolean}>} load
   * @param {{changed: () => void, failed: (error: Error) => void, limitBytes?: number, parallel?: number, retryMS?: number}} options
   */
  constructor(load, { changed, failed, limitBytes = 96 << 20, parallel = 4, retryMS = 1500 }) {
    this.load = load;
    this.changed = changed;
    this.failed = failed;
    this.limitBytes = limitBytes;
    this.parallel = parallel;
    this.retryMS = retryMS;
    /** @type {Map<string, Entry>} oldest first */
    this.entries = new Map();
    this.bytes = 0;
    /** @type {Map<string, AbortController>} */
    this.flying = new Map();
    /** @type {{level: number, index: number, maxAgeMS: number}[]} */
    this.queue = [];
    this.retryAt = 0;
    this.timer = 0;
    this.closed = false;
  }

  /** The tile if it is here; it is then the one used last. @returns {Entry|undefined} */
  get(/** @type {number} */ level, /** @type {number} */ index) {
    const key = level + "/" + index;
    const entry = this.entries.get(key);
    if (entry) {
      this.entries.delete(key);
      this.entries.set(key, entry);
    }
    return entry;
  }

  /**
   * Says what is wanted from now on, the most urgent first. What flies and is no longer wanted is aborted.
   * A tile that may still change is fetched again when it is older than its maxAgeMS.
   * @param {{level: number, index: number, maxAgeMS: number}[]} wanted
   */
  want(wanted) {
    const keys = new Set(wanted.map((w) => w.level + "/" + w.index));
    for (const [key, controller] of this.flying) if (!keys.has(key)) controller.abort();
    this.queue = wanted;
    this.pump();
  }

  pump() {
    const now = performance.now();
    if (this.closed || now < this.retryAt) return;
    for (const { level, index, maxAgeMS } of this.queue) {
      if (this.flying.size >= this.parallel) return;
      const key = level + "/" + index;
      const entry = this.entries.get(key);
      if (this.flying.has(key) || (entry && (entry.final || now - entry.at < maxAgeMS))) continue;
      this.fetch(key, level, index);
    }
  }

  async fetch(/** @type {string} */ key, /** @type {number} */ level, /** @type {number} */ index) {
    const controller = new AbortController();
    this.flying.set(key, controller);
    try {
      const { buffer, final } = await this.load(level, index, controller.signal);
      if (this.closed) return;
      this.put(key, { level, index, tile: decodeTile(buffer), final, at: performance.now(), raster: null, rasterKey: "", drawing: null, bytes: buffer.byteLength });
      this.changed();
    } catch (error) {
      if (!controller.signal.aborted && !this.closed) this.fail(error);
    } finally {
      this.flying.delete(key);
      this.pump();
    }
  }

  fail(/** @type {any} */ error) {
    this.retryAt = performance.now() + this.retryMS;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.pump(), this.retryMS + 1);
    this.failed(error);
  }

  put(/** @type {string} */ key, /** @type {Entry} */ entry) {
    this.drop(key);
    this.entries.set(key, entry);
    this.bytes += entry.bytes;
    this.shrink();
  }

  /** Counts the pixels that were drawn of a tile. @param {Entry} entry @param {Uint32Array} raster */
  keepRaster(entry, raster, /** @type {string} */ key) {
    const bytes = raster.byteLength - (entry.raster ? entry.raster.byteLength : 0);
    entry.raster = raster;
    entry.rasterKey = key;
    entry.drawing = null;
    entry.bytes += bytes;
    if (this.entries.get(entry.level + "/" + entry.index) === entry) this.bytes += bytes;
    this.shrink();
  }

  shrink() {
    for (const key of this.entries.keys()) {
      if (this.bytes <= this.limitBytes || this.entries.size <= 8) return;
      this.drop(key);
    }
  }

  drop(/** @type {string} */ key) {
    const entry = this.entries.get(key);
    if (!entry) return;
    this.bytes -= entry.bytes;
    this.entries.delete(key);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    for (const controller of this.flying.values()) controller.abort();
    this.entries.clear();
  }
}
