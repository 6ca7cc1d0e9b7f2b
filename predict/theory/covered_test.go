package theory_test

import (
	"fmt"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

// TestTokensAgree: tokens are younger than their group's first by their siblings'
// starts and their own places, and versions count whole at either end.
func TestTokensAgree(t *testing.T) {
	for _, c := range []struct {
		tailness float64
		size     int
		rho, q   float64
	}{{50, 4, 0.5, 1}, {50, 16, 1.5, 2}, {90, 8, 0.7, 1}, {30, 1, 3, 1}} {
		l := lognormal(t, c.tailness)
		e, err := theory.NewEstimator(theory.Input{Lengths: l, GroupSize: c.size})
		if err != nil {
			t.Fatal(err)
		}
		got := e.Estimate(theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 128, Utilization: c.rho, QueueFactor: c.q})
		if !got.Covered {
			t.Fatalf("%+v is not covered: %s", c, got.Reason)
		}
		s := simulate(t, l, 2*c.rho, 4000, func(s *sim.Config) {
			s.Loop.GroupSize, s.Loop.BatchGroups, s.Loop.QueueGroups = c.size, 128/c.size, int(c.q)*128/c.size
		})
		within(t, fmt.Sprintf("%+v: tokens", c), got.TokenStaleness, s.TokenStaleness.Mean, 0.015)
	}
}

// TestPausedEnginesAgree: where engines pause and the trainer goes on, steps that
// find their batch ready and steps that wait are told apart, or it is said that
// they are not.
func TestPausedEnginesAgree(t *testing.T) {
	l := lognormal(t, 50)
	e, err := theory.NewEstimator(theory.Input{Lengths: l, GroupSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rho, share float64
		covered    bool
	}{{0.2, 20, true}, {0.6, 0.9, true}, {0.8, 0.4, true}, {0.95, 0.2, true}, {1.5, 0.1, true}, {1.05, 0.1, false}, {0.95, 0.9, false}} {
		step := l.Mean() * tokenNS * c.rho
		got := e.Estimate(theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 64, QueueFactor: 2, Utilization: c.rho,
			StepS: step / 1e9, SyncTimeS: c.share * step / 1e9, SyncMode: theory.SyncPause})
		if got.Covered != c.covered {
			t.Errorf("%+v: covered %v (%s)", c, got.Covered, got.Reason)
		}
		if !got.Covered {
			continue
		}
		s := simulate(t, l, c.rho, 6000, func(s *sim.Config) { s.Loop.Sync, s.SyncNS = loop.SyncPause, int64(c.share*step) })
		within(t, fmt.Sprintf("%+v: staleness", c), got.Mean, s.Staleness.Mean, 0.015)
		within(t, fmt.Sprintf("%+v: period", c), got.PeriodS, s.PeriodS.Mean, 0.01)
	}
}

// TestReasons: what no form covers is said, and what is just inside is not.
func TestReasons(t *testing.T) {
	estimators := map[int]*theory.Estimator{}
	for _, size := range []int{1, 8, 32} {
		e, err := theory.NewEstimator(theory.Input{Lengths: lognormal(t, 50), GroupSize: size})
		if err != nil {
			t.Fatal(err)
		}
		estimators[size] = e
	}
	for _, c := range []struct {
		size int
		p    theory.Point
		want theory.Reason
	}{
		{1, theory.Point{ConcurrencyRollouts: 1, BatchRollouts: 1, Utilization: 0.05, QueueFactor: 5}, theory.ReasonFewSlots},
		{1, theory.Point{ConcurrencyRollouts: 32, BatchRollouts: 32, Utilization: 0.5}, theory.ReasonNone},
		{8, theory.Point{ConcurrencyRollouts: 32, BatchRollouts: 32, Utilization: 0.5}, theory.ReasonNone},
		{8, theory.Point{ConcurrencyRollouts: 32, BatchRollouts: 24, Utilization: 0.5}, theory.ReasonFewGroups},
		{32, theory.Point{ConcurrencyRollouts: 32, BatchRollouts: 128, Utilization: 0.5}, theory.ReasonFewSlots},
		{32, theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 32, Utilization: 0.5}, theory.ReasonFewGroups},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 256, Utilization: 1.1, Acceptance: 0.01}, theory.ReasonFilter},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 256, Utilization: 1.1, Acceptance: 0.3}, theory.ReasonNone},
		{8, theory.Point{ConcurrencyRollouts: 64, BatchRollouts: 128, Utilization: 1.5, Start: theory.StartGang}, theory.ReasonGang},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.5, Start: theory.StartGang}, theory.ReasonNone},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.2, StepS: 10, SyncTimeS: 9, SyncEvery: 4, SyncTrainer: theory.TrainerBlocked}, theory.ReasonUnevenSync},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.5, StepS: 10, SyncTimeS: 1, SyncEvery: 4, SyncMode: theory.SyncPause}, theory.ReasonUnevenSync},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.2, StepS: 10, SyncTimeS: 0.4, SyncEvery: 4, SyncTrainer: theory.TrainerBlocked}, theory.ReasonNone},
		{8, theory.Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.2, StepS: 10, SyncTimeS: 9, SyncEvery: 4, SyncMode: theory.SyncPause, SyncTrainer: theory.TrainerBlocked}, theory.ReasonNone},
	} {
		if got := estimators[c.size].Estimate(c.p); got.Reason != c.want || got.Covered != (c.want == theory.ReasonNone) {
			t.Errorf("S %d, %+v: reason %q, want %q", c.size, c.p, got.Reason, c.want)
		}
	}
}
