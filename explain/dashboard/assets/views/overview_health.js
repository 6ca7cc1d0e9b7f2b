// Queue health: what enters the queue, what leaves it, at what rates, and what binds.
import { html } from "../core/html.js";
import { count, fixed, lasting, percent, short, signed } from "../core/format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").Summary} Summary */

/** Which side of the queue each binding word belongs to. @type {Record<string, "production" | "consumption" | "both">} */
const SIDES = { rollout: "production", environment: "production", sandbox: "production", verifier: "production", scorer: "production", prefill: "production", train: "consumption", sync: "consumption", validation: "consumption", admission: "both" };

/** The slots of the engines that are there: those that are away are in no share. @param {import("../../types/wire.js").EngineState[]} engines */
export function slotsOf(engines) { return engines.reduce((sum, engine) => sum + (engine.state === "away" ? 0 : engine.slots), 0); }

/** Which train steps the figures are of. @param {Summary["health"]} health */
export function over({ from_step, to_step, window_s }) {
  return to_step > 0 ? `over ${from_step < to_step ? `train steps ${count(from_step)} to ${count(to_step)}` : `train step ${count(to_step)}`}, ${lasting(window_s)}` : "no train step yet";
}

/** @param {{ context: Context }} props */
export function QueueHealth({ context }) {
  const summary = /** @type {Summary} */ (context.summary.value);
  const { health, queue } = summary;
  const side = SIDES[health.binding], told = health.to_step > 0;
  return html`<section class="card wide health" aria-labelledby="h-health">
    <header><h2 id="h-health">Queue health</h2><span class="say">${over(health)}</span></header>
    <p class="sentence">${health.sentence || "Nothing can be said of the queue yet."}</p>
    <div class="flow">
      <${Production} summary=${summary} binds=${side === "production" || side === "both" ? health.binding : ""} />
      <${Arrow} text=${html`<b>${rate(health, health.effective_rollouts_per_s)}</b> /s enter`} more=${!told ? "" : health.acceptance < 0.9995 ? percent(health.acceptance) + " accepted" : "none filtered"} />
      <${QueueStation} summary=${summary} />
      <${Arrow} text=${html`<b>${rate(health, health.consumption_rollouts_per_wall_s)}</b> /s leave`} more=${!told ? "" : health.dropped_share > 0 ? html`<span class="warn">${percent(health.dropped_share)} dropped</span>` : "none dropped"} />
      <${Consumption} summary=${summary} binds=${side === "consumption" || side === "both" ? health.binding : ""} />
    </div></section>`;
}

/** A rate of the train steps that are told of: before the first there is none. @param {Summary["health"]} health @param {number} perS */
function rate(health, perS) { return health.to_step > 0 ? short(perS) : "–"; }

/** @param {{ text: any, more: any }} props */
function Arrow({ text, more }) {
  return html`<div class="arrow"><span>${text}</span><svg viewBox="0 0 48 12" aria-hidden="true" preserveAspectRatio="none"><path d="M0 6h46M40 1l6 5-6 5" /></svg><span>${more}</span></div>`;
}

/** @param {{ summary: Summary, binds: string }} props */
function Production({ summary, binds }) {
  const { health, latency, engines } = summary;
  const active = (engines ?? []).reduce((sum, engine) => sum + engine.active, 0), slots = slotsOf(engines ?? []);
  return html`<div class=${"station" + (binds ? " binds" : "")}>
    <span class="name"><span>Production</span>${binds && html`<span class="badge">▲ ${binds} binds</span>`}</span>
    <span class="rate">${rate(health, health.production_rollouts_per_s)} <small>rollouts/s finished</small></span>
    <span class="small quiet">${count(active)} of ${count(slots)} slots busy${latency.end_to_end_s > 0 ? `, ${lasting(latency.end_to_end_s)} end to end` : ""}</span>
    ${health.to_step > 0 && html`<span class="small"><span class="quiet">engines wait</span> <b>${percent(health.rollout_idle_ratio)}</b> <span class="quiet">of the time</span></span>`}</div>`;
}

/** @param {{ summary: Summary }} props */
function QueueStation({ summary }) {
  const { queue, health, iqs } = summary;
  const of = Math.max(1, queue.capacity_groups, queue.groups);
  const trend = health.queue_trend_groups_per_step;
  const moves = Math.abs(trend) < 0.05 ? "→ steady" : trend > 0 ? "↗ fills" : "↘ empties";
  return html`<div class="station">
    <span class="name"><span>Queue</span><span>${moves}${Math.abs(trend) < 0.05 ? "" : ` by ${fixed(Math.abs(trend), 2)} groups a step`}</span></span>
    <span class="rate">${count(queue.groups)} <small>of ${count(queue.capacity_groups)} groups ready</small></span>
    <div class="gauge" role="meter" aria-label="Groups in the queue" aria-valuemin="0" aria-valuemax=${of} aria-valuenow=${queue.groups} aria-valuetext=${`${queue.groups} of ${queue.capacity_groups} groups`}>
      <i style=${{ width: 100 * queue.groups / of + "%" }}></i>${queue.batch_groups < of && html`<u style=${{ left: 100 * queue.batch_groups / of + "%" }} title="a batch"></u>`}</div>
    <span class="small quiet">a batch takes ${count(queue.batch_groups)} · ${count(queue.open_groups)} open${queue.held_groups ? ` · ${count(queue.held_groups)} held back` : ""}${health.to_step > 0 && html` · groups wait <b>${fixed(iqs)}</b> versions`}</span></div>`;
}

/** @param {{ summary: Summary, binds: string }} props */
function Consumption({ summary, binds }) {
  const { health } = summary;
  return html`<div class=${"station" + (binds ? " binds" : "")}>
    <span class="name"><span>Consumption</span>${binds && html`<span class="badge">▲ ${binds} binds</span>`}</span>
    <span class="rate">${rate(health, health.consumption_rollouts_per_s)} <small>rollouts/s while training</small></span>
    ${health.to_step > 0 && html`<span class="small quiet">a step takes ${lasting(health.step_s)}, a version comes every ${lasting(health.period_s)}</span>
    <span class="small"><span class="quiet">trainer waits</span> <b>${percent(health.trainer_idle_ratio)}</b> <span class="quiet">of the time</span>${health.trainer_absent_ratio > 0.0005 && html`<span class="quiet">, is absent</span> <b>${percent(health.trainer_absent_ratio)}</b>`}</span>`}</div>`;
}
