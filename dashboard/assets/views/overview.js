import { html } from "../core/html.js";

/** @param {{ context: import("../app.js").Context }} props */
export default function View({ context }) {
  return html`<div class="empty"><strong>${context.info.value?.name}</strong></div>`;
}
