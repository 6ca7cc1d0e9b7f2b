// The queue's content over the run, beside what a batch takes and what it may hold.
import { html } from "../core/html.js";
import { Plot } from "../core/plot.js";
import { short } from "../core/format.js";

/** @param {{ context: import("../app.js").Context, height?: number }} props */
export function QueuePlot({ context, height = 150 }) {
  const info = context.info.value;
  /** @type {import("../core/plot.js").Line[]} */
  const lines = [{ name: "groups", colour: "--line-1", values: series => series.column("queue_groups"), smooth: true }];
  const capacity = info?.queue_groups ?? 0, batch = info?.batch_groups ?? 0;
  if (capacity > 0) lines.push({ name: "capacity", colour: "--quiet", dashed: true, values: series => series.step.map(() => capacity) });
  if (batch > 0 && batch !== capacity) lines.push({ name: "a batch", colour: "--line-2", dashed: true, values: series => series.step.map(() => batch) });
  return html`<${Plot} context=${context} title="Groups in the queue over train steps" height=${height} lines=${lines} low=${0} format=${short} />`;
}
