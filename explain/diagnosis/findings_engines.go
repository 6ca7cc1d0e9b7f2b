package diagnosis

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

const (
	// slowTold is how many times as long as the others' a token of an engine takes to be told, and slowRollouts how many
	// rollouts have to say so.
	slowTold     = 1.5
	slowRollouts = 20
)

// enginesLost says what losses of engines cost.
func (f *facts) enginesLost() *Finding {
	if f.own == nil || f.own.tally.fleet.losses == 0 {
		return nil
	}
	fleet := &f.own.tally.fleet
	gone := float64(fleet.goneNS) / math.Max(float64(fleet.sinceNS)*float64(len(fleet.engines)), 1)
	var who []string
	for i, e := range fleet.engines {
		if e.losses > 0 || e.goneNS > 0 {
			who = append(who, fmt.Sprintf("%s %s, gone for %s s", f.engineName(i), times(e.losses), fig(float64(e.goneNS)/1e9)))
		}
	}
	if more := len(who) - spellsNamed; more > 0 {
		who = append(who[:spellsNamed], fmt.Sprintf("and %d more", more))
	}
	return &Finding{Title: fmt.Sprintf("Engines were lost %s.", times(fleet.losses)), Severity: brokenOr(gone), CostRatio: gone,
		Evidence: []string{fmt.Sprintf("%s of the engines' time one was gone; %d attempts failed with them", report.Share(gone), f.own.summary.Failures.Engine), strings.Join(who, "; ")}}
}

// tokenNS is how long a token of each engine took on average, in ns of one slot; 0 where too few rollouts say so.
func (f *fleet) tokenNS() []float64 {
	list := make([]float64, len(f.engines))
	for i, e := range f.engines {
		if e.rollouts >= slowRollouts && e.tokens > 0 {
			list[i] = float64(e.generateNS) / float64(e.tokens)
		}
	}
	return list
}

// engineSlow: an engine takes far longer for a token than the others.
func (f *facts) engineSlow() *Finding {
	if f.own == nil {
		return nil
	}
	took := f.own.tally.fleet.tokenNS()
	known := slices.DeleteFunc(slices.Clone(took), func(ns float64) bool { return ns == 0 })
	if len(known) < 2 {
		return nil
	}
	slices.Sort(known)
	usual := known[(len(known)-1)/2]
	var who []string
	lost, slots := 0.0, f.own.header.Loop.EngineSlots
	for i, ns := range took {
		if ns > slowTold*usual {
			who = append(who, fmt.Sprintf("%s takes %s ms for a token of a rollout", f.engineName(i), fig(ns/1e6)))
			lost += (1 - usual/ns) * float64(slots[i]) / float64(f.own.header.Loop.Concurrency())
		}
	}
	if len(who) == 0 {
		return nil
	}
	title := "An engine is far slower than the others: groups wait for the rollouts that it has."
	if len(who) > 1 {
		title = fmt.Sprintf("%d engines are far slower than the others: groups wait for the rollouts that they have.", len(who))
	}
	return &Finding{Title: title, Severity: brokenOr(lost), CostRatio: lost,
		Evidence: append(who[:min(len(who), spellsNamed)], fmt.Sprintf("usual is %s ms; at that pace the engines together would generate %s more", fig(usual/1e6), report.Share(lost/(1-lost))),
			"look at what else its machine does, and at its slots (engines.*.slots): more than its server samples at once wait there"),
		Fails: "where it is a smaller machine on purpose: then fewer slots keep it from being what groups wait for"}
}
