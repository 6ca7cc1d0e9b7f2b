// What stands around the canvas of the timeline: buttons, names of the rows, what the colours mean, what is under the
// pointer, and the train steps in view as a table.
import { html, useEffect, useRef, useState } from "../core/html.js";
import { fixed, lasting, percent } from "../core/format.js";
import { kindColour } from "../core/colour.js";
import { KEYS } from "./timeline_input.js";
import { KINDS } from "./timeline_tiles.js";
import { STALE_MOST, css, versionStep } from "./timeline_colour.js";
import { stepAtTime } from "./timeline_steps.js";
import { clock } from "./timeline_scale.js";

/** @param {{ model: any, actions: any, boxing: any, live: boolean }} props */
export function Toolbar({ model, actions, boxing, live }) {
  const [step, setStep] = useState("");
  const off = !model;
  const following = model?.window.follow ?? false;
  const go = (/** @type {any} */ event) => {
    event.preventDefault();
    if (step !== "") actions.showStep(Number(step));
  };
  const last = model?.steps.step.at(-1) ?? 0;
  const folds = model?.layout.headings.some((/** @type {any} */ h) => h.group !== "") ?? false;
  const folded = model?.layout.headings.some((/** @type {any} */ h) => h.folded) ?? false;
  return html`<div class="timeline-tools" role="toolbar" aria-label="Timeline">
    <span class="together">
      <button disabled=${off} onClick=${() => actions.out()} aria-label="Zoom out" title="Zoom out (−)">−</button>
      <button disabled=${off} onClick=${() => actions.in()} aria-label="Zoom in" title="Zoom in (+)">+</button>
      <button disabled=${off} onClick=${() => actions.fit()} title="The whole run (0)">Whole run</button>
      <button disabled=${off} aria-pressed=${boxing.value} onClick=${() => actions.box()} title="Draw the stretch to zoom to (or hold shift)">Zoom to a box</button>
      ${live && html`<button disabled=${off} aria-pressed=${following} onClick=${() => actions.follow()} title="Keep the newest in view (l)">Follow</button>`}
      ${folds && html`<button onClick=${() => actions.fold("", !folded)}>${folded ? "Unfold engines" : "Fold engines"}</button>`}
    </span>
    <label>Colour by <select disabled=${off} value=${model?.by} onChange=${(/** @type {any} */ event) => actions.colour(event.target.value)}>
      <option value="version">version</option><option value="staleness">staleness</option><option value="kind">kind</option>
    </select></label>
    <form class="together" onSubmit=${go}>
      <label>Step <input type="number" min="0" max=${last} step="1" value=${step} onInput=${(/** @type {any} */ event) => setStep(event.target.value)} placeholder=${String(last)} /></label>
      <button disabled=${off || step === ""}>Go</button>
    </form>
  </div>`;
}

/** Names of the rows, and the buttons that fold engines. @param {{ layout: any, fold: any }} props */
export function Gutter({ layout, fold }) {
  const top = 22;
  const headed = new Set(layout.headings.filter((/** @type {any} */ h) => h.folded).map((/** @type {any} */ h) => h.group));
  return html`${layout.headings.map((/** @type {any} */ h) => html`<div key=${h.name + h.y} class=${h.group ? "fold" : "section"} style=${{ top: top + h.y + "px", height: h.height + "px" }}>
      ${h.group ? html`<button class="plain" aria-expanded=${!h.folded} onClick=${() => fold(h.group, !h.folded)} title=${(h.folded ? "Unfold " : "Fold ") + h.group}>
        <span aria-hidden="true">${h.folded ? "▸" : "▾"}</span> ${h.group} <span class="quiet">×${h.count}</span></button>` : html`<b>${h.name}</b>`}
    </div>`)}
    ${layout.bands.filter((/** @type {any} */ b) => !headed.has(b.group) || !b.group).map((/** @type {any} */ b) => html`<div key=${"b" + b.y} class="name" style=${{ top: top + b.y + "px", height: b.height + "px" }}>${b.name}</div>`)}`;
}

/** What the colours mean. @param {{ model: any, dark: string }} props */
export function Legend({ model, dark }) {
  if (!model?.theme) return html`<div class="legend timeline-legend"></div>`;
  if (model.by === "kind") {
    return html`<div class="legend timeline-legend">${KINDS.map((kind) => html`<span class="key" key=${kind}><i class="swatch" style=${{ "--swatch": kindColour[kind] }}></i>${kind}</span>`)}</div>`;
  }
  if (model.by === "staleness") {
    return html`<div class="legend timeline-legend"><span>versions behind the trainer:</span>${[...model.theme.stale].map((value, i) => html`<span class="key" key=${i}><i class="swatch" style=${{ "--swatch": css(value) }}></i>${i}${i === STALE_MOST ? " and more" : ""}</span>`)}</div>`;
  }
  return html`<${Ramp} model=${model} dark=${dark} />`;
}

/** The versions in view, in their colours. @param {{ model: any, dark: string }} props */
function Ramp({ model, dark }) {
  const strip = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const first = Math.max(0, stepAtTime(model.steps, model.window.fromUS));
  const last = Math.max(first + 1, stepAtTime(model.steps, Math.min(model.window.toUS, model.window.endUS)));
  const { period } = model.colouring();
  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (strip.current), context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    for (let x = 0; x < canvas.width; x++) {
      const version = Math.floor(first + (x / canvas.width) * (last + 1 - first));
      context.fillStyle = css(model.theme.version[0][versionStep(version, period)]);
      context.fillRect(x, 0, 1, canvas.height);
    }
  }, [first, last, period, dark]);
  return html`<div class="legend timeline-legend"><span>version ${first}</span>
    <canvas ref=${strip} class="timeline-ramp" width="240" height="10" aria-hidden="true"></canvas><span>${last}</span>
    ${last - first >= period && html`<span class="quiet">(a colour comes again after ${period} versions)</span>`}
    <span class="quiet">paler: queued, loading, in environments; red: dropped or failed</span></div>`;
}

/** What is under the pointer, or has the keyboard's focus. @param {{ readout: any, open: any }} props */
export function ReadOut({ readout, open }) {
  const says = readout.value;
  return html`<p id="timeline-read" class="timeline-read" aria-live="polite">
    ${says ? html`${says.text} ${says.link && open && html`<button class="plain link" onClick=${() => open()}>${says.link}</button>`}`
      : html`<span class="quiet">Point at a span, or press an arrow key on the timeline, to read what it is.</span>`}</p>`;
}

/** @type {[string, string, (n: number | null) => string][]} */
const COLUMNS = [
  ["staleness", "staleness", (/** @type {any} */ n) => fixed(n, 2)], ["period_s", "period", lasting], ["train_s", "training", lasting],
  ["trainer_idle", "trainer idle", percent], ["queue_groups", "queue, groups", (/** @type {any} */ n) => fixed(n, 1)], ["reward", "reward", (/** @type {any} */ n) => fixed(n, 3)],
];

/** The train steps in view: what the picture shows, to be read. @param {{ steps: any, show: any }} props */
export function StepTable({ steps, show }) {
  if (!steps || !steps.step?.length) return null;
  const columns = COLUMNS.filter(([name]) => steps.columns?.[name]);
  const several = steps.step.length > 1 && steps.step[1] - steps.step[0] > 1;
  return html`<details class="timeline-steps"><summary>Train steps in view as a table</summary>
    <div class="scroll"><table><caption>${several ? "Each row stands for the steps up to its own: means." : "One row a train step."}</caption>
    <thead><tr><th class="number">step</th><th class="number">ended at</th>${columns.map(([name, title]) => html`<th key=${name} class="number">${title}</th>`)}<th></th></tr></thead>
    <tbody>${steps.step.map((/** @type {number} */ step, /** @type {number} */ i) => html`<tr key=${step}><td class="number">${step}</td><td class="number">${clock(steps.time_s[i] * 1e6)}</td>
      ${columns.map(([name, , text]) => html`<td key=${name} class="number">${text(steps.columns[name][i])}</td>`)}
      <td><button class="plain link" onClick=${() => show(step)} aria-label=${"Show step " + step}>show</button></td></tr>`)}</tbody></table></div></details>`;
}

/** The keys of the timeline. */
export function Keys() {
  return html`<details class="timeline-keys"><summary>Keys and gestures</summary><dl class="pairs">
    ${KEYS.map(([keys, does]) => html`<dt key=${keys}>${keys}</dt><dd>${does}</dd>`)}
    <dt>drag</dt><dd>move; shift and drag: zoom to a box</dd><dt>wheel, two fingers</dt><dd>zoom; shift and wheel: move</dd>
    <dt>click</dt><dd>choose a span and see what it led to; click again: read its group</dd></dl></details>`;
}
