// The one place that knows the vendored view libraries: components import from here.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from "../vendor/hooks.js";
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from "../vendor/signals.js";

/** Markup as a tagged template. Values become text nodes and attributes, never markup. */
export const html = htm.bind(h);
