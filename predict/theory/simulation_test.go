package theory_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

const tokenNS = 20e6

// lognormal lengths of a tailness.
func lognormal(t *testing.T, tailness float64) *workload.Lengths {
	t.Helper()
	l, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: tailness, CapTokens: int(3080 + 100*tailness)}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// simulate runs queue-drop with B = 64, S = 4, C = 64, changed by rules.
func simulate(t *testing.T, l *workload.Lengths, rho float64, steps int, rules func(*sim.Config)) metrics.Summary {
	t.Helper()
	all, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{
		Loop: loop.Config{GroupSize: 4, BatchGroups: 16, EngineSlots: []int{64}, QueueGroups: 32},
		Work: sim.NewModelled(1, l, nil, all, int64(l.Mean()*tokenNS*rho)), NSPerToken: tokenNS, Warmup: 150, Measured: steps,
	}
	rules(&cfg)
	result, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return result.Summary
}

func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s: predicted %.4f, simulated %.4f, want within %g %%", what, got, want, 100*share)
	}
}

// TestThresholdAgrees: policy threshold with partial rollout is exact in syncs
// where it binds, the unbounded queue's where it does not, and says so between.
func TestThresholdAgrees(t *testing.T) {
	l := lognormal(t, 50)
	e, err := theory.NewEstimator(theory.Input{Lengths: l, GroupSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rho, theta float64
		every      int
		share      float64
	}{{2, 0.5, 4, 0.01}, {3, 1, 1, 0.01}, {1.5, 0.25, 2, 0.01}, {0.5, 8, 1, 0.02}, {0.6, 6, 2, 0.02}} {
		measured := simulate(t, l, c.rho, 800, func(s *sim.Config) {
			s.Loop.Policy, s.Loop.StalenessThreshold, s.Loop.SyncEvery = loop.PolicyThreshold, c.theta, c.every
			s.Loop.Sync, s.Loop.TrainerBlocked = loop.SyncRestart, true
			s.Loop.QueueGroups = max(s.Loop.LiveGroupsMax(), s.Loop.BatchGroups)
		})
		got := e.Estimate(theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 64, Utilization: c.rho, Policy: theory.PolicyThreshold,
			StalenessThreshold: c.theta, PartialRollout: true, SyncEvery: c.every, SyncTrainer: theory.TrainerBlocked})
		name := fmt.Sprintf("ρ %g, θ %g, K %d", c.rho, c.theta, c.every)
		if !got.Covered {
			t.Errorf("%s is not covered: %s", name, got.Reason)
			continue
		}
		within(t, name+": staleness", got.Mean, measured.Staleness.Mean, c.share)
		if c.rho > 1 {
			exact := theory.ThresholdLag(c.theta, float64(c.every), 16)
			within(t, name+": syncs", exact, measured.Staleness.MeanSyncs, 1e-3)
		}
	}
	for why, p := range map[string]theory.Point{
		"a trainer that goes on through a sync of no time": {SyncTrainer: theory.TrainerFree},
		"a filter": {SyncTrainer: theory.TrainerBlocked, Acceptance: 0.5},
	} {
		p.ConcurrencyRollouts, p.BatchRollouts, p.Utilization, p.Policy, p.StalenessThreshold, p.PartialRollout = 64, 64, 3, theory.PolicyThreshold, 1, true
		if got := e.Estimate(p); got.Covered {
			t.Errorf("%s is covered: %+v", why, got)
		}
	}
	drained := theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 64, Utilization: 2, Policy: theory.PolicyThreshold, StalenessThreshold: 0.5}
	if got := e.Estimate(drained); got.Covered || got.Reason != theory.ReasonThreshold {
		t.Errorf("a drained sync: covered %v, reason %s", got.Covered, got.Reason)
	}
}

// TestDecodeSpeedAtFullConcurrencyAgrees: a decode speed that falls with concurrency counts at
// full concurrency.
func TestDecodeSpeedAtFullConcurrencyAgrees(t *testing.T) {
	l := lognormal(t, 60)
	e, err := theory.NewEstimator(theory.Input{Lengths: l, GroupSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	alone := 1e9 / tokenNS
	speed := func(active float64) float64 { return alone / (0.5 + active/64) }
	for _, rho := range []float64{0.6, 1.4} {
		p := theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 64, QueueFactor: 2, StepS: l.Mean() / alone * rho}
		p.DecodeTokensPerS = speed(64)
		got := e.Estimate(p)
		measured := simulate(t, l, rho, 1500, func(s *sim.Config) {
			s.Speed = func(active int, _ bool) float64 { return speed(float64(active)) / alone }
		})
		within(t, "staleness", got.Mean, measured.Staleness.Mean, 0.01)
		within(t, "period", got.PeriodS, measured.PeriodS.Mean, 0.01)
	}
}

// counter counts ready groups in windows of a simulation.
type counter struct {
	windowNS        int64
	from, end       int64
	n, sum, squares float64
	now             float64
}

func (c *counter) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	if ev.Kind != loop.RolloutScored || ev.Time < c.from {
		return
	}
	for c.end == 0 || ev.Time >= c.end {
		if c.end > 0 {
			c.n, c.sum, c.squares, c.now = c.n+1, c.sum+c.now, c.squares+c.now*c.now, 0
		}
		c.end = max(c.end, c.from) + c.windowNS
	}
	for _, a := range actions {
		if a.Kind == loop.GroupQueued {
			c.now++
		}
	}
}

// TestDispersionAgrees: the derived variability of arrivals is that of groups
// becoming ready in the simulator, in windows from a quarter to four mean rollouts.
func TestDispersionAgrees(t *testing.T) {
	for _, tailness := range []float64{30, 80} {
		l := lognormal(t, tailness)
		d := theory.NewDispersion(l.Distribution().Scale(1/l.Mean()), 4)
		for _, window := range []float64{0.25, 1, 4} {
			mean := l.Mean() * tokenNS
			c := counter{windowNS: int64(window * mean), from: int64(150 * mean)}
			simulate(t, l, 1, 6000, func(s *sim.Config) { s.Observe = c.observe })
			average := c.sum / c.n
			index := (c.squares/c.n - average*average) / average
			within(t, fmt.Sprintf("tailness %g, window %g", tailness, window), d.At(window), index, 0.08)
		}
	}
}

// TestLongSyncIsNotCovered: versions are skipped there, and the estimate says so.
func TestLongSyncIsNotCovered(t *testing.T) {
	e, err := theory.NewEstimator(theory.Input{Lengths: lognormal(t, 50), GroupSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	p := theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 64, Utilization: 1.4, StepS: 10}
	for sync, want := range map[float64]theory.Reason{5: theory.ReasonNone, 15: theory.ReasonLongSync} {
		p.SyncTimeS = sync
		if got := e.Estimate(p); got.Reason != want {
			t.Errorf("sync of %g s: reason %q, want %q", sync, got.Reason, want)
		}
	}
}
