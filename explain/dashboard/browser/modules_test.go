package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// openModules opens the pages' folder without a run behind it, for tests of single modules.
func openModules(t *testing.T) *tab {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir("../assets")))
	t.Cleanup(server.Close)
	p := openTab(t, wide, server.URL+"/README.md")
	p.allowed = func(problem string) bool { return strings.Contains(problem, "favicon") }
	return p
}

// say evaluates the body of an async function in the page, which returns complaints.
func (p *tab) say(body string) {
	p.t.Helper()
	for _, complaint := range eval[[]string](p, "(async () => { const wrong = []; const same = (what, got, want) => { const a = JSON.stringify(got), b = JSON.stringify(want); if (a !== b) wrong.push(`${what}: ${a}, want ${b}`); };"+body+"; return wrong; })()") {
		p.t.Error(complaint)
	}
}

// Events are whole whatever the pieces that a network makes of them.
func TestEventsInPieces(t *testing.T) {
	openModules(t).say(`
		const { eventParser } = await import("/core/api.js");
		const text = 'event: summary\ndata: {"a":\ndata: 1}\n\n: alive\n\ndata: x\r\n\r\nevent: step\ndata: last\n\nevent: cut\ndata: off';
		for (let size = 1; size <= text.length; size++) {
			const got = [], parse = eventParser((event, data) => got.push([event, data]));
			for (let at = 0; at < text.length; at += size) parse(text.slice(at, at + size));
			same("pieces of " + size, got, [["summary", '{"a":\n1}'], ["message", "x"], ["step", "last"]]);
		}`)
}

// The series takes what is newer once, says when it has a gap or is full, and stays bounded.
func TestSeriesIsBounded(t *testing.T) {
	openModules(t).say(`
		const { SeriesBuffer } = await import("/core/series.js");
		const buffer = new SeriesBuffer();
		buffer.replace({ step: [1, 2], time_s: [0.1, 0.2], columns: { reward: [0.5, null] } });
		same("has", [buffer.has("reward"), buffer.has("none"), buffer.last("reward")], [true, false, 0.5]);
		same("whole", buffer.append({ step: [2, 3], time_s: [9, 0.3], columns: { reward: [9, 0.7], late: [9, 1] } }), true);
		same("steps", buffer.step, [1, 2, 3]);
		same("reward", buffer.column("reward"), [0.5, null, 0.7]);
		same("a column that came late", buffer.column("late"), [null, null, 1]);
		same("nothing new", buffer.append({ step: [3], time_s: [0.3], columns: {} }), true);
		same("a gap", buffer.append({ step: [40], time_s: [4], columns: {} }), false);
		same("one length", [...buffer.columns.values()].map(column => column.length), [4, 4]);
		let whole = true, steps = 41;
		for (; whole && steps < 10000; steps++) whole = buffer.append({ step: [steps], time_s: [steps], columns: { reward: [1] } });
		same("full before 2000 points", whole || steps > 2000, false);
		same("empty answers", (buffer.replace({ step: null, time_s: null, columns: null }), buffer.length), 0);`)
}

func TestRunningMeanOfGaps(t *testing.T) {
	openModules(t).say(`
		const { runningMean, smoothing } = await import("/core/plot.js");
		same("window 1", runningMean([1, null, 3], 1), [1, null, 3]);
		same("window 3", runningMean([0, 3, null, 9, 12], 3), [1.5, 1.5, null, 10.5, 10.5]);
		same("wider than all", runningMean([2, 4], 9), [3, 3]);
		same("windows are odd", [10, 100, 799, 1600].map(n => smoothing(n) % 2), [1, 1, 1, 1]);`)
}

// An engine counts its slots, not the row of its weights among them; others count their rows.
func TestAnEngineCountsItsSlots(t *testing.T) {
	openModules(t).say(`
		const { layOut } = await import("/views/timeline_layout.js");
		const track = (id, kind, group) => ({ id, name: kind + id, kind, row: "rollout", group });
		const tracks = [track(0, "weights", "engine-0"), track(1, "slot", "engine-0"), track(2, "slot", "engine-0"), track(3, "environment", "env"), track(4, "environment", "env")];
		for (const folded of [new Set(), new Set(["engine-0", "env"])]) same("counts", layOut(tracks, folded).headings.filter(h => h.group).map(h => h.group + " " + h.count), ["engine-0 2", "env 2"]);`)
}

func TestFiguresAsText(t *testing.T) {
	openModules(t).say(`
		const f = await import("/core/format.js");
		const plain = text => text.replaceAll("\u00a0", " ");
		same("short", [0, 0.0004, 0.0312, 4.5, 45.2, 187, 9999, 13368, 2.5e6, NaN, null].map(n => plain(f.short(n))), ["0", "4.0e−4", "0.031", "4.50", "45.2", "187", "9999", "13.4 k", "2.5 M", "–", "–"]);
		same("percent", [0, 0.005, 0.0994, 0.55, 1].map(n => plain(f.percent(n))), ["0 %", "0.5 %", "9.9 %", "55 %", "100 %"]);
		same("lasting", [0, 2e-5, 0.0054, 0.2, 9.5, 59, 130, 4000, 200000].map(n => plain(f.lasting(n))), ["0 s", "20 µs", "5.4 ms", "200 ms", "9.5 s", "59 s", "2 min 10 s", "1 h 6 min", "2 d 7 h"]);
		same("signed", [0.5, -0.5, -0.0001, 0].map(n => f.signed(n)), ["+0.50", "−0.50", "0.00", "0.00"]);
		same("version", [f.version(17), f.version(-1)], ["v17", "–"]);`)
}

// Text on every tint can be read (4.5 and more) in both themes, and newer versions are always lighter.
func TestColoursCanBeReadAndOrdered(t *testing.T) {
	openModules(t).say(`
		const { tint, versionRamp, oklch } = await import("/core/colour.js");
		const sheet = await (await fetch("/theme.css")).text();
		const light = value => { const x = value / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; };
		const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
		const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
		const hex = text => [1, 3, 5].map(at => parseInt(text.length === 4 ? text[(at + 1) / 2].repeat(2) : text.slice(at, at + 2), 16));
		const numbers = text => text.match(/\d+/g).map(Number);
		const themes = [...sheet.matchAll(/--ink: (#\w+); --quiet: (#\w+); --paper: (#\w+); --card: (#\w+); --sunk: (#\w+)/g)];
		same("themes in the sheet", themes.length, 3);
		for (const [at, [, ink, quiet, ...grounds]] of themes.entries()) {
			for (const ground of grounds) for (const text of [ink, quiet])
				if (contrast(hex(text), hex(ground)) < 4.5) wrong.push(text + " on " + ground + " has a contrast of " + contrast(hex(text), hex(ground)).toFixed(2));
			for (const hue of [25, 60, 255]) for (let strength = 0; strength <= 1; strength += 0.1) {
				const ground = numbers(tint(hue, strength, at > 0));
				if (contrast(hex(ink), ground) < 4.5) wrong.push("ink " + ink + " on " + ground + " has a contrast of " + contrast(hex(ink), ground).toFixed(2));
			}
		}
		const ramp = versionRamp(32).map(luminance);
		same("the ramp only gets lighter", ramp.every((value, i) => i === 0 || value > ramp[i - 1]), true);
		same("black, white", [oklch(0, 0, 0), oklch(1, 0, 0)], [[0, 0, 0], [255, 255, 255]]);`)
}
