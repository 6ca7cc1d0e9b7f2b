package study

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// writeFindings says what the tables show beside the controller's verdict.
func writeFindings(b *strings.Builder, r ControlResult) {
	b.WriteString("## What the rows below show\n\n")
	for _, line := range []string{batchFinding(r), fixedFinding(r, armFixed, "The fixed setting of the start"), fixedFinding(r, armHindsight, "The fixed setting chosen with hindsight"),
		hindsightFinding(r), etaFinding(r), boundFinding(r)} {
		if line != "" {
			b.WriteString("- " + line + "\n")
		}
	}
	b.WriteString("\n")
}

// reached are the cases in whose every level the oracle's search found settings.
func (r ControlResult) reached() (list []ControlCase) {
	for _, c := range r.Cases {
		if c.Reachable {
			list = append(list, c)
		}
	}
	return list
}

// batchFinding is of single batches, every arm.
func batchFinding(r ControlResult) string {
	var parts []string
	for _, name := range controlArms {
		least, most := math.Inf(1), math.Inf(-1)
		for _, c := range r.reached() {
			share := c.arm(name).HeldBatches.Mean
			least, most = min(least, share), max(most, share)
		}
		if least <= most {
			parts = append(parts, fmt.Sprintf("%s %.0f to %.0f %%", name, 100*least, 100*most))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("A goal is one for a window of %d steps. Of single batches each arm keeps it in, over the cases: %s.", r.WindowSteps, strings.Join(parts, "; "))
}

// fixedFinding says which drifts break a setting that does not move.
func fixedFinding(r ControlResult, name, what string) string {
	var breaks, spares []string
	missed, cases := 0, 0
	for _, drift := range driftsOf(r) {
		broken, of := 0, 0
		for _, c := range r.reached() {
			if c.Drift != drift {
				continue
			}
			of++
			if a := c.arm(name); !a.holds() {
				broken++
			}
		}
		missed, cases = missed+broken, cases+of
		switch {
		case broken > 0:
			breaks = append(breaks, fmt.Sprintf("%s (%d of %d)", drift, broken, of))
		case of > 0:
			spares = append(spares, drift)
		}
	}
	if cases == 0 {
		return ""
	}
	text := fmt.Sprintf("%s misses its goal in %d of %d cases.", what, missed, cases)
	if len(breaks) > 0 {
		text += fmt.Sprintf(" Broken by %s.", strings.Join(breaks, ", "))
	}
	if len(spares) > 0 {
		text += fmt.Sprintf(" In no world and under no goal is it broken by %s.", strings.Join(spares, ", "))
		if name == armFixed {
			text += " There is nothing for a controller to win there."
		}
	}
	return text
}

// holds reports whether an arm holds its goal as is wanted of the controller.
func (a ControlArm) holds() bool { return a.Failed == "" && a.Held.Mean >= heldWanted }

// hindsightFinding has the controller's throughput over that of the setting chosen with hindsight.
func hindsightFinding(r ControlResult) string {
	least, most := math.Inf(1), math.Inf(-1)
	for _, c := range r.reached() {
		if a, fixed := c.arm(armController), c.arm(armHindsight); a.holds() && fixed.holds() {
			over := a.RolloutsPerS.Mean / fixed.RolloutsPerS.Mean
			least, most = min(least, over), max(most, over)
		}
	}
	if least > most {
		return ""
	}
	return fmt.Sprintf("Where both hold, the controller trains %s to %s of what the setting chosen with hindsight does.", shareText(least), shareText(most))
}

// etaFinding says in how many cases AReaL's bound holds, with the goal as its η and with the best at the start.
func etaFinding(r ControlResult) string {
	cases := r.reached()
	if len(cases) == 0 {
		return ""
	}
	count := func(name string) (n int) {
		for _, c := range cases {
			if c.arm(name).holds() {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf("AReaL's bound with η the goal, which leaves no margin, holds it in %d of %d cases; with the best η at the start in %d.", count(armBounded), len(cases), count(armTuned))
}

// boundFinding says how far an arm that holds its goal is above the oracle, which is then no bound.
func boundFinding(r ControlResult) string {
	most, where := math.Inf(-1), ""
	least := math.Inf(1)
	for _, c := range r.reached() {
		least = min(least, c.arm(armOracle).Held.Mean)
		for _, a := range c.Arms {
			if slices.Contains([]string{armOracle, armAIMD}, a.Arm) || !a.holds() || a.OverOracle.Mean <= most {
				continue
			}
			most, where = a.OverOracle.Mean, fmt.Sprintf("%s, %s, %s, %s", a.Arm, c.Drift, c.World, c.Goal)
		}
	}
	if where == "" {
		return ""
	}
	return fmt.Sprintf("The most that an arm which holds its goal trains over the oracle is %s (%s). The oracle itself holds its goal in %s of the steps at least, where its search wanted %g %%.",
		shareText(most), where, shareText(least), 100*heldLeast)
}
