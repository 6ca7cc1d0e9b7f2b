// The frontier: how stale and how fast the run would be with other settings, from the theory as the server has it.
import { html, useRef, useState } from "../core/html.js";
import { fixed, signed } from "../core/format.js";
import { Inputs, digits, flagOf, useAnswer } from "./frontier_inputs.js";
import { FrontierPlot } from "./frontier_plot.js";

/** @typedef {import("../../types/wire.js").Frontier} Frontier */
/** @typedef {import("../../types/wire.js").FrontierPoint} FrontierPoint */

const ORDER = ["utilization", "concurrency", "batch", "group", "queue-factor", "tail-multiplier", "tailness", "mean-tokens", "cap-tokens", "acceptance", "step-time", "sync-time", "speed-ratio"];
// What headway predict takes; tailness and what goes with it stand in for the tail multiplier.
const FLAGS = new Set([...ORDER, "max-staleness", "sync-every", "budget"]);
// What means something under one policy alone, and what the figures here do not depend on.
const UNDER = /** @type {Record<string, string>} */ ({ "max-staleness": "max", "staleness-threshold": "threshold", budget: "" });
const OF_LENGTHS = ["tailness", "mean-tokens", "cap-tokens"];

/** @param {{ context: import("../app.js").Context }} props */
export default function View({ context }) {
  context.style("views/frontier.css");
  const { answer, own, error, busy, changed, change, reset } = /** @type {ReturnType<typeof useAnswer<Frontier>>} */ (useAnswer(context, "frontier"));
  if (!answer) return html`<${Missing} error=${error} busy=${busy} reset=${reset} changed=${Object.keys(changed).length > 0} />`;
  const moved = Object.keys(changed).length > 0;
  const shown = Object.fromEntries(Object.entries({ ...answer.inputs, ...changed }).filter(([key]) => !(flagOf(key) in UNDER) || UNDER[flagOf(key)] === answer.choices?.policy));
  return html`<div class="grid frontier">
    <div class="frontier-main">
      <section class="card" aria-label="Frontier">
        <header><h2>Staleness against time</h2><span class="say">${moved ? "the settings you chose, beside the run's" : "the run's own settings"}</span></header>
        ${error && html`<p class="bad" role="alert">${error} Shown is the last answer.</p>`}
        <${FrontierPlot} frontier=${answer} moved=${moved} />
        <${Outcome} point=${answer.point} here=${answer.here} moved=${moved} />
        ${(answer.warnings ?? []).map((warning) => html`<p key=${warning} class="warn small">${warning}</p>`)}
      </section>
      <${Move} frontier=${answer} />
      <${Command} inputs=${answer.inputs} choices=${answer.choices ?? {}} />
      <${Table} frontier=${answer} />
    </div>
    <section class="card third" aria-label="Settings" aria-busy=${busy}>
      <header><h2>Settings</h2><button class="say" disabled=${!moved} onClick=${reset}>Reset to the run</button></header>
      <${Inputs} inputs=${shown} own=${own} change=${change} order=${ORDER} side=${true} />
    </section>
  </div>`;
}

/** @param {{ error: string, busy: boolean, changed: boolean, reset: () => void }} props */
function Missing({ error, busy, changed, reset }) {
  if (busy && !error) return html`<p class="bare" role="status">Asking the theory…</p>`;
  return html`<div class="empty bad" role="alert"><strong>There is no prediction for these settings.</strong><span>${error}</span>
    ${changed && html`<button onClick=${reset}>Reset to the run</button>`}</div>`;
}

/** @param {{ point: FrontierPoint, here: FrontierPoint | null, moved: boolean }} props */
function Outcome({ point, here, moved }) {
  const compared = moved ? here : null;
  const figure = (/** @type {string} */ name, /** @type {keyof FrontierPoint} */ key, /** @type {number} */ places) => {
    const value = Number(point[key]), was = compared ? Number(compared[key]) : NaN;
    return html`<div class="figure"><b>${fixed(value, places)}</b><span>${name}</span>
      ${compared && Math.abs(value - was) > 0.5 * 10 ** -places && html`<span class=${value < was ? "good" : "warn"}>${signed(value - was, places)} against the run</span>`}</div>`;
  };
  return html`<div class="figures" aria-live="polite">
    ${figure("staleness, mean", "staleness_mean", 2)}${figure("staleness, p95", "staleness_p95", 1)}${figure("before the queue (PQS)", "pqs", 2)}${figure("in the queue (IQS)", "iqs", 2)}
    ${figure("period over the shortest", "period_ratio", 3)}
    <div class="figure"><b>${point.regime}</b><span>what binds at ρ ${fixed(point.utilization, 2)}</span></div></div>`;
}

/** The cheapest move from where the run stands, in words. @param {{ frontier: Frontier }} props */
function Move({ frontier }) {
  const { cheapest, here } = frontier;
  if (!cheapest || !here) return html`<section class="card wide"><h2>Cheapest move</h2><p class="quiet">${here ? "No single change lowers staleness for less." : "Where the run stands is not known yet."}</p></section>`;
  const slower = cheapest.period_ratio / here.period_ratio - 1;
  const price = Math.abs(slower) < 0.0005 ? "for the same period" : slower < 0 ? `with a period ${fixed(-100 * slower, 1)} % shorter` : `for a period ${fixed(100 * slower, 1)} % longer`;
  return html`<section class="card wide" aria-label="Cheapest move"><h2>Cheapest move from where the run stands</h2>
    <p><strong>${cheapest.change}</strong>: staleness ${fixed(here.staleness_mean, 2)} → ${fixed(cheapest.staleness_mean, 2)}, ${price}.
      ${cheapest.holds_fixed && html` <span class="quiet">Holds fixed: ${cheapest.holds_fixed}.</span>`}</p></section>`;
}

/** The same question on a terminal. @param {{ inputs: Record<string, number>, choices: Record<string, string> }} props */
function Command({ inputs, choices }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [said, setSaid] = useState("");
  const command = commandOf(inputs, choices);
  const copy = async () => {
    field.current?.select();
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(command); else document.execCommand("copy"); // a page that is not on https has no clipboard
      setSaid("Copied.");
    } catch { setSaid("The browser does not allow it: the text is selected."); }
  };
  return html`<section class="card wide" aria-label="As a command"><h2>As a command</h2>
    <div class="command"><input ref=${field} class="mono" readonly value=${command} aria-label="The command" /><button onClick=${copy}>Copy</button><span role="status" class="quiet">${said}</span></div></section>`;
}

/** @param {Record<string, number>} inputs @param {Record<string, string>} choices */
export function commandOf(inputs, choices) {
  const given = Object.entries(inputs).map(([key, value]) => /** @type {[string, number]} */ ([flagOf(key), value]));
  const byTail = given.some(([flag]) => flag === "tail-multiplier");
  const numbers = given.filter(([flag, value]) => FLAGS.has(flag) && Number.isFinite(value) && value !== 0 && !(byTail && OF_LENGTHS.includes(flag)));
  const named = Object.entries(choices).filter(([, value]) => value !== "");
  return "headway predict" + [...numbers.map(([flag, value]) => [flag, digits(value)]), ...named.map(([key, value]) => [flagOf(key), value])].map(([flag, value]) => ` --${flag} ${value}`).join("");
}

/** The curve to be read. @param {{ frontier: Frontier }} props */
function Table({ frontier }) {
  const curve = frontier.curve ?? [];
  if (curve.length === 0) return null;
  const some = curve.filter((_, i) => i % Math.max(1, Math.floor(curve.length / 16)) === 0);
  return html`<section class="card wide"><details><summary>The curve as a table</summary><div class="scroll"><table>
    <thead><tr>${["ρ", "staleness, mean", "p95", "PQS", "IQS", "period over the shortest"].map((name) => html`<th key=${name} class="number">${name}</th>`)}<th>regime</th></tr></thead>
    <tbody>${some.map((p) => html`<tr key=${p.utilization}><td class="number">${fixed(p.utilization, 2)}</td><td class="number">${fixed(p.staleness_mean, 2)}</td><td class="number">${fixed(p.staleness_p95, 1)}</td>
      <td class="number">${fixed(p.pqs, 2)}</td><td class="number">${fixed(p.iqs, 2)}</td><td class="number">${fixed(p.period_ratio, 3)}</td><td>${p.regime}</td></tr>`)}</tbody></table></div></details></section>`;
}
