// Findings: what costs the run, what to change, what that buys and at what price.
import { html, useEffect } from "../core/html.js";
import { runningMean, smoothing } from "../core/plot.js";
import { Card, Copy, Empty, Figure, StackBar, useAsk } from "../core/parts.js";
import { sourceColour } from "../core/colour.js";
import { count, fixed, known, lasting, many, percent, short, signed, words } from "../core/format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").Report} Report */
/** @typedef {import("../../types/wire.js").Finding} Finding */

const EVERY_MS = 15_000; // a judgement takes work, and does not change from one step to the next

/** @param {{ context: Context }} props */
export default function Findings({ context }) {
  context.style("views/findings.css");
  const ended = context.ended.value;
  const asked = useAsk(context, "findings", ended ? 0 : EVERY_MS);
  /** @type {Report | null} */ const report = asked.data;
  useEffect(() => { if (report || asked.error) context.ready("findings"); }, [!report, asked.error]);
  if (!report) {
    if (asked.early) return html`<${Empty} title="Nothing can be said of the run yet."><span>${asked.error}</span></${Empty}>`;
    return asked.error ? html`<${Empty} title="The run could not be judged." bad><span>${asked.error}</span><button onClick=${asked.again}>Try again</button></${Empty}>`
      : html`<p class="bare" role="status">Judging the run: fitting its quantities, and resimulating what could be changed…</p>`;
  }
  return html`<h2 class="unseen">Findings</h2><div class="grid">
    <${Verdict} report=${report} ended=${ended} again=${asked.again} stale=${asked.error} />
    ${(report.findings ?? []).map((finding, i) => html`<${FindingCard} key=${finding.code + i} finding=${finding} rank=${i + 1} context=${context} />`)}
    ${(report.compared ?? []).length > 0 && html`<${Compared} report=${report} />`}
    <${Fitted} report=${report} />
    ${(report.drift ?? []).length > 0 && html`<${Drifts} report=${report} context=${context} />`}
  </div>`;
}

/** @param {{ report: Report, ended: boolean, again: () => void, stale: string }} props */
function Verdict({ report, ended, again, stale }) {
  const { settled, attribution } = report;
  const findings = report.findings ?? [];
  const tally = ["defect", "cost", "warning"].map(severity => [severity, findings.filter(finding => finding.severity === severity).length]).filter(([, n]) => n);
  const said = tally.map(([severity, n]) => many(Number(n), String(severity))).join(", ");
  return html`<${Card} title="Findings" size="wide" say=${html`<button onClick=${again}>judge again</button>`}>
    ${!settled.ok && html`<div class="banner"><strong>Not yet settled.</strong><span>${sentence(settled.why || "Too few steps have been made")} ${moreSteps(settled.more_steps, ended)} Until then only what needs no steady state is said.</span></div>`}
    ${stale && html`<p class="bad small">What is shown is the last answer; asked again: ${stale}</p>`}
    ${findings.length === 0 && settled.ok && html`<${Empty} title="Nothing was found that a setting would improve."><span>${many(settled.steps, "step")} were judged, from step ${count(settled.from_step)} on.</span></${Empty}>`}
    ${findings.length > 0 && html`<p>${said}, the dearest first${settled.ok ? `; judged over ${many(settled.steps, "step")} from step ${count(settled.from_step)} on` : ""}.</p>`}
    ${attribution && attribution.groups > 0 && html`<div>
      <p class="small quiet">Mean staleness ${fixed(attribution.staleness_mean)} versions comes mostly from ${words(attribution.dominant)} (${percent(attribution.share, 0)}${attribution.ties?.length ? ", close to " + attribution.ties.map(words).join(", ") : ""}).</p>
      <${StackBar} label="Staleness by source" parts=${(attribution.parts ?? []).map(part => ({ name: words(part.source), value: part.versions, colour: sourceColour[part.source] ?? "var(--edge-strong)", text: fixed(part.versions) }))} /></div>`}
    ${(report.warnings ?? []).map((warning, i) => html`<p key=${i} class="small warn wrap">${warning}</p>`)}</${Card}>`;
}

/** What others say, as a sentence among others. @param {string} text */
function sentence(text) { return /[.!?]$/.test(text) ? text : text + "."; }

/** @param {number | undefined} more @param {boolean} ended */
function moreSteps(more, ended) {
  if (ended) return "The run ended before it had.";
  return more ? `It should have in about ${many(more, "more train step")}.` : "";
}

const SEVERITY = { cost: "costs", warning: "will cost", defect: "is broken" };

/** @param {{ finding: Finding, rank: number, context: Context }} props */
function FindingCard({ finding, rank, context }) {
  const { change } = finding;
  const heading = "finding-" + rank;
  return html`<section class=${"card wide finding " + finding.severity} aria-labelledby=${heading}>
    <header><h3 id=${heading}>${rank}. ${finding.title}</h3><span class=${"chip " + ({ defect: "bad", warning: "warn" }[/** @type {"defect"} */ (finding.severity)] ?? "")}>${SEVERITY[finding.severity] ?? finding.severity}</span></header>
    <div class="figures">
      ${finding.cost_versions > 0 && html`<${Figure} name="versions of staleness" value=${fixed(finding.cost_versions)} />`}
      ${finding.cost_ratio > 0 && html`<${Figure} name="of the train period" value=${percent(finding.cost_ratio)} />`}
    </div>
    ${(finding.evidence ?? []).length > 0 && html`<ul class="evidence">${(finding.evidence ?? []).map((line, i) => html`<li key=${i}>${line}</li>`)}</ul>`}
    ${change && html`<${ChangeBox} change=${change} context=${context} />`}
    ${!change && finding.no_setting && html`<p><span class="quiet">no setting:</span> ${finding.no_setting}</p>`}
    ${finding.fails && html`<p class="small"><span class="quiet">not so if</span> ${finding.fails}</p>`}
    <p class="small quiet"><code>${finding.code}</code></p></section>`;
}

/** @param {{ change: import("../../types/wire.js").Change, context: Context }} props */
function ChangeBox({ change, context }) {
  const slower = change.period_ratio - 1;
  const flags = (change.overrides ?? []).map(one => "--set " + one).join(" ");
  const interval = known(change.gain_high) && change.gain_high > 0;
  return html`<div class="change">
    <div class="set"><span class="quiet">change</span><code>${change.set}</code>
      ${flags && html`<${Copy} context=${context} text=${flags} label=${"Copy " + flags}>copy --set</${Copy}>`}
      ${change.holds_fixed && html`<span class="small quiet">with ${change.holds_fixed} held</span>`}</div>
    <div class="gain">
      <span class="quiet">staleness</span><span class="track" aria-hidden="true"><i style=${{ "--swatch": change.gain >= 0 ? "var(--good)" : "var(--bad)", width: 100 * Math.min(1, Math.abs(change.gain)) + "%" }}></i>
        ${interval && html`<u style=${{ left: 100 * clamp(change.gain_low ?? 0) + "%", width: 100 * (clamp(change.gain_high ?? 0) - clamp(change.gain_low ?? 0)) + "%" }}></u>`}</span>
      <span>${signed(-100 * change.gain, 0)} % → <b>${fixed(change.staleness_mean)}</b>${interval ? html` <span class="quiet">(${signed(-100 * (change.gain_high ?? 0), 0)} to ${signed(-100 * (change.gain_low ?? 0), 0)} %)</span>` : ""}</span>
      <span class="quiet">train period</span><span class="track" aria-hidden="true"><i style=${{ "--swatch": slower > 0 ? "var(--warn)" : "var(--good)", width: 100 * Math.min(1, Math.abs(slower)) + "%" }}></i></span>
      <span>× <b>${fixed(change.period_ratio)}</b> <span class="quiet">${Math.abs(slower) < 0.005 ? "as before" : slower > 0 ? "longer" : "shorter"}</span></span>
    </div>
    ${change.price && html`<p><span class="quiet">price</span> ${change.price}</p>`}
    <p class="small quiet">by ${words(change.method)}</p></div>`;
}

/** @param {number} x */
function clamp(x) { return Math.min(1, Math.max(0, x)); }

/** A figure by the unit in its name. @param {string} what @param {number} n */
function figure(what, n) {
  if (what.endsWith("_ratio") || what.endsWith("_rate") || what === "acceptance" || what === "utilization") return percent(n);
  return what.endsWith("_s") ? lasting(n) : short(n);
}

const METHODS = ["before_the_run", "closed_form", "simulation", "resimulation"];

/** One line a figure: measured, and beside it what each method says. @param {{ report: Report }} props */
function Compared({ report }) {
  const rows = report.compared ?? [];
  const methods = METHODS.filter(method => rows.some(row => row.method === method)).concat([...new Set(rows.map(row => row.method))].filter(method => !METHODS.includes(method)));
  const whats = [...new Set(rows.map(row => row.what))];
  return html`<${Card} title="Measured beside predicted" size="wide"><div class="scroll" tabindex="0" role="region" aria-label="Table of measured and predicted figures"><table>
    <thead><tr><th>figure</th><th class="number">measured</th>${methods.map(method => html`<th class="number" key=${method}>${words(method)}</th>`)}</tr></thead>
    <tbody>${whats.map(what => {
      const first = /** @type {Row} */ (rows.find(row => row.what === what));
      return html`<tr key=${what}><td>${words(what)}</td><td class="number"><b>${figure(what, first.measured)}</b>${first.half > 0 && html` <span class="quiet">± ${figure(what, first.half)}</span>`}</td>
        ${methods.map(method => html`<td class="number" key=${method}><${Predicted} row=${rows.find(row => row.what === what && row.method === method)} /></td>`)}</tr>`;
    })}</tbody></table></div></${Card}>`;
}

/** @typedef {NonNullable<Report["compared"]>[number]} Row */

/** @param {{ row: Row | undefined }} props */
function Predicted({ row }) {
  if (!row) return html`<span class="quiet">–</span>`;
  const share = row.what.endsWith("_ratio"); // of shares, percentage points say more than a quotient
  const off = share ? row.predicted - row.measured : row.measured !== 0 ? row.predicted / row.measured - 1 : null;
  const far = off !== null && Math.abs(off) > (share ? 0.05 : 0.1) && Math.abs(row.predicted - row.measured) > row.half;
  return html`${figure(row.what, row.predicted)} <span class=${"small " + (far ? "warn" : "quiet")}>${off === null ? "" : signed(100 * off, share ? 1 : 0) + "\u00a0" + (share ? "points" : "%")}</span>`;
}

const FITTED = /** @type {const} */ ([["concurrency_rollouts", "concurrency C, rollouts"], ["batch_rollouts", "batch B, rollouts"], ["group_size", "group size S"], ["tail_multiplier", "tail multiplier M"], ["utilization", "utilization ρ"],
  ["acceptance", "acceptance"], ["step_s", "train step"], ["step_variation", "its variation"], ["sync_s", "weight sync"], ["environment_ratio", "environment over generation"], ["queue_factor", "queue factor q"], ["arrival_variation", "variation of arrivals"]]);

/** @param {{ report: Report }} props */
function Fitted({ report }) {
  const rows = FITTED.filter(([key]) => report.fitted?.[key]?.origin);
  const missing = FITTED.filter(([key]) => !report.fitted?.[key]?.origin);
  return html`<${Card} title="Fitted quantities" size="wide" say="the model’s inputs, as this run has them">
    ${rows.length === 0 ? html`<${Empty} title="None could be fitted yet."></${Empty}>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Table of fitted quantities"><table><thead><tr><th>quantity</th><th class="number">value</th><th>is</th><th>from</th></tr></thead><tbody>
      ${rows.map(([key, name]) => { const fit = report.fitted[key]; return html`<tr key=${key}><td>${name}</td><td class="number">${key === "acceptance" ? percent(fit.value) : key.endsWith("_s") ? lasting(fit.value) : short(fit.value)}</td><td>${fit.origin}</td><td class="quiet">${fit.from ?? ""}</td></tr>`; })}</tbody></table></div>`}
    ${missing.length > 0 && rows.length > 0 && html`<p class="small quiet">not known: ${missing.map(([, name]) => name).join(", ")}</p>`}</${Card}>`;
}

/** Columns of the series in which a quantity that drifts can be seen. @type {Record<string, string>} */
const DRIFT_COLUMNS = { train_step_s: "train_s", response_tokens: "response_tokens", acceptance: "acceptance", reward: "reward", staleness: "staleness", staleness_mean: "staleness", period_s: "period_s", mean_log_ratio: "mean_log_ratio", clip_fraction: "clip_fraction", train_s: "train_s" };

/** @param {{ report: Report, context: Context }} props */
function Drifts({ report, context }) {
  return html`<${Card} title="Drift" size="wide" say="first quarter of the run beside the last"><div class="drift">${(report.drift ?? []).map((drift, i) => html`<div key=${i}>
    <span><b>${words(drift.what)}</b> ${drift.sure ? html`<span class="chip warn">moves</span>` : html`<span class="chip">within chance</span>`}</span>
    <${Spark} values=${DRIFT_COLUMNS[drift.what] ? context.series.column(DRIFT_COLUMNS[drift.what]) : [drift.first, drift.last]} label=${words(drift.what)} />
    <span>${figure(drift.what, drift.first)} → ${figure(drift.what, drift.last)} <span class="quiet small">${drift.first ? signed(100 * (drift.last / drift.first - 1), 0) + "\u00a0%" : ""}</span></span>
    ${drift.means && html`<span class="small">${drift.means}</span>`}</div>`)}</div></${Card}>`;
}

/** A line without axes. @param {{ values: (number | null)[], label: string }} props */
function Spark({ values, label }) {
  const smooth = runningMean(values, smoothing(values.length));
  const told = /** @type {[number, number][]} */ (smooth.map((value, i) => [i, value]).filter(([, value]) => value !== null));
  if (told.length < 2) return null;
  let low = Infinity, high = -Infinity;
  for (const [, value] of told) { low = Math.min(low, value); high = Math.max(high, value); }
  const path = told.map(([i, value], at) => `${at ? "L" : "M"}${(100 * i / (values.length - 1)).toFixed(2)} ${(34 - 32 * (value - low) / (high - low || 1)).toFixed(2)}`).join("");
  return html`<svg class="spark" viewBox="0 0 100 36" preserveAspectRatio="none" role="img" aria-label=${`${label} over the run, from ${short(told[0][1])} to ${short(told[told.length - 1][1])}`}><path d=${path} /></svg>`;
}
