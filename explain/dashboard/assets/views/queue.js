// The queue inspector: the groups that wait for the trainer, and those that are still open.
import { html, useEffect, useMemo, useState } from "../core/html.js";
import { Card, Empty, Figure, useAsk } from "../core/parts.js";
import { versionColour, versionRamp, css } from "../core/colour.js";
import { QueuePlot } from "./queue_plot.js";
import { count, fixed, lasting, many, version } from "../core/format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").QueueGroup} QueueGroup */
/** @typedef {QueueGroup & { place: "ready" | "held" | "open" }} Placed */

const EVERY_MS = 1000;
const BARS = 160; // more would be thinner than a finger, and than a colour can be told
const ROWS = 100;

/** @param {{ context: Context }} props */
export default function Queue({ context }) {
  context.style("views/queue.css");
  const ended = context.ended.value;
  const asked = useAsk(context, "queue", ended ? 0 : EVERY_MS);
  /** @type {import("../../types/wire.js").Queue | null} */ const queue = asked.data;
  const [held, setHeld] = useState(/** @type {any} */ (null));
  useEffect(() => { if (queue || asked.error) context.ready("queue"); }, [!queue, asked.error]);
  if (!queue) return asked.error ? html`<${Empty} title="The queue could not be read." bad><span>${asked.error}</span><button onClick=${asked.again}>Try again</button></${Empty}>` : html`<p class="bare" role="status">Reading the queue…</p>`;
  const shown = held ?? queue;
  const ready = (shown.ready ?? []).map((/** @type {QueueGroup} */ group) => ({ ...group, place: group.held ? "held" : "ready" }));
  const open = (shown.open ?? []).map((/** @type {QueueGroup} */ group) => ({ ...group, place: "open" }));
  const first = ready[0] ?? open[0];
  const now = first && first.start_version >= 0 ? first.start_version + first.staleness_now : context.summary.peek()?.version ?? 0; // of the moment that the groups are of
  const waiting = ready.filter((/** @type {Placed} */ group) => group.place === "ready").length;
  return html`<h2 class="unseen">Queue inspector</h2><div class="grid">
    <${Card} title="Queue" size="wide" say=${!ended && html`<button aria-pressed=${held !== null} onClick=${() => setHeld(held ? null : queue)}>${held ? "held still: go on" : "hold still"}</button>`}>
      <div class="figures">
        <${Figure} name=${"of " + count(shown.state.capacity_groups) + " groups ready"} value=${count(waiting)} />
        <${Figure} name="groups make a batch" value=${count(shown.state.batch_groups)} />
        <${Figure} name="groups open" value=${count(open.length)} />
        <${Figure} name="kept out by a full queue" value=${count(ready.length - waiting)} look=${ready.length > waiting ? "warn" : ""} />
        <${Figure} name="oldest ready group waits" value=${lasting(ready.reduce((/** @type {number} */ most, /** @type {Placed} */ group) => Math.max(most, group.wait_s), 0))} />
      </div>
      <${VersionLegend} groups=${[...ready, ...open]} now=${now} />
    </${Card}>
    <${Bars} context=${context} title="Ready, by age" groups=${ready} now=${now}
      none=${ended ? "Nothing waited when the run ended." : "The trainer takes groups as fast as they come."} />
    <${Bars} context=${context} title="Open, by age" groups=${open} now=${now}
      none=${ended ? "No group was open when the run ended." : "No rollout has been started: admission waits, or no engine has a free slot."} />
    <${Card} title="Over the run" size="wide" say="groups in the queue after each step"><${QueuePlot} context=${context} /></${Card}>
    <${Table} context=${context} groups=${[...ready, ...open]} now=${now} budget=${context.info.value?.max_staleness ?? 0} />
  </div>`;
}

/** The oldest and newest start versions among groups. @param {Placed[]} groups @param {number} now @returns {[number, number]} */
function versions(groups, now) {
  const known = groups.map(group => group.start_version).filter(v => v >= 0);
  return known.length ? [known.reduce((a, b) => Math.min(a, b)), Math.max(now, known.reduce((a, b) => Math.max(a, b)))] : [now, now];
}

/** @param {{ groups: Placed[], now: number }} props */
function VersionLegend({ groups, now }) {
  const [oldest, newest] = versions(groups, now);
  const ramp = useMemo(() => `linear-gradient(90deg, ${versionRamp(12).map(css).join(", ")})`, []);
  return html`<p class="small quiet">colour is the version a group began with: ${version(oldest)}<i class="ramp" style=${{ background: ramp }}></i>${version(newest)}${newest === now ? " (now)" : ""}. Height is age: how long ago its first rollout was issued. Hatched groups are not whole yet.</p>`;
}

/** @param {{ context: Context, title: string, groups: Placed[], now: number, none: string }} props */
function Bars({ context, title, groups, now, none }) {
  const all = useMemo(() => [...groups].sort((a, b) => b.age_s - a.age_s), [groups]);
  const shown = all.slice(0, BARS);
  const [oldest, newest] = versions(groups, now);
  const most = shown[0]?.age_s || 1;
  const mean = groups.length ? groups.reduce((sum, group) => sum + group.staleness_now, 0) / groups.length : 0;
  return html`<${Card} title=${title} say=${groups.length ? `${many(groups.length, "group")}, on average ${fixed(mean)} versions old` : ""}>
    ${shown.length === 0 ? html`<${Empty} title="None."><span>${none}</span></${Empty}>` : html`
      <div class="bars" role="group" aria-label=${`${title}: ${many(groups.length, "group")}, the oldest ${lasting(most)}`}><span class="most" aria-hidden="true">${lasting(most)}</span>
      ${shown.map(group => { const told = describe(group); return html`<button key=${group.id} title=${told} aria-label=${told} onClick=${() => read(context, group)}>
        <i class=${group.place === "open" ? "partly" : ""} style=${{ "--swatch": versionColour(group.start_version, oldest, newest), height: 100 * group.age_s / most + "%" }}></i></button>`; })}</div>
      <p class="small quiet">oldest first${all.length > shown.length ? `; ${many(all.length - shown.length, "younger group")} not drawn` : ""}</p>`}</${Card}>`;
}

/** @param {Placed} group */
function describe(group) {
  return `group ${group.id}: from ${version(group.start_version)}, ${lasting(group.age_s)} old, ${group.place === "open" ? `${group.scored} of ${group.size} scored` : "waits " + lasting(group.wait_s)}, ${many(group.staleness_now, "version")} behind`;
}

/** @param {Context} context @param {Placed} group */
function read(context, group) { context.navigate("rollouts", { group: group.id }); }

/** @type {{ key: keyof Placed, name: string, number?: boolean, show: (group: Placed) => any }[]} */
const COLUMNS = [
  { key: "id", name: "group", show: group => "g" + group.id },
  { key: "place", name: "is", show: group => group.place },
  { key: "start_version", name: "began with", show: group => version(group.start_version) },
  { key: "staleness_now", name: "versions behind", number: true, show: group => count(group.staleness_now) },
  { key: "age_s", name: "age", number: true, show: group => lasting(group.age_s) },
  { key: "wait_s", name: "waits", number: true, show: group => group.place === "open" ? "–" : lasting(group.wait_s) },
  { key: "scored", name: "scored", number: true, show: group => `${group.scored} of ${group.size}` },
  { key: "tokens", name: "tokens", number: true, show: group => count(group.tokens) },
  { key: "reward_mean", name: "reward", number: true, show: group => group.scored ? fixed(group.reward_mean) : "–" },
];

/** @param {{ context: Context, groups: Placed[], now: number, budget: number }} props */
function Table({ context, groups, now, budget }) {
  const [order, setOrder] = useState(/** @type {{ key: keyof Placed, down: boolean }} */ ({ key: "age_s", down: true }));
  const [limit, setLimit] = useState(ROWS);
  const [only, setOnly] = useState("");
  const [oldest, newest] = versions(groups, now);
  const rows = useMemo(() => groups.filter(group => !only || group.place === only).sort((a, b) => {
    const x = a[order.key], y = b[order.key];
    const c = typeof x === "string" ? x.localeCompare(String(y)) : Number(x) - Number(y);
    return (order.down ? -c : c) || a.id - b.id;
  }), [groups, order, only]);
  const sortBy = (/** @type {keyof Placed} */ key) => setOrder({ key, down: order.key === key ? !order.down : true });
  return html`<${Card} title="Groups" size="wide" say=${html`<span class="queue-tools">${["", "ready", "held", "open"].map(place => html`<button key=${place} aria-pressed=${only === place} onClick=${() => setOnly(place)}>${place || "all"}</button>`)}</span>`}>
    ${rows.length === 0 ? html`<${Empty} title="No such group now."></${Empty}>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Groups, as a table"><table>
      <thead><tr>${COLUMNS.map(column => html`<th key=${column.key} class=${column.number ? "number" : ""} aria-sort=${order.key === column.key ? order.down ? "descending" : "ascending" : undefined}><button class="plain" onClick=${() => sortBy(column.key)}>${column.name}</button></th>`)}<th><span class="unseen">read it</span></th></tr></thead>
      <tbody>${rows.slice(0, limit).map(group => html`<tr key=${group.id}>${COLUMNS.map(column => html`<td key=${column.key} class=${(column.number ? "number" : "") + (column.key === "staleness_now" && budget > 0 && group.staleness_now > budget ? " bad" : "")}>
        ${column.key === "start_version" && html`<i class="swatch" style=${{ "--swatch": versionColour(group.start_version, oldest, newest) }}></i>`}${column.show(group)}</td>`)}
        <td><a href=${"#/rollouts?group=" + group.id}>read</a></td></tr>`)}</tbody></table></div>
    ${rows.length > limit && html`<button onClick=${() => setLimit(limit + 500)}>show more (${count(rows.length - limit)})</button>`}`}
    ${budget > 0 && html`<p class="small quiet">The budget is ${many(budget, "version")}; groups past it are red.</p>`}</${Card}>`;
}
