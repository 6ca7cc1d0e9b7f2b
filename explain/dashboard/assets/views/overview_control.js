// A run's target on the overview: how it is kept, where the settings stand, and what moved last and why.
import { html } from "../core/html.js";
import { Plot } from "../core/plot.js";
import { Card, Figure } from "../core/parts.js";
import { count, percent } from "../core/format.js";
import { goalWords, settingName, settingValue, stateWords, whyMoved } from "../core/control.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").Control} Control */

const COLOURS = ["--line-1", "--line-2", "--line-3", "--accent", "--good", "--warn", "--bad"];

/** The lines of a target, for the plot of staleness. @param {Control | null} control @returns {import("../core/plot.js").Line[]} */
export function targetLines(control) {
  const target = control?.target_mean;
  if (!target) return [];
  return [
    { name: "target", colour: "--good", dashed: true, width: 2, values: series => series.step.map(() => target) },
    { name: `mean over ${control.window} steps`, colour: "--ink", width: 2, values: series => series.column("control_mean") },
  ];
}

/** Where a setting stands in its limits, from 0 to 1. @param {import("../../types/wire.js").ControlSetting} setting @param {(number | null)[]} values */
function within({ least, most }, values) {
  return values.map(value => value === null ? null : (value - least) / (most - least));
}

/** @param {{ context: Context }} props */
export function ControlCard({ context }) {
  const control = context.summary.value?.control ?? null;
  if (!control) return null;
  context.series.changes.value;
  const [word, look, sentence] = stateWords(control);
  /** @type {import("../core/plot.js").Line[]} */
  const lines = control.settings.map((setting, i) => ({ name: settingName(setting.name), colour: COLOURS[i % COLOURS.length], values: series => within(setting, series.column("setting_" + setting.name)) }));
  const share = (/** @type {number} */ n) => control.steps_in_all > 0 ? percent(n / control.steps_in_all) : "–";
  return html`<${Card} title="Target" say=${html`<b class=${look}>${word}</b>`}>
    <p>${goalWords(control)}. <span class="quiet">${sentence}</span></p>
    <div class="figures">
      <${Figure} name="steps with the target held" value=${share(control.held_in_all)} title=${`${count(control.held_in_all)} of ${count(control.steps_in_all)} train steps, each by the window that ends with it`} />
      <${Figure} name="single batches" value=${share(control.batches_in_all)} title="The share of batches that met the target by themselves, which is stricter" />
      <${Figure} name="moves" value=${count(control.moves_in_all)} />
    </div>
    <${Plot} context=${context} title="Settings within their limits over train steps" height=${130} low=${0} high=${1} format=${(/** @type {any} */ n) => percent(n, 0)} lines=${lines} />
    <table class="settings"><thead><tr><th>setting</th><th>stands at</th><th>limits</th><th>moved last because</th></tr></thead><tbody>
      ${control.settings.map(s => html`<tr key=${s.name}><td>${settingName(s.name)}</td><td><b>${settingValue(s.value)}</b></td><td>${settingValue(s.least)} to ${settingValue(s.most)}</td><td class="quiet">${s.why ? whyMoved(s.why) : "not moved"}</td></tr>`)}</tbody></table>
    ${control.last.length > 0 && html`<p class="small quiet">${control.last.slice(-3).reverse().map(m => html`<span class="move" key=${m.step + m.setting}>step ${count(m.step)}: ${settingName(m.setting)} ${settingValue(m.from)} to ${settingValue(m.to)}, ${whyMoved(m.reason)}</span>`)}</p>`}</${Card}>`;
}
