// The page: what every view is given, and which view is shown.
import { html, render, signal, computed, effect } from "./core/html.js";
import { createAPI, takeToken } from "./core/api.js";
import { createSession } from "./core/session.js";
import { Shell } from "./core/shell.js";

/** @typedef {{ view: string, params: Record<string, string> }} Route */
/** @typedef {ReturnType<typeof createContext>} Context */

const FIRST = "overview";

/** @returns {Route} */
function readRoute() {
  const [view, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: view || FIRST, params: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function createContext() {
  const api = createAPI();
  const session = createSession(api);
  const route = signal(readRoute());
  addEventListener("hashchange", () => {
    const token = takeToken(); // of a server that was started again
    if (token) session.useToken(token);
    route.value = readRoute();
  });

  const chosen = signal(document.documentElement.dataset.theme ?? "");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const system = signal(prefersDark.matches);
  prefersDark.addEventListener("change", () => { system.value = prefersDark.matches; });
  const theme = computed(() => chosen.value || (system.value ? "dark" : "light"));
  const spoken = signal("");

  return {
    api, ...session, route,
    /** The theme that is shown: light or dark. Canvases are drawn again when it changes. */
    theme,
    toggleTheme() {
      const next = theme.value === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      chosen.value = next;
      try { localStorage.setItem("headway-theme", next); } catch { /* then it holds for this page */ }
    },
    /**
     * Goes to a view. With replace, "back" does not come here again, and only the view that is at the address does
     * it: a view that has just been left must not call its reader back.
     * @param {string} view @param {Record<string, string | number | undefined>} [params] @param {{ replace?: boolean }} [how]
     */
    navigate(view, params = {}, how = {}) {
      if (how.replace && readRoute().view !== view) return;
      const known = Object.entries(params).filter(([, value]) => value !== undefined && value !== "").map(([key, value]) => [key, String(value)]);
      const query = new URLSearchParams(known).toString();
      const hash = "#/" + view + (query ? "?" + query : "");
      if (how.replace) history.replaceState(null, "", hash); else location.hash = hash;
      route.value = readRoute(); // at once: the next key may come before the browser says that the address has changed
    },
    /** Says that a view has drawn its first data. @param {string} view */
    ready(view) { document.documentElement.dataset.ready = view; },
    /** Text that a screen reader says when it has time. */
    spoken,
    /** @param {string} text */
    announce(text) { spoken.value = text; },
    style,
  };
}

/** Links a style sheet once. @param {string} href relative to the page */
function style(href) {
  if (document.querySelector(`link[href="${CSS.escape(href)}"]`) || document.querySelector(`link[data-view="${CSS.escape(href)}"]`)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  link.dataset.view = href;
  document.head.append(link);
}

const context = createContext();
effect(() => {
  const info = context.info.value, summary = context.summary.value, connection = context.connection.value;
  const state = connection.state === "lost" ? "not reached · " : summary?.stall ? "stalled · " : "";
  document.title = state + (info?.name ? info.name + " · " : "") + "headway";
});
render(html`<${Shell} context=${context} />`, /** @type {Element} */ (document.getElementById("app")));
context.start();
