package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Names of the figures that decide between runs.
const (
	stalenessKey  = "staleness_mean"
	periodKey     = "period_s"
	throughputKey = "consumption_rollouts_per_wall_s"
)

// settingsShown is how many differing settings an answer names of a run.
const settingsShown = 4

// First says which run to take, and what each of the others would buy instead of the first.
func (doc *Comparison) First() report.Answer {
	a := report.Answer{Verdict: doc.verdict(), Notes: doc.Warnings, Rest: "--full has all settings and figures side by side, --json all."}
	for i, run := range doc.Runs[1:] {
		a.Advice = append(a.Advice, report.Advice{Do: run.Name + " instead of " + doc.Runs[0].Name + doc.differs(i+1), Buys: buys(run)})
	}
	return a
}

// verdict names the freshest run and the one that trains most.
func (doc *Comparison) verdict() string {
	if len(doc.Runs) == 1 {
		return doc.Runs[0].says()
	}
	fresh := doc.best(stalenessKey, func(a, b float64) bool { return a < b })
	fast := doc.best(throughputKey, func(a, b float64) bool { return a > b })
	var parts []string
	if fresh != nil {
		parts = append(parts, fmt.Sprintf("freshest is %s, staleness %s", fresh.Name, report.Figure(fresh.Figures[stalenessKey].Value, 2)))
	}
	if fast != nil {
		parts = append(parts, fmt.Sprintf("fastest is %s, %s rollouts/s trained", fast.Name, report.Short(fast.Figures[throughputKey].Value)))
	}
	if len(parts) == 0 {
		return "Neither staleness nor throughput differs, or is known of every run."
	}
	text := strings.Join(parts, "; ") + "."
	return report.Capital(text)
}

// says is a run's own figures in a sentence.
func (r *Run) says() string {
	var parts []string
	for _, f := range []struct{ key, form string }{{stalenessKey, "staleness %s"}, {throughputKey, "%s rollouts/s trained"}, {periodKey, "an update every %s s"}} {
		if known, ok := r.Figures[f.key]; ok {
			parts = append(parts, fmt.Sprintf(f.form, report.Short(known.Value)))
		}
	}
	if len(parts) == 0 {
		return r.Name + ": neither staleness nor throughput is known."
	}
	return r.Name + ": " + strings.Join(parts, ", ") + "."
}

// best is the run with the best of a figure; nil where a run lacks it or all have the same.
func (doc *Comparison) best(key string, better func(a, b float64) bool) *Run {
	best, differ := doc.Runs[0], false
	for _, run := range doc.Runs {
		f, ok := run.Figures[key]
		if !ok {
			return nil
		}
		differ = differ || f.Value != best.Figures[key].Value
		if better(f.Value, best.Figures[key].Value) {
			best = run
		}
	}
	if !differ {
		return nil
	}
	return best
}

// differs names what is set otherwise in a run than in the first, "" for nothing.
func (doc *Comparison) differs(i int) string {
	var list []string
	for _, s := range doc.Settings {
		if s.Values[i] != s.Values[0] && s.Values[i] != "" {
			list = append(list, s.Key+"="+s.Values[i])
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.SortStableFunc(list, func(a, b string) int { return rulesFirst(a) - rulesFirst(b) })
	if left := len(list) - settingsShown; left > 0 {
		list = append(list[:settingsShown], fmt.Sprintf("and %d more", left))
	}
	return ": " + strings.Join(list, ", ")
}

// rulesFirst puts what decides staleness before the rest.
func rulesFirst(setting string) int {
	for i, section := range []string{"queue.", "rollout.", "train.", "sync.", "schedule", "control."} {
		if strings.HasPrefix(setting, section) {
			return i
		}
	}
	return 9
}

// buys are a run's differences from the first: what is better, and with what that is worse.
func buys(run *Run) string {
	var better, worse []string
	for _, f := range []struct {
		name, key string
		print     func(float64) string
		sign      float64 // of what is better
	}{
		{"staleness", stalenessKey, report.Decimals(2), -1}, {"rollouts/s trained", throughputKey, report.Short, 1},
		{"period", periodKey, report.Short, -1}, {"reward", "reward", report.Decimals(3), 1},
	} {
		figure, ok := run.Figures[f.key]
		if !ok || figure.Difference == nil {
			continue
		}
		now, before := f.print(figure.Value), f.print(figure.Value-*figure.Difference)
		if now == before {
			continue
		}
		doubt := ""
		if d := figure.Difference95; d != nil && d[0] <= 0 && d[1] >= 0 {
			doubt = " (may be chance)"
		}
		text := fmt.Sprintf("%s %s instead of %s%s", f.name, now, before, doubt)
		if *figure.Difference*f.sign > 0 {
			better = append(better, text)
		} else {
			worse = append(worse, text)
		}
	}
	if len(worse) == 0 {
		return strings.Join(better, ", ")
	}
	return cmp.Or(strings.Join(better, ", "), "nothing") + ", with " + strings.Join(worse, ", ")
}
