// Inputs of a prediction: each as a slider and a number, which say the same. What the user did not touch is the run's.
import { html, useEffect, useRef, useState } from "../core/html.js";

/**
 * @typedef {object} Input how an input is shown
 * @property {string} name
 * @property {string} [unit]
 * @property {number} low
 * @property {number} high
 * @property {boolean} [log] equal ratios are equal distances
 * @property {boolean} [whole]
 * @property {boolean} [share] never above 1
 * @property {string} [means] what it is, in a sentence
 */

/** Inputs by the name of predict's flag. @type {Record<string, Input>} */
const INPUTS = {
  utilization: { name: "Utilization ρ", low: 0.1, high: 6, log: true, means: "Rollout over train throughput. Below 1 the trainer waits." },
  concurrency: { name: "Concurrency C", unit: "rollouts", low: 1, high: 8192, log: true, whole: true, means: "Slots that generate at once." },
  batch: { name: "Batch B", unit: "rollouts", low: 1, high: 8192, log: true, whole: true, means: "Rollouts of one train step." },
  group: { name: "Group size S", unit: "rollouts", low: 1, high: 64, whole: true, means: "Rollouts of one prompt." },
  "queue-factor": { name: "Queue factor q", low: 1, high: 8, means: "Queue capacity over batch." },
  "tail-multiplier": { name: "Tail multiplier M", low: 1, high: 8, means: "Mean longest of a group over mean length." },
  "mean-tokens": { name: "Mean length", unit: "tokens", low: 16, high: 65536, log: true, whole: true },
  tailness: { name: "Tailness", low: 0, high: 100, means: "Tail of the lengths: 0 all the same, 100 very long." },
  "cap-tokens": { name: "Length cap", unit: "tokens", low: 16, high: 262144, log: true, whole: true, means: "Longest response." },
  acceptance: { name: "Acceptance", low: 0.05, high: 1, share: true, means: "Share of groups that are not filtered." },
  "step-time": { name: "Train step", unit: "s", low: 0.001, high: 3600, log: true, means: "The train step alone." },
  "sync-time": { name: "Weight sync", unit: "s", low: 0, high: 600 },
  "speed-ratio": { name: "Speed ratio β", low: 0.05, high: 20, log: true, means: "Tokens a second of a train GPU over those of a rollout GPU." },
  "max-staleness": { name: "Staleness budget", unit: "versions", low: 0, high: 16, means: "What is staler is dropped, or marked; 0 is no budget." },
  "staleness-threshold": { name: "Threshold θ", low: 0, high: 4, means: "Share of a batch that may be generated ahead of the trainer's version." },
  "sync-every": { name: "Steps per sync K", low: 1, high: 16, whole: true },
  "rollout-time": { name: "A rollout, τ rollout", unit: "s", low: 0.001, high: 3600, log: true, means: "The mean time of one rollout." },
  "train-time": { name: "Update, τ train", unit: "s", low: 0.001, high: 3600, log: true },
  "logp-time": { name: "Old log-probs, τ logp", unit: "s", low: 0, high: 60, means: "Recomputing them, where the rollout's are not used." },
  "switch-time": { name: "Standing still in a sync", unit: "s", low: 0, high: 60, means: "How long engines stand still, where they do." },
  gpus: { name: "GPUs", low: 2, high: 256, whole: true },
  "rollout-gpus": { name: "GPUs for rollouts", low: 1, high: 255, whole: true, means: "Where the two sides have GPUs of their own." },
  ahead: { name: "Ahead θ", low: 0, high: 4, means: "Share of a batch that partial rollout starts ahead." },
  pieces: { name: "Pieces K", low: 1, high: 16, whole: true, means: "Versions made of one batch." },
  "kl-per-version": { name: "KL per version", unit: "nats/token", low: 0, high: 0.05, means: "How far the policy moves in a version: the clip fraction rests on it." },
  "kl-exponent": { name: "KL's power of the lag", low: 1, high: 2 },
  "clip-low": { name: "Clip, below", low: 0.01, high: 0.9 }, "clip-high": { name: "Clip, above", low: 0.01, high: 1 },
};

const STEPS = 1000;
const WAIT_MS = 120;

/** An input's name as predict's flag has it. */
export const flagOf = (/** @type {string} */ key) => key.replaceAll("_", "-");

/** A name for what this page has no words for. */
const plainName = (/** @type {string} */ key) => key.replaceAll(/[-_]/g, " ").replace(/^./, (c) => c.toUpperCase());

/** @param {string} key @param {number} value @returns {Input} */
function inputOf(key, value) {
  const known = INPUTS[flagOf(key)];
  const input = known ?? { name: plainName(key), low: 0, high: Math.max(1, Math.abs(value) * 4) };
  const low = input.log ? Math.min(input.low, value > 0 ? value / 4 : input.low) : Math.min(input.low, value);
  return { ...input, low, high: input.share ? 1 : Math.max(input.high, value * (input.log ? 4 : 1.5)) };
}

/** @param {Input} input @param {number} value */
function toSlider({ low, high, log }, value) {
  const share = log ? Math.log(Math.max(low, value) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(STEPS * Math.min(1, Math.max(0, share)));
}

/** @param {Input} input @param {number} at */
function fromSlider({ low, high, log, whole }, at) {
  const share = at / STEPS;
  const value = log ? low * (high / low) ** share : low + (high - low) * share;
  return whole ? Math.round(value) : Number(value.toPrecision(3));
}

/** A number as a field shows it: no more digits than mean something. */
export const digits = (/** @type {number} */ n) => String(Number(n.toPrecision(5)));

/**
 * @param {{ inputs: Record<string, number>, own: Record<string, number>, change: (key: string, value: number | null) => void, order?: string[], side?: boolean }} props
 *   inputs are those in force, own the run's
 */
export function Inputs({ inputs, own, change, order = [], side = false }) {
  const rank = (/** @type {string} */ key) => (order.indexOf(flagOf(key)) + 1 || order.length + 1);
  const keys = Object.keys(inputs).filter((key) => Number.isFinite(inputs[key])).sort((a, b) => rank(a) - rank(b));
  return html`<div class=${side ? "inputs" : "inputs across"}>${keys.map((key) => html`<${Field} key=${key} id=${key} value=${inputs[key]} own=${own[key]} change=${change} />`)}</div>`;
}

/** @param {{ id: string, value: number, own: number | undefined, change: (key: string, value: number | null) => void }} props */
function Field({ id, value, own, change }) {
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  const [slid, setSlid] = useState(/** @type {number | null} */ (null));
  const input = inputOf(id, own ?? value);
  useEffect(() => setSlid(null), [value]);
  const shown = slid ?? value;
  const moved = own !== undefined && Math.abs(value - own) > 1e-9 * Math.abs(own);
  const type = (/** @type {any} */ event) => {
    setTyped(event.target.value);
    const n = Number(event.target.value);
    if (event.target.value.trim() !== "" && Number.isFinite(n)) change(id, n);
  };
  const slide = (/** @type {any} */ event) => {
    const n = fromSlider(input, Number(event.target.value));
    setSlid(n);
    change(id, n);
  };
  const label = "input-" + id;
  return html`<div class=${"input" + (moved ? " moved" : "")}>
    <label for=${label} title=${input.means}>${input.name}${input.unit && html` <span class="quiet">${input.unit}</span>`}</label>
    <input id=${label} type="number" step="any" value=${typed ?? digits(shown)} onInput=${type} onBlur=${() => setTyped(null)} />
    <input type="range" min="0" max=${STEPS} value=${toSlider(input, shown)} onInput=${slide} aria-label=${input.name} aria-valuetext=${digits(shown) + (input.unit ? " " + input.unit : "")} />
    ${moved && html`<button class="plain small" onClick=${() => change(id, null)} title=${"Back to the run's " + digits(own)} aria-label=${input.name + " back to the run's " + digits(own)}>↺ ${digits(own)}</button>`}
  </div>`;
}

/**
 * Asks the server for an answer at the changed inputs: once the user has paused for a moment, and only the newest.
 * What was answered last stays until the next answer.
 * @template T
 * @param {import("../app.js").Context} context
 * @param {string} path
 * @returns {{ answer: T | null, own: Record<string, number>, error: string, busy: boolean, change: (key: string, value: number | null) => void, reset: () => void, changed: Record<string, number> }}
 */
export function useAnswer(context, path) {
  const [changed, setChanged] = useState(() => numbersOf(context.route.peek().params));
  const [state, setState] = useState(/** @type {{ answer: any, own: Record<string, number>, error: string, busy: boolean }} */ ({ answer: null, own: {}, error: "", busy: true }));
  const own = useRef(/** @type {Record<string, number> | null} */ (null));
  const asked = JSON.stringify(changed);
  const live = context.summary.value && !context.summary.value.ended ? context.summary.value.version : 0;
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      try {
        const query = new URLSearchParams(Object.entries(changed).map(([key, value]) => [key, String(value)])).toString();
        // The run's own inputs: those of an answer to which nothing was changed.
        if (own.current === null && query) own.current = (await context.api.get(path, stop.signal)).inputs ?? {};
        const answer = await context.api.get(query ? path + "?" + query : path, stop.signal);
        if (!query) own.current = answer.inputs ?? {};
        setState({ answer, own: own.current ?? {}, error: "", busy: false });
      } catch (error) {
        if (!stop.signal.aborted) setState((old) => ({ ...old, error: String(/** @type {Error} */ (error).message), busy: false }));
      }
      if (!stop.signal.aborted) document.documentElement.dataset.ready = path;
    };
    setState((old) => ({ ...old, busy: true }));
    const clock = setTimeout(ask, own.current === null ? 0 : WAIT_MS);
    return () => { clearTimeout(clock); stop.abort(); };
  }, [asked, Math.floor(live / 8)]);
  useEffect(() => () => { delete document.documentElement.dataset.ready; }, []);
  useEffect(() => { context.navigate(path, changed, { replace: true }); }, [asked]);
  const change = (/** @type {string} */ key, /** @type {number | null} */ value) => setChanged((old) => {
    const next = { ...old };
    if (value === null) delete next[key]; else next[key] = value;
    return next;
  });
  return { ...state, changed, change, reset: () => setChanged({}) };
}

/** What of an address are numbers. @param {Record<string, string>} params @returns {Record<string, number>} */
function numbersOf(params) {
  return Object.fromEntries(Object.entries(params).map(([key, text]) => [key, Number(text)]).filter(([, n]) => Number.isFinite(n)));
}

/** The width of an element, as it changes. @param {{ current: HTMLElement | null }} place */
export function useWidth(place) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!place.current) return;
    const sizes = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    sizes.observe(place.current);
    return () => sizes.disconnect();
  }, [place.current]);
  return width;
}
