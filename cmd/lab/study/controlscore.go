package study

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// ControlScore judges one simulation of one arm under one goal.
type ControlScore struct {
	// Held is the share of settled steps over whose window the goal held, HeldBatches that of settled
	// steps whose own batch kept it.
	Held        float64 `json:"held"`
	HeldBatches float64 `json:"held_batches"`
	// RolloutsPerS are trained rollouts per second from the first settled step to the end.
	RolloutsPerS float64 `json:"rollouts_per_s"`
	// Value is the goal's value over all settled steps: a mean staleness or a share. Staleness is the mean in any case.
	Value     float64 `json:"value"`
	Staleness float64 `json:"staleness"`
	// Swing is how far a setting is at the most from its mean at rest, over that mean. It is the
	// largest of those of slots, live groups and queue. HoldSwing is that of hold, in shares of a
	// train period.
	Swing     float64 `json:"swing"`
	HoldSwing float64 `json:"hold_swing"`
	// Moves counts changes of settings per 100 train steps. Wasted is the share of tokens made and not trained.
	Moves  float64 `json:"moves_per_100_steps"`
	Wasted float64 `json:"wasted"`
	// Failed says why the simulation did not end, "" if it did.
	Failed string `json:"failed,omitempty"`
}

// score judges a series.
func score(s *controlSeries, g ControlGoal, d ControlDrift, c course) ControlScore {
	own, window := g.values(s)
	var settled, held, batches, stale int
	score := ControlScore{Wasted: s.wasted, Moves: 100 * float64(s.moves) / float64(len(own))}
	total, weight := 0.0, 0.0
	for i := range own {
		if !d.settled(c, i+1) {
			continue
		}
		settled++
		if g.holds(window[i]) {
			held++
		}
		if g.holds(own[i]) {
			batches++
		}
		a, b := g.counts(s, i)
		total, weight = total+a, weight+b
		for _, lag := range s.lags[i*controlGroups : (i+1)*controlGroups] {
			stale += int(lag)
		}
	}
	score.Held, score.HeldBatches = float64(held)/float64(settled), float64(batches)/float64(settled)
	score.Value, score.Staleness = total/weight, float64(stale)/float64(settled*controlGroups)
	steps := len(own) - c.settle
	score.RolloutsPerS = float64(steps*controlGroups*controlGroupSize) / (float64(s.endNS[len(own)-1]-s.endNS[c.settle-1]) / 1e9)
	score.Swing, score.HoldSwing = swings(s.values[len(own)-c.tail(d):])
	return score
}

// tail is how many steps at the end of a run are at rest: the flat ones but those after an abrupt change that
// do not count, and after a slow one as many.
func (c course) tail(ControlDrift) int { return max(c.rest-c.settle, 1) }

// swings are the largest deviations of settings from their means.
func swings(values []settings) (relative, hold float64) {
	for _, m := range moved {
		least, most, sum := math.Inf(1), math.Inf(-1), 0.0
		for i := range values {
			v := values[i][m]
			least, most, sum = min(least, v), max(most, v), sum+v
		}
		mean := sum / float64(len(values))
		off := max(most-mean, mean-least)
		if m == loop.SettingHold {
			hold = off
		} else {
			relative = max(relative, off/mean)
		}
	}
	return relative, hold
}
