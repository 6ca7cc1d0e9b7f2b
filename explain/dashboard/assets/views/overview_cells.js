// The processes of a live run with cells: whether each is heard, which bound of it is taken most, and which binds first.
import { html } from "../core/html.js";
import { Card, Empty, useAsk } from "../core/parts.js";
import { count, fixed, lasting, many, percent, short } from "../core/format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").Bound} Bound */
/** @typedef {import("../../types/wire.js").Cell} Cell */
/** @typedef {import("../../types/wire.js").Limit} Limit */

const EVERY_MS = 2000;
const LATE_S = 10, LOST_S = 15; // a cell says something every 5 s, and is lost after 15
const SHOWN = 64;
const PROCESSOR = "processor_ms_per_s";
/** @type {Record<string, string>} */
const BOUNDS = { [PROCESSOR]: "processors", rollouts_bytes: "bytes of rollouts", rollout_bytes: "bytes of a rollout", bodies_bytes: "bytes of requests" };

/** @param {string} name */
function boundName(name) { return BOUNDS[name] ?? name.replaceAll("_", " "); }

/** @param {string} name @param {number} n */
function amount(name, n) {
  if (name === PROCESSOR) return fixed(n / 1000, 1);
  return name.endsWith("_bytes") ? short(n) + "B" : count(n);
}

/** The bound of a process that is taken most. @param {Bound[]} bounds @returns {{ name: string, share: number } | null} */
function fullest(bounds) {
  const shares = bounds.filter(b => b.max > 0).map(b => ({ name: b.name, share: b.held / b.max }));
  return shares.reduce((/** @type {{ name: string, share: number } | null} */ most, b) => most && most.share >= b.share ? most : b, null);
}

/** @param {number} silent @param {boolean} away @returns {[string, string]} */
function heard(silent, away) {
  if (away) return ["away", ""]; // its engines were given back
  if (silent < 0) return ["not heard of yet", "bad"];
  return [lasting(silent) + " ago", silent < LATE_S ? "" : silent < LOST_S ? "warn" : "bad"];
}

/** @param {{ name: string, silent: number | null, engines: number, slots: number, bounds: Bound[], away?: boolean, title?: string }} props */
function Row({ name, silent, away = false, engines, slots, bounds, title }) {
  const [text, look] = silent === null ? ["–", ""] : heard(silent, away);
  const most = fullest(bounds);
  return html`<tr title=${title}><td>${name}</td><td class=${look}>${text}</td><td class="number">${count(engines)}</td><td class="number">${count(slots)}</td>
    <td>${most && most.share > 0 ? html`<span class="stack engine-load" aria-hidden="true"><i style=${{ "--swatch": most.share < 0.8 ? "var(--accent)" : "var(--bad)", width: Math.min(100, 100 * most.share) + "%" }}></i></span> ${percent(most.share)} of ${boundName(most.name)}` : bounds.length ? "nothing taken" : "–"}</td></tr>`;
}

/** @param {{ limit: Limit }} props */
function First({ limit }) {
  const process = limit.fullest ? html`cell ${limit.fullest}` : "the control plane";
  return html`<p>First to bind: <b>${boundName(limit.name)}</b>. The fullest process, ${process}, has taken ${percent(limit.share)}.${" "}
    <span class="quiet">All ${count(limit.processes)} processes have taken ${amount(limit.name, limit.held)} of ${amount(limit.name, limit.max)}, and one more cell adds ${amount(limit.name, limit.one_more)}.</span></p>`;
}

/** @param {{ context: Context }} props */
export function CellsCard({ context }) {
  const info = context.info.value, ended = context.ended.value;
  const live = info?.kind === "live" && (info.cells?.some(cell => cell) ?? false);
  const asked = useAsk(context, live && !ended ? "../status" : null, EVERY_MS);
  if (!live) return null;
  /** @type {Cell[]} */
  const cells = asked.data?.cells ?? [];
  if (!cells.length) return html`<${Card} title="Cells"><${Empty} title=${asked.error || (ended ? "The run has ended." : "The control plane is asked.")}></${Empty}></${Card}>`;
  const own = (context.summary.value?.engines ?? []).filter(engine => !engine.cell);
  const wanted = cells.filter(cell => !cell.away), there = wanted.filter(cell => cell.silent_s >= 0 && cell.silent_s < LOST_S).length;
  return html`<${Card} title="Cells" say=${there === wanted.length ? `${many(there, "cell")}, all heard` : html`<span class="bad">${count(there)} of ${many(wanted.length, "cell")} heard</span>`}>
    <div class="scroll" tabindex="0" role="region" aria-label="Table of processes"><table>
      <thead><tr><th>process</th><th>heard</th><th class="number">engines</th><th class="number">slots</th><th>fullest bound</th></tr></thead>
      <tbody><${Row} name="control plane" silent=${null} engines=${own.length} slots=${own.reduce((sum, engine) => sum + engine.slots, 0)} bounds=${asked.data.bounds ?? []} />
        ${cells.slice(0, SHOWN).map(cell => html`<${Row} key=${cell.name} name=${cell.name} silent=${cell.silent_s} away=${cell.away} engines=${cell.engines} slots=${cell.slots} bounds=${cell.bounds ?? []} title=${cell.build} />`)}</tbody></table></div>
    ${cells.length > SHOWN && html`<p class="small quiet">and ${many(cells.length - SHOWN, "more cell")}</p>`}
    ${asked.data.limits?.length > 0 && html`<${First} limit=${asked.data.limits[0]} />`}
    ${asked.error && html`<p class="small bad" role="alert">${asked.error}</p>`}</${Card}>`;
}
