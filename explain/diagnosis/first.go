package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// First says how a run stands, and what to do about its findings. Defects come first, then changes with their
// gain, then costs without a known remedy.
func First(r Report) report.Answer {
	a := report.Answer{Verdict: verdict(r), Rest: "--full has figures, all findings and their conditions, --json all."}
	order := func(f *Finding) int {
		switch {
		case f.Severity == severityDefect:
			return 0
		case f.Change != nil:
			return 1
		}
		return 2
	}
	findings := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Code == "dominant_source" })
	slices.SortStableFunc(findings, func(x, y Finding) int { return order(&x) - order(&y) })
	if r.Asynchrony != nil {
		a.Advice = append(a.Advice, r.Asynchrony.advice())
		a.Notes = append(a.Notes, boundsNote)
		if !r.Settled.OK {
			a.Notes = append(a.Notes, settledText(r.Settled)+".")
		}
	}
	var said []string
	for i := range findings {
		f := &findings[i]
		if f.Change == nil {
			a.Advice = append(a.Advice, report.Advice{Do: f.Title, Why: strings.Join(f.Evidence[:min(len(f.Evidence), 1)], ""), Buys: prefixed("no setting: ", f.NoSetting)})
			continue
		}
		if do := changeText(f.Change); !slices.Contains(said, do) {
			said = append(said, do)
			a.Advice = append(a.Advice, report.Advice{Do: do, Buys: gainText(f.Change) + "; " + methodWords[f.Change.Method], Price: f.Change.Price})
		}
	}
	if len(a.Advice) == 0 && r.Settled.OK {
		a.Notes = append(a.Notes, "no change of a setting would surely lower the staleness or the time of a step.")
	}
	if r.Log != nil {
		for _, warning := range r.Log.Warnings {
			a.Notes = append(a.Notes, warning.String())
		}
	}
	return a
}

// boundsNote says what the figures of asynchrony are worth.
const boundsNote = "Bounds by closed forms, no forecast: headway plan --model M --gpu G --gpus N, which knows their speeds, narrows them."

// verdict is how a run stands: its figures and the largest source of its staleness, or why it cannot be judged.
func verdict(r Report) string {
	if r.Asynchrony != nil {
		return fmt.Sprintf("Synchronous: engines and trainer take turns on the same GPUs, and nothing is stale. A step takes %s s: %s.", report.Short(r.Asynchrony.StepS), r.Asynchrony.parts())
	}
	if !r.Settled.OK {
		return report.Capital(settledText(r.Settled)) + "."
	}
	var parts []string
	said := map[string]bool{} // a figure may be predicted in several ways
	for _, c := range r.Compared {
		if said[c.What] {
			continue
		}
		said[c.What] = true
		switch c.What {
		case "staleness_mean":
			parts = append(parts, fmt.Sprintf("staleness %s versions", report.Figure(c.Measured, 2)))
		case "period_s":
			parts = append(parts, fmt.Sprintf("a train step every %s s", report.Figure(c.Measured, 3)))
		case "trainer_idle_ratio":
			parts = append(parts, fmt.Sprintf("the trainer idle %s of the time", report.Share(c.Measured)))
		}
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = settledText(r.Settled)
	}
	text = report.Capital(text) + "."
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Code == "dominant_source" {
			text += " " + f.Title
		}
	}
	return text
}

// prefixed puts a word before a text, unless there is none.
func prefixed(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}
