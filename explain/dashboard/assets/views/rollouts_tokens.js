// Tokens of a policy's turn: coloured by what is asked, with a read-out of the one under the pointer or the cursor.
import { html, useEffect, useRef, useState } from "../core/html.js";
import { css, oklch, tint } from "../core/colour.js";
import { count, fixed, signed, version } from "../core/format.js";

/** @typedef {import("../../types/wire.js").Turn} Turn */
/** @typedef {{ turn: Turn, place: string, index: number }} TokenAt */
/** @typedef {import("../vendor/signals.js").Signal<TokenAt | null>} TokenSignal the token that is looked at */
/**
 * @typedef {object} Colouring
 * @property {"ratio" | "logprob" | "version" | "none"} key
 * @property {string} name
 * @property {number} clip half width of the clip band, as clip_epsilon
 * @property {number} oldest
 * @property {number} newest
 */

const SHOWN = 3000; // tokens of a turn at first: more are a click away
const STRONG = 0.4; // the log-ratio from which a colour is full
const RARE = 6; // the same for a log-probability: e^-6 is one in 400

/**
 * The colourings that a group's tokens allow, the most telling first.
 * @param {import("../../types/wire.js").GroupDetail} group @param {string} config @returns {Colouring[]}
 */
export function colourings(group, config) {
  const turns = (group.rollouts ?? []).flatMap(rollout => rollout.turns ?? []).filter(turn => turn.role === "policy");
  let oldest = Infinity, newest = -Infinity;
  for (const turn of turns) for (const v of turn.versions ?? []) { if (v >= 0) { oldest = Math.min(oldest, v); newest = Math.max(newest, v); } }
  const clip = Number(/clip_epsilon:\s*([\d.]+)/.exec(config)?.[1] ?? 0.2);
  const base = { clip, oldest, newest };
  /** @type {Colouring[]} */ const all = [];
  if (turns.some(turn => turn.log_ratios?.some(x => x !== null))) all.push({ key: "ratio", name: "log-ratio", ...base });
  if (turns.some(turn => turn.versions?.length)) all.push({ key: "version", name: "version", ...base });
  if (turns.some(turn => turn.logprobs?.length)) all.push({ key: "logprob", name: "log-prob", ...base });
  all.push({ key: "none", name: "nothing", ...base });
  return all;
}

/** The colour behind a token, or none. @param {Turn} turn @param {number} i @param {Colouring} by @param {boolean} dark */
function colourOf(turn, i, by, dark) {
  if (by.key === "ratio") {
    const ratio = turn.log_ratios?.[i];
    if (ratio === null || ratio === undefined) return undefined;
    return tint(ratio > 0 ? 60 : 255, Math.sqrt(Math.min(1, Math.abs(ratio) / STRONG)), dark);
  }
  if (by.key === "logprob") return turn.logprobs?.[i] === undefined ? undefined : tint(25, Math.min(1, -turn.logprobs[i] / RARE), dark);
  if (by.key === "version") {
    const v = turn.versions?.[i];
    return v === undefined || v < 0 ? undefined : versionTint(v, by, dark);
  }
  return undefined;
}

/** The hue of the ramp of versions, as light as text allows. @param {number} v @param {Colouring} by @param {boolean} dark */
function versionTint(v, by, dark) {
  const at = by.newest > by.oldest ? (v - by.oldest) / (by.newest - by.oldest) : 1;
  const hue = 300 - 200 * at;
  return css(dark ? oklch(0.34 + 0.1 * at, 0.085, hue) : oklch(0.84 + 0.09 * at, 0.075, hue));
}

/** @param {Turn} turn @param {number} i @param {Colouring} by */
function classOf(turn, i, by) {
  const versions = turn.versions;
  const starts = i > 0 && versions !== undefined && versions[i] !== versions[i - 1];
  const ratio = turn.log_ratios?.[i] ?? null;
  const outside = by.key === "ratio" && ratio !== null && Math.abs(Math.exp(ratio) - 1) > by.clip;
  return "token" + (outside ? " outside" : "") + (starts && by.key === "version" ? " starts" : "");
}

/** A token as it can be seen: a line end is shown as one, nothing as a dot; its id where its text is not known. @param {Turn} turn @param {number} i */
function seen(turn, i) {
  const piece = turn.pieces?.[i];
  if (piece === undefined) return (i ? " " : "") + (turn.ids?.[i] ?? "");
  return piece === "" ? "·" : piece.replaceAll("\n", "⏎\n");
}

/** @param {{ turn: Turn, place: string, colouring: Colouring, dark: boolean, token: TokenSignal }} props */
export function Tokens({ turn, place, colouring, dark, token }) {
  const [shown, setShown] = useState(SHOWN);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const n = turn.pieces?.length || turn.ids?.length || 0;
  useEffect(() => token.subscribe(at => mark(box.current, at?.place === place ? at.index : -1)), [place, shown]);
  const label = `${count(n)} ${turn.pieces?.length ? "tokens" : "token ids"}. Arrow keys move from one to the next. ${turn.text.slice(0, 400)}`;
  return html`<div class="text" ref=${box} role="application" aria-roledescription="tokens" aria-label=${label} tabindex="0" ...${tokenEvents(turn, place, Math.min(n, shown), token)}>
    ${Array.from({ length: Math.min(n, shown) }, (_, i) => html`<span key=${i} data-i=${i} class=${classOf(turn, i, colouring)} style=${{ background: colourOf(turn, i, colouring, dark) }}>${seen(turn, i)}</span>`)}</div>
    ${n > shown && html`<button onClick=${() => setShown(shown + SHOWN)}>show ${count(Math.min(SHOWN, n - shown))} more of ${count(n - shown)} tokens</button>`}`;
}

/** How the pointer and the keyboard choose a token. @param {Turn} turn @param {string} place @param {number} n @param {TokenSignal} token */
function tokenEvents(turn, place, n, token) {
  const here = () => { const at = token.peek(); return at?.place === place ? at.index : -1; };
  const look = (/** @type {number} */ index) => { if (index >= 0 && index !== here()) token.value = { turn, place, index }; };
  const leave = () => { if (here() >= 0) token.value = null; };
  return {
    onPointerOver: (/** @type {Event} */ event) => look(Number(/** @type {HTMLElement} */ (event.target).dataset?.i ?? -1)),
    onPointerLeave: leave, onBlur: leave,
    onFocus: () => { if (here() < 0) look(0); },
    onKeyDown: (/** @type {KeyboardEvent} */ event) => {
      const at = here(), next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: n - 1, PageDown: at + 20, PageUp: at - 20 }[event.key];
      if (event.key === "Escape") leave();
      if (next === undefined) return;
      event.preventDefault();
      look(Math.max(0, Math.min(n - 1, next)));
    },
  };
}

/** Marks the token that is looked at. @param {HTMLElement | null} box @param {number} index */
function mark(box, index) {
  box?.querySelector(".token.at")?.classList.remove("at");
  const chosen = index >= 0 ? box?.querySelector(`[data-i="${index}"]`) : null;
  chosen?.classList.add("at");
  if (box === document.activeElement) chosen?.scrollIntoView({ block: "nearest" });
}

/** What is known of one token. @param {{ token: TokenSignal }} props */
export function Readout({ token }) {
  const at = token.value;
  if (!at) return null;
  const { turn, index } = at;
  const logprob = turn.logprobs?.[index], ratio = turn.log_ratios?.[index] ?? null;
  return html`<div class="readout" role="status" aria-live="polite">
    ${turn.pieces?.length ? html`<span><span class="quiet">token</span> <code>${JSON.stringify(turn.pieces[index] ?? "")}</code></span>` : ""}
    <span><span class="quiet">number</span> ${count(index + 1)}</span>
    ${turn.ids?.length ? html`<span><span class="quiet">id</span> ${turn.ids[index]}</span>` : ""}
    ${logprob !== undefined && html`<span><span class="quiet">log-prob</span> ${fixed(logprob, 4)} <span class="quiet">p</span> ${fixed(Math.exp(logprob), 3)}</span>`}
    ${turn.versions?.length ? html`<span><span class="quiet">version</span> ${version(turn.versions[index])}</span>` : ""}
    ${ratio !== null && html`<span><span class="quiet">log-ratio</span> ${signed(ratio, 4)} <span class="quiet">ratio</span> ${fixed(Math.exp(ratio), 3)}</span>`}</div>`;
}

/** What the colours mean. @param {{ colouring: Colouring, dark: boolean }} props */
export function Legend({ colouring, dark }) {
  const stops = (/** @type {(at: number) => string} */ colour) => `linear-gradient(90deg, ${[0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1].map(colour).join(", ")})`;
  if (colouring.key === "ratio") {
    const background = stops(at => tint(at > 0.5 ? 60 : 255, Math.sqrt(Math.abs(2 * at - 1)), dark));
    return html`<span class="small quiet">less likely now −${STRONG}<i class="scale" style=${{ background }}></i>+${STRONG} more likely now; <u>underlined</u>: ratio outside 1 ± ${colouring.clip}</span>`;
  }
  if (colouring.key === "logprob") return html`<span class="small quiet">certain<i class="scale" style=${{ background: stops(at => tint(25, at, dark)) }}></i>log-prob −${RARE} and less</span>`;
  if (colouring.key === "version") {
    if (colouring.oldest >= colouring.newest) return html`<span class="small quiet">all tokens are of ${version(colouring.newest)}</span>`;
    return html`<span class="small quiet">${version(colouring.oldest)}<i class="scale" style=${{ background: stops(at => versionTint(colouring.oldest + at * (colouring.newest - colouring.oldest), colouring, dark)) }}></i>${version(colouring.newest)}; a bar where the version changes</span>`;
  }
  return null;
}

