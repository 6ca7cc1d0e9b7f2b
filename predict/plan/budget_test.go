package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// A simulated mean of 2.0003 keeps a budget of 2 wherever a plan judges it: in the
// ranking, and on the page.
func TestTheBudgetIsJudgedAlikeEverywhere(t *testing.T) {
	p := problemOf(t, small)
	for _, c := range []struct {
		staleness float64
		kept      bool
	}{{1.9, true}, {2.0003, true}, {2.01, false}} {
		f := Figures{StalenessMean: c.staleness}
		over, _ := p.excess(&f)
		m := markOf(&p.Document.Budget, &Candidate{Predicted: &f}, 3)
		if (over == 0) != c.kept || m.Kept != c.kept {
			t.Errorf("staleness %g: over by %g, the page says kept %v, want %v", c.staleness, over, m.Kept, c.kept)
		}
	}
	if strings.Contains(explorerScript, "1e-9") || !strings.Contains(explorerScript, "kept = m => m.b") {
		t.Error("the page judges the budget by itself")
	}
}

// The bound itself is tried as η.
func TestTheBudgetIsTriedAsEta(t *testing.T) {
	for budget, want := range map[string][]float64{"3": {0.5, 1, 2, 3}, "2": {0.5, 1, 2}, "0.3": {0.3}, "7.5": {0.5, 1, 2, 4, 7.5}} {
		p := problemOf(t, small, "budget.staleness_mean="+budget)
		if got := p.etas(); !slices.Equal(got, want) {
			t.Errorf("budget %s: %v, want %v", budget, got, want)
		}
	}
}

// The comparison of schedules keeps the plan's budget, and a plan's own comparison
// charges no schedule for a pass of log-probs that its periods do not have.
func TestSchedulesKeepTheBudget(t *testing.T) {
	p := problemOf(t, small, "budget.staleness_p95=6")
	c := Candidate{Setting: Setting{RolloutGPUs: 8, TrainGPUs: 8, Replicas: 8, SlotsPerReplica: 16, BatchRollouts: 256}}
	if in := Schedules(&p, &c); in.StalenessMax != 2 || in.StalenessP95Max != 6 || in.LogProbs.S == 0 {
		t.Errorf("budget %g and %g, log-probs %g s", in.StalenessMax, in.StalenessP95Max, in.LogProbs.S)
	}
	if in := updatesAlone(&p, &c).WithDefaults(); in.LogProbs.S != 0 {
		t.Errorf("a pass of log-probs of %g s", in.LogProbs.S)
	}
}

// A hosted engine saves the rollout GPUs, not the sandboxes.
func TestHostedEnginesNeedSandboxesToo(t *testing.T) {
	figures := make([]*Hosted, 2)
	cost := make([]float64, 2)
	for i, cpu := range []string{"0", "0.1"} {
		p := made(t, small, "prices.hosted_per_million_tokens=1", "prices.cpus_per_sandbox=2", "prices.cpu_hour="+cpu)
		figures[i], cost[i] = p.Hosted, p.Recommended.Best().CostPerStep
	}
	if near := figures[0].OwnPerMillionTokens; math.Abs(figures[1].OwnPerMillionTokens/near-1) > 1e-9 {
		t.Errorf("sandboxes make own tokens cost %g instead of %g", figures[1].OwnPerMillionTokens, near)
	}
	if have, want := figures[1].CostPerStep-figures[0].CostPerStep, cost[1]-cost[0]; !(want > 0) || math.Abs(have/want-1) > 1e-9 {
		t.Errorf("with sandboxes a hosted step costs %g more, want %g", have, want)
	}
}

// A simulation's size is bounded however large batches are and however few groups
// the filter accepts.
func TestSimulationsAreBounded(t *testing.T) {
	sizes := make([]int, 0, 2)
	for _, acceptance := range []string{"1", "0.25"} {
		p := problemOf(t, small, "modelled.filter.acceptance="+acceptance)
		eval, err := newEvaluator(&p)
		if err != nil {
			t.Fatal(err)
		}
		c := Candidate{Setting: Setting{RolloutGPUs: 8, TrainGPUs: 8, Replicas: 8, SlotsPerReplica: 128, BatchRollouts: 1024, QueueFactor: 1, Policy: "drop", SyncEvery: 1}}
		eval.evaluate(&c)
		_, measured := screening.steps(eval, &c)
		sizes = append(sizes, measured)
		c.BatchRollouts, c.SyncEvery = 65536, 50
		eval.evaluate(&c)
		warmup, measured := screening.steps(eval, &c)
		if made := float64(measured*c.BatchRollouts) / eval.acceptance(); made > 2*effortMost*screening.rollouts && measured > stepsLeast {
			t.Errorf("acceptance %s: %d steps of %d rollouts", acceptance, measured, c.BatchRollouts)
		}
		if warmup > 20 || warmup < 1 {
			t.Errorf("acceptance %s: %d steps of warm-up", acceptance, warmup)
		}
	}
	if sizes[1] >= sizes[0] {
		t.Errorf("%d steps where a quarter is accepted, %d where all are", sizes[1], sizes[0])
	}
}
