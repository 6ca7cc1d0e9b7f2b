// The timeline: engines, environments, queue, trainer and syncs of a run on one axis, coloured by version.
import { html, useEffect, useMemo, useRef, useState, signal } from "../core/html.js";
import { lasting } from "../core/format.js";
import { themed } from "../core/plot.js";
import { Timeline } from "./timeline_controller.js";
import { KINDS } from "./timeline_tiles.js";
import { actionOf, listen } from "./timeline_input.js";
import { clock } from "./timeline_scale.js";
import { describe } from "./timeline_pick.js";
import { Gutter, Keys, Legend, ReadOut, StepTable, Toolbar } from "./timeline_parts.js";
import { Moves, placeMarks } from "./timeline_moves.js";
import { Strip } from "./timeline_strip.js";
import { fetchSteps, sentence } from "./timeline_words.js";

/** @typedef {import("../app.js").Context} Context */

const TRACKS_MS = 3000;
const WHEEL_STEP = 0.8;

/** @param {{ context: Context }} props */
export default function View({ context }) {
  context.style("views/timeline.css");
  /** @type {Places} */
  const places = { canvas: useRef(null), body: useRef(null), rows: useRef(null), box: useRef(null), marks: useRef(null) };
  const { canvas, body, rows, box, marks } = places;
  const [model, setModel] = useState(/** @type {Timeline|null} */ (null));
  const [, redraw] = useState(0);
  const state = useMemo(() => ({ readout: signal(null), steps: signal(null), error: signal(""), boxing: signal(false) }), []);
  const again = () => redraw((n) => n + 1);

  useEffect(() => open(context, places, { state, setModel, again }), []);
  useEffect(() => model?.setTheme(context.theme.value === "dark", themed), [model, context.theme.value]);
  useEffect(() => (model ? context.series.changes.subscribe(() => model.setSteps(seriesOf(context))) : undefined), [model]);
  useEffect(() => (model ? context.summary.subscribe((summary) => { if (summary) advance(model, summary); }) : undefined), [model]);

  const actions = model && actionsOf(context, model, state, again);
  return html`<section class="timeline" aria-label="Timeline">
    <${Toolbar} model=${model} actions=${actions} boxing=${state.boxing} live=${!context.summary.value?.ended} />
    <${Legend} model=${model} dark=${context.theme.value} />
    ${state.error.value && html`<p class="timeline-error" role="alert">${state.error.value}</p>`}
    <div class="timeline-body" ref=${body}>
      <div class="timeline-gutter" onWheel=${(/** @type {any} */ event) => { event.preventDefault(); model?.window.pan(0, event.deltaY); model?.invalidate(); }}><div ref=${rows}>${model && actions && html`<${Gutter} layout=${model.layout} fold=${actions.fold} />`}</div></div>
      <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="timeline"
        aria-label="Timeline of the run: engines, queue, trainer and syncs. Arrow keys move, comma and full stop go from span to span."
        aria-describedby="timeline-says timeline-read" onKeyDown=${(/** @type {any} */ event) => actions && onKey(event, actions)}></canvas>
    </div>
    ${model && model.tracks.length === 0 && html`<div class="empty"><strong>Nothing has run yet.</strong><span>The rows appear with the first rollout.</span></div>`}
    <${Moves} context=${context} model=${model} marks=${marks} />
    <${Strip} context=${context} model=${model} box=${box} />
    <${ReadOut} readout=${state.readout} open=${actions?.open} />
    <p id="timeline-says" class="quiet small">${model ? sentence(model, state.steps.value) : ""}</p>
    <${StepTable} steps=${state.steps.value} show=${actions?.showStep} />
    <${Keys} />
  </section>`;
}

/**
 * Where the timeline draws, and what the page shows of it.
 * @typedef {{ current: any }} Place
 * @typedef {{ canvas: Place, body: Place, rows: Place, box: Place, marks: Place }} Places
 * @typedef {{ state: any, setModel: (model: Timeline) => void, again: () => void }} Shown
 */

/** Makes the timeline, and returns what ends it. @param {Context} context @param {Places} places @param {Shown} shown */
function open(context, { canvas, body, rows, box, marks }, { state, setModel, again }) {
  const stop = new AbortController();
  const ended = () => context.summary.peek()?.ended ?? false;
  const steps = fetchSteps(context.api, (series) => { state.steps.value = series; });
  const model = new Timeline(canvas.current, {
    info: /** @type {any} */ (context.info.peek()),
    loadTile: (level, index, signal) => loadTile(context.api, level, index, signal, ended()),
    framed: () => {
      if (rows.current) rows.current.style.transform = `translateY(${-model.window.top}px)`;
      placeBox(box.current, model.window);
      placeMarks(marks.current, model.window);
      state.error.value = "";
      if (model.drawn) document.documentElement.dataset.ready = "timeline";
    },
    settled: () => { steps.ask(model); remember(context, model); again(); },
    failed: (error) => { state.error.value = "Parts of the timeline could not be fetched: " + error.message + " They are asked for again."; },
  });
  model.setSteps(seriesOf(context));
  const readTracks = async () => {
    try {
      const { tracks, end_ns } = await context.api.get("tracks", stop.signal);
      const first = model.tracks.length === 0;
      model.setTracks(tracks ?? [], end_ns / 1000);
      fit(model, body.current, canvas.current);
      if (first) begin(context, model);
      again();
    } catch (error) {
      if (!stop.signal.aborted) state.error.value = "The rows of the timeline could not be read: " + /** @type {Error} */ (error).message;
    }
  };
  readTracks();
  const clockID = setInterval(() => { if (!ended() && !document.hidden) readTracks(); }, TRACKS_MS);
  const sizes = new ResizeObserver(() => fit(model, body.current, canvas.current));
  sizes.observe(body.current);
  const unlisten = listen(canvas.current, pointerOf(context, model, state));
  setModel(model);
  return () => {
    stop.abort();
    clearInterval(clockID);
    sizes.disconnect();
    unlisten();
    steps.close();
    model.close();
    delete document.documentElement.dataset.ready;
  };
}

/** A tile's bytes, and whether they are its last. */
async function loadTile(/** @type {import("../core/api.js").API} */ api, /** @type {number} */ level, /** @type {number} */ index, /** @type {AbortSignal} */ signal, /** @type {boolean} */ ended) {
  const reply = await api.response(`tile?level=${level}&index=${index}`, signal);
  const final = ended || (reply.headers.get("Cache-Control") ?? "").includes("immutable");
  return { buffer: await reply.arrayBuffer(), final };
}

const seriesOf = (/** @type {Context} */ { series }) => ({ step: series.step, time_s: series.time, columns: Object.fromEntries(series.columns) });

function advance(/** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {import("../../types/wire.js").Summary} */ summary) {
  if (model.window.advance(summary.at_ns / 1000)) model.invalidate();
}

/** Gives the canvas the size of its place. */
function fit(/** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {HTMLElement | null} */ body, /** @type {HTMLCanvasElement | null} */ canvas) {
  if (!body || !canvas || model.closed) return;
  const height = model.wantedHeight(innerHeight);
  body.style.height = height + "px";
  model.resize(canvas.clientWidth, height, devicePixelRatio);
}

/** What the address says is to be seen: a step, a stretch of time, or the whole run. */
function begin(/** @type {import("../app.js").Context} */ context, /** @type {import("./timeline_controller.js").Timeline} */ model) {
  const { step, from, to, follow } = context.route.peek().params;
  if (step && Number.isFinite(Number(step))) model.showStep(Number(step));
  else if (Number(to) > Number(from)) {
    model.window.fromUS = Number(from) * 1e6;
    model.window.pixelUS = ((Number(to) - Number(from)) * 1e6) / model.window.width;
    model.window.hold();
  } else if (follow) startFollowing(model);
}

/** Keeps in the address what is in view, so that it can be sent to somebody. */
function remember(/** @type {import("../app.js").Context} */ context, /** @type {import("./timeline_controller.js").Timeline} */ model) {
  if (model.tracks.length === 0) return;
  const w = model.window, whole = w.width * w.pixelUS >= w.endUS;
  const params = w.follow ? { follow: 1 } : whole ? {} : { from: (w.fromUS / 1e6).toFixed(6), to: (w.toUS / 1e6).toFixed(6) };
  context.navigate("timeline", params, { replace: true });
}

function startFollowing(/** @type {import("./timeline_controller.js").Timeline} */ model) {
  const w = model.window;
  const last = model.steps.timeUS.slice(-12);
  const period = last.length > 1 ? (last[last.length - 1] - last[0]) / (last.length - 1) : w.endUS / 10;
  w.pixelUS = Math.min(w.pixelUS, (8 * period) / w.width);
  w.fromUS = w.endUS - w.width * w.pixelUS * 0.98;
  w.hold();
  w.follow = true;
  model.invalidate();
}

function placeBox(/** @type {HTMLElement | null} */ element, /** @type {import("./timeline_window.js").Window} */ w) {
  if (!element || w.endUS <= 0) return;
  const a = Math.max(0, w.fromUS / w.endUS), b = Math.min(1, w.toUS / w.endUS);
  element.style.left = 100 * a + "%";
  element.style.width = Math.max(0.3, 100 * (b - a)) + "%";
}

/** What the mouse and fingers do. */
function pointerOf(/** @type {import("../app.js").Context} */ context, /** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {any} */ state) {
  return {
    pan: (/** @type {number} */ dx, /** @type {number} */ dy) => { model.window.pan(dx, dy); model.invalidate(); },
    zoom: (/** @type {number} */ factor, /** @type {number} */ x) => { model.window.zoom(factor, x); model.invalidate(); },
    zoomTo: (/** @type {number} */ x0, /** @type {number} */ x1) => {
      const { fromUS, pixelUS } = model.window;
      model.window.follow = false;
      model.window.show(fromUS + Math.min(x0, x1) * pixelUS, fromUS + Math.max(x0, x1) * pixelUS);
      state.boxing.value = false;
      model.invalidate();
    },
    box: (/** @type {{ x0: number, x1: number } | null} */ box) => { model.box = box; model.invalidate(); },
    hover: (/** @type {number} */ x, /** @type {number} */ y) => {
      const span = model.spanAtPoint(x, y);
      if (!span && !model.hover) return;
      model.hover = span;
      state.readout.value = readoutOf(model, span ?? model.focus);
      model.invalidate();
    },
    leave: () => { model.hover = null; state.readout.value = readoutOf(model, model.focus); model.invalidate(); },
    click: (/** @type {number} */ x, /** @type {number} */ y) => {
      const span = model.spanAtPoint(x, y);
      const same = span && model.focus && span.track === model.focus.track && span.fromUS === model.focus.fromUS;
      if (same) return openSpan(context, span);
      model.focusOn(span);
      state.readout.value = readoutOf(model, span);
    },
    boxing: () => state.boxing.peek(),
  };
}

/** What keys and buttons do, by name. */
function actionsOf(/** @type {import("../app.js").Context} */ context, /** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {any} */ state, /** @type {() => void} */ again) {
  const w = model.window;
  const move = (/** @type {() => void} */ change) => () => { change(); model.invalidate(); };
  const read = (/** @type {() => void} */ change) => () => { change(); state.readout.value = readoutOf(model, model.focus); };
  return {
    in: move(() => w.zoom(WHEEL_STEP)), out: move(() => w.zoom(1 / WHEEL_STEP)),
    left: move(() => w.pan(-w.width * 0.12)), right: move(() => w.pan(w.width * 0.12)),
    pageup: move(() => w.pan(0, -w.height * 0.8)), pagedown: move(() => w.pan(0, w.height * 0.8)),
    fit: move(() => w.fit()), first: move(() => w.pan(-1e12)), last: move(() => w.pan(1e12)),
    follow: move(() => { if (w.follow) w.follow = false; else startFollowing(model); again(); }),
    previous: read(() => model.focusBeside(-1)), next: read(() => model.focusBeside(1)),
    above: read(() => model.focusOnTrack(-1)), below: read(() => model.focusOnTrack(1)),
    clear: read(() => { model.focus = null; model.invalidate(); }),
    open: () => openSpan(context, model.focus),
    box: () => { state.boxing.value = !state.boxing.value; },
    colour: (/** @type {"version" | "kind" | "staleness"} */ by) => { model.colourBy(by); again(); },
    fold: (/** @type {string} */ group, /** @type {boolean} */ folded) => { model.fold(group, folded); fitAgain(model); again(); },
    showStep: (/** @type {number} */ step) => { model.showStep(step); },
  };
}

function fitAgain(/** @type {import("./timeline_controller.js").Timeline} */ model) {
  fit(model, model.canvas.parentElement, model.canvas);
}

function onKey(/** @type {any} */ event, /** @type {any} */ actions) {
  const action = actionOf(event);
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  actions[action]();
}

/** The group of a span in the rollout reader, or the groups of a train step. */
function openSpan(/** @type {import("../app.js").Context} */ context, /** @type {any} */ span) {
  if (!span || span.count > 1 || span.ref < 0) return;
  const kind = KINDS[span.kind];
  if (kind === "train") context.navigate("rollouts", { step_from: span.ref, step_to: span.ref });
  else if (["generate", "environment", "interrupted", "queued", "failed"].includes(kind)) context.navigate("rollouts", { group: span.ref });
}

/** A span in words, and where it leads. */
function readoutOf(/** @type {import("./timeline_controller.js").Timeline} */ model, /** @type {any} */ span) {
  if (!span) return null;
  const track = model.tracks.find((/** @type {any} */ t) => t.id === span.track);
  const step = Math.min(1e6, Math.max(1, (span.toUS - span.fromUS) / 100));
  const kind = KINDS[span.kind];
  const single = span.count <= 1 && span.ref >= 0;
  return {
    text: describe(span, {
      trackName: track ? (track.group && !track.name.startsWith(track.group) ? track.group + " " : "") + track.name : "",
      behind: model.behind(span), from: clock(span.fromUS, step), to: clock(span.toUS, step), lasting: lasting((span.toUS - span.fromUS) / 1e6),
    }),
    link: !single || ["load", "switch", "sync", "validate"].includes(kind) ? "" : kind === "train" ? "Read the groups of step " + span.ref : "Read group " + span.ref,
  };
}
