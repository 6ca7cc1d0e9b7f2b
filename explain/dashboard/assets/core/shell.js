// The frame around every view: the run in a line, the views to choose from, the state of the connection.
import { html, useEffect, useRef, useState } from "./html.js";
import { count, lasting, many, percent, version } from "./format.js";

/** @typedef {import("../app.js").Context} Context */

/** @type {{ id: string, name: string, icon: string, load: () => Promise<{ default: any }> }[]} */
export const VIEWS = [
  { id: "overview", name: "Overview", icon: "M2 13h12M3.5 10l3-4 2.5 2.5L13 3", load: () => import("../views/overview.js") },
  { id: "timeline", name: "Timeline", icon: "M2 4h6M5 8h8M3 12h5M11 12h2", load: () => import("../views/timeline.js") },
  { id: "queue", name: "Queue", icon: "M2.5 4v8M5.5 4v8M8.5 4v8M11 8h3.5M12.5 6l2 2-2 2", load: () => import("../views/queue.js") },
  { id: "rollouts", name: "Rollouts", icon: "M3 3h10M3 6.3h7M3 9.6h10M3 13h5", load: () => import("../views/rollouts.js") },
  { id: "frontier", name: "Frontier", icon: "M2.5 2.5v11h11M4.5 4c1 5 3 7.5 8.5 8", load: () => import("../views/frontier.js") },
  { id: "schedules", name: "Schedules", icon: "M2 3h5v3.500H2zM9 9.500h5V13H9zM4.5 6.500v5H9", load: () => import("../views/schedules.js") },
  { id: "findings", name: "Findings", icon: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.8 10.8 14 14", load: () => import("../views/findings.js") },
];

/** @type {Record<string, string>} */
const KINDS = { live: "live run", run: "recorded run", simulation: "simulation" };
/** How the states of a run look; others are bad. @type {Record<string, string>} */
const LOOKS = { running: "good", starting: "", standby: "", draining: "warn", stopped: "" };

/** @param {{ context: Context }} props */
export function Shell({ context }) {
  const help = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => globalKeys(context, help), []);
  const connection = context.connection.value;
  const first = !context.opened.value;
  if (connection.state === "token") return html`<${AskToken} context=${context} />`;
  return html`
    <a class="skip" href="#main" onClick=${toMain}>Skip to the view</a>
    <div class="frame">
      <${Bar} context=${context} onHelp=${() => help.current?.showModal()} />
      <${Nav} context=${context} />
      <main class="main" id="main" tabindex="-1">
        <${Banner} context=${context} />
        ${first ? html`<${Opening} context=${context} />` : html`<${Outlet} context=${context} />`}
      </main>
    </div>
    <p class="unseen" role="status" aria-live="polite">${context.spoken}</p>
    <${Help} dialog=${help} />`;
}

/** @param {Event} event */
function toMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {{ context: Context, onHelp: () => void }} props */
function Bar({ context, onHelp }) {
  const info = context.info.value;
  const dark = context.theme.value === "dark";
  return html`<header class="bar">
    <h1>${info?.name || "headway"}</h1>
    ${info && html`<span class="chip">${KINDS[info.kind] ?? info.kind}</span>`}
    <${State} context=${context} />
    <${Facts} context=${context} />
    <span class="spring"></span>
    <button class="plain" onClick=${context.toggleTheme} aria-label=${dark ? "Light theme" : "Dark theme"} title=${(dark ? "Light" : "Dark") + " theme (t)"}>${dark ? "☀" : "☾"}</button>
    <button class="plain" onClick=${onHelp} aria-label="Keyboard help" title="Keyboard help (?)">?</button>
  </header>`;
}

/** @param {{ context: Context }} props */
function State({ context }) {
  const connection = context.connection.value, summary = context.summary.value;
  if (connection.state === "lost") return html`<span class="chip bad" role="status"><i class="dot"></i>not reached</span>`;
  if (!summary) return html`<span class="chip" role="status"><i class="dot"></i>connecting</span>`;
  if (summary.ended) return html`<span class="chip" role="status"><i class="dot"></i>${["running", "", "stopped"].includes(summary.state) ? "ended" : "ended · " + summary.state}</span>`;
  if (summary.reading) return html`<span class="chip" role="status"><i class="dot beats"></i>reading</span>`;
  if (summary.stall) return html`<span class="chip bad" role="status"><i class="dot"></i>stalled</span>`;
  return html`<span class=${"chip " + (LOOKS[summary.state] ?? "bad")} role="status"><i class="dot beats"></i>${summary.state}</span>`;
}

/** @param {{ context: Context }} props */
function Facts({ context }) {
  const info = context.info.value, summary = context.summary.value;
  if (!info || !summary) return null;
  const done = Math.max(0, summary.version);
  return html`<div class="facts small">
    <span><span class="quiet">version</span> ${version(summary.version)}</span>
    <span><span class="quiet">train steps</span> ${count(done)}${info.steps > 0 ? " of " + count(info.steps) : ""}
      ${info.steps > 0 && html` <progress max=${info.steps} value=${Math.min(done, info.steps)} aria-label=${"steps done: " + percent(done / info.steps)}></progress>`}</span>
    <span><span class="quiet">run time</span> ${lasting(summary.at_ns / 1e9)}</span>
    <span><span class="quiet">policy</span> ${info.policy}</span>
  </div>`;
}

/** @param {{ context: Context }} props */
function Nav({ context }) {
  const at = context.route.value.view;
  return html`<nav class="nav" aria-label="Views"><ul>${VIEWS.map((view, i) => html`<li key=${view.id}>
    <a href=${"#/" + view.id} aria-current=${view.id === at ? "page" : undefined} title=${view.name + " (" + (i + 1) + ")"}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${view.icon} /></svg><span>${view.name}</span></a></li>`)}</ul></nav>`;
}

/** The view that the address names, loaded when it is first wanted. @param {{ context: Context }} props */
function Outlet({ context }) {
  const wanted = context.route.value.view;
  const [shown, setShown] = useState(/** @type {{ id: string, View?: any, error?: string } | null} */ (null));
  const view = VIEWS.find(entry => entry.id === wanted);
  useEffect(() => {
    let here = true;
    document.documentElement.dataset.ready = ""; // a view says with its name that it has drawn
    view?.load().then(
      loaded => { if (here) setShown({ id: wanted, View: loaded.default }); },
      err => { if (here) setShown({ id: wanted, error: String(err?.message ?? err) }); });
    if (view) context.announce(view.name);
    return () => { here = false; };
  }, [wanted]);
  if (!view) return html`<div class="empty"><strong>There is no view “${wanted}”.</strong><a href="#/overview">To the overview</a></div>`;
  if (shown?.id !== wanted) return html`<p class="bare" role="status">Opening ${view.name.toLowerCase()}…</p>`;
  if (shown.error) return html`<div class="empty bad" role="alert"><strong>This view could not be loaded.</strong><span>${shown.error}</span><button onClick=${() => location.reload()}>Load the page again</button></div>`;
  return html`<div class=${context.connection.value.state === "lost" ? "aged" : ""}><${shown.View} context=${context} /></div>`;
}

/** Before anything is known. @param {{ context: Context }} props */
function Opening({ context }) {
  const { state, message } = context.connection.value;
  if (state !== "lost") return html`<p class="bare" role="status">Opening the run…</p>`;
  return html`<div class="empty bad" role="alert"><strong>Nothing is known of the run yet.</strong><span>${message} It is asked again until it answers.</span></div>`;
}

/** What went wrong with the connection, or stands still in the run. @param {{ context: Context }} props */
function Banner({ context }) {
  const connection = context.connection.value, stall = context.summary.value?.stall;
  const [, tick] = useState(0);
  const lost = connection.state === "lost";
  useEffect(() => {
    if (!lost) return;
    const clock = setInterval(() => tick((/** @type {number} */ n) => n + 1), 1000);
    return () => clearInterval(clock);
  }, [lost]);
  if (lost) {
    const since = Math.round((Date.now() - connection.sinceMS) / 1000), wait = Math.ceil((connection.retryAtMS - Date.now()) / 1000);
    return html`<div class="banner bad"><strong role="alert">Connection lost.</strong>
      <span>${connection.message} ${context.summary.value ? `What is shown is from ${lasting(since)} ago.` : ""} ${wait > 0 ? `Next try in ${wait} s.` : "Trying…"}</span>
      <button onClick=${context.retry}>Try now</button></div>`;
  }
  if (connection.state === "ended" && connection.message === "gone") return html`<div class="banner calm" role="status"><span>The run has stopped, and the program that showed it is gone. What is known stays while this page is open; <code>headway view</code> with the run’s directory shows it again.</span></div>`;
  const { problem, reading, missed_events: missed } = context.summary.value ?? {};
  if (problem) return html`<div class="banner bad" role="alert"><strong>No more of the run can be shown.</strong><span class="wrap">${problem}</span></div>`;
  if (reading && reading.of > 0) return html`<div class="banner calm" role="status"><span>Reading the run’s trace: ${percent(reading.bytes / reading.of, 0)}. Figures are of the part that has been read.</span>
    <progress max=${reading.of} value=${reading.bytes} aria-label="read so far"></progress></div>`;
  if (missed) return html`<div class="banner" role="status"><strong>${many(missed, "event")} missed.</strong><span>The run was faster than this page’s server could follow: figures are of the others.</span></div>`;
  if (stall && !context.summary.value?.ended) return html`<div class="banner bad" role="alert"><strong>No progress.</strong><span class="wrap">${stall}</span></div>`;
  return null;
}

/** @param {{ context: Context }} props */
function AskToken({ context }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => field.current?.focus(), []);
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); context.useToken(field.current?.value ?? ""); };
  return html`<main class="main"><section class="card ask">
    <h1>Token</h1><p role="alert">${context.connection.value.message}</p>
    <form onSubmit=${submit}><input ref=${field} type="password" autocomplete="off" spellcheck=${false} aria-label="Token" required /><button>Show the run</button></form>
    <p class="quiet small">It stays in this tab and goes to this server alone, as a header.</p>
  </section></main>`;
}

/** @param {{ dialog: { current: HTMLDialogElement | null } }} props */
function Help({ dialog }) {
  const rows = [["1 … 7", "go to a view"], ["t", "light or dark"], ["?", "this help"], ["Tab", "through everything that can be used"],
    ["← →", "on a plot: along the steps"], ["j k", "rollouts: next and previous group"], ["n p", "rollouts: next and previous sibling"], ["Esc", "close, or leave a plot's cursor"]];
  return html`<dialog ref=${dialog} aria-label="Keyboard help"><h1>Keyboard</h1>
    <table><tbody>${rows.map(([key, does]) => html`<tr key=${key}><td><kbd>${key}</kbd></td><td>${does}</td></tr>`)}</tbody></table>
    <p class="quiet small">Views add keys of their own, which they name.</p>
    <button autofocus onClick=${() => dialog.current?.close()}>Close</button></dialog>`;
}

/** @param {Context} context @param {{ current: HTMLDialogElement | null }} help */
function globalKeys(context, help) {
  const press = (/** @type {KeyboardEvent} */ event) => {
    const target = /** @type {HTMLElement | null} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target?.closest("input, select, textarea, dialog")) return;
    const view = VIEWS[Number(event.key) - 1];
    if (view) context.navigate(view.id);
    else if (event.key === "t") context.toggleTheme();
    else if (event.key === "?") help.current?.showModal();
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}
