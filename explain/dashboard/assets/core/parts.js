// Pieces that several views are made of.
import { html, useEffect, useRef, useState } from "./html.js";
import { Refused } from "./api.js";
import { percent } from "./format.js";

/** @param {{ title: string, say?: any, size?: string, id?: string, children?: any }} props */
export function Card({ title, say, size = "", id, children }) {
  const heading = "h-" + (id ?? title.toLowerCase().replace(/[^a-z]+/g, "-"));
  return html`<section class=${"card " + size} aria-labelledby=${heading}>
    <header><h2 id=${heading}>${title}</h2>${say && html`<span class="say">${say}</span>`}</header>${children}</section>`;
}

/** A figure with what it is below. @param {{ name: string, value: any, title?: string, look?: string }} props */
export function Figure({ name, value, title, look = "" }) {
  return html`<div class="figure" title=${title}><b class=${look}>${value}</b><span>${name}</span></div>`;
}

/**
 * A bar of parts. Those of nothing are left out of the bar, and of the legend unless keep says so.
 * @param {{ parts: { name: string, value: number, colour: string, text?: string, keep?: boolean }[], whole?: number, label: string, legend?: boolean }} props
 */
export function StackBar({ parts, whole, label, legend = true }) {
  const sum = parts.reduce((all, part) => all + Math.max(0, part.value), 0);
  const of = Math.max(whole ?? sum, sum, Number.MIN_VALUE);
  const told = parts.filter(part => part.value > 0 || part.keep);
  const words = told.map(part => part.name + " " + (part.text ?? percent(part.value / of))).join(", ");
  return html`<div><div class="stack" role="img" aria-label=${label + ": " + (words || "nothing")}>
      ${told.filter(part => part.value > 0).map(part => html`<i key=${part.name} title=${part.name + " " + (part.text ?? percent(part.value / of))} style=${{ "--swatch": part.colour, width: 100 * part.value / of + "%" }}></i>`)}</div>
    ${legend && html`<div class="legend" aria-hidden="true">${told.map(part => html`<span class="key" key=${part.name}><i class="swatch" style=${{ "--swatch": part.colour }}></i>${part.name} <b>${part.text ?? percent(part.value / of)}</b></span>`)}</div>`}</div>`;
}

/** Names and figures in two columns; what is null is left out. @param {{ rows: ([string, any] | null | false)[] }} props */
export function Pairs({ rows }) {
  return html`<dl class="pairs">${rows.filter(row => row).map(row => html`<dt key=${/** @type {any} */ (row)[0]}>${/** @type {any} */ (row)[0]}</dt><dd>${/** @type {any} */ (row)[1]}</dd>`)}</dl>`;
}

/** Why there is nothing here, and when there will be. @param {{ title: string, bad?: boolean, children?: any }} props */
export function Empty({ title, bad, children }) {
  return html`<div class=${"empty" + (bad ? " bad" : "")} role=${bad ? "alert" : "note"}><strong>${title}</strong>${children}</div>`;
}

/** What a request gave, or is still to give. @template T @typedef {{ data: T | null, error: string, early: boolean, shut: boolean, loading: boolean, again: () => void }} Asked early: the error is that there is nothing yet; shut: that this token may not */

/**
 * Asks for a path while the component is there, again whenever the path changes, and every so often where everyMS says.
 * What was answered last stays while it is asked again. Nothing is asked while nobody looks.
 * @param {import("../app.js").Context} context @param {string | null} path null asks nothing @param {number} [everyMS]
 * @returns {Asked<any>}
 */
export function useAsk(context, path, everyMS = 0) {
  const [state, setState] = useState(/** @type {{ path: string | null, data: any, error: string, early: boolean, shut: boolean, loading: boolean }} */ ({ path: null, data: null, error: "", early: false, shut: false, loading: true }));
  const [turn, setTurn] = useState(0);
  const shown = useRef(state);
  shown.current = state;
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */ let clock;
    async function ask() {
      if (document.hidden) { clock = setTimeout(ask, Math.max(everyMS, 1000)); return; }
      try {
        const data = await context.api.get(/** @type {string} */ (path), stop.signal);
        setState({ path, data, error: "", early: false, shut: false, loading: false });
      } catch (err) {
        if (stop.signal.aborted) return;
        const status = err instanceof Refused ? err.status : 0;
        setState({ ...shown.current, error: err instanceof TypeError ? "The server does not answer." : String(/** @type {any} */ (err)?.message ?? err), early: status === 409, shut: status === 403, loading: false });
        if (status === 403) return; // it will not change its mind
      }
      if (everyMS > 0 && !stop.signal.aborted) clock = setTimeout(ask, everyMS);
    }
    if (shown.current.path !== path) setState({ ...shown.current, loading: true });
    ask();
    return () => { stop.abort(); clearTimeout(clock); };
  }, [path, everyMS, turn]);
  return { data: state.data, error: state.error, early: state.early, shut: state.shut, loading: state.loading, again: () => setTurn((/** @type {number} */ n) => n + 1) };
}

/** A button that puts text on the clipboard, and says so. @param {{ context: import("../app.js").Context, text: string | (() => string), children?: any, label?: string }} props */
export function Copy({ context, text, children, label }) {
  const [done, setDone] = useState("");
  useEffect(() => {
    if (!done) return;
    const clock = setTimeout(() => setDone(""), 1800);
    return () => clearTimeout(clock);
  }, [done]);
  async function copy() {
    const value = typeof text === "function" ? text() : text;
    const copied = await toClipboard(value);
    setDone(copied ? "copied" : "not allowed");
    context.announce(copied ? "Copied." : "The browser does not allow copying.");
  }
  return html`<button class="copy" onClick=${copy} aria-label=${label}>${done || (children ?? "copy")}</button>`;
}

/** @param {string} text @returns {Promise<boolean>} */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { /* without TLS there is no clipboard but the old one */ }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
