package diagnosis

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/report"
)

// Text prints a diagnosis for a terminal of so many columns: figures, findings, gaps of the log.
func Text(r Report, columns int) string {
	var b strings.Builder
	b.WriteString(report.Indented("", fmt.Sprintf("%s (%s)", r.Run, r.Source), columns) + report.Indented("", settledText(r.Settled), columns))
	for _, table := range diagnosisTables(r) {
		b.WriteString("\n" + table.Fit(columns))
	}
	for _, line := range asynchronyLines(r.Asynchrony) {
		b.WriteString(report.Indented("  - ", line, columns))
	}
	fmt.Fprintf(&b, "\n%s\n", findingsTitle(r))
	for i := range r.Findings {
		b.WriteString(findingText(i+1, &r.Findings[i], columns))
	}
	if r.Log != nil {
		for i, line := range logLines(r.Log) {
			if i == 0 {
				b.WriteString("\n" + report.Indented("", line, columns))
			} else {
				b.WriteString(report.Indented("  - ", line, columns))
			}
		}
	}
	for i, note := range r.Warnings { // apart from the last finding: they hold of the whole diagnosis
		if i == 0 {
			b.WriteString("\nnotes\n")
		}
		b.WriteString(report.Indented("  - ", note, columns))
	}
	return b.String()
}

// settledText says whether the run can be judged.
func settledText(s Settled) string {
	if s.OK {
		return fmt.Sprintf("settled: judged over %s train steps, from step %s on", report.Count(s.Steps), report.Count(s.FromStep+1))
	}
	text := "not settled, so that its means are not judged: " + s.Why
	if s.MoreSteps > 0 {
		return fmt.Sprintf("%s; about %s steps more should do", text, report.Count(estimate.Rounded(float64(s.MoreSteps))))
	}
	return text
}

func findingsTitle(r Report) string {
	switch {
	case len(r.Findings) == 0 && r.Settled.OK:
		return "nothing found that a change of settings would surely improve"
	case len(r.Findings) == 0:
		return "nothing found yet"
	case !r.Settled.OK && len(r.Findings) == 1:
		return "1 finding that needs no steady state:"
	case !r.Settled.OK:
		return report.Counted(len(r.Findings), "finding") + " that need no steady state:"
	}
	return report.Counted(len(r.Findings), "finding") + ", the dearest first:"
}

// findingText is one finding with what to do about it.
func findingText(n int, f *Finding, columns int) string {
	var b strings.Builder
	label := fmt.Sprintf("%d. ", n)
	b.WriteString("\n" + report.Indented(label, fmt.Sprintf("%s [%s]", f.Title, f.Code), columns))
	line := func(word, text string) {
		if text != "" {
			b.WriteString(report.Indented(fmt.Sprintf("   %-6s ", word), text, columns))
		}
	}
	line("cost", costText(f))
	for i, evidence := range f.Evidence {
		word := "seen"
		if i > 0 {
			word = ""
		}
		line(word, evidence)
	}
	if c := f.Change; c != nil {
		line("do", changeText(c))
		line("buys", boughtText(c))
		line("price", c.Price)
	} else {
		line("do", prefixed("no setting: ", f.NoSetting))
	}
	line("unless", f.Fails)
	return b.String()
}

// costText says what a finding costs.
func costText(f *Finding) string {
	var parts []string
	if f.CostVersions >= 0.005 {
		parts = append(parts, report.Figure(f.CostVersions, 2)+" versions")
	}
	if f.CostRatio >= 0.005 {
		parts = append(parts, report.Share(f.CostRatio)+" of the time or of the work")
	}
	if f.Severity == "defect" {
		parts = append(parts, "something is broken")
	}
	return strings.Join(parts, ", ")
}

// changeText says what to set.
func changeText(c *Change) string {
	if len(c.Overrides) == 0 {
		return c.Set
	}
	return "--set " + strings.Join(c.Overrides, " --set ")
}

// methodWords say how a figure was come by.
var methodWords = map[string]string{"closed_form": "by the closed form", "simulation": "by simulation", "resimulation": "by resimulation", "before_the_run": "before the run"}

// boughtText says what a change buys, and under which condition.
func boughtText(c *Change) string {
	text := gainText(c) + "; " + methodWords[c.Method]
	if c.HoldsFixed != "" {
		text += ", with " + c.HoldsFixed + " held"
	}
	return text
}

// gainText says what a change buys.
func gainText(c *Change) string {
	text := fmt.Sprintf("staleness %s, %s", report.Figure(c.StalenessMean, 2), lessOrMore(c.Gain))
	if c.GainHigh > c.GainLow {
		low, high := c.GainLow, c.GainHigh
		if c.Gain < 0 { // said as what is more
			low, high = -high, -low
		}
		text += fmt.Sprintf(" (95 %%: %s to %s)", report.Share(low), report.Share(high))
	}
	return text + fmt.Sprintf("; period × %s", report.Figure(c.PeriodRatio, 3))
}

func lessOrMore(gain float64) string {
	if gain < 0 {
		return report.Share(-gain) + " more"
	}
	return report.Share(gain) + " less"
}

// diagnosisTables are the figures of a diagnosis.
func diagnosisTables(r Report) []report.Table {
	tables := []report.Table{comparedTable(r.Compared), fittedTable(r.Fitted), attributionTable(r), idleTable(r), driftTable(r.Drift)}
	if r.Asynchrony != nil {
		tables = append([]report.Table{r.Asynchrony.table()}, tables...)
	}
	kept := tables[:0]
	for _, t := range tables {
		if len(t.Rows) > 0 {
			kept = append(kept, t)
		}
	}
	return kept
}

var figureWords = map[string]string{"staleness_mean": "staleness, mean", "staleness_p95": "staleness, p95", "pqs": "pre-queue (PQS)", "iqs": "in-queue (IQS)",
	"period_s": "train period, s", "trainer_idle_ratio": "trainer idle", "rollout_idle_ratio": "engines idle"}

func comparedTable(list []Comparison) report.Table {
	t := report.Table{Title: "measured beside predicted", Header: []string{"", "measured", "±", "predicted", "off", "how"}}
	for _, c := range list {
		show := func(v float64) string { return report.Figure(v, 3) }
		if strings.HasSuffix(c.What, "_ratio") {
			show = report.Share
		}
		half, off := "", ""
		if c.Half > 0 {
			half = show(c.Half)
		}
		if c.Measured != 0 && !strings.HasSuffix(c.What, "_ratio") {
			off = report.Share(c.Predicted/c.Measured - 1)
		}
		t.Rows = append(t.Rows, []string{figureWords[c.What], show(c.Measured), half, show(c.Predicted), off, methodWords[c.Method]})
	}
	return t
}

func fittedTable(f Fitted) report.Table {
	t := report.Table{Title: "fitted", Header: []string{"", "value", "known by"}}
	for _, row := range []struct {
		name     string
		figure   foreign.Figure
		decimals int
	}{
		{"concurrency C, rollouts", f.Concurrency, 0}, {"batch B, rollouts", f.Batch, 0}, {"group size S", f.GroupSize, 0}, {"queue factor q", f.QueueFactor, 2},
		{"tail multiplier M", f.TailMultiplier, 3}, {"utilization ρ", f.Utilization, 3}, {"acceptance", f.Acceptance, 3}, {"train step, s", f.StepS, 4},
		{"variation of the step", f.StepVariation, 3}, {"weight sync, s", f.SyncS, 4}, {"environment over decoding e", f.EnvironmentRatio, 3}, {"variation of arrivals c", f.VariationArrivals, 2},
	} {
		if row.figure.Known() {
			t.Rows = append(t.Rows, []string{row.name, report.Figure(row.figure.Value, row.decimals), strings.TrimSuffix(string(row.figure.Origin)+": "+row.figure.From, ": ")})
		}
	}
	return t
}

func attributionTable(r Report) report.Table {
	t := report.Table{Title: "where staleness comes from", Header: []string{"", "versions", "share"}}
	if r.Attribution == nil || !r.Settled.OK {
		return t
	}
	for _, p := range r.Attribution.Parts {
		t.Rows = append(t.Rows, []string{strings.ReplaceAll(p.Source, "_", " "), report.Figure(p.Versions, 3), report.Share(p.Share)})
	}
	return t
}

func idleTable(r Report) report.Table {
	t := report.Table{Title: "what was waited for", Header: []string{"", "starved", "syncing", "validating", "paused", "blocked", "idle in all"}}
	if r.Attribution == nil {
		return t
	}
	e := r.Attribution.Engines
	for _, row := range []struct {
		name                                                   string
		starved, syncing, validating, paused, blocked, allTold float64
	}{
		{"trainer", r.Attribution.Trainer.Starved, r.Attribution.Trainer.Syncing, r.Attribution.Trainer.Validating, r.Attribution.Trainer.Paused, r.Attribution.Trainer.Blocked, r.Attribution.Trainer.Total},
		{"engines", e.Starved, e.Syncing, e.Validating, e.Paused, e.Blocked, e.Total},
	} {
		t.Rows = append(t.Rows, []string{row.name, report.Share(row.starved), report.Share(row.syncing), report.Share(row.validating), report.Share(row.paused), report.Share(row.blocked), report.Share(row.allTold)})
	}
	return t
}

func driftTable(list []Drift) report.Table {
	t := report.Table{Title: "drift over the judged steps", Header: []string{"", "first quarter", "last quarter", "", "means"}}
	for _, d := range list {
		sure := "no more than chance"
		if d.Sure {
			sure = "moves"
		}
		t.Rows = append(t.Rows, []string{strings.ReplaceAll(d.What, "_", " "), report.Figure(d.First, 3), report.Figure(d.Last, 3), sure, d.Means})
	}
	return t
}

// logLines say what a foreign log is of, then what it lacks and what was inferred of it.
func logLines(log *foreign.Log) []string {
	lines := []string{fmt.Sprintf("the log, of %s: %s", log.Framework, log.Definition)}
	for _, m := range log.Missing {
		text := fmt.Sprintf("not known: %s: %s", m.What, m.Why)
		if m.Get != "" {
			text += fmt.Sprintf(" (%s)", m.Get)
		}
		lines = append(lines, text)
	}
	for _, text := range log.Inferred {
		lines = append(lines, "inferred: "+text)
	}
	for _, warning := range log.Warnings {
		lines = append(lines, warning.String())
	}
	return lines
}

// Page is a diagnosis as a page.
func Page(r Report) report.Document {
	d := report.Document{Title: "Diagnosis of " + r.Run, Summary: settledText(r.Settled), Warnings: r.Warnings}
	findings := report.Section{ID: "findings", Title: "Findings", Source: "those that are broken first, then the dearest"}
	for i := range r.Findings {
		f := &r.Findings[i]
		rows := [][]string{}
		add := func(name, text string) {
			if text != "" {
				rows = append(rows, []string{name, text})
			}
		}
		add("cost", costText(f))
		add("seen", strings.Join(f.Evidence, "; "))
		if f.Change != nil {
			add("do", changeText(f.Change))
			add("buys", boughtText(f.Change))
			add("price", f.Change.Price)
		} else {
			add("do", prefixed("no setting: ", f.NoSetting))
		}
		add("unless", f.Fails)
		findings.Tables = append(findings.Tables, report.Table{Title: fmt.Sprintf("%d. %s", i+1, f.Title), Rows: rows})
	}
	if len(r.Findings) == 0 {
		findings.Text = []string{findingsTitle(r)}
	}
	figures := report.Section{ID: "figures", Title: "Figures", Tables: diagnosisTables(r)}
	d.Sections = []report.Section{findings, figures}
	if r.Log != nil {
		d.Sections = append(d.Sections, report.Section{ID: "log", Title: "The log", Text: []string{r.Log.Definition}, Findings: logLines(r.Log)[1:]})
	}
	return d
}
