// Plots over steps. uPlot draws; this keeps its data fresh at most four times a second, its size that of its place,
// its colours those of the theme, and gives it a legend, a keyboard and words for those who do not see it.
import { html, useEffect, useRef, useState } from "./html.js";
import uPlot from "../vendor/uPlot.js";
import { fixed, short } from "./format.js";

/**
 * A line of a plot. Stacked ones add up, in their order from below.
 * @typedef {object} Line
 * @property {string} name as in the legend
 * @property {string} colour as CSS has it, or the name of a variable of the theme ("--accent")
 * @property {(series: import("./series.js").SeriesBuffer) => (number | null)[]} values
 * @property {boolean} [dashed]
 * @property {boolean} [stacked]
 * @property {boolean} [points] marks and no gaps, for figures that come now and then
 * @property {number} [width]
 * @property {boolean} [smooth] a running mean over what a few pixels hold; its raw figures stay behind it, faint, unless it is stacked
 */
/**
 * A stretch of the value axis with a meaning.
 * @typedef {object} Band
 * @property {number} from
 * @property {number} to
 * @property {string} colour
 * @property {string} name
 */

const FRAME_MS = 250;
const SYNC = "steps";

/** @param {string} colour */
export function themed(colour) {
  return colour.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(colour).trim() : colour;
}

/**
 * @param {{ context: import("../app.js").Context, title: string, lines: Line[], bands?: Band[], height?: number,
 *   format?: (n: number | null | undefined) => string, low?: number, high?: number, unit?: string }} props
 */
export function Plot({ context, title, lines, bands, height = 170, format = short, low, high, unit }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const legend = useRef(/** @type {HTMLDivElement | null} */ (null));
  const newest = useRef(lines);
  newest.current = lines; // their names and colours are those of the plot; what they are made of may be newer
  const theme = context.theme.value;
  const key = lines.map(line => line.name + line.colour + line.dashed + line.stacked).join("|");

  useEffect(() => {
    const parent = place.current;
    if (!parent) return;
    const readout = createReadout(/** @type {HTMLDivElement} */ (legend.current), parent, title, newest, format, unit);
    const plot = new uPlot(options(parent, lines, bands ?? [], height, format, low, high, readout.at), data(context.series, lines), parent);
    const draw = throttle(() => {
      plot.setData(data(context.series, newest.current));
      readout.newest(context.series);
    });
    const seen = whileSeen(parent, draw.soon);
    const off = context.series.changes.subscribe(seen.changed);
    const resize = new ResizeObserver(() => plot.setSize({ width: Math.max(120, parent.clientWidth), height }));
    resize.observe(parent);
    const keys = (/** @type {KeyboardEvent} */ event) => moveCursor(plot, event);
    parent.addEventListener("keydown", keys);
    return () => { parent.removeEventListener("keydown", keys); resize.disconnect(); seen.end(); off(); draw.end(); plot.destroy(); };
  }, [theme, key, height, low, high]);

  return html`<figure class="plot">
    <div class="plot-place" ref=${place} tabindex="0" role="img" aria-label=${title} style=${{ minHeight: height + "px" }}></div>
    <figcaption class="legend" ref=${legend}>${lines.map(line => html`<span class="key" key=${line.name}><i class=${"swatch" + (line.dashed ? " dashed" : "")} style=${{ "--swatch": line.colour.startsWith("--") ? `var(${line.colour})` : line.colour }}></i>${line.name} <b></b></span>`)}<span class="quiet at"></span></figcaption>
  </figure>`;
}

/** Calls for what is in sight alone; what changed out of sight is caught up with when it comes into sight. @param {HTMLElement} place @param {() => void} call */
function whileSeen(place, call) {
  let inSight = true, late = false;
  const watch = new IntersectionObserver(entries => {
    inSight = entries.some(entry => entry.isIntersecting);
    if (inSight && late) { late = false; call(); }
  }, { rootMargin: "100px" });
  watch.observe(place);
  return {
    changed() { if (inSight) call(); else late = true; },
    end() { watch.disconnect(); },
  };
}

/** At most one call a frame. @param {() => void} call */
export function throttle(call) {
  let last = 0;
  /** @type {ReturnType<typeof setTimeout> | null} */ let clock = null;
  const run = () => { clock = null; last = performance.now(); call(); };
  return {
    soon() {
      if (clock !== null) return;
      const wait = FRAME_MS - (performance.now() - last);
      if (wait <= 0) run(); else clock = setTimeout(run, wait);
    },
    end() { if (clock !== null) clearTimeout(clock); clock = null; },
  };
}

/** How many points a running mean is over. @param {number} points */
export function smoothing(points) { return points > 60 ? 2 * Math.round(points / 100) + 1 : 1; }

/**
 * Running means over a window around each point, of the figures that there are.
 * @param {(number | null)[]} values @param {number} window odd @returns {(number | null)[]}
 */
export function runningMean(values, window) {
  if (window <= 1) return values;
  const half = (window - 1) / 2, n = values.length;
  let sum = 0, held = 0;
  const take = (/** @type {number} */ at, /** @type {1 | -1} */ sign) => {
    const value = at >= 0 && at < n ? values[at] : null;
    if (value !== null) { sum += sign * value; held += sign; }
  };
  for (let i = 0; i < half; i++) take(i, 1);
  return values.map((value, i) => {
    take(i + half, 1);
    take(i - half - 1, -1);
    return value === null || held === 0 ? null : sum / held;
  });
}

/** Columns for uPlot: stacked ones summed up, the topmost first, so that each covers the ones above; raw figures of smooth ones last. */
function data(/** @type {import("./series.js").SeriesBuffer} */ series, /** @type {Line[]} */ lines) {
  const window = smoothing(series.length);
  const raw = lines.map(line => line.values(series));
  const columns = raw.map((values, i) => lines[i].smooth ? runningMean(values, window) : values);
  /** @type {(number | null)[] | null} */ let below = null;
  const drawn = lines.map((line, i) => {
    if (!line.stacked) return columns[i];
    const under = below;
    below = columns[i].map((value, at) => value === null && (under?.[at] ?? null) === null ? null : (value ?? 0) + (under?.[at] ?? 0));
    return below;
  });
  return [series.step, ...faint(lines).map(i => raw[i]), ...drawOrder(lines).map(i => drawn[i])];
}

/** Lines whose raw figures are drawn behind them. @param {Line[]} lines */
function faint(lines) { return lines.map((_, i) => i).filter(i => lines[i].smooth && !lines[i].stacked); }

/** Stacked lines from the top one down, then the others. @param {Line[]} lines */
function drawOrder(lines) {
  const all = lines.map((_, i) => i);
  return [...all.filter(i => lines[i].stacked).reverse(), ...all.filter(i => !lines[i].stacked)];
}

/** The ticks of an axis, all with the digits that their step takes. @param {number[]} ticks */
function even(ticks) {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 0;
  let digits = 0;
  while (digits < 3 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  const plain = step >= 0.001 && ticks.every(tick => Math.abs(tick) < 1e4);
  return ticks.map(tick => plain ? fixed(tick, digits) : short(tick));
}

/**
 * @param {HTMLElement} parent @param {Line[]} lines @param {Band[]} bands @param {number} height
 * @param {(n: number | null | undefined) => string} format @param {number | undefined} low @param {number | undefined} high
 * @param {(index: number | null | undefined) => void} at
 */
function options(parent, lines, bands, height, format, low, high, at) {
  const quiet = themed("--quiet"), grid = themed("--edge");
  const axis = { stroke: quiet, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false }, gap: 4 };
  return {
    width: Math.max(120, parent.clientWidth), height, legend: { show: false },
    padding: [8, 18, 0, 0],
    cursor: { sync: { key: SYNC, setSeries: false }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (/** @type {any} */ _, /** @type {number} */ min, /** @type {number} */ max) => range(min, max, low, high) } },
    axes: [{ ...axis, size: 26, space: 70 }, { ...axis, size: 52, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => format === short ? even(ticks) : ticks.map(tick => format(tick)) }],
    series: [{}, ...faint(lines).map(i => ({ stroke: themed(lines[i].colour), width: 1, alpha: 0.28, points: { show: false } })), ...drawOrder(lines).map(i => {
      const line = lines[i], colour = themed(line.colour);
      return {
        stroke: colour, width: line.stacked ? 0 : line.width ?? 1.5, dash: line.dashed ? [6, 4] : undefined,
        fill: line.stacked ? colour : undefined, spanGaps: !!line.points || !!line.stacked,
        points: { show: !!line.points, size: 4, fill: colour },
      };
    })],
    hooks: {
      drawClear: [(/** @type {uPlot} */ plot) => drawBands(plot, bands)],
      setCursor: [(/** @type {uPlot} */ plot) => at(plot.cursor.idx)],
    },
  };
}

/** @param {number | null} min @param {number | null} max @param {number} [low] @param {number} [high] @returns {[number, number]} */
function range(min, max, low, high) {
  let from = low ?? min ?? 0, to = high ?? max ?? 1;
  if (high === undefined && max !== null) to = max + 0.06 * Math.max(max - from, Math.abs(max) * 0.05, 1e-9);
  if (low === undefined && min !== null) from = min - 0.06 * Math.max(to - min, Math.abs(min) * 0.05, 1e-9);
  return to > from ? [from, to] : [from, from + 1];
}

/** @param {uPlot} plot @param {Band[]} bands */
function drawBands(plot, bands) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const band of bands) {
    const top = plot.valToPos(Math.min(band.to, plot.scales.y.max), "y", true), bottom = plot.valToPos(Math.max(band.from, plot.scales.y.min), "y", true);
    if (!(bottom > top)) continue;
    ctx.globalAlpha = 0.14;
    ctx.fillStyle = themed(band.colour);
    ctx.fillRect(bbox.left, top, bbox.width, bottom - top);
    ctx.globalAlpha = 0.9;
    ctx.fillStyle = themed("--quiet");
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    if (bottom - top > 14 * devicePixelRatio) ctx.fillText(band.name, bbox.left + bbox.width - 4 * devicePixelRatio, top + 2 * devicePixelRatio);
  }
  ctx.restore();
}

/**
 * The figures in the legend: those under the cursor, else the newest.
 * @param {HTMLElement} legend @param {HTMLElement} place @param {string} title @param {{ current: Line[] }} newest
 * @param {(n: number | null | undefined) => string} format @param {string} [unit]
 */
function createReadout(legend, place, title, newest, format, unit = "") {
  /** @type {import("./series.js").SeriesBuffer | null} */ let series = null;
  /** @type {number | null} */ let cursor = null;
  let spoken = 0;
  function show() {
    if (!series) return;
    const lines = newest.current;
    const index = cursor ?? series.length - 1, window = smoothing(series.length);
    const smooth = window > 1 && lines.some(line => line.smooth);
    const figures = lines.map(line => {
      const values = line.values(/** @type {import("./series.js").SeriesBuffer} */ (series));
      if (line.smooth) return runningMean(values.slice(Math.max(0, index - window), index + window), window)[Math.min(index, window)];
      return cursor === null && line.points ? values.findLast(value => value !== null) : values[index];
    });
    legend.querySelectorAll("b").forEach((place, i) => { place.textContent = format(figures[i]); });
    const step = series.step[index];
    const at = legend.querySelector(".at");
    if (at) at.textContent = step === undefined ? "" : (cursor === null ? "newest, step " : "at step ") + step + (smooth ? `, mean of ${window * series.stride()}` : "");
    if (performance.now() - spoken > 5000 || cursor !== null) { // a label that changes all the time is no label
      spoken = performance.now();
      place.setAttribute("aria-label", `${title}${unit ? ", " + unit : ""}, at step ${step ?? "none"}: ${lines.map((line, i) => line.name + " " + format(figures[i])).join(", ")}. Arrow keys move along the steps.`);
    }
  }
  return {
    /** @param {number | null | undefined} index */
    at(index) { const next = index ?? null; if (next !== cursor) { cursor = next; show(); } },
    /** @param {import("./series.js").SeriesBuffer} from */
    newest(from) { series = from; show(); },
  };
}

/** @param {uPlot} plot @param {KeyboardEvent} event */
function moveCursor(plot, event) {
  const last = plot.data[0].length - 1;
  const at = plot.cursor.idx ?? last;
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 25, PageDown: at + 25 }[event.key];
  if (event.key === "Escape") return plot.setCursor({ left: -10, top: -10 });
  if (next === undefined || last < 0) return;
  event.preventDefault();
  const index = Math.min(last, Math.max(0, next));
  plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: plot.over.clientHeight / 2 });
}
