// One group: its prompt, its siblings with their turns and tokens, what they earned.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal, useState } from "../core/html.js";
import { Card, Copy, Empty, Figure, StackBar, useAsk } from "../core/parts.js";
import { SOURCES, sourceColour } from "../core/colour.js";
import { count, fixed, known, lasting, many, signed, version, words } from "../core/format.js";
import { Legend, Readout, Tokens, colourings } from "./rollouts_tokens.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../../types/wire.js").GroupDetail} GroupDetail */
/** @typedef {import("../../types/wire.js").RolloutDetail} Rollout */

const BESIDE_TOKENS = 4000; // a group of fewer is shown whole, side by side

/** @param {{ context: Context, id: number, back: () => void }} props */
export function GroupReader({ context, id, back }) {
  const asked = useAsk(context, "groups/" + id);
  /** @type {GroupDetail | null} */ const group = asked.data;
  if (!group) return asked.error
    ? html`<${Empty} title=${`Group ${id} could not be read.`} bad><span>${asked.error}</span><div class="tools"><button onClick=${asked.again}>Try again</button><button class="back" onClick=${back}>Back to the list</button></div></${Empty}>`
    : html`<p class="bare" role="status">Reading group ${id}…</p>`;
  return html`<${Head} context=${context} group=${group} back=${back} /><${Siblings} context=${context} group=${group} />`;
}

/** @param {{ context: Context, group: GroupDetail, back: () => void }} props */
function Head({ context, group, back }) {
  const pre = group.ready_version >= 0 && group.start_version >= 0 ? group.ready_version - group.start_version : null;
  const split = group.split ?? [];
  return html`<${Card} title=${"Group " + group.id} size="wide" say=${html`<span class="tools"><button class="back" onClick=${back}>← list</button>
      <${Copy} context=${context} text=${() => asText(group)}>copy as text</${Copy}><${Copy} context=${context} text=${() => JSON.stringify(group, null, 1)}>as JSON</${Copy}></span>`}>
    <div class="figures">
      <${Figure} name=${group.step >= 0 ? "trained by step" : "end"} value=${group.step >= 0 ? count(group.step) : group.end || "under way"} />
      <${Figure} name="began with" value=${version(group.start_version)} />
      <${Figure} name=${"versions stale" + (known(pre) && group.step >= 0 ? ` (${pre} before the queue, ${group.staleness - pre} in it)` : "")} value=${group.step >= 0 ? count(group.staleness) : "–"} />
      <${Figure} name="mean reward" value=${fixed(group.reward_mean, 3)} />
      <${Figure} name="least · most" value=${fixed(group.reward_min) + " · " + fixed(group.reward_max)} />
      <${Figure} name="tokens" value=${count(group.tokens)} />
    </div>
    ${split.some(part => part > 0) && html`<${StackBar} label="Staleness by source" parts=${split.map((part, i) => ({ name: words(SOURCES[i]), value: part, colour: sourceColour[SOURCES[i]], text: fixed(part) }))} />`}
    ${group.prompt_text && html`<div class="turn"><div class="role"><span>prompt</span><span>${many([...group.prompt_text].length, "character")}</span></div><div class="text prompt-text" tabindex="0" role="region" aria-label="Prompt">${group.prompt_text}</div></div>`}
    ${group.meta && html`<${Meta} meta=${group.meta} />`}</${Card}>`;
}

/** @param {{ meta: Record<string, string[]> }} props */
function Meta({ meta }) {
  const rows = Object.entries(meta);
  if (!rows.length) return null;
  return html`<details class="small"><summary class="quiet">what came with the prompt</summary><dl class="pairs">${rows.map(([key, values]) => html`<dt key=${key}>${key}</dt><dd>${values.join(", ")}</dd>`)}</dl></details>`;
}

/** @param {{ context: Context, group: GroupDetail }} props */
function Siblings({ context, group }) {
  /** @type {Rollout[]} */ const rollouts = group.rollouts ?? [];
  const tokens = useMemo(() => rollouts.reduce((sum, rollout) => sum + (rollout.turns ?? []).reduce((all, turn) => all + (turn.ids?.length ?? turn.pieces?.length ?? turn.text.length / 4), 0), 0), [group]);
  const [beside, setBeside] = useState(tokens <= BESIDE_TOKENS);
  const [at, setAt] = useState(0);
  const token = useSignal(/** @type {import("./rollouts_tokens.js").TokenAt | null} */ (null)); // no state: a pointer that moves draws nothing again
  const moved = useRef(false);
  const modes = useMemo(() => colourings(group, context.info.value?.config ?? ""), [group]);
  const [mode, setMode] = useState(modes[0].key);
  const colouring = modes.find(entry => entry.key === mode) ?? modes[0];
  useLayoutEffect(() => siblingKeys(rollouts.length, setAt), [rollouts.length]);
  useEffect(() => {
    if (moved.current) document.querySelector(".rollout.chosen")?.scrollIntoView({ block: "nearest" });
    moved.current = true;
  }, [at]);
  if (!rollouts.length) return html`<${Empty} title="Its text is not kept."><span>${context.info.value?.kind === "simulation" ? "A simulation draws lengths, not tokens." : context.info.value?.has_text ? "Only its figures are. Those with text are in the list while “without text too” is off." : "No text was kept of this run: one keeps that of every so many steps (store.samples_every)."}</span></${Empty}>`;
  const dark = context.theme.value === "dark";
  return html`<div class="tools card wide">
      <span class="siblings" role="group" aria-label="Siblings">${rollouts.map((rollout, i) => html`<button key=${i} aria-pressed=${i === at} onClick=${() => setAt(i)}><span class="unseen">reward</span><b>${fixed(rollout.reward)}</b><small><span class="unseen">of sibling</span> #${rollout.sample}</small></button>`)}</span>
      <span class="set"><button aria-pressed=${beside} onClick=${() => setBeside(true)}>all</button><button aria-pressed=${!beside} onClick=${() => setBeside(false)}>one</button></span>
      ${modes.length > 1 && html`<span class="set" role="group" aria-label="Colour of tokens"><span class="small quiet">colour by</span>${modes.map(entry => html`<button key=${entry.key} aria-pressed=${entry.key === colouring.key} onClick=${() => setMode(entry.key)}>${entry.name}</button>`)}</span>`}
      <${Legend} colouring=${colouring} dark=${dark} /></div>
    <div class=${beside ? "beside" : ""}>${(beside ? rollouts : [rollouts[Math.min(at, rollouts.length - 1)]]).map(rollout => html`<${One} key=${rollout.sample + "." + rollout.attempt} rollout=${rollout} prompt=${group.prompt_text} chosen=${beside && rollout === rollouts[at]} colouring=${colouring} dark=${dark} token=${token} mean=${group.reward_mean} />`)}</div>
    <${Readout} token=${token} />`;
}

/** @param {number} n @param {(next: (at: number) => number) => void} set */
function siblingKeys(n, set) {
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /** @type {HTMLElement} */ (event.target).closest("input, select, textarea, dialog")) return;
    const step = { n: 1, p: -1 }[event.key];
    if (step && n) set(at => (at + step + n) % n);
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

/**
 * @param {{ rollout: Rollout, prompt: string, chosen: boolean, colouring: import("./rollouts_tokens.js").Colouring, dark: boolean, mean: number,
 *   token: import("./rollouts_tokens.js").TokenSignal }} props
 */
function One({ rollout, prompt, chosen, colouring, dark, token, mean }) {
  const look = rollout.reward > mean + 1e-9 ? " above" : rollout.reward < mean - 1e-9 ? " below" : "";
  const turns = (rollout.turns ?? []).filter((turn, i) => !(i === 0 && turn.role === "prompt" && turn.text === prompt)); // it is said above
  const length = (rollout.turns ?? []).reduce((sum, turn) => sum + (turn.ids?.length ?? turn.pieces?.length ?? 0), 0);
  return html`<section class=${"card rollout" + look + (chosen ? " chosen" : "")} aria-label=${"Sibling " + rollout.sample}>
    <header><h2>#${rollout.sample}${rollout.attempt > 1 ? `, attempt ${rollout.attempt}` : ""}</h2><span class="say">reward <b>${fixed(rollout.reward, 3)}</b>${known(rollout.advantage) ? html` · advantage <b>${signed(rollout.advantage, 3)}</b>` : ""}${length ? ` · ${many(length, "token")}` : ""}${rollout.truncated ? html` · <span class="warn">cut at the cap</span>` : ""}</span></header>
    ${turns.length === 0 && html`<p class="quiet">no turn was kept</p>`}
    ${turns.map((turn, i) => html`<div key=${i} class=${"turn " + turn.role}>
      <div class="role"><span>${turn.role}${turn.name ? " · " + turn.name : ""}</span><span>${turn.duration_s ? lasting(turn.duration_s) : ""}</span></div>
      <${Words} turn=${turn} place=${rollout.sample + "." + rollout.attempt + "." + i} colouring=${colouring} dark=${dark} token=${token} />
    </div>`)}</section>`;
}

/**
 * What a turn says: its tokens as text, where they are known; else its text, and beside it the ids of its tokens.
 * @param {{ turn: import("../../types/wire.js").Turn, place: string, colouring: import("./rollouts_tokens.js").Colouring, dark: boolean, token: import("./rollouts_tokens.js").TokenSignal }} props
 */
function Words({ turn, place, colouring, dark, token }) {
  const tokens = () => html`<${Tokens} turn=${turn} place=${place} colouring=${colouring} dark=${dark} token=${token} />`;
  if (turn.pieces?.length) return tokens();
  const text = html`<div class="text" tabindex=${turn.text.length > 1500 ? 0 : undefined}>${turn.text || html`<span class="quiet">(nothing)</span>`}</div>`;
  if (!turn.ids?.length) return text;
  return html`${turn.text && text}<div class="ids"><span class="small quiet">${turn.text ? "its token ids" : "token ids; their text is not kept"}</span>${tokens()}</div>`;
}

/** A group as text, to be pasted somewhere. @param {GroupDetail} group */
function asText(group) {
  const lines = [`group ${group.id}  step ${group.step}  staleness ${group.staleness}  mean reward ${fixed(group.reward_mean, 3)}`, "", "prompt", group.prompt_text];
  for (const rollout of group.rollouts ?? []) {
    lines.push("", `sibling ${rollout.sample}  reward ${fixed(rollout.reward, 3)}  advantage ${known(rollout.advantage) ? signed(rollout.advantage, 3) : "–"}${rollout.truncated ? "  cut at the cap" : ""}`);
    for (const turn of rollout.turns ?? []) lines.push(`[${turn.role}${turn.name ? " " + turn.name : ""}]`, turn.text || !turn.ids?.length ? turn.text : "token ids " + turn.ids.join(" "));
  }
  return lines.join("\n") + "\n";
}
