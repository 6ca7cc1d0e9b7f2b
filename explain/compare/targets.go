package compare

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// target says what a run was to keep, "" for nothing.
func (r *Run) target() string {
	if !control.Has(r.Control) {
		return ""
	}
	c := r.Control
	return fmt.Sprintf("%s over %d steps", control.GoalOf(c), c.Window)
}

// targets says what keeps runs with different targets from being compared by their staleness, "" where they had
// the same, or none.
func (doc *Comparison) targets() string {
	var said []string
	differ := false
	for _, run := range doc.Runs {
		goal := run.target()
		differ = differ || goal != doc.Runs[0].target()
		goal = cmp.Or(goal, "none")
		said = append(said, run.Name+": "+goal)
	}
	if !differ {
		return ""
	}
	return fmt.Sprintf("the targets are not the same (%s): staleness differs because it was asked to, and throughput with it", strings.Join(said, "; "))
}

// controlled says how every run kept its target, and where its settings ended.
func (doc *Comparison) controlled() report.Table {
	t := report.Table{Title: "The target, after the warm-up", Header: doc.header()}
	row := func(name string, of func(*metrics.Control) string) {
		cells, known := []string(nil), false
		for _, run := range doc.Runs {
			cell := ""
			if control.Has(run.Control) {
				cell = of(run.Control)
			}
			known = known || cell != ""
			cells = append(cells, cell)
		}
		if known {
			t.Rows = append(t.Rows, append([]string{name}, dashes(cells)...))
		}
	}
	share := func(n, of int64) string {
		if of == 0 {
			return "" // no step was judged
		}
		return report.Share(float64(n) / float64(of))
	}
	row("mean at most", func(c *metrics.Control) string { return positive(c.TargetMean, report.Short) })
	row("share at least", func(c *metrics.Control) string {
		return positive(c.TargetShare, func(s float64) string { return fmt.Sprintf("%s of %s within %d", control.Percent(s), c.Of, c.Within) })
	})
	row("over train steps", func(c *metrics.Control) string { return report.Count(int64(c.Window)) })
	row("steps held", func(c *metrics.Control) string { return share(c.HeldSteps, c.Steps) })
	row("batches held", func(c *metrics.Control) string { return share(c.HeldBatches, c.Steps) })
	row("steps judged", func(c *metrics.Control) string { return report.Count(c.Steps) })
	row("out of reach, steps", func(c *metrics.Control) string { return positive(float64(c.UnreachableSteps), report.Decimals(0)) })
	row("not measured, times", func(c *metrics.Control) string { return positive(float64(c.Silences), report.Decimals(0)) })
	row("at the end", func(c *metrics.Control) string { return control.State(c.State) })
	row("moves", func(c *metrics.Control) string { return report.Count(c.Moves) })
	for set := loop.SettingSlots; set <= loop.SettingEngines; set++ {
		row(set.String()+" at the end", func(c *metrics.Control) string { return settingAtEnd(c, set) })
	}
	return t
}

// positive prints a figure that is 0 where there is none.
func positive(v float64, print func(float64) string) string {
	if v == 0 {
		return ""
	}
	return print(v)
}

// settingAtEnd says where a setting ended that might move, and how often it did.
func settingAtEnd(c *metrics.Control, set loop.Setting) string {
	for _, s := range c.Settings {
		if s.Name != set.String() {
			continue
		}
		text := report.Short(s.Value)
		if s.Moves > 0 {
			text += fmt.Sprintf(" (%s)", report.Counted(s.Moves, "move"))
		}
		return text
	}
	return ""
}
