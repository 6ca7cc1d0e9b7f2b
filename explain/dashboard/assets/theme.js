// Runs before the first paint, so that a chosen theme does not flash: light, dark, or what the system says.
"use strict";
try {
  const chosen = localStorage.getItem("headway-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser may forbid it: then the system's theme holds */ }
