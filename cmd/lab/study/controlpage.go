package study

import (
	"fmt"
	"io"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// ControlCurve is a simulation as a picture has it: a value every few train steps.
type ControlCurve struct {
	// Steps are the train steps, Value the goal's over the window that ends with each.
	Steps []float64 `json:"steps"`
	Value []float64 `json:"value"`
	// Slots, Live and Hold are the settings then.
	Slots []float64 `json:"slots"`
	Live  []float64 `json:"live"`
	Hold  []float64 `json:"hold"`
}

// curveEvery is how many train steps are between two points of a curve.
const curveEvery = 3

// curveOf thins a series.
func curveOf(s *controlSeries, g ControlGoal) *ControlCurve {
	_, window := g.values(s)
	c := &ControlCurve{}
	for i := controlWindow - 1; i < len(window); i += curveEvery {
		c.Steps, c.Value = append(c.Steps, float64(i+1)), append(c.Value, window[i])
		v := s.values[i]
		c.Slots, c.Live, c.Hold = append(c.Slots, v[loop.SettingSlots]), append(c.Live, v[loop.SettingLive]), append(c.Hold, v[loop.SettingHold])
	}
	return c
}

// ControlHTML draws the study: for every drift and world what is measured beside the goal, and the settings below.
func ControlHTML(w io.Writer, r ControlResult, from Provenance) error {
	d := report.Document{Title: "The controller, judged in simulation", Summary: from.line()}
	if r.Quick {
		d.Warnings = append(d.Warnings, "This is a corner of the study, to show that it works: no result.")
	}
	for i, drift := range driftsOf(r) {
		section := report.Section{ID: "drift-" + drift, Title: driftTitle(drift),
			Source: fmt.Sprintf("The first seed's runs. The drift goes on from step %d to %d; measured over the %d steps that end with each.", r.BeginStep, r.BeginStep+r.DriftSteps, r.WindowSteps)}
		for k, c := range r.Cases {
			if c.Drift != drift {
				continue
			}
			section.Plots = append(section.Plots, c.measuredPlot(fmt.Sprintf("measured-%d", k)), c.settingsPlot(fmt.Sprintf("settings-%d", k)))
		}
		section.Tables = append(section.Tables, driftTable(r, drift))
		d.Sections = append(d.Sections, section)
		if i == 0 {
			d.Headline = headline(r)
		}
	}
	return report.DocumentHTML(w, d)
}

// driftTitle is what a drift changes, as a heading.
func driftTitle(name string) string {
	i := slices.IndexFunc(ControlDrifts, func(d ControlDrift) bool { return d.Name == name })
	if i < 0 {
		return name
	}
	return report.Capital(ControlDrifts[i].What)
}

// headline counts what is wanted of the controller.
func headline(r ControlResult) []report.Row {
	cases, good := 0, 0
	for _, c := range r.Cases {
		if c.Reachable {
			cases++
			if c.arm(armController).meets() {
				good++
			}
		}
	}
	return []report.Row{{Name: "cases in which the controller holds, keeps throughput and rests", Value: fmt.Sprintf("%d of %d", good, cases)}, {Name: "seeds", Value: fmt.Sprint(r.Seeds)}}
}

// measuredPlot has every arm's value over the window, and the goal.
func (c ControlCase) measuredPlot(id string) report.Plot {
	p := report.Plot{ID: id, Title: fmt.Sprintf("%s, %s", c.World, c.Goal), XLabel: "train step", YLabel: "staleness in versions",
		Description: fmt.Sprintf("What each arm measures over its window under drift %s, and the goal %s.", c.Drift, c.Goal)}
	if c.goal.Share > 0 {
		p.YLabel = "share within the goal's versions"
		p.YMin, p.YMax = max(c.goal.Share-0.3, 0), 1
	}
	for _, a := range c.Arms {
		if a.Curve != nil {
			p.Series = append(p.Series, report.Series{Name: a.Arm, X: thinned(a.Curve.Steps), Y: thinned(a.Curve.Value)})
			if len(p.Series) == 1 {
				p.Series = append(p.Series, report.Series{Name: "goal", X: []float64{a.Curve.Steps[0], a.Curve.Steps[len(a.Curve.Steps)-1]}, Y: []float64{c.target(), c.target()}})
			}
		}
	}
	return p
}

// drawnMost is about how many points of a curve are drawn: a page has hundreds of them.
const drawnMost = 100

// thinned leaves points out.
func thinned(values []float64) (kept []float64) {
	every := max((len(values)+drawnMost-1)/drawnMost, 1)
	for i := 0; i < len(values); i += every {
		kept = append(kept, values[i])
	}
	return kept
}

// target is the goal's number.
func (c ControlCase) target() float64 {
	if c.goal.Share > 0 {
		return c.goal.Share
	}
	return c.goal.Mean
}

// settingsPlot has the live groups and slots of the arms that move them.
func (c ControlCase) settingsPlot(id string) report.Plot {
	p := report.Plot{ID: id, Title: fmt.Sprintf("%s, %s: settings", c.World, c.Goal), XLabel: "train step", YLabel: "slots, or live groups",
		Description: fmt.Sprintf("How the controller, the oracle and AIMD set slots and live groups under drift %s.", c.Drift)}
	for _, name := range []string{armController, armOracle, armAIMD} {
		curve := c.arm(name).Curve
		if curve == nil {
			continue
		}
		p.Series = append(p.Series, report.Series{Name: name + ", slots", X: thinned(curve.Steps), Y: thinned(curve.Slots)})
		if name != armAIMD {
			p.Series = append(p.Series, report.Series{Name: name + ", live groups", X: thinned(curve.Steps), Y: thinned(curve.Live)})
		}
	}
	return p
}

// driftTable is a drift's cases, arm by arm.
func driftTable(r ControlResult, drift string) report.Table {
	t := report.Table{Header: []string{"world", "goal", "arm", "held", "batches", "throughput over oracle's", "mean staleness", "swing", "of the worst seed", "wasted"}}
	for _, c := range r.Cases {
		if c.Drift != drift {
			continue
		}
		for _, a := range c.Arms {
			t.Rows = append(t.Rows, []string{c.World, c.Goal, a.Arm, a.Held.percent(), a.HeldBatches.percent(), a.through(), a.Staleness.print(2), shareText(a.Swing.Mean), shareText(a.SwingWorst), shareText(a.Wasted.Mean)})
		}
	}
	return t
}
