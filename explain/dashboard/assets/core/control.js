// The words of a controller: its goal, how that is kept, and why its settings moved.
import { fixed, percent } from "./format.js";

/** @typedef {import("../../types/wire.js").Control} Control */

/** @type {Record<string, string>} */
const REASONS = { start: "where the run begins", "above-target": "the goal did not hold", room: "the goal held with room", expected: "the closed form asks for it",
  free: "what it saves would have been dropped", capacity: "engines came or went", requested: "it was asked for" };

/** Why a setting was moved. @param {string} reason */
export function whyMoved(reason) { return REASONS[reason] ?? reason; }

/** A setting's value, with as many digits as say something. @param {number} value */
export function settingValue(value) { return String(Number(value.toPrecision(4))); }

/** A setting's name. @param {string} name */
export function settingName(name) { return name.replaceAll("_", " "); }

/** What is to be kept. @param {Control} c */
export function goalWords(c) {
  const parts = [];
  if (c.target_mean) parts.push(`mean staleness at most ${settingValue(c.target_mean)}`);
  if (c.target_share) parts.push(`at least ${settingValue(100 * c.target_share)} % of ${c.of} within ${c.within ?? 0} versions`);
  return parts.join(", and ");
}

/** What the goal was measured to be. @param {Control} c */
export function measuredWords(c) {
  const parts = [];
  if (c.target_mean && c.measured_mean >= 0) parts.push(`mean ${fixed(c.measured_mean)}`);
  if (c.target_share && c.measured_share >= 0) parts.push(`${percent(c.measured_share)} within ${c.within ?? 0}`);
  return parts.join(", ") || "nothing yet";
}

/** How a goal is kept: a word, how that looks, and a sentence with what to do. @param {Control} c @returns {[string, string, string]} */
export function stateWords(c) {
  const measured = measuredWords(c);
  switch (c.state) {
    case "keeping": return ["held", "good", `Measured over ${c.window} train steps: ${measured}.`];
    case "correcting": return ["not held", "warn", `Measured over ${c.window} train steps: ${measured}. Settings move towards the target.`];
    case "unreachable": return ["out of reach", "bad", `Measured: ${measured}.${c.binding ? ` ${settingName(c.binding)} stands at the end of its limits` : " Every setting that would help stands at the end of its limits"}${c.nearest ? `; ${fixed(c.nearest)} is the nearest` : ""}. Ask for a target that can be reached, or widen control.limits.`];
    case "silent": return ["not measured", "bad", "No train step has ended for so long that there is nothing to go by: settings stay where they are. Look at what the trainer waits for."];
  }
  return ["settling", "quiet", `Measured: ${measured}. The target is judged over ${c.window} train steps.`];
}
