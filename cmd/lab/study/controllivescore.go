package study

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// ControlLiveScore is one arm of a case on one clock, over the seeds.
type ControlLiveScore struct {
	// Failed says why a run ended early, "" if none did.
	Failed string `json:"failed,omitempty"`
	// Held and HeldBatches are as [ControlScore] has them. HeldBefore, HeldDuring and HeldAfter are the share of the
	// settled steps before the drift, in it and after it, over whose window the goal held.
	Held        Estimate `json:"held"`
	HeldBatches Estimate `json:"held_batches"`
	HeldBefore  Estimate `json:"held_before"`
	HeldDuring  Estimate `json:"held_during"`
	HeldAfter   Estimate `json:"held_after"`
	// Value is the goal's over all settled steps, Staleness the mean in versions.
	Value     Estimate `json:"value"`
	Staleness Estimate `json:"staleness"`
	// RolloutsPerS are trained rollouts a second from the first settled step on, Wasted the share of tokens made and not trained.
	RolloutsPerS Estimate `json:"rollouts_per_s"`
	Wasted       Estimate `json:"wasted"`
	// Swing of a setting at rest, as [ControlScore] has it, and Moves per 100 steps.
	Swing Estimate `json:"swing"`
	Moves Estimate `json:"moves_per_100_steps"`
	// Reward and Accuracy are as [ControlLived] has them; of simulations there are none.
	Reward   Estimate `json:"reward"`
	Accuracy Estimate `json:"held_out_accuracy"`
	// Trace is the run with the first seed, step by step.
	Trace ControlTrace `json:"trace"`
}

// ControlTrace is a run, a value a train step.
type ControlTrace struct {
	// TimeS is when the step ended.
	TimeS []float64 `json:"time_s"`
	// Own is the goal's value of the step's batch, Window over the window that ends with it; Staleness the batch's mean.
	Own       []float64 `json:"own"`
	Window    []float64 `json:"window"`
	Staleness []float64 `json:"staleness"`
	// Slots, LiveGroups, Hold and QueueGroups are the settings then; none where nothing moves them.
	Slots       []float64 `json:"slots,omitempty"`
	LiveGroups  []float64 `json:"live_groups,omitempty"`
	Hold        []float64 `json:"hold,omitempty"`
	QueueGroups []float64 `json:"queue_groups,omitempty"`
}

// liveScored is one run judged.
type liveScored struct {
	score                 ControlScore
	lived                 ControlLived
	before, during, after float64
	trace                 ControlTrace
}

// armScores are an arm's runs, by seed.
type armScores struct{ live, simulated []liveScored }

// traceOf is a run step by step.
func traceOf(s *controlSeries, g ControlGoal) (t ControlTrace) {
	own, window := g.values(s)
	mean := ControlGoal{Mean: 1}
	stale, _ := mean.values(s)
	t.Own, t.Window, t.Staleness = own, window, stale
	for i, at := range s.endNS {
		t.TimeS = append(t.TimeS, float64(at)/1e9)
		v := &s.values[i]
		if math.IsNaN(v[loop.SettingLive]) {
			continue
		}
		t.Slots, t.LiveGroups = append(t.Slots, v[loop.SettingSlots]), append(t.LiveGroups, v[loop.SettingLive])
		t.Hold, t.QueueGroups = append(t.Hold, v[loop.SettingHold]), append(t.QueueGroups, v[loop.SettingQueue])
	}
	return t
}

// phases takes the shares of settled steps held before, in and after the drift.
func (s *liveScored) phases(g ControlGoal, d ControlDrift, c course) {
	var held, all [3]int
	for i, value := range s.trace.Window {
		if !d.settled(c, i+1) {
			continue
		}
		phase := 0
		switch {
		case i+1 > c.begin+c.drifting:
			phase = 2
		case i+1 > c.begin:
			phase = 1
		}
		all[phase]++
		if g.holds(value) {
			held[phase]++
		}
	}
	share := func(k int) float64 { return float64(held[k]) / float64(max(all[k], 1)) }
	s.before, s.during, s.after = share(0), share(1), share(2)
}

// arm puts an arm's runs together.
func (a armScores) arm(d controlDocument) ControlLiveArm {
	arm := ControlLiveArm{Arm: d.arm, Set: d.set, Simulated: scoreOver(a.simulated)}
	if len(a.live) > 0 {
		of := scoreOver(a.live)
		arm.Live = &of
	}
	return arm
}

// scoreOver is the mean of runs over their seeds.
func scoreOver(runs []liveScored) (s ControlLiveScore) {
	over := func(of func(*liveScored) float64) Estimate {
		var values []float64
		for i := range runs {
			if v := of(&runs[i]); runs[i].failure() == "" && !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		return estimateOf(values)
	}
	s = ControlLiveScore{
		Held:        over(func(r *liveScored) float64 { return r.score.Held }),
		HeldBatches: over(func(r *liveScored) float64 { return r.score.HeldBatches }),
		HeldBefore:  over(func(r *liveScored) float64 { return r.before }), HeldDuring: over(func(r *liveScored) float64 { return r.during }),
		HeldAfter: over(func(r *liveScored) float64 { return r.after }),
		Value:     over(func(r *liveScored) float64 { return r.score.Value }), Staleness: over(func(r *liveScored) float64 { return r.score.Staleness }),
		RolloutsPerS: over(func(r *liveScored) float64 { return r.score.RolloutsPerS }), Wasted: over(func(r *liveScored) float64 { return r.score.Wasted }),
		Swing: over(func(r *liveScored) float64 { return r.score.Swing }), Moves: over(func(r *liveScored) float64 { return r.score.Moves }),
		Reward: over(func(r *liveScored) float64 { return r.lived.Reward }), Accuracy: over(func(r *liveScored) float64 { return r.lived.Accuracy }),
	}
	for i := range runs {
		if why := runs[i].failure(); why != "" {
			s.Failed = why
		}
	}
	if len(runs) > 0 {
		s.Trace = runs[0].trace
	}
	return s
}

// failure says why the run ended early.
func (r *liveScored) failure() string { return r.lived.Failed }
