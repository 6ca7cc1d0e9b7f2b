// One schedule as bars in lanes, with arrows from what is waited for to what waits.
import { html, useRef } from "../core/html.js";
import { kindColour } from "../core/colour.js";
import { lasting } from "../core/format.js";
import { useWidth } from "./frontier_inputs.js";
import { ticksOf } from "./frontier_plot.js";

/** @typedef {import("../../types/wire.js").Schedule} Schedule */
/** @typedef {import("../../types/wire.js").Bar} Bar */

const LEFT = 66, RIGHT = 10, ROW = 20, GAP = 8, AXIS = 20;
const LANES = ["rollout", "queue", "trainer", "sync"];
const LANE_NAMES = /** @type {Record<string, string>} */ ({ rollout: "rollouts", queue: "queue", trainer: "trainer", sync: "sync" });

/** The top of every row of every lane. @param {Bar[]} bars */
function rowsOf(bars) {
  /** @type {Map<string, number>} */ const tops = new Map();
  /** @type {{ lane: string, y: number }[]} */ const lanes = [];
  let y = 2;
  for (const lane of LANES) {
    const rows = bars.filter((bar) => bar.lane === lane).reduce((most, bar) => Math.max(most, bar.row + 1), 0);
    if (rows === 0) continue;
    lanes.push({ lane, y });
    for (let row = 0; row < rows; row++) tops.set(lane + row, y + row * ROW);
    y += rows * ROW + GAP;
  }
  return { tops, lanes, height: y };
}

/** When the first bar begins and how long all of it is, in seconds. @param {Schedule} schedule */
const beginOf = (schedule) => Math.min(0, ...(schedule.bars ?? []).map((bar) => bar.from_s));
/** @param {Schedule} schedule */
export const lengthOf = (schedule) => Math.max(0, ...(schedule.bars ?? []).map((bar) => bar.to_s)) - beginOf(schedule);

/** @param {{ schedule: Schedule, longest: number, dark: boolean }} props */
export function ScheduleDrawing({ schedule, longest, dark }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const width = useWidth(place);
  const bars = schedule.bars ?? [];
  const { tops, lanes, height } = rowsOf(bars);
  const begin = beginOf(schedule);
  const x = (/** @type {number} */ s) => LEFT + ((s - begin) / Math.max(1e-9, longest)) * (width - LEFT - RIGHT);
  const top = (/** @type {Bar} */ bar) => tops.get(bar.lane + bar.row) ?? 0;
  const id = "arrow-" + schedule.topology;
  return html`<div class="schedule-drawing" ref=${place}>${width > 0 && html`<svg width=${width} height=${height + AXIS} role="img" aria-label=${says(schedule)}>
    <defs><marker id=${id} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--quiet)" /></marker></defs>
    <g class="axes">${ticksOf(begin, begin + longest, width / 110).filter((s) => s >= 0).map((s) => html`<g key=${s}><line x1=${x(s)} x2=${x(s)} y1="0" y2=${height} /><text x=${x(s)} y=${height + 14} text-anchor="middle">${lasting(s)}</text></g>`)}</g>
    ${lanes.map(({ lane, y }) => html`<text key=${lane} x="0" y=${y + ROW / 2 + 4}>${LANE_NAMES[lane]}</text>`)}
    ${bars.map((bar) => html`<${OneBar} key=${bar.id} bar=${bar} x=${x(bar.from_s)} width=${x(bar.to_s) - x(bar.from_s)} y=${top(bar)} dark=${dark} />`)}
    ${(schedule.arrows ?? []).map((arrow) => {
      const from = bars.find((bar) => bar.id === arrow.from), to = bars.find((bar) => bar.id === arrow.to);
      return from && to && html`<path key=${arrow.from + "-" + arrow.to} class="arrow" d=${way(x(from.to_s), top(from) + ROW / 2, x(to.from_s), top(to) + ROW / 2)} marker-end=${`url(#${id})`}><title>${arrow.why}</title></path>`;
    })}</svg>`}</div>`;
}

/** @param {{ bar: Bar, x: number, width: number, y: number, dark: boolean }} props */
function OneBar({ bar, x, width, y, dark }) {
  // Where there is no room for the label, the version in it.
  const brief = bar.label.match(/v\d+/)?.[0] ?? "";
  const room = bar.label.length * 6.4 < width - 6 ? bar.label : brief.length * 6.4 < width - 6 ? brief : "";
  const made = bar.lane === "rollout" && bar.version >= 0 ? `, begun at version ${bar.version}` : "";
  return html`<g class=${"bar-" + bar.kind}><title>${`${bar.label}${made}: ${lasting(bar.from_s)} to ${lasting(bar.to_s)} (${lasting(bar.to_s - bar.from_s)})`}</title>
    <rect x=${x} y=${y + 1} width=${Math.max(1, width - 1)} height=${ROW - 3} rx="3" fill=${kindColour[bar.kind] ?? "var(--edge-strong)"} opacity=${bar.kind === "wait" ? 0.35 : dark ? 0.85 : 0.92} />
    ${room && html`<text class="in" x=${x + 4} y=${y + ROW / 2 + 3.5}>${room}</text>`}</g>`;
}

/**
 * A curve from under or over the bar that is waited for to the beginning of the one that waits; along the lane where
 * both are in one.
 */
function way(/** @type {number} */ x0, /** @type {number} */ y0, /** @type {number} */ x1, /** @type {number} */ y1) {
  if (y0 === y1) return `M${x0 - 2} ${y0}L${x1} ${y1}`;
  const side = y1 > y0 ? 1 : -1, a = Math.min(x0 - 2, x1 + 3), b = x1 + 3;
  const from = y0 + side * (ROW / 2 - 2), to = y1 - side * (ROW / 2 - 1), middle = (from + to) / 2;
  return `M${a} ${from}C${a} ${middle} ${b} ${middle} ${b} ${to}`;
}

/** The drawing in words. @param {Schedule} schedule */
function says(schedule) {
  const first = (schedule.bars ?? []).slice(0, 24).map((bar) => `${LANE_NAMES[bar.lane] ?? bar.lane}: ${bar.label} from ${lasting(bar.from_s)} to ${lasting(bar.to_s)}`);
  return `${schedule.title}. ${first.join("; ")}.`;
}
