// Colours that carry meaning. Those of categories are the eight that people with any common colour blindness tell
// apart (Okabe and Ito's); versions are a ramp of even steps in lightness, so that newer is lighter in any eye.

/** Sources of staleness, in the order of package attribution. */
export const SOURCES = ["sync", "inner_steps", "concurrency", "environment", "tail", "queue", "fill"];

/** @type {Record<string, string>} */
export const sourceColour = {
  sync: "#cc79a7", inner_steps: "#8a8f98", concurrency: "#0072b2", environment: "#009e73", tail: "#d55e00", queue: "#56b4e9", fill: "#e69f00",
};

/** Kinds of spans of a timeline, by their number on the wire. */
export const KINDS = ["generate", "environment", "interrupted", "load", "switch", "queued", "train", "sync", "failed", "validate"];

/** @type {Record<string, string>} */
export const kindColour = {
  generate: "#0072b2", environment: "#009e73", interrupted: "#e69f00", load: "#cc79a7", switch: "#a34f80", queued: "#56b4e9",
  train: "#d55e00", sync: "#cc79a7", failed: "#c0271c", validate: "#8a8f98", logprobs: "#b58900", wait: "#8a8f98",
};

/** What idle time is made of. @type {Record<string, string>} */
export const idleColour = { starved: "#d55e00", syncing: "#cc79a7", validating: "#8a8f98", paused: "#e69f00", blocked: "#c0271c" };

/**
 * A colour of the space OKLCH as red, green and blue of 0 to 255. Its lightness is even to the eye.
 * The matrices are those of the definition of Oklab.
 * @param {number} lightness 0 to 1 @param {number} chroma 0 to about 0.3 @param {number} hue degrees
 * @returns {[number, number, number]}
 */
export function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s];
  const [red, green, blue] = linear.map(x => {
    const held = Math.min(1, Math.max(0, x));
    return Math.round(255 * (held <= 0.0031308 ? 12.92 * held : 1.055 * held ** (1 / 2.4) - 0.055));
  });
  return [red, green, blue];
}

/** @param {[number, number, number]} rgb */
export function css(rgb) { return `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]})`; }

/**
 * The ramp of versions as n colours, oldest first: dark violet over blue and green to light yellow.
 * @param {number} n @returns {[number, number, number][]}
 */
export function versionRamp(n) {
  return Array.from({ length: n }, (_, i) => {
    const at = n > 1 ? i / (n - 1) : 1;
    return oklch(0.36 + 0.5 * at, 0.13 + 0.02 * at, 300 - 200 * at);
  });
}

const ramp = versionRamp(64).map(css);

/**
 * The colour of a version between the oldest and the newest shown.
 * @param {number} version @param {number} oldest @param {number} newest
 */
export function versionColour(version, oldest, newest) {
  if (version < 0) return "var(--edge-strong)";
  const at = newest > oldest ? (version - oldest) / (newest - oldest) : 1;
  return ramp[Math.round(63 * Math.min(1, Math.max(0, at)))];
}

/**
 * A tint to put behind text, strong as strength says (0 to 1): the text stays readable in both themes.
 * @param {number} hue @param {number} strength @param {boolean} dark
 */
export function tint(hue, strength, dark) {
  const s = Math.min(1, Math.max(0, strength));
  return css(dark ? oklch(0.26 + 0.2 * s, 0.12 * s, hue) : oklch(0.985 - 0.19 * s, 0.13 * s, hue));
}
