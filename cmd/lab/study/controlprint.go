package study

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// ControlMarkdown prints the study as a document.
func ControlMarkdown(w io.Writer, r ControlResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# The controller, judged in simulation\n\n%s\n\n", from.line())
	if r.Quick {
		b.WriteString("**This is a corner of the study, to show that it works: no result.**\n\n")
	}
	fmt.Fprintf(&b, "%d seeds of every arm, the same for all, %d train steps each: %d flat, %d in which the drift goes on, and flat to the end. "+
		"A step is held if the goal holds over the %d steps that end with it; *batches* is the share of steps whose own batch keeps it. "+
		"The first %d steps, and as many after an abrupt change, count for nothing in any arm: two windows, since what was there before is in the first of them, and what was started before is trained a few versions later. "+
		"Throughput is trained rollouts per second from there to the end, over the oracle's with the same seed; ± is half of Student's 95 %% interval over the seeds. "+
		"Swing is how far slots, live groups or queue are from their mean at rest, at the most (the worst of the three), that of hold in shares of a train period: a mean over the seeds, and beside it that of the worst seed.\n\n",
		r.Seeds, r.Steps, r.BeginStep, r.DriftSteps, r.WindowSteps, r.SettleSteps)
	if r.Seeds < 2 {
		b.WriteString("**One seed is no result: no interval can be given.**\n\n")
	}
	writeWorst(&b, r)
	writeShort(&b, r)
	writeFindings(&b, r)
	writeControlHow(&b, r)
	for _, c := range r.Cases {
		writeControlCase(&b, c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Bounds that the controller is judged by.
const (
	heldWanted       = 0.95
	throughputWanted = 0.95
	swingWanted      = 0.10
)

// arm returns an arm of a case.
func (c ControlCase) arm(name string) ControlArm {
	return c.Arms[slices.IndexFunc(c.Arms, func(a ControlArm) bool { return a.Arm == name })]
}

// notJudged is what stands for the throughput of a rule that has no staleness to hold.
const notJudged = "n/a"

// judged reports whether an arm's throughput is judged: AIMD has no staleness signal, so that it neither keeps nor
// breaks a goal on purpose, and what it gains by keeping out of a full cache is not simulated.
func (a ControlArm) judged() bool { return a.Arm != armAIMD }

// through is the throughput over the oracle's.
func (a ControlArm) through() string {
	if !a.judged() {
		return notJudged
	}
	return a.OverOracle.percent()
}

// armWorst is how an arm does in the worst of some cases.
type armWorst struct {
	held, batches, through, swing, seed float64
	cases, good, every                  int
}

// armWorstOf goes through the cases of a drift that the oracle reaches.
func armWorstOf(r ControlResult, drift, name string) armWorst {
	v := armWorst{held: math.Inf(1), batches: math.Inf(1), through: math.Inf(1), swing: math.Inf(-1), seed: math.Inf(-1)}
	for _, c := range r.Cases {
		if c.Drift != drift || !c.Reachable {
			continue
		}
		a := c.arm(name)
		v.cases++
		if a.meets() {
			v.good++
			if a.SwingWorst <= swingWanted {
				v.every++
			}
		}
		v.held, v.through, v.batches = min(v.held, a.Held.Mean), min(v.through, a.OverOracle.Mean), min(v.batches, a.HeldBatches.Mean)
		v.swing, v.seed = max(v.swing, a.Swing.Mean), max(v.seed, a.SwingWorst)
	}
	return v
}

// writeWorst says for every drift how the arms do over all worlds and goals.
func writeWorst(b *strings.Builder, r ControlResult) {
	fmt.Fprintf(b, "## At a glance\n\nThe worst case of every drift, over worlds and goals for which the oracle's search found settings at every level, each a mean over the seeds. "+
		"Wanted of the controller: held at least %g %%, throughput at least %g %% of the oracle's, swing at most %g %%. The last column asks the swing of every seed, not of their mean.\n\n", 100*heldWanted, 100*throughputWanted, 100*swingWanted)
	var rows [][]string
	for _, drift := range driftsOf(r) {
		for _, name := range controlArms {
			v := armWorstOf(r, drift, name)
			if v.cases == 0 {
				continue
			}
			through, good, every := shareText(v.through), fmt.Sprintf("%d of %d", v.good, v.cases), fmt.Sprintf("%d of %d", v.every, v.cases)
			if name == armAIMD {
				through, good, every = notJudged, notJudged, notJudged
			}
			rows = append(rows, []string{drift, name, shareText(v.held), shareText(v.batches), through, shareText(v.swing), shareText(v.seed), good, every})
		}
	}
	table(b, []string{"drift", "arm", "held, worst", "batches, worst", "throughput, worst", "swing, worst", "of one seed", "cases with all three", "in every seed"}, rows)
	b.WriteString("prime-rl's AIMD has no staleness signal: it holds no goal and breaks none but by chance, and it gives throughput up to keep out of a full cache, which costs no arm anything here. So it is " + notJudged + " where a verdict would stand; the rest shows what a rule for concurrency alone does to staleness.\n\n")
}

// writeShort lists the cases in which the controller does not do what is wanted.
func writeShort(b *strings.Builder, r ControlResult) {
	var rows [][]string
	for _, c := range r.Cases {
		if a := c.arm(armController); !a.meets() {
			reached := ""
			if !c.Reachable {
				reached = "not reached by the oracle"
			}
			rows = append(rows, []string{c.Drift, c.World, c.Goal, a.Held.percent(), a.OverOracle.percent(), a.Swing.percent(), shareText(a.SwingWorst), fmt.Sprintf("%d of %d", a.SwingWithin, r.Seeds), c.arm(armOracle).Held.percent(), reached})
		}
	}
	fmt.Fprintf(b, "The controller does all three in %d of %d cases", len(r.Cases)-len(rows), len(r.Cases))
	if len(rows) == 0 {
		b.WriteString(".\n\n")
		return
	}
	b.WriteString(". The others:\n\n")
	table(b, []string{"drift", "world", "goal", "held", "throughput over oracle's", "swing", "of the worst seed", "seeds within", "held by the oracle", "note"}, rows)
}

// meets reports whether an arm does what is wanted of the controller.
func (a ControlArm) meets() bool {
	return a.Failed == "" && a.Held.Mean >= heldWanted && a.OverOracle.Mean >= throughputWanted && a.Swing.Mean <= swingWanted
}

// driftsOf are the drifts of a result, in their order.
func driftsOf(r ControlResult) (names []string) {
	for _, c := range r.Cases {
		if !slices.Contains(names, c.Drift) {
			names = append(names, c.Drift)
		}
	}
	return names
}

// shareText writes a share in per cent.
func shareText(share float64) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// percent writes a share in per cent, with its interval.
func (e Estimate) percent() string {
	return Estimate{100 * e.Mean, 100 * e.Half}.print(1) + " %"
}

// writeControlCase is the table of one case.
func writeControlCase(b *strings.Builder, c ControlCase) {
	fmt.Fprintf(b, "## %s, %s, %s\n\n", c.Drift, c.World, c.Goal)
	if !c.Reachable {
		b.WriteString("The oracle finds no settings that hold this goal at every level of the drift: it plays what holds it most often.\n\n")
	}
	var rows [][]string
	for _, a := range c.Arms {
		if a.Failed != "" {
			rows = append(rows, []string{a.Arm, "failed: " + a.Failed})
			continue
		}
		rows = append(rows, []string{a.Arm, a.Held.percent(), a.HeldBatches.percent(), a.through(), a.Staleness.print(2),
			shareText(a.Swing.Mean), shareText(a.SwingWorst), fmt.Sprintf("%.3f", a.HoldSwing.Mean), shareText(a.Wasted.Mean), fmt.Sprintf("%.1f", a.Moves.Mean)})
	}
	table(b, []string{"arm", "held", "batches", "throughput over oracle's", "mean staleness", "swing", "of the worst seed", "of hold", "wasted", "moves per 100 steps"}, rows)
	var plan []string
	for _, p := range c.Plan {
		plan = append(plan, fmt.Sprintf("%.2f: %s", p.Level, p))
	}
	fmt.Fprintf(b, "The oracle's plan by level of the drift: %s. Best fixed with hindsight: %s. AReaL's best η at the start: %g.\n\n", strings.Join(plan, "; "), c.Hindsight, c.BestEta)
}

// String writes the settings, and how often they held the goal in the search.
func (p ControlPlan) String() string {
	return fmt.Sprintf("%g slots, %g groups, hold %g, queue %g (held %.1f %%)", p.Slots, p.LiveGroups, p.Hold, p.QueueGroups, 100*p.Held)
}
