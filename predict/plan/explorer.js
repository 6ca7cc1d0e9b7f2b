(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const root = document.getElementById("explorer"), svg = root.querySelector("svg"), form = root.querySelector("form");
  const title = root.querySelector("h3"), list = root.querySelector("dl");
  const all = data.marks, best = all.findIndex(m => m.y === 3);
  let chosen = best;
  const values = key => [...new Set(all.map(m => m[key]))].sort((a, b) => typeof a === "number" ? a - b : a < b ? -1 : 1);
  for (const key of ["x", "B", "q", "T"]) {
    for (const v of values(key)) form.elements[key].add(new Option(key === "q" && v === 0 ? "of the rule" : String(v), String(v)));
  }
  if (!data.priced) form.elements.up.remove(2);
  const make = (name, attributes, parent) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    (parent || svg).appendChild(e);
    return e;
  };
  const bound = () => form.elements.across.value === "s" ? data.budget : data.budgetP95;
  const kept = m => m.b;
  const shown = m => ["x", "B", "q", "T"].every(k => !form.elements[k].value || String(m[k]) === form.elements[k].value) && (!form.elements.kept.checked || kept(m));
  const number = v => v === 0 ? "0" : v >= 1000 ? Math.round(v).toLocaleString("en").replaceAll(",", " ") : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toPrecision(3);
  const left = 62, right = 745, top = 12, bottom = 385;
  const nice = (low, high, log) => {
    const ticks = [];
    if (log) {
      for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
        for (const f of [1, 2, 5]) { const v = f * 10 ** e; if (v >= low && v <= high) ticks.push(v); }
      return ticks;
    }
    for (const v of [0, .25, .5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]) if (v >= low && v <= high) ticks.push(v);
    return ticks;
  };
  let scaleX, scaleY;
  function draw() {
    svg.replaceChildren();
    const across = form.elements.across.value, up = form.elements.up.value;
    const marks = all.map((m, i) => ({m, i})).filter(o => shown(o.m));
    if (!marks.length) { make("text", {x: 380, y: 200, "text-anchor": "middle"}).textContent = "No setting is left: loosen a filter."; return; }
    const xs = marks.map(o => o.m[across]), ys = marks.map(o => o.m[up]).filter(v => v > 0);
    const xmax = Math.max(...xs, bound() || 0) * 1.04 + .05, ymin = Math.min(...ys) * .93, ymax = Math.max(...ys) * 1.07;
    scaleX = v => left + (right - left) * Math.sqrt(v / xmax);
    scaleY = v => bottom - (bottom - top) * Math.log(Math.max(v, ymin) / ymin) / Math.log(ymax / ymin);
    for (const v of nice(0, xmax, false)) {
      make("line", {x1: scaleX(v), x2: scaleX(v), y1: top, y2: bottom, class: "grid"});
      make("text", {x: scaleX(v), y: bottom + 15, "text-anchor": "middle"}).textContent = v;
    }
    for (const v of nice(ymin, ymax, true)) {
      make("line", {x1: left, x2: right, y1: scaleY(v), y2: scaleY(v), class: "grid"});
      make("text", {x: left - 6, y: scaleY(v) + 4, "text-anchor": "end"}).textContent = number(v);
    }
    make("text", {x: (left + right) / 2, y: 420, "text-anchor": "middle"}).textContent = form.elements.across.selectedOptions[0].text + ", versions (square-root scale)";
    const label = make("text", {x: 0, y: 0, transform: `translate(13,${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle"});
    label.textContent = form.elements.up.selectedOptions[0].text + (up === "c" ? ", " + data.currency : "") + " (log scale)";
    if (bound()) {
      make("line", {x1: scaleX(bound()), x2: scaleX(bound()), y1: top, y2: bottom, class: "bound"});
      make("text", {x: scaleX(bound()) + 5, y: top + 11}).textContent = "budget " + bound();
    }
    const order = [0, 1, 2, 3];
    for (const kind of order) {
      if (kind === 1) {
        const line = marks.filter(o => o.m.y === 1);
        if (line.length > 1) make("polyline", {points: line.map(o => scaleX(o.m[across]) + "," + scaleY(o.m[up])).join(" "), class: "line"});
      }
      for (const o of marks) {
        if (o.m.y !== kind) continue;
        make("circle", {cx: scaleX(o.m[across]).toFixed(1), cy: scaleY(o.m[up]).toFixed(1), r: [2.6, 3.6, 5, 7][kind], class: ["dot", "front", "ring", "best"][kind], "data-i": o.i});
      }
    }
    ring();
  }
  function ring() {
    for (const old of svg.querySelectorAll(".chosen")) old.remove();
    const m = all[chosen];
    if (!m || !shown(m) || !scaleX) return;
    make("circle", {cx: scaleX(m[form.elements.across.value]), cy: scaleY(m[form.elements.up.value]), r: 10, class: "chosen"});
  }
  const kinds = ["ranked by closed form", "on the frontier", "simulated", "recommended"];
  function tell(i) {
    chosen = i;
    const m = all[i];
    title.textContent = `${m.R} + ${m.T} GPUs, batch ${m.B}`;
    list.replaceChildren();
    const rows = [["what it is", kinds[m.y] + (kept(m) ? "" : ", over the budget")], ["rule", m.x], ["queue factor", m.q || "of the rule"], ["slots a replica", m.n], ["a sync every", m.k + (m.k === 1 ? " step" : " steps")],
      ["staleness", `${number(m.s)} mean, ${m.p} at p95`], ["utilization ρ", number(m.r)], ["update every", number(m.t) + " s"], ["noise-adjusted", number(m.u) + " s"], ["groups dropped", (100 * m.w).toFixed(1) + " %"]];
    if (data.priced) rows.push(["cost of a step", number(m.c) + " " + data.currency]);
    for (const [name, value] of rows) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.textContent = value;
      list.append(dt, dd);
    }
    ring();
  }
  function nearest(event) {
    if (!scaleX) return -1;
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * 760 / box.width, y = (event.clientY - box.top) * 430 / box.height;
    let found = -1, least = 18 * 18;
    all.forEach((m, i) => {
      if (!shown(m)) return;
      const d = (scaleX(m[form.elements.across.value]) - x) ** 2 + (scaleY(m[form.elements.up.value]) - y) ** 2 - m.y * 9;
      if (d < least) { least = d; found = i; }
    });
    return found;
  }
  let fixed = false;
  svg.addEventListener("pointermove", e => { if (fixed) return; const i = nearest(e); if (i >= 0) tell(i); });
  svg.addEventListener("click", e => { const i = nearest(e); fixed = i >= 0; if (fixed) tell(i); });
  svg.addEventListener("keydown", e => {
    const line = all.map((m, i) => ({m, i})).filter(o => o.m.y > 0 && shown(o.m)).sort((a, b) => a.m.s - b.m.s || a.i - b.i);
    if (!line.length) return;
    let at = line.findIndex(o => o.i === chosen);
    if (e.key === "ArrowRight" || e.key === "ArrowDown") at = Math.min(at + 1, line.length - 1);
    else if (e.key === "ArrowLeft" || e.key === "ArrowUp") at = Math.max(at - 1, 0);
    else if (e.key === "Home") at = line.findIndex(o => o.i === best);
    else if (e.key === "Escape") { fixed = false; return; }
    else return;
    e.preventDefault();
    if (at >= 0) { fixed = true; tell(line[at].i); }
  });
  form.addEventListener("input", draw);
  form.addEventListener("submit", e => e.preventDefault());
  draw();
  tell(best);
})();
