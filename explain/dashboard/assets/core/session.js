// Keeps the state of the run as the server tells it: signals that views read. It connects, follows, waits when
// the connection is lost, and goes on; what was last known stays on the page meanwhile.
import { batch, computed, signal } from "./html.js";
import { TokenWanted, Refused } from "./api.js";
import { SeriesBuffer, seriesPath } from "./series.js";

/** @typedef {import("../../types/wire.js").Info} Info */
/** @typedef {import("../../types/wire.js").Summary} Summary */
/** @typedef {import("../../types/wire.js").Connection} Connection */

const FRAME_MS = 250; // the state on the page changes four times a second, however often it is told
const WAIT_MS = [500, 1000, 2000, 4000, 8000, 15000];
const RELOAD_MS = 2000; // the least between two times that the whole series is asked for
const SILENCE_MS = 30_000; // a stream that says nothing for so long is asked about again

/** @typedef {ReturnType<typeof createSession>} Session */

/** @param {import("./api.js").API} api */
export function createSession(api) {
  /** @type {import("../vendor/signals.js").Signal<Info | null>} */ const info = signal(null);
  /** @type {import("../vendor/signals.js").Signal<Summary | null>} */ const summary = signal(null);
  /** @type {import("../vendor/signals.js").Signal<Connection>} */
  const connection = signal({ state: "connecting", message: "", sinceMS: Date.now(), retryAtMS: 0 });
  const series = new SeriesBuffer();
  let round = 0;
  /** @type {AbortController | null} */ let current = null;
  /** @type {(() => void) | null} */ let wake = null;

  /** @param {Connection["state"]} state @param {string} [message] @param {number} [retryAtMS] */
  function now(state, message = "", retryAtMS = 0) {
    const old = connection.peek();
    const same = old.state === state;
    if (same && old.message === message && old.retryAtMS === retryAtMS) return;
    connection.value = { state, message, sinceMS: same ? old.sinceMS : Date.now(), retryAtMS };
  }

  /** Everything from the start; the stream brings what changes. @param {AbortSignal} stop */
  async function load(stop) {
    const steps = api.get(seriesPath, stop);
    steps.catch(() => {}); // it is awaited below, where a failure is taken
    const [newInfo, newSummary] = await Promise.all([api.get("info", stop), api.get("summary", stop)]);
    batch(() => { info.value = newInfo; summary.value = newSummary; });
    now(newSummary.ended ? "ended" : "live");
    series.replace(await steps);
  }

  /** @param {AbortSignal} stop */
  async function follow(stop) {
    const frame = createFrame(state => {
      summary.value = state;
      now(state.ended ? "ended" : "live");
      return series.length === 0 ? state.version <= 0 : state.version - series.step[series.length - 1] <= 2 * series.stride() + 1;
    }, steps => series.append(steps), async () => series.replace(await api.get(seriesPath, stop)));
    const watch = createWatch(stop);
    try {
      await api.follow("stream", (event, data) => {
        if (event === "summary") frame.summary(JSON.parse(data));
        else if (event === "step") frame.step(JSON.parse(data));
      }, watch.signal, watch.heard);
    } finally { watch.end(); frame.end(); }
  }

  async function run() {
    const mine = ++round;
    let failures = 0;
    while (mine === round) {
      current = new AbortController();
      try {
        await load(current.signal);
        failures = 0;
        if (summary.peek()?.ended) return;
        await follow(current.signal);
        if (mine !== round) return;
        if (!hasStopped(summary.peek())) now("lost", "The stream ended.", 0);
      } catch (err) {
        if (mine !== round) return;
        if (err instanceof TokenWanted) return now("token", err.message);
        if (hasStopped(summary.peek())) now("ended", "gone");
        else now("lost", reason(err), Date.now() + waitMS(failures, err));
      }
      const ms = waitMS(hasStopped(summary.peek()) ? WAIT_MS.length : failures++, null);
      await new Promise(done => { const clock = setTimeout(done, ms); wake = () => { clearTimeout(clock); done(undefined); }; });
    }
  }

  return {
    info, summary, series, connection,
    /** Whether anything is known of the run, and whether nothing more comes: read by those who need no more of the summary. */
    opened: computed(() => summary.value !== null),
    ended: computed(() => summary.value?.ended ?? false),
    start: run,
    /** Tries again at once. */
    retry() { if (wake && connection.peek().state === "lost") { now("lost", connection.peek().message, 0); wake(); } else { current?.abort(); run(); } },
    /** Keeps the token and connects with it. @param {string} token */
    useToken(token) { api.setToken(token); now("connecting"); run(); },
  };
}

/** Whether a server that no longer answers was to be expected. @param {Summary | null} state */
function hasStopped(state) { return state !== null && (state.ended || state.state === "stopped"); }

/** @param {number} failures @param {unknown} err */
function waitMS(failures, err) {
  const wait = WAIT_MS[Math.min(failures, WAIT_MS.length - 1)];
  return err instanceof Refused && err.retryAfterS > 0 ? Math.max(wait, 1000 * err.retryAfterS) : wait;
}

/** @param {unknown} err */
function reason(err) {
  if (err instanceof Refused) return err.message;
  return "The server does not answer.";
}

/**
 * Gathers what the stream says and gives it on at most once a frame, and not at all while nobody looks.
 * @param {(state: Summary) => boolean} takeSummary
 * @param {(steps: import("../../types/wire.js").Series) => boolean} takeSteps both say whether the series is still whole
 * @param {() => Promise<void>} reload
 */
function createFrame(takeSummary, takeSteps, reload) {
  /** @type {Summary | null} */ let newest = null;
  /** @type {import("../../types/wire.js").Series[]} */ let steps = [];
  let stale = false, loading = false, loadedAt = 0;
  /** @type {ReturnType<typeof setTimeout> | null} */ let clock = null;
  function show() {
    clock = null;
    if (document.hidden) return; // visibilitychange comes back here
    batch(() => {
      for (const part of steps) stale = !takeSteps(part) || stale;
      if (newest) stale = !takeSummary(newest) || stale;
    });
    newest = null;
    steps = [];
    if (stale && !loading && performance.now() - loadedAt > RELOAD_MS) {
      stale = false;
      loading = true;
      loadedAt = performance.now();
      reload().catch(() => { stale = true; }).finally(() => { loading = false; });
    }
  }
  const soon = () => { clock ??= setTimeout(show, FRAME_MS); };
  document.addEventListener("visibilitychange", soon);
  return {
    /** @param {Summary} state */
    summary(state) { newest = state; soon(); },
    /** @param {import("../../types/wire.js").Series} part */
    step(part) {
      if (steps.length < 64) steps.push(part); else stale = true; // nobody looked for long: ask once, later
      soon();
    },
    end() { document.removeEventListener("visibilitychange", soon); if (clock) { clearTimeout(clock); show(); } },
  };
}

/** Ends a stream that has gone silent, as a network that drops packets leaves it. @param {AbortSignal} stop */
function createWatch(stop) {
  const ended = new AbortController();
  const end = () => ended.abort();
  stop.addEventListener("abort", end);
  let clock = setTimeout(end, SILENCE_MS);
  return {
    signal: ended.signal,
    heard() { clearTimeout(clock); clock = setTimeout(end, SILENCE_MS); },
    end() { clearTimeout(clock); stop.removeEventListener("abort", end); },
  };
}
