// Mouse, touch and keys over the timeline, as calls on a controller: dragging moves, wheel and two fingers zoom,
// shift and dragging draws the stretch to zoom to.

const WHEEL_ZOOM = 0.0016;
const CLICK_PIXELS = 4;

/**
 * @typedef {object} Controller
 * @property {(dx: number, dy: number) => void} pan
 * @property {(factor: number, x: number) => void} zoom
 * @property {(x0: number, x1: number) => void} zoomTo
 * @property {(box: {x0: number, x1: number}|null) => void} box
 * @property {(x: number, y: number) => void} hover
 * @property {() => void} leave
 * @property {(x: number, y: number) => void} click
 * @property {() => boolean} boxing whether dragging draws a stretch
 */

/**
 * Listens on an element until the function returned is called.
 * @param {HTMLElement} element
 * @param {Controller} controller
 */
export function listen(element, controller) {
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  /** @type {{ from: number, box: boolean } | null} */ let drag = null;
  let moved = 0;
  const at = (/** @type {any} */ event) => {
    const bounds = element.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  };

  const down = (/** @type {any} */ event) => {
    if (event.button !== 0) return;
    const point = at(event);
    pointers.set(event.pointerId, point);
    element.setPointerCapture(event.pointerId);
    moved = pointers.size > 1 ? Infinity : 0;
    drag = { from: point.x, box: pointers.size === 1 && (event.shiftKey || controller.boxing()) };
    element.focus({ preventScroll: true });
  };

  const move = (/** @type {any} */ event) => {
    const point = at(event), before = pointers.get(event.pointerId);
    if (!before || !drag) return controller.hover(point.x, point.y);
    if (pointers.size === 2) pinch(event.pointerId, before, point);
    else if (drag.box) controller.box({ x0: drag.from, x1: point.x });
    else controller.pan(before.x - point.x, event.pointerType === "touch" ? 0 : before.y - point.y);
    moved += Math.abs(point.x - before.x) + Math.abs(point.y - before.y);
    pointers.set(event.pointerId, point);
  };

  const pinch = (/** @type {number} */ id, /** @type {{ x: number, y: number }} */ before, /** @type {{ x: number, y: number }} */ point) => {
    const [other] = [...pointers].filter(([key]) => key !== id).map(([, p]) => p);
    const was = Math.hypot(before.x - other.x, before.y - other.y), is = Math.hypot(point.x - other.x, point.y - other.y);
    const middle = (point.x + other.x) / 2;
    if (was > 1 && is > 1) controller.zoom(was / is, middle);
    controller.pan((before.x - point.x) / 2, 0);
  };

  const up = (/** @type {any} */ event) => {
    const point = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (!point || !drag || pointers.size > 0) return;
    if (drag.box) {
      controller.box(null);
      if (Math.abs(point.x - drag.from) > CLICK_PIXELS && event.type === "pointerup") controller.zoomTo(drag.from, point.x);
    } else if (moved <= CLICK_PIXELS && event.type === "pointerup") controller.click(point.x, point.y);
    drag = null;
  };

  const wheel = (/** @type {any} */ event) => {
    event.preventDefault();
    const scale = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const dx = event.deltaX * scale, dy = event.deltaY * scale;
    if (event.shiftKey) controller.pan(dx || dy, 0);
    else if (Math.abs(dx) > Math.abs(dy)) controller.pan(dx, 0);
    else controller.zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * WHEEL_ZOOM * (event.ctrlKey ? 5 : 1)), at(event).x);
  };

  const handlers = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up, pointerleave: () => controller.leave() };
  for (const [name, handler] of Object.entries(handlers)) element.addEventListener(name, /** @type {any} */ (handler));
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    for (const [name, handler] of Object.entries(handlers)) element.removeEventListener(name, /** @type {any} */ (handler));
    element.removeEventListener("wheel", wheel);
  };
}

/** What a key asks for: a name of an action, "" for none. @param {KeyboardEvent} event */
export function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return "";
  return ACTIONS[event.key] ?? ACTIONS[event.key.toLowerCase()] ?? "";
}

/** @type {Record<string, string>} */
const ACTIONS = {
  "+": "in", "=": "in", w: "in", "-": "out", _: "out", s: "out",
  ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right",
  ArrowUp: "above", ArrowDown: "below", ",": "previous", ".": "next",
  0: "fit", f: "fit", Home: "first", End: "last", l: "follow", PageUp: "pageup", PageDown: "pagedown",
  Enter: "open", Escape: "clear",
};

/** The keys in words, for the page. */
export const KEYS = [
  ["+ or w, − or s", "zoom in, zoom out"],
  ["← or a, → or d", "earlier, later"],
  ["↑, ↓", "the track above, below"],
  [", and .", "the span before, after in the track"],
  ["Enter", "open the span: its group, or its train step"],
  ["0 or f", "the whole run"],
  ["Home, End", "the beginning, the newest"],
  ["l", "follow a live run"],
  ["Page Up, Page Down", "scroll the tracks"],
  ["Escape", "let go of the span"],
];
