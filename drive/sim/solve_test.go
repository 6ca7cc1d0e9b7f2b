package sim_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// solving gives a setup rewards.
func (s setup) solving(tb testing.TB, spec workload.SolveSpec) setup {
	tb.Helper()
	solve, err := spec.Build()
	if err != nil {
		tb.Fatal(err)
	}
	more := s.sim
	s.sim = func(c *sim.Config) {
		c.Work = c.Work.(*sim.Modelled).WithSolve(solve)
		if more != nil {
			more(c)
		}
	}
	return s
}

// TestZeroAdvantageAcceptance: with rewards drawn for every rollout, the filter
// keeps the share of groups that the model says are mixed, and a batch is refilled.
func TestZeroAdvantageAcceptance(t *testing.T) {
	for _, spec := range []workload.SolveSpec{
		{Kind: workload.KindFixed, Rate: 0.3},
		{Kind: workload.KindFixed, Rate: 0.95},
		{Kind: workload.KindLogistic, From: 1, To: 1, Spread: 2},
	} {
		solve, err := spec.Build()
		if err != nil {
			t.Fatal(err)
		}
		s := setup{c: 64, s: 4, b: 32, q: 2, rho: 1, tailness: 50, warmup: 50, steps: 1000}.solving(t, spec)
		s.rules = func(c *loop.Config) { c.FilterZeroAdvantage = true }
		got, want := run(t, s.config(t)).Summary.Acceptance, solve.Share(4, 1, 3, 0, 0)
		if off := math.Abs(got - want); off > 4*math.Sqrt(want*(1-want)/8000) {
			t.Errorf("%+v: %.4f of the groups are accepted, want %.4f", spec, got, want)
		}
	}
}

// solveRates simulates a policy whose skill rises through all levels, and returns
// the mean solve rate in each quarter of the run.
func solveRates(t *testing.T, levels int, explore float64) (rates [4]float64) {
	t.Helper()
	const steps = 1200
	spec := workload.SolveSpec{Kind: workload.KindLogistic, From: -3, To: 3, Steps: steps}
	for i := range max(levels, 1) {
		spec.Levels = append(spec.Levels, -3+float64(i)*6/float64(max(levels-1, 1)))
	}
	var solved, scored [4]float64
	s := setup{c: 64, s: 8, b: 64, q: 2, rho: 0.8, tailness: 50, steps: steps}.solving(t, spec)
	s.rules = func(c *loop.Config) { c.SolveLow, c.SolveHigh, c.Levels, c.Explore = 0.3, 0.7, levels, explore }
	version := loop.Version(0)
	cfg := s.config(t)
	cfg.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
		switch ev.Kind {
		case loop.TrainStepEnded:
			version = ev.Version
		case loop.RolloutScored:
			part := min(int(version)*4/steps, 3)
			scored[part]++
			if ev.Mark == loop.MarkSolved {
				solved[part]++
			}
		}
	}
	run(t, cfg)
	for i := range rates {
		rates[i] = solved[i] / scored[i]
	}
	return rates
}

// TestCurriculumFollowsTheSkill: as the policy gets better the curriculum plays
// harder prompts, and the solve rate stays in its band, which it leaves on prompts
// of one difficulty.
func TestCurriculumFollowsTheSkill(t *testing.T) {
	with, without := solveRates(t, 13, 0.05), solveRates(t, 0, 0)
	t.Logf("solve rate by quarter: with a curriculum %.3f, without %.3f", with, without)
	for i, rate := range with {
		if rate < 0.3 || rate > 0.7 {
			t.Errorf("quarter %d: the curriculum's solve rate is %.3f, want 0.3 to 0.7", i, rate)
		}
	}
	if without[0] > 0.3 || without[3] < 0.7 {
		t.Errorf("without a curriculum the solve rate goes from %.3f to %.3f: the skill hardly drifts", without[0], without[3])
	}
}

// TestStallSaysWhy: a band that excludes every group, a filter that takes all, a
// prompt set of no use: each is a stall that names its reason, not a run without end.
func TestStallSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		rules func(*loop.Config)
		solve workload.SolveSpec
		sim   func(*sim.Config)
		want  []string
	}{
		"band": {
			rules: func(c *loop.Config) { c.FilterSolveRate, c.SolveLow, c.SolveHigh = true, 0.4, 0.6 },
			solve: workload.SolveSpec{Kind: workload.KindFixed, Rate: 0},
			want:  []string{"groups ended since the last train step, all filtered (solve-rate)", "every group's solve rate is outside [0.4, 0.6]"},
		},
		"curriculum": {
			rules: func(c *loop.Config) {
				c.FilterSolveRate, c.SolveLow, c.SolveHigh, c.Levels, c.Explore = true, 0.4, 0.6, 2, 0.1
			},
			solve: workload.SolveSpec{Kind: workload.KindLogistic, Levels: []float64{-30, 30}},
			want:  []string{"all filtered (solve-rate)", "outside [0.4, 0.6]", "prompts of another difficulty"},
		},
		"advantage": {
			rules: func(c *loop.Config) { c.FilterZeroAdvantage = true },
			solve: workload.SolveSpec{Kind: workload.KindFixed, Rate: 1},
			want:  []string{"all filtered (zero-advantage)", "every group's rewards are all equal"},
		},
		"pruned": {
			sim:  func(c *sim.Config) { c.PruneTokens = 1 },
			want: []string{"all pruned: ", "every group's rollouts exceed 1 tokens"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := small
			s.warmup, s.rules, s.sim = 0, c.rules, c.sim
			if c.solve.Kind != "" {
				s = s.solving(t, c.solve)
			}
			_, err := sim.Run(s.config(t))
			if !errors.Is(err, sim.ErrStalled) {
				t.Fatalf("%v, want a stall", err)
			}
			t.Log(err)
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: want %q in it", err, part)
				}
			}
		})
	}
}
