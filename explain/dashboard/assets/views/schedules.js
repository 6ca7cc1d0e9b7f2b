// Schedules: what a step is made of and what waits for what, under each topology, on one scale of time.
import { html } from "../core/html.js";
import { fixed, lasting, percent, short } from "../core/format.js";
import { kindColour } from "../core/colour.js";
import { Inputs, useAnswer } from "./frontier_inputs.js";
import { ScheduleDrawing, lengthOf } from "./schedules_drawing.js";

/** @typedef {import("../../types/wire.js").Schedules} Schedules */
/** @typedef {import("../../types/wire.js").Schedule} Schedule */

const ORDER = ["rollout-time", "train-time", "logp-time", "sync-time", "switch-time", "tail-multiplier", "max-staleness", "gpus", "rollout-gpus", "concurrency", "batch", "group", "ahead", "pieces", "queue-factor", "kl-per-version", "kl-exponent", "clip-low", "clip-high"];
const KIND_WORDS = [["generate", "generating"], ["environment", "environment"], ["logprobs", "old log-probs"], ["train", "training"], ["sync", "weight sync"], ["wait", "waiting"]];

/** @param {{ context: import("../app.js").Context }} props */
export default function View({ context }) {
  context.style("views/frontier.css");
  context.style("views/schedules.css");
  const { answer, own, error, busy, changed, change, reset } = /** @type {ReturnType<typeof useAnswer<Schedules>>} */ (useAnswer(context, "schedules"));
  if (!answer) {
    if (busy && !error) return html`<p class="bare" role="status">Composing the schedules…</p>`;
    return html`<div class="empty bad" role="alert"><strong>The schedules could not be composed.</strong><span>${error}</span>
      ${Object.keys(changed).length > 0 && html`<button onClick=${reset}>Reset to the run</button>`}</div>`;
  }
  const schedules = answer.schedules ?? [];
  const moved = Object.keys(changed).length > 0;
  const longest = Math.max(0, ...schedules.map((s) => lengthOf(s)));
  return html`<div class="grid schedules">
    <section class="card wide" aria-label="Schedules compared"><header><h2>Schedules compared</h2><span class="say">${moved ? "the times you chose" : "the run's own times"}</span></header>
      ${error && html`<p class="bad" role="alert">${error} Shown is the last answer.</p>`}
      <${Compared} schedules=${schedules} budget=${answer.inputs["max-staleness"]} />
      <p class="quiet small">Asynchrony pays where rollouts and training take about as long, and little where one dwarfs the other; what it takes is staleness.</p></section>
    <section class="card wide" aria-label="Times" aria-busy=${busy}><header><h2>Times and budget</h2><button class="say" disabled=${!moved} onClick=${reset}>Reset to the run</button></header>
      <${Inputs} inputs=${{ ...answer.inputs, ...changed }} own=${own} change=${change} order=${ORDER} /></section>
    <section class="card wide"><header><h2>A few steps of each, on one scale of time</h2></header>
      <div class="legend">${KIND_WORDS.map(([kind, name]) => html`<span class="key" key=${kind}><i class="swatch" style=${{ "--swatch": kindColour[kind] }}></i>${name}</span>`)}<span class="key">→ waits for</span></div>
      ${schedules.map((s) => html`<${One} key=${s.topology} schedule=${s} longest=${longest} dark=${context.theme.value === "dark"} />`)}</section>
  </div>`;
}

/** @param {{ schedules: Schedule[], budget: number | undefined }} props */
function Compared({ schedules, budget }) {
  const allowed = schedules.filter((s) => s.within_budget);
  const limited = (budget ?? 0) > 0;
  const fastest = Math.max(0, ...allowed.map((s) => s.rollouts_per_s));
  return html`<div class="scroll"><table><caption>${(budget ?? 0) > 0 ? `Staleness budget: ${short(budget)} versions.` : "No staleness budget is set."}</caption>
    <thead><tr><th>schedule</th><th class="number">step</th><th class="number">rollouts/s</th><th class="number">staleness</th><th class="number">clip fraction</th><th class="number">trainer idle</th><th class="number">engines idle</th>${limited && html`<th>budget</th>`}</tr></thead>
    <tbody>${schedules.map((s) => html`<tr key=${s.topology}><th scope="row">${s.title}${s.within_budget && s.rollouts_per_s === fastest ? html` <span class="chip good">fastest${limited ? " within it" : ""}</span>` : ""}</th>
      <td class="number">${lasting(s.period_s)}</td><td class="number">${short(s.rollouts_per_s)}</td><td class="number">${fixed(s.staleness_mean, 2)}</td><td class="number">${percent(s.clip_fraction)}</td>
      <td class="number">${percent(s.trainer_idle_ratio)}</td><td class="number">${percent(s.rollout_idle_ratio)}</td>${limited && html`<td class=${s.within_budget ? "" : "bad"}>${s.within_budget ? "within" : "above"}</td>`}</tr>`)}</tbody></table></div>`;
}

/** @param {{ schedule: Schedule, longest: number, dark: boolean }} props */
function One({ schedule, longest, dark }) {
  const { title, notes } = schedule;
  return html`<article class="schedule"><h3>${title} <span class="quiet">step ${lasting(schedule.period_s)} · ${short(schedule.rollouts_per_s)} rollouts/s · staleness ${fixed(schedule.staleness_mean, 2)}${schedule.clip_fraction === null ? "" : " · clip " + percent(schedule.clip_fraction)}</span>
      ${!schedule.within_budget && html` <span class="chip bad">above the budget</span>`}</h3>
    <${ScheduleDrawing} schedule=${schedule} longest=${longest} dark=${dark} />
    ${(notes ?? []).map((note) => html`<p key=${note} class="quiet small">${note}</p>`)}</article>`;
}
