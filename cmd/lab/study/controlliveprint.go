package study

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// heldWantedLive is the share of settled steps in which a live run's goal should be held.
const heldWantedLive = 0.9

// clocks are an arm's rows: what it did live, where it was, and in simulation.
func (a ControlLiveArm) clocks() (names []string, scores []*ControlLiveScore) {
	if a.Live != nil {
		names, scores = append(names, "live"), append(scores, a.Live)
	}
	return append(names, "simulated"), append(scores, &a.Simulated)
}

// judged is the clock that a case is judged by: the live one, where there is one.
func (a ControlLiveArm) judged() *ControlLiveScore {
	if a.Live != nil {
		return a.Live
	}
	return &a.Simulated
}

// liveTable prints a case.
func liveTable(c ControlLiveCase) report.Table {
	t := report.Table{Title: c.title(), Header: []string{"arm", "clock", "held", "before the drift", "in it", "after it", "single batches", c.Goal.measure(), "mean staleness",
		"rollouts/s", "tokens wasted", "moves/100 steps", "swing at rest", "reward", "held-out accuracy"}}
	for _, a := range c.Arms {
		names, scores := a.clocks()
		for i, s := range scores {
			if s.Failed != "" {
				t.Rows = append(t.Rows, []string{a.Arm, names[i], "failed: " + s.Failed})
				continue
			}
			value := s.Value.print(2)
			if c.Goal.Share > 0 {
				value = percentOf(s.Value)
			}
			t.Rows = append(t.Rows, []string{a.Arm, names[i], percentOf(s.Held), percentOf(s.HeldBefore), percentOf(s.HeldDuring), percentOf(s.HeldAfter), percentOf(s.HeldBatches), value,
				s.Staleness.print(2), s.RolloutsPerS.print(0), percentOf(s.Wasted), s.Moves.print(1), percentOf(s.Swing), s.Reward.print(2), s.Accuracy.print(2)})
		}
	}
	return t
}

// title names a case.
func (c ControlLiveCase) title() string { return fmt.Sprintf("%s, goal %s", c.Drift, c.Goal) }

// measure is what the goal is about.
func (g ControlGoal) measure() string {
	if g.Share > 0 {
		return fmt.Sprintf("share within %d", g.Within)
	}
	return "mean over all"
}

// percentOf prints a share.
func percentOf(e Estimate) string {
	switch {
	case math.IsNaN(e.Mean):
		return "–"
	case math.IsNaN(e.Half):
		return fmt.Sprintf("%.1f %%", 100*e.Mean)
	}
	return fmt.Sprintf("%.1f ± %.1f %%", 100*e.Mean, 100*e.Half)
}

// breaks reports whether the drift of a case breaks the fixed setting: it keeps the goal in most
// settled steps before, and in fewer than half of those in it or after it.
func (c ControlLiveCase) breaks() bool {
	fixed := c.Arms[1].judged()
	return fixed.Failed == "" && fixed.HeldBefore.Mean > 0.5 && min(fixed.HeldDuring.Mean, fixed.HeldAfter.Mean) < 0.5
}

// Verdicts say in sentences what became of the goals.
func (r ControlLiveResult) Verdicts() (list []string) {
	for _, c := range r.Cases {
		controller, fixed, bounded := c.Arms[0].judged(), c.Arms[1].judged(), c.Arms[2].judged()
		does := "does not break the fixed setting, which holds the goal in"
		if c.breaks() {
			does = "breaks the fixed setting, which holds the goal in"
		}
		kept := "kept"
		if !(controller.Held.Mean >= heldWantedLive) {
			kept = "NOT kept"
		}
		list = append(list, fmt.Sprintf("%s: %s. The drift %s %s of settled steps; the controller in %s (at least %g %%: %s), at %s rollouts/s; AReaL's bound in %s, at %s.",
			c.title(), c.What, does, percentOf(fixed.Held), percentOf(controller.Held), 100*heldWantedLive, kept, controller.RolloutsPerS.print(0), percentOf(bounded.Held), bounded.RolloutsPerS.print(0)))
	}
	return list
}

// method says how the figures were made.
func (r ControlLiveResult) method() []string {
	list := []string{
		fmt.Sprintf("Every run is of %d train steps: %d flat, %d in which the drift goes on, and flat to the end; engines are lost after the first flat steps and back after the drift's. Seeds of every arm: %d, the same for all; means with 95 %% intervals over the seeds (Student's t).",
			r.Steps, r.BeginStep, r.DriftSteps, r.Seeds),
		fmt.Sprintf("A step is held if the goal holds over the %d steps that end with it; single batches is the share of steps whose own batch keeps it. The first %d steps, and as many after engines are lost or back, count for nothing in any arm.", r.WindowSteps, r.SettleSteps),
		"The fixed setting uses every slot, and the queue's capacity with which a simulation of the same document, without its drift, trains most rollouts a second while it holds the goal. The controller begins there. AReaL's bound admits (η + 1) batches of groups, η the goal's number of versions.",
		"Live runs decode, train and publish weights; engines and trainer keep a least time of a step, so that the machine matters little. Simulations are of the same documents with the same seeds: the lengths of answers, tool times and the times of steps are those of the document.",
		"Rollouts a second are trained ones, from the first settled step to the end. Reward is the mean of the last tenth of the steps, held-out accuracy is measured after the run, on words as long as before any drift; both are by-products of a small model.",
	}
	if r.Quick {
		list = append([]string{"This is a corner of the study, to show that it works: no result."}, list...)
	}
	if r.Seeds < 2 {
		list = append(list, "One seed is no result: no interval can be given.")
	}
	return append(list, r.Late...)
}

// ControlLiveText prints the study for a terminal.
func ControlLiveText(w io.Writer, r ControlLiveResult, from Provenance) error {
	var b strings.Builder
	b.WriteString("The controller, judged live\n")
	for _, text := range r.Verdicts() {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "\n%s", liveTable(c))
	}
	b.WriteString("\n")
	for _, text := range append(r.method(), from.line()) {
		fmt.Fprintf(&b, "! %s\n", text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ControlLiveMarkdown prints the study as a document.
func ControlLiveMarkdown(w io.Writer, r ControlLiveResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# The controller, judged live\n\n%s\n\n", from.line())
	for _, text := range r.method() {
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	b.WriteString("## At a glance\n\n")
	for _, text := range r.Verdicts() {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", c.title(), liveTable(c))
	}
	fmt.Fprintf(&b, "\n## The documents\n\nCommon to all arms:\n\n```\n%s\n```\n\n", strings.Join(r.Common, "\n"))
	for _, c := range r.Cases {
		for _, a := range c.Arms {
			fmt.Fprintf(&b, "- %s, %s: `%s`\n", c.title(), a.Arm, strings.Join(append(append([]string{}, c.Set...), a.Set...), "`, `"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ControlLiveHTML draws the study as one page that needs nothing else.
func ControlLiveHTML(w io.Writer, r ControlLiveResult, from Provenance) error {
	d := report.Document{Title: "The controller, judged live", Summary: strings.Join(r.method()[:1], " ")}
	if r.Quick || r.Seeds < 2 {
		d.Warnings = append(d.Warnings, "A corner of the study, or one seed: no result.")
	}
	d.Warnings = append(d.Warnings, r.Late...)
	d.Sections = append(d.Sections, report.Section{ID: "glance", Title: "At a glance", Findings: r.Verdicts(), Details: append(r.method(), from.line())})
	for i, c := range r.Cases {
		d.Sections = append(d.Sections, liveSection(i, c, r))
	}
	return report.DocumentHTML(w, d)
}

// liveSection draws a case: what is measured beside the goal, and the settings.
func liveSection(i int, c ControlLiveCase, r ControlLiveResult) report.Section {
	id := fmt.Sprintf("case-%d", i+1)
	measured := report.Plot{ID: id + "-goal", Title: "The goal over the window: " + c.title(), XLabel: "train step", YLabel: "staleness, versions",
		Description: "What every arm measured over the window of steps, with the first seed, beside the goal."}
	goal := c.Goal.Mean
	if c.Goal.Share > 0 {
		measured.YLabel, goal = "share", c.Goal.Share
		measured.YMin, measured.YMax = 0.5, 1
	}
	settings := report.Plot{ID: id + "-settings", Title: "The controller's settings: " + c.title(), XLabel: "train step", YLabel: "groups, slots",
		Description: "The settings that move over the run with the first seed, live and simulated."}
	for _, a := range c.Arms {
		names, scores := a.clocks()
		for k, s := range scores {
			if s.Failed != "" || a.Arm != armController && a.Live != nil && names[k] == "simulated" {
				continue
			}
			measured.Series = append(measured.Series, stepsOf(a.Arm+", "+names[k], s.Trace.Window, r.WindowSteps-1))
			if a.Arm == armController {
				settings.Series = append(settings.Series, stepsOf("live groups, "+names[k], s.Trace.LiveGroups, 0))
				if slots := s.Trace.Slots; len(slots) > 0 && slices.Min(slots) != slices.Max(slots) {
					settings.Series = append(settings.Series, stepsOf("slots, "+names[k], slots, 0))
				}
			}
		}
	}
	measured.Series = append(measured.Series, report.Series{Name: "goal", X: []float64{1, float64(r.Steps)}, Y: []float64{goal, goal}})
	phases := fmt.Sprintf("The drift goes on from step %d to %d.", r.BeginStep, r.BeginStep+r.DriftSteps)
	return report.Section{ID: id, Title: c.title(), Text: []string{"Here " + c.What + "."}, Plots: []report.Plot{measured, settings},
		Captions: []string{phases, phases + " A move is an event of the log, with its reason."}, Tables: []report.Table{liveTable(c)}}
}

// stepsOf is a line over train steps from one on.
func stepsOf(name string, y []float64, from int) report.Series {
	s := report.Series{Name: name}
	for i := from; i < len(y); i++ {
		s.X, s.Y = append(s.X, float64(i+1)), append(s.Y, y[i])
	}
	return s
}
