// Staleness against relative period, with the curve over the split of the GPUs, the point asked for, the run, and the
// cheapest move from it.
import { html, useRef } from "../core/html.js";
import { fixed } from "../core/format.js";
import { useWidth } from "./frontier_inputs.js";

/** @typedef {import("../../types/wire.js").Frontier} Frontier */
/** @typedef {import("../../types/wire.js").FrontierPoint} FrontierPoint */

const HEIGHT = 330, LEFT = 46, RIGHT = 14, TOP = 12, BOTTOM = 38;
const PERIOD_MOST = 2.6;

/** Round steps of an axis, about so many. @param {number} low @param {number} high @param {number} about */
export function ticksOf(low, high, about) {
  const rough = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10) * power;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

/** @param {string} regime */
const isTrainBound = (regime) => regime.includes("train");

/** @param {{ frontier: Frontier, moved: boolean }} props */
export function FrontierPlot({ frontier, moved }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const width = useWidth(place);
  return html`<div class="frontier-plot" ref=${place}>${width > 0 && html`<${Drawing} frontier=${frontier} moved=${moved} width=${width} />`}</div>
    <div class="legend"><span class="key"><i class="swatch" style=${{ "--swatch": "var(--line-1)" }}></i>rollout-bound: the trainer waits</span>
      <span class="key"><i class="swatch" style=${{ "--swatch": "var(--line-2)" }}></i>train-bound: rollouts wait</span>
      <span class="key">● the run</span>${moved && html`<span class="key">◆ your settings</span>`}<span class="key">→ the cheapest move</span></div>`;
}

/** @param {{ frontier: Frontier, moved: boolean, width: number }} props */
function Drawing({ frontier, moved, width }) {
  const { point, here, cheapest } = frontier;
  const curve = (frontier.curve ?? []).filter((p) => p.period_ratio <= PERIOD_MOST);
  const marks = [point, ...(here ? [here] : []), ...(cheapest ? [cheapest] : [])];
  const xMost = Math.max(1.3, ...curve.map((p) => p.period_ratio), ...marks.map((p) => Math.min(6, p.period_ratio))) * 1.02;
  const xLeast = Math.min(1, ...marks.map((p) => p.period_ratio)) - 0.02;
  const yMost = Math.max(0.5, ...curve.map((p) => p.staleness_mean), ...marks.map((p) => p.staleness_mean)) * 1.12;
  const x = (/** @type {number} */ v) => LEFT + ((Math.min(v, xMost) - xLeast) / (xMost - xLeast)) * (width - LEFT - RIGHT);
  const y = (/** @type {number} */ v) => HEIGHT - BOTTOM - (v / yMost) * (HEIGHT - TOP - BOTTOM);
  const path = (/** @type {FrontierPoint[]} */ points) => points.map((p, i) => (i ? "L" : "M") + x(p.period_ratio).toFixed(1) + " " + y(p.staleness_mean).toFixed(1)).join("");
  // The arms meet at the shortest period: each begins with the other's last point, so that no gap is seen.
  const turn = curve.findIndex((p) => isTrainBound(p.regime) !== isTrainBound(curve[0].regime));
  const arms = turn < 0 ? [curve] : [curve.slice(0, turn + 1), curve.slice(turn)];
  return html`<svg width=${width} height=${HEIGHT} role="img" aria-label=${says(frontier, moved)}>
    <defs><marker id="frontier-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="var(--good)" /></marker></defs>
    <${Axes} x=${x} y=${y} width=${width} xTicks=${ticksOf(xLeast, xMost, width / 90)} yTicks=${ticksOf(0, yMost, 6)} />
    ${arms.map((arm, i) => arm.length > 1 && html`<path key=${i} d=${path(arm)} fill="none" stroke=${isTrainBound(arm[arm.length - 1].regime) && (turn < 0 || i === 1 || isTrainBound(arm[0].regime)) ? "var(--line-2)" : "var(--line-1)"} stroke-width="2.2" stroke-linejoin="round" />`)}
    ${curve.map((p) => html`<circle key=${p.utilization} cx=${x(p.period_ratio)} cy=${y(p.staleness_mean)} r="5" fill="transparent"><title>${pointSays(p)}</title></circle>`)}
    ${here && cheapest && html`<line x1=${x(here.period_ratio)} y1=${y(here.staleness_mean)} x2=${x(cheapest.period_ratio)} y2=${y(cheapest.staleness_mean)} stroke="var(--good)" stroke-width="2" marker-end="url(#frontier-arrow)"><title>${cheapest.change}</title></line>`}
    ${here && html`<${Mark} x=${x(here.period_ratio)} y=${y(here.staleness_mean)} shape="circle" name=${moved ? "the run" : "the run is here"} title=${pointSays(here)} width=${width} />`}
    ${(moved || !here) && html`<${Mark} x=${x(point.period_ratio)} y=${y(point.staleness_mean)} shape="diamond" name="your settings" title=${pointSays(point)} width=${width} />`}
  </svg>`;
}

/** @param {{ x: (v: number) => number, y: (v: number) => number, width: number, xTicks: number[], yTicks: number[] }} props */
function Axes({ x, y, width, xTicks, yTicks }) {
  return html`<g class="axes">
    ${yTicks.map((v) => html`<g key=${"y" + v}><line x1=${LEFT} x2=${width - RIGHT} y1=${y(v)} y2=${y(v)} /><text x=${LEFT - 6} y=${y(v) + 4} text-anchor="end">${v}</text></g>`)}
    ${xTicks.map((v) => html`<g key=${"x" + v}><line y1=${TOP} y2=${HEIGHT - BOTTOM} x1=${x(v)} x2=${x(v)} /><text x=${x(v)} y=${HEIGHT - BOTTOM + 16} text-anchor="middle">${v}</text></g>`)}
    <text x=${(LEFT + width - RIGHT) / 2} y=${HEIGHT - 4} text-anchor="middle">time between updates, over the shortest</text>
    <text x="12" y=${(HEIGHT - BOTTOM) / 2} text-anchor="middle" transform=${`rotate(-90 12 ${(HEIGHT - BOTTOM) / 2})`}>mean staleness, versions</text></g>`;
}

/** @param {{ x: number, y: number, shape: string, name: string, title: string, width: number }} props */
function Mark({ x, y, shape, name, title, width }) {
  const left = x > width * 0.7;
  return html`<g class="mark"><title>${title}</title>
    ${shape === "circle" ? html`<circle cx=${x} cy=${y} r="5.5" />` : html`<path d=${`M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}z`} />`}
    <text x=${left ? x - 11 : x + 11} y=${y - 8} text-anchor=${left ? "end" : "start"}>${name}</text></g>`;
}

/** @param {FrontierPoint} p */
function pointSays(p) {
  return `ρ ${fixed(p.utilization, 2)}, ${p.regime}: staleness ${fixed(p.staleness_mean, 2)}, period ${fixed(p.period_ratio, 3)} of the shortest`;
}

/** The plot in a sentence. @param {Frontier} frontier @param {boolean} moved */
function says({ point, here, cheapest }, moved) {
  return "Staleness against the time between updates. " + (here ? "The run: " + pointSays(here) + ". " : "") + (moved ? "Your settings: " + pointSays(point) + ". " : "") +
    (cheapest ? `Cheapest move: ${cheapest.change}, to staleness ${fixed(cheapest.staleness_mean, 2)}.` : "");
}
