// The overview: queue health first, then what it comes from and what it costs.
import { html, useEffect } from "../core/html.js";
import { Plot } from "../core/plot.js";
import { Card, Empty, Figure, Pairs, StackBar } from "../core/parts.js";
import { SOURCES, idleColour, sourceColour, versionColour } from "../core/colour.js";
import { count, fixed, known, lasting, many, percent, short, signed, version, words } from "../core/format.js";
import { QueueHealth, over, slotsOf } from "./overview_health.js";
import { QueuePlot } from "./queue_plot.js";
import { CellsCard } from "./overview_cells.js";
import { ControlCard, targetLines } from "./overview_control.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").Summary} Summary */

/** @param {{ context: Context }} props */
export default function Overview({ context }) {
  context.style("views/overview.css");
  useEffect(() => context.ready("overview"), []);
  return html`<h2 class="unseen">Overview</h2><div class="grid">
    <${QueueHealth} context=${context} />
    <${Body} context=${context} />
  </div>`;
}

/** @param {{ context: Context }} props */
function Body({ context }) {
  const summary = /** @type {Summary} */ (context.summary.value);
  const info = context.info.value;
  if (summary.ledger.trained === 0 && summary.version <= 0) {
    const q = summary.queue, l = summary.ledger;
    return html`<div class="card wide"><${Empty} title="No group has been trained yet.">
      <span>${many(l.in_flight, "rollout")} in flight, ${many(q.open_groups, "group")} open, ${count(q.groups)} ready; the first batch takes ${count(q.batch_groups)}.${" "}
      ${summary.ended ? "The run ended before its first train step." : "Plots begin with the first train step."}</span></${Empty}></div>
      <${LedgerCard} summary=${summary} /><${CellsCard} context=${context} /><${EnginesCard} summary=${summary} />`;
  }
  return html`
    ${info?.kind === "simulation" && summary.reward.best === 0 && summary.reward.first === 0 ? html`<${QueueCard} context=${context} />` : html`<${RewardCard} context=${context} />`}
    <${ControlCard} context=${context} />
    <${StalenessCard} context=${context} />
    <${IdleCard} summary=${summary} context=${context} />
    <${ThroughputCard} context=${context} />
    <${OffPolicyCard} context=${context} />
    <${RolloutCard} summary=${summary} task=${info?.task ?? ""} />
    <${LedgerCard} summary=${summary} />
    <${CellsCard} context=${context} />
    <${EnginesCard} summary=${summary} />`;
}

const decimals = (/** @type {number | null | undefined} */ n) => fixed(n, 2), thousandths = (/** @type {number | null | undefined} */ n) => fixed(n, 3);

/** @type {import("../core/plot.js").Line[]} */
const REWARD = [
  { name: "reward of the batch", colour: "--line-1", values: series => series.column("reward"), smooth: true },
  { name: "held-out", colour: "--line-2", values: series => series.column("held_out"), points: true },
];

/** @param {{ context: Context }} props */
function RewardCard({ context }) {
  const { reward, held_out, held_out_step, signal, ended } = /** @type {Summary} */ (context.summary.value);
  const held = held_out === null ? ended ? "no held-out evaluation in the trace" : "no held-out evaluation yet" : `held-out ${fixed(held_out, 3)} at step ${count(held_out_step)}`;
  return html`<${Card} title="Reward" say=${held}>
    <${Plot} context=${context} title="Reward over train steps" height=${215} format=${thousandths} lines=${held_out === null ? REWARD.slice(0, 1) : REWARD} />
    <p class="small quiet">first ${fixed(reward.first, 3)} · best ${fixed(reward.best, 3)} · last ${fixed(reward.last, 3)}
      ${signal.solve_rate > 0 && html` · solved ${percent(signal.solve_rate)} of rollouts, ${percent(signal.all_solved_share)} of groups whole, ${percent(signal.none_solved_share)} not at all`}</p></${Card}>`;
}

/** What a simulation has in the place of rewards: the queue over its steps. @param {{ context: Context }} props */
function QueueCard({ context }) {
  return html`<${Card} title="Queue over time" say="groups in the queue after each step"><${QueuePlot} context=${context} height=${215} /></${Card}>`;
}

/** @param {Summary} summary @param {import("../core/series.js").SeriesBuffer} series @returns {import("../core/plot.js").Line[]} */
function stalenessLines(summary, series) {
  const split = SOURCES.some(source => series.has("from_" + source));
  /** @type {import("../core/plot.js").Line[]} */
  const lines = split
    ? SOURCES.filter(source => series.has("from_" + source) && series.column("from_" + source).some(value => (value ?? 0) > 0.0005)).map(source =>
      ({ name: words(source), colour: sourceColour[source], stacked: true, smooth: true, values: s => s.column("from_" + source) }))
    : [{ name: "measured", colour: "--line-1", values: s => s.column("staleness"), smooth: true }];
  const predicted = summary.predicted?.before_mean ?? null, closed = summary.predicted?.closed_form_mean ?? null;
  if (known(predicted)) lines.push({ name: "predicted before the run", colour: "--ink", dashed: true, values: s => s.step.map(() => predicted) });
  lines.push(...targetLines(summary.control));
  if (known(closed)) lines.push({ name: "closed form, measured inputs", colour: "--bad", dashed: true, values: s => s.step.map(() => closed) });
  return lines;
}

/** A figure with what was predicted before the run. @param {number} measured @param {number | null | undefined} predicted */
function beside(measured, predicted) { return html`${fixed(measured)}${known(predicted) && html` <small>predicted ${fixed(predicted)}</small>`}`; }

/** @param {{ context: Context }} props */
function StalenessCard({ context }) {
  const summary = /** @type {Summary} */ (context.summary.value);
  const { staleness, attribution } = summary;
  context.series.changes.value; // sources may turn up with a new step
  const dominant = attribution && attribution.dominant ? html`mostly <b>${words(attribution.dominant)}</b>, ${percent(attribution.share, 0)}${attribution.ties?.length ? " (close to " + attribution.ties.map(words).join(", ") + ")" : ""}` : null;
  return html`<${Card} title="Staleness by source" say=${dominant}>
    <${Plot} context=${context} title="Staleness by source over train steps" unit="versions" format=${decimals} lines=${stalenessLines(summary, context.series)} low=${0} />
    <div class="figures">
      <${Figure} name="mean, versions" value=${beside(staleness.mean, summary.predicted?.before_mean)} />
      <${Figure} name="before the queue (PQS)" value=${beside(summary.pqs, summary.predicted?.pqs)} />
      <${Figure} name="in the queue (IQS)" value=${beside(summary.iqs, summary.predicted?.iqs)} />
      <${Figure} name="p95 · max" value=${count(staleness.p95) + " · " + count(staleness.max)} />
      ${known(summary.predicted?.closed_form_mean) && html`<${Figure} name="closed form" value=${fixed(summary.predicted?.closed_form_mean)} title="The closed form at the inputs that were measured" />`}
    </div>
    <${Parts} summary=${summary} /></${Card}>`;
}

/** @param {{ summary: Summary }} props */
function Parts({ summary }) {
  const parts = summary.attribution?.parts ?? [];
  if (!parts.length || !summary.attribution?.groups) return null;
  return html`<${StackBar} label="Where the mean staleness of the window comes from" legend=${false}
    parts=${parts.map(part => ({ name: words(part.source), value: part.versions, colour: sourceColour[part.source] ?? "var(--edge-strong)", text: fixed(part.versions) + " versions, " + percent(part.share, 0) }))} />`;
}

const IDLE_NAMES = /** @type {const} */ (["starved", "syncing", "validating", "paused", "blocked"]);

/** @param {{ summary: Summary, context: Context }} props */
function IdleCard({ summary, context }) {
  const { health } = summary;
  const rows = /** @type {[string, number, import("../../types/wire.js").Idle | undefined][]} */ ([
    ["trainer", health.trainer_idle_ratio, health.idle_trainer], ["engines", health.rollout_idle_ratio, health.idle_engines]]);
  return html`<${Card} title="Idle" say=${"share of the time that each side waits, " + over(health)}>
    <div class="split">${rows.map(([name, ratio, idle]) => html`<div class="idle-row" key=${name}>
      <span class="who"><span>${name}</span><b>${percent(ratio)}</b></span>
      <${StackBar} label=${name + " idle"} whole=${1} parts=${idle && idle.total > 0 ? IDLE_NAMES.map(key => ({ name: key, value: idle[key], colour: idleColour[key] })) : [{ name: "waiting", value: idle?.total ?? ratio, colour: "var(--edge-strong)" }]} /></div>`)}</div>
    <${Plot} context=${context} title="Idle share over train steps" height=${110} low=${0} format=${(/** @type {any} */ n) => percent(n, 0)}
      lines=${IDLE} /></${Card}>`;
}

/** @type {import("../core/plot.js").Line[]} */
const IDLE = [
  { name: "trainer", colour: "--line-2", values: series => series.column("trainer_idle"), smooth: true },
  { name: "engines", colour: "--line-1", values: series => series.column("rollout_idle"), smooth: true },
];

/** @param {{ context: Context }} props */
function ThroughputCard({ context }) {
  const { health, length, predicted } = /** @type {Summary} */ (context.summary.value);
  context.series.changes.value;
  const rates = context.series.has("production");
  return html`<${Card} title="Throughput" say=${`${short(health.tokens_per_s)} tokens/s trained · period ${lasting(health.period_s)}${known(predicted?.period_s) ? ` (predicted ${lasting(predicted?.period_s)})` : ""}, train step ${lasting(health.step_s)}`}>
    ${rates
      ? html`<${Plot} context=${context} title="Throughput over train steps" unit="rollouts per second" low=${0} lines=${health.acceptance < 0.9995 ? RATES : RATES.filter(line => line.name !== "effective production")} />`
      : html`<${Plot} context=${context} title="Tokens per second over train steps" low=${0} lines=${TOKENS} />`}
    <p class="small quiet">trained responses have ${short(length.trained_mean_tokens)} tokens on average, sampled ones ${short(length.sampled_mean_tokens)}${length.truncated_share > 0 ? `; ${percent(length.truncated_share)} end at the cap` : ""}</p></${Card}>`;
}

/** @type {import("../core/plot.js").Line[]} */
const RATES = [
  { name: "production", colour: "--line-1", values: series => series.column("production"), smooth: true },
  { name: "effective production", colour: "--line-3", values: series => series.column("effective"), smooth: true },
  { name: "consumption", colour: "--line-2", values: trained, smooth: true },
  { name: "while training", colour: "--line-2", values: series => series.column("consumption"), smooth: true, dashed: true },
];

/** Rollouts trained per second of all the time, where the column is per second of train step. @param {import("../core/series.js").SeriesBuffer} series */
function trained(series) {
  const step = series.column("train_s"), period = series.column("period_s");
  return series.column("consumption").map((rate, i) => rate === null || step[i] === null || !period[i] ? null : rate * /** @type {number} */ (step[i]) / /** @type {number} */ (period[i]));
}
/** @type {import("../core/plot.js").Line[]} */
const TOKENS = [{ name: "tokens/s", colour: "--line-1", values: series => series.column("tokens_per_s"), smooth: true }];

// Healthy under 5 % clipped, workable under 15 %, and past 25 % the estimator is broken.
const CLIP_BANDS = [
  { from: 0, to: 0.05, colour: "--good", name: "healthy" }, { from: 0.05, to: 0.15, colour: "--warn", name: "workable" },
  { from: 0.15, to: 0.25, colour: "--bad", name: "poor" }, { from: 0.25, to: 1, colour: "--bad", name: "broken" },
];
/** @type {import("../core/plot.js").Line[]} */
const CLIP = [{ name: "clip fraction", colour: "--line-1", values: series => series.column("clip_fraction"), smooth: true }];

/** @param {number} clip @returns {[string, string]} */
function clipHealth(clip) {
  if (clip < 0.05) return ["healthy", "good"];
  if (clip < 0.15) return ["workable", "warn"];
  return clip < 0.25 ? ["poor", "bad"] : ["broken", "bad"];
}

/** @param {{ context: Context }} props */
function OffPolicyCard({ context }) {
  const summary = /** @type {Summary} */ (context.summary.value);
  context.series.changes.value;
  if (!context.series.has("clip_fraction")) {
    return html`<${Card} title="Off-policy"><${Empty} title="No trainer says how far off-policy its batches are."><span>${context.info.value?.kind === "simulation" ? "A simulation trains nothing." : "A trainer sends clip fraction and log-ratio with its version."}</span></${Empty}></${Card}>`;
  }
  const [name, look] = clipHealth(summary.clip_fraction);
  const drifts = Math.abs(summary.mean_log_ratio) >= 0.05;
  return html`<${Card} title="Off-policy" say=${html`<span class=${look}>${name}</span>`}>
    <${Plot} context=${context} title="Clip fraction over train steps" lines=${CLIP} bands=${CLIP_BANDS} low=${0} height=${130} format=${(/** @type {any} */ n) => percent(n, known(n) && n !== 0 && n < 0.1 ? 1 : 0)} />
    <div class="figures">
      <${Figure} name="clip fraction" value=${percent(summary.clip_fraction)} look=${look} title="Share of tokens whose ratio is outside the clip band; healthy under 5 %, workable under 15 %, broken past 25 %" />
      <${Figure} name=${"mean log-ratio" + (drifts ? " (over 0.05)" : "")} value=${signed(summary.mean_log_ratio, 4)} look=${drifts ? "warn" : ""} title="Healthy below 0.05 either way; a lasting one means old weights, or numerics that differ" />
      <${Figure} name="effective sample size" value=${percent(summary.effective_sample_size, 1)} title="Of the batch's tokens, by their importance weights" />
    </div></${Card}>`;
}

const LIVE = /** @type {const} */ ([["in_flight", "in flight", "#56b4e9"], ["waiting", "waiting", "#e69f00"], ["queued", "queued", "#0072b2"], ["leased", "at the trainer", "#cc79a7"]]);
const ENDED = /** @type {const} */ ([["trained", "trained", "#009e73"], ["evicted", "evicted", "#d55e00"], ["discarded", "discarded", "#b5651d"], ["filtered", "filtered", "#8a8f98"], ["pruned", "pruned", "#a34f80"], ["cancelled", "cancelled", "#6b7280"], ["failed", "failed", "#c0271c"]]);

/** @param {{ summary: Summary }} props */
function LedgerCard({ summary }) {
  const l = summary.ledger;
  const live = LIVE.reduce((sum, [key]) => sum + l[key], 0), ended = ENDED.reduce((sum, [key]) => sum + l[key], 0);
  const wasted = summary.waste?.wasted_share;
  return html`<${Card} title="Ledger" say=${summary.balanced ? html`<span class="good">✓ balanced</span>` : html`<strong class="bad" role="alert">does not balance</strong>`}>
    <p class="ledger-line"><span><b>${count(l.admitted)}</b> <span class="quiet">rollouts admitted</span></span> <span class="quiet">=</span> <span><b>${count(live)}</b> <span class="quiet">under way</span></span> <span class="quiet">+</span> <span><b>${count(ended)}</b> <span class="quiet">ended</span></span></p>
    <${StackBar} label="Rollouts under way" parts=${LIVE.map(([key, name, colour]) => ({ name, value: l[key], colour, text: count(l[key]), keep: true }))} />
    <${StackBar} label="Rollouts that have ended" parts=${ENDED.map(([key, name, colour]) => ({ name, value: l[key], colour, text: count(l[key]), keep: key === "trained" }))} />
    ${known(wasted) && wasted > 0 && html`<p class="small quiet">${percent(wasted)} of the window’s tokens were not trained.</p>`}</${Card}>`;
}

/** @param {{ summary: Summary }} props */
function EnginesCard({ summary }) {
  const engines = summary.engines ?? [];
  const versions = engines.map(engine => engine.version).filter(v => v >= 0);
  const oldest = Math.min(...versions, summary.version), newest = Math.max(...versions, summary.version);
  const active = engines.reduce((sum, engine) => sum + engine.active, 0), slots = slotsOf(engines);
  const shown = engines.slice(0, 64), cells = engines.some(engine => engine.cell);
  return html`<${Card} title="Engines" say=${engines.length ? `${many(engines.length, "engine")}, ${count(active)} of ${many(slots, "slot")} busy` : ""}>
    ${engines.length === 0 ? html`<${Empty} title="No engine has joined."></${Empty}>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Table of engines"><table>
      <thead><tr><th>name</th>${cells && html`<th>cell</th>`}<th>state</th><th>version</th><th class="number">behind</th><th>slots busy</th></tr></thead>
      <tbody>${shown.map(engine => html`<tr key=${engine.name}><td>${engine.name}</td>${cells && html`<td>${engine.cell}</td>`}<td>${engine.state || "–"}</td>
        <td><i class="swatch" style=${{ "--swatch": versionColour(engine.version, oldest, newest) }}></i>${version(engine.version)}</td>
        <td class="number">${engine.version >= 0 ? count(Math.max(0, summary.version - engine.version)) : "–"}</td>
        <td><span class="stack engine-load" aria-hidden="true"><i style=${{ "--swatch": "var(--accent)", width: (engine.slots ? 100 * engine.active / engine.slots : 0) + "%" }}></i></span> ${count(engine.active)} of ${count(engine.slots)}</td></tr>`)}</tbody></table></div>
      ${engines.length > shown.length && html`<p class="small quiet">and ${many(engines.length - shown.length, "more engine")}</p>`}`}</${Card}>`;
}

const LATENCY = /** @type {const} */ ([["queue_s", "waiting at the engine", "#e69f00"], ["prefill_s", "prefill", "#cc79a7"], ["decode_s", "decode", "#0072b2"], ["sandbox_wait_s", "waiting for a sandbox", "#b58900"], ["sandbox_start_s", "sandbox start", "#8a8f98"],
  ["tool_wait_s", "waiting for a tool", "#6b7280"], ["tool_s", "tools", "#009e73"], ["environment_s", "environment", "#56b4e9"], ["verifier_wait_s", "waiting for the verifier", "#a34f80"], ["verifier_s", "verifier", "#d55e00"],
  ["scorer_wait_s", "waiting for a scorer", "#7a5195"], ["scorer_s", "scorer", "#f0a3c0"], ["interrupted_s", "interrupted", "#c0271c"]]);

/** @param {{ summary: Summary, task: string }} props */
function RolloutCard({ summary, task }) {
  const { latency, staleness, length } = summary;
  const histogram = staleness.histogram ?? [];
  const most = Math.max(1, ...histogram), all = histogram.reduce((sum, n) => sum + n, 0);
  return html`<${Card} title="Rollouts" say=${task && `task ${task}`}>
    <p class="small"><span class="quiet">end to end</span> <b>${lasting(latency.end_to_end_s)}</b> <span class="quiet">on average, of it</span></p>
    <${StackBar} label="Where a rollout's time goes" parts=${LATENCY.map(([key, name, colour]) => ({ name, value: latency[key] ?? 0, colour, text: lasting(latency[key]) }))} />
    ${all > 0 && html`<p class="small quiet">groups by staleness (${count(all)} trained in the window)</p>
      <div class="histogram" role="img" aria-label=${"Groups by staleness: " + histogram.map((n, k) => `${k}: ${n}`).join(", ")}>
      ${histogram.slice(0, 40).map((n, k) => html`<i key=${k} title=${`staleness ${k}: ${many(n, "group")}, ${percent(n / all)}`} style=${{ height: 100 * n / most + "%" }}></i>`)}</div>
      <p class="small quiet">0 … ${count(Math.min(histogram.length, 40) - 1)} versions · p50 ${count(staleness.p50)}, p95 ${count(staleness.p95)}, p99 ${count(staleness.p99)}</p>`}
    <${Pairs} rows=${[["longest response", count(length.sampled_max_tokens) + " tokens"], ["at the length cap", percent(length.truncated_share)]]} /></${Card}>`;
}
