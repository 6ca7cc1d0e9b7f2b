package study

import (
	"fmt"
	"slices"
)

// liveCorrections are those of the live comparison: the extremes, and what most do.
var liveCorrections = []string{"none", "ppo-clip", "tis"}

// StalenessLive compares live runs whose mean staleness is bounded at each lag, for the same wall
// time. The synchronous schedule stands for lag 0, which has one correction: none is needed.
func StalenessLive(o StalenessOptions, seeds []uint64, wallS float64) Contest {
	c := Contest{
		Name: "staleness-live-" + o.Task, Title: "Staleness against reward, live: " + o.Task,
		Summary: fmt.Sprintf("Embedded engine and trainer: C %d, B %d, S %d; a decode step takes at least 4 ms, a train step at least 25 ms, so that rollouts are made faster than they are trained on and the mean staleness is the bound. "+
			"Lag 0 is the synchronous schedule.", 4*stalenessBatch, stalenessBatch, stalenessGroup),
		Common: common(stalenessGroup, stalenessBatch, 4*stalenessBatch, 0.004, 0.025), Seeds: seeds, WallS: wallS,
	}
	for _, t := range StalenessTasks() {
		if t.Name == o.Task {
			c.Common = append(append(c.Common, t.set...), fmt.Sprintf("trainer.learning_rate=%g", t.Rate))
		}
	}
	c.Arms = append(c.Arms, Contestant{"lag 0, synchronous", "The trainer waits for a batch of its own version.", []string{"schedule=synchronous"}})
	for _, k := range StalenessCorrections() {
		if !slices.Contains(liveCorrections, k.Name) || !slices.Contains(o.Corrections, k.Name) {
			continue
		}
		for _, lag := range o.Lags {
			if lag == 0 {
				continue
			}
			set := []string{"queue.policy=bounded", fmt.Sprintf("queue.eta=%d", lag)}
			for _, s := range k.set {
				set = append(set, "trainer.correction."+s)
			}
			c.Arms = append(c.Arms, Contestant{fmt.Sprintf("lag %d, %s", lag, k.Name), k.Note + ".", set})
		}
	}
	return c
}
