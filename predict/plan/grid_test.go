package plan

import (
	"slices"
	"testing"
)

// Every split is ranked that has work for both sides at some batch. At a single group a trainer of a mixture of experts
// does little but launch, however many GPUs it has.
func TestSplitsOfLargeFleetsAreRanked(t *testing.T) {
	p := problemOf(t, mixture, "hardware.gpus=512", "hardware.gpus_per_replica=2")
	eval, err := newEvaluator(&p)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGrid(&p, limitsOf(&p))
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		split
		slots int
	}
	ranked := map[place]bool{}
	for _, c := range g.candidates(eval) {
		ranked[place{split{c.RolloutGPUs, c.TrainGPUs}, c.SlotsPerReplica}] = true
	}
	for _, s := range g.splits {
		for _, slots := range g.slots {
			c := Candidate{Setting: Setting{RolloutGPUs: s.rollout, TrainGPUs: s.train, Replicas: s.rollout / 2, SlotsPerReplica: slots, BatchRollouts: slices.Max(g.batches)}}
			eval.rates(&c)
			if rho := eval.balance(&c); rho > 1 && rho < usefulRho && !eval.absurd(&c) && !ranked[place{s, slots}] {
				t.Fatalf("%d + %d GPUs with %d slots are left out, at ρ %.2f with batches of %d", s.rollout, s.train, slots, rho, c.BatchRollouts)
			}
		}
	}
}
