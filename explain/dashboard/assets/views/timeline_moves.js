// What a controller moved, as marks under the timeline: each says on hover, or when it has the focus, which setting went
// from where to where, and why. Without a controller there is no such row.
import { html, useEffect, useState } from "../core/html.js";
import { settingName, settingValue, whyMoved } from "../core/control.js";
import { clock } from "./timeline_scale.js";

/** Marks drawn at most; of more the newest. */
const MARKS_MAX = 1000;

/**
 * @param {{ context: import("../app.js").Context, model: import("./timeline_controller.js").Timeline | null, marks: { current: any } }} props
 */
export function Moves({ context, model, marks }) {
  const control = context.summary.value?.control ?? null;
  const [moves, setMoves] = useState(/** @type {import("../../types/wire.js").ControlMove[]} */ ([]));
  const [error, setError] = useState("");
  useEffect(() => {
    if (!control) return undefined;
    const stop = new AbortController();
    context.api.get("moves", stop.signal).then((/** @type {import("../../types/wire.js").Moves} */ found) => { setMoves(found.moves.slice(-MARKS_MAX)); setError(""); },
      (/** @type {Error} */ failed) => { if (!stop.signal.aborted) setError("What the controller moved could not be read: " + failed.message); });
    return () => stop.abort();
  }, [control?.moves_in_all]);
  useEffect(() => placeMarks(marks.current, model?.window));
  if (!control) return null;
  return html`<div class="timeline-moves" role="list" aria-label="What the controller moved">
    <span class="who small quiet">moves</span>
    <div class="marks" ref=${marks}>${moves.map((move, i) => html`<span key=${i} role="listitem" tabindex="0" data-us=${move.at_ns / 1000} class=${"mark " + lookOf(move)} title=${sayMove(move)} aria-label=${sayMove(move)}></span>`)}</div>
    ${error && html`<span class="timeline-error small">${error}</span>`}
  </div>`;
}

/** A move in words. @param {import("../../types/wire.js").ControlMove} move */
export function sayMove(move) {
  const from = move.from === null ? "" : settingValue(move.from) + " to ";
  return `${clock(move.at_ns / 1000, 1e6)}, step ${move.step}: ${settingName(move.setting)} ${from}${settingValue(move.to)}, ${whyMoved(move.reason)}`;
}

/** Up or down. @param {import("../../types/wire.js").ControlMove} move */
function lookOf({ from, to }) { return from !== null && to < from ? "down" : "up"; }

/** Puts marks where their times are in view. @param {HTMLElement | null} row @param {any} window */
export function placeMarks(row, window) {
  if (!row || !window) return;
  for (const mark of /** @type {HTMLCollectionOf<HTMLElement>} */ (row.children)) {
    const x = (Number(mark.dataset.us) - window.fromUS) / window.pixelUS;
    mark.hidden = !(x >= 0 && x <= window.width);
    mark.style.left = x + "px";
  }
}
