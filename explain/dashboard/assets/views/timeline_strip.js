// The whole run in a strip: how stale batches were, how full the queue was after each of them, how long the trainer
// waited, and which part is in view.
import { html, useEffect, useRef } from "../core/html.js";
import { themed } from "../core/plot.js";

const HEIGHT = 40;

/** @param {{ context: any, model: any, box: any }} props */
export function Strip({ context, model, box }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const theme = context.theme.value;
  useEffect(() => {
    if (!model) return;
    const draw = () => drawStrip(canvas.current, context, model);
    const sizes = new ResizeObserver(draw);
    sizes.observe(/** @type {HTMLCanvasElement} */ (canvas.current));
    const off = context.series.changes.subscribe(draw);
    return () => { off(); sizes.disconnect(); };
  }, [model, theme]);
  const grab = (/** @type {any} */ event) => model && event.button === 0 && follow(event, model);
  return html`<div class="timeline-strip" onPointerDown=${grab} aria-hidden="true">
    <canvas ref=${canvas}></canvas><div class="timeline-window" ref=${box}></div>
    <span class="timeline-strip-says small"><i class="swatch" style=${{ "--swatch": "var(--line-3)" }}></i>staleness <i class="swatch" style=${{ "--swatch": "var(--line-1)" }}></i>left in the queue <i class="swatch" style=${{ "--swatch": "var(--line-2)" }}></i>trainer idle</span>
  </div>`;
}

function drawStrip(/** @type {HTMLCanvasElement | null} */ canvas, /** @type {import("../app.js").Context} */ { series }, /** @type {import("./timeline_controller.js").Timeline} */ model) {
  if (!canvas) return;
  const ratio = Math.min(2, devicePixelRatio), width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), end = model.window.endUS / 1e6;
  c.scale(ratio, ratio);
  const x = (/** @type {number} */ i) => (series.time[i] / end) * width;
  const queue = series.column("queue_groups");
  const most = Math.max(1, ...queue.map((/** @type {any} */ v) => v ?? 0));
  const stalest = Math.max(1, ...series.column("staleness").map((/** @type {any} */ v) => v ?? 0));
  c.fillStyle = themed("--line-1");
  c.globalAlpha = 0.45;
  c.beginPath();
  c.moveTo(0, HEIGHT);
  queue.forEach((/** @type {any} */ v, /** @type {number} */ i) => c.lineTo(x(i), HEIGHT - ((v ?? 0) / most) * (HEIGHT - 4)));
  c.lineTo(x(series.length - 1), HEIGHT);
  c.fill();
  c.globalAlpha = 1;
  const line = (/** @type {string} */ column, /** @type {string} */ colour, /** @type {number} */ top) => {
    c.strokeStyle = themed(colour);
    c.lineWidth = 1;
    c.beginPath();
    series.column(column).forEach((/** @type {any} */ v, /** @type {number} */ i) => c.lineTo(x(i), HEIGHT - 1 - ((v ?? 0) / top) * (HEIGHT - 4)));
    c.stroke();
  };
  line("trainer_idle", "--line-2", 1);
  line("staleness", "--line-3", stalest);
}

/** Moves what is in view with the pointer, from where it was taken. */
function follow(/** @type {any} */ event, /** @type {import("./timeline_controller.js").Timeline} */ model) {
  const strip = event.currentTarget, bounds = strip.getBoundingClientRect(), w = model.window;
  const move = (/** @type {PointerEvent} */ at) => {
    w.follow = false;
    w.fromUS = ((at.clientX - bounds.left) / bounds.width) * w.endUS - (w.width * w.pixelUS) / 2;
    w.hold();
    model.invalidate();
  };
  move(event);
  strip.setPointerCapture(event.pointerId);
  const end = () => {
    strip.removeEventListener("pointermove", move);
    strip.removeEventListener("pointerup", end);
    strip.removeEventListener("pointercancel", end);
  };
  strip.addEventListener("pointermove", move);
  strip.addEventListener("pointerup", end);
  strip.addEventListener("pointercancel", end);
}
