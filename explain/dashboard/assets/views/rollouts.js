// The rollout reader: which groups there are, and one of them with its siblings.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../core/html.js";
import { Empty, useAsk } from "../core/parts.js";
import { count, fixed, known } from "../core/format.js";
import { GroupReader } from "./rollouts_group.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").GroupLine} GroupLine */
/** @typedef {Record<string, string>} Filters */

const PAGE = 100;
const MOST = 1000; // lines in the list: past that, filters find things, not scrolling
const EVERY_MS = 4000;
const RANGES = /** @type {const} */ ([["step", "step"], ["reward", "reward"], ["staleness", "staleness"]]);
/** The parameters of the address that choose groups. */
const FILTERS = ["q", "sort", "all", "step_from", "step_to", "reward_min", "reward_max", "staleness_min", "staleness_max"];

/** @param {Filters} params @param {number} limit @param {boolean} hasText where there is none, groups are listed for their figures */
function listPath(params, limit, hasText) {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const key of FILTERS) if (params[key] && key !== "all") query.set(key, params[key]);
  if (!params.all && hasText) query.set("readable", "1");
  return "groups?" + query;
}

/** @param {Filters} params */
function kept(params) { return Object.fromEntries(Object.entries(params).filter(([key]) => FILTERS.includes(key))); }

/** @param {{ context: Context }} props */
export default function Rollouts({ context }) {
  context.style("views/rollouts.css");
  const params = context.route.value.params;
  const [limit, setLimit] = useState(PAGE);
  const ended = context.ended.value;
  const asked = useAsk(context, listPath(params, limit, context.info.value?.has_text ?? true), ended ? 0 : EVERY_MS);
  /** @type {GroupLine[]} */ const groups = asked.data?.groups ?? [];
  const chosen = params.group ? Number(params.group) : null;
  const choose = (/** @type {number | undefined} */ id, replace = false) => context.navigate("rollouts", { ...kept(context.route.peek().params), group: id }, { replace });

  useEffect(() => { if (asked.data || asked.error) context.ready("rollouts"); }, [!asked.data, asked.error]);
  useEffect(() => { // on a wide screen something is read at once
    if (chosen === null && groups.length && matchMedia("(min-width: 901px)").matches) choose(groups[0].id, true);
  }, [chosen === null, groups[0]?.id]);
  useLayoutEffect(() => listKeys(context, groups, choose), [groups]);

  return html`<h2 class="unseen">Rollout reader</h2><div class=${"reader" + (chosen !== null ? " reading" : "")}>
    <section class="card list" aria-label="Groups">
      <${FilterForm} context=${context} params=${params} />
      <${Kept} info=${context.info.value} />
      <${List} asked=${asked} groups=${groups} chosen=${chosen} choose=${choose} context=${context} />
      ${asked.data?.next > 0 && limit < MOST && html`<button onClick=${() => setLimit(Math.min(MOST, limit * 2))}>show more</button>`}
      ${asked.data?.next > 0 && limit >= MOST && html`<p class="small quiet">There are more than ${count(MOST)}: filters find others.</p>`}
    </section>
    <div class="group">${asked.shut ? null : chosen !== null
      ? html`<${GroupReader} context=${context} id=${chosen} key=${chosen} back=${() => choose(undefined)} />`
      : html`<${Empty} title="Choose a group."><span><kbd>j</kbd> and <kbd>k</kbd> go through them.</span></${Empty}>`}</div>
  </div>`;
}

/** @param {Context} context @param {GroupLine[]} groups @param {(id: number) => void} choose */
function listKeys(context, groups, choose) {
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /** @type {HTMLElement} */ (event.target).closest("input, select, textarea, dialog")) return;
    const step = { j: 1, k: -1 }[event.key];
    if (!step || !groups.length) return;
    const chosen = Number(context.route.peek().params.group ?? -1); // as it is now: keys may come faster than frames
    const at = groups.findIndex(group => group.id === chosen);
    const next = groups[Math.min(groups.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    if (next.id !== chosen) choose(next.id);
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

/** What of the run can be read at all. @param {{ info: import("../../types/wire.js").Info | null }} props */
function Kept({ info }) {
  const found = /samples_every:\s*(\d+)/.exec(info?.config ?? "");
  if (!info?.has_text || !found) return null;
  const every = Number(found[1]), steps = every === 1 ? "of every train step" : `of every ${count(every)}th train step`;
  const written = every > 0 ? `${steps} (store.samples_every)` : "";
  if (info.kind === "live") return html`<p class="small quiet">Text is kept of the newest groups since this process of the run began${written && `, and of some ${written}`}.</p>`;
  return html`<p class="small quiet">Text is kept of some groups ${written || "alone: store.samples_every is 0"}.</p>`;
}

/** @param {{ context: Context, params: Filters }} props */
function FilterForm({ context, params }) {
  const clock = useRef(/** @type {any} */ (null));
  const change = (/** @type {string} */ key, /** @type {string} */ value, now = false) => {
    clearTimeout(clock.current);
    const set = () => context.navigate("rollouts", { ...context.route.peek().params, [key]: value }, { replace: true });
    if (now) set(); else clock.current = setTimeout(set, 300);
  };
  useEffect(() => () => clearTimeout(clock.current), []);
  const ranged = FILTERS.slice(3).some(key => params[key]);
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <input type="search" placeholder="part of the prompt" aria-label="Part of the prompt" value=${params.q ?? ""} onInput=${(/** @type {any} */ event) => change("q", event.target.value)} />
    <div class="line"><select aria-label="Order" value=${params.sort ?? ""} onChange=${(/** @type {any} */ event) => change("sort", event.target.value, true)}>
      <option value="">newest first</option><option value="id">oldest first</option><option value="-reward">best reward first</option><option value="reward">worst reward first</option>
      <option value="-staleness">stalest first</option><option value="-tokens">longest first</option><option value="tokens">shortest first</option></select>
      ${context.info.value?.has_text && html`<label class="small"><input type="checkbox" checked=${!!params.all} onChange=${(/** @type {any} */ event) => change("all", event.target.checked ? "1" : "", true)} />without text too</label>`}</div>
    <details open=${ranged}><summary>step, reward, staleness</summary><div class="ranges">${RANGES.map(([name, key]) => {
      const [low, high] = key === "step" ? ["step_from", "step_to"] : [key + "_min", key + "_max"];
      return html`<span class="small quiet" key=${name}>${name}</span>${[low, high].map((field, i) => html`<input key=${field} type="number" step="any" aria-label=${name + (i ? " at most" : " at least")} placeholder=${i ? "at most" : "at least"} value=${params[field] ?? ""} onInput=${(/** @type {any} */ event) => change(field, event.target.value)} />`)}`;
    })}</div></details></form>`;
}

/** @param {{ asked: import("../core/parts.js").Asked<any>, groups: GroupLine[], chosen: number | null, choose: (id: number) => void, context: Context }} props */
function List({ asked, groups, chosen, choose, context }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => { place.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }); }, [chosen]);
  if (asked.shut) return html`<${Empty} title="Rollouts are not for this token."><span>${asked.error}</span></${Empty}>`;
  if (asked.error && !asked.data) return html`<${Empty} title="The groups could not be read." bad><span>${asked.error}</span><button onClick=${asked.again}>Try again</button></${Empty}>`;
  if (!asked.data) return html`<p class="quiet" role="status">Reading groups…</p>`;
  if (!groups.length) return html`<${NoGroups} context=${context} />`;
  const low = groups.reduce((least, group) => Math.min(least, group.reward_min), 0), high = groups.reduce((most, group) => Math.max(most, group.reward_max), 1);
  return html`<ol ref=${place}>${groups.map(group => html`<${Line} key=${group.id} group=${group} low=${low} high=${high} current=${group.id === chosen} choose=${choose} />`)}</ol>`;
}

/** @param {{ group: GroupLine, low: number, high: number, current: boolean, choose: (id: number) => void }} props */
function Line({ group, low, high, current, choose }) {
  const at = (/** @type {number} */ reward) => 100 * (reward - low) / (high - low || 1);
  const trained = group.step >= 0 ? "step " + group.step : group.end || "under way";
  return html`<li><button aria-current=${current ? "true" : undefined} onClick=${() => choose(group.id)}>
    <span class="top"><span><b>g${group.id}</b> <span class="quiet">${trained}</span></span><span><span class="quiet" title="staleness, in versions">${group.end === "trained" ? "stale " + group.staleness : ""}</span>
      <span class="span" title=${`reward ${fixed(group.reward_min)} to ${fixed(group.reward_max)}, mean ${fixed(group.reward_mean)}`}><i style=${{ left: at(group.reward_min) + "%", width: at(group.reward_max) - at(group.reward_min) + "%" }}></i><u style=${{ left: at(group.reward_mean) + "%" }}></u></span> <span class="unseen">mean reward</span> ${known(group.reward_mean) ? fixed(group.reward_mean) : "–"}</span></span>
    <span class="prompt">${group.prompt || (group.readable ? "" : "its text is not kept")}</span></button></li>`;
}

/** @param {{ context: Context }} props */
function NoGroups({ context }) {
  const info = context.info.value, params = context.route.value.params;
  if (FILTERS.some(key => params[key] && key !== "all" && key !== "sort")) return html`<${Empty} title="No group is like that."><button onClick=${() => context.navigate("rollouts", {})}>without filters</button></${Empty}>`;
  if (!info?.has_text) return html`<${Empty} title="No group has ended yet."><span>Their figures are here as soon as they have.</span></${Empty}>`;
  return html`<${Empty} title="No group can be read yet."><span>${context.ended.value ? "The run ended before any was kept." : "The first are here once a step has trained them."}</span></${Empty}>`;
}
