package experiment

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/predict/plan"
)

// A part of a large fleet, simulated in its stead, has its staleness and its period.
func TestAPartStandsForALargeFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("it simulates batches of 16384 rollouts")
	}
	raw, err := config.Parse("plan.yaml", plan.Example)
	if err == nil {
		raw, err = raw.Set("hardware.gpus=600", "search.batch=[16384]", "search.policies=[drop, bounded]", "search.hold=[0]", "search.select=[oldest]", "search.finalists=1", "budget.staleness_mean=1.5")
	}
	if err != nil {
		t.Fatal(err)
	}
	problem, err := PlanProblem(raw, func(config.Warning) {})
	if err != nil {
		t.Fatal(err)
	}
	simulation, most := problem.Simulation, 0
	problem.Simulation = func(d config.Config) (sim.Config, error) {
		most = max(most, d.Train.Batch)
		return simulation(d)
	}
	made, err := plan.Make(&problem)
	if err != nil {
		t.Fatal(err)
	}
	c := made.Recommended
	if c.Simulated == nil || c.Simulated.Scale != 8 || most != 2048 {
		t.Fatalf("%+v, largest batch %d", c.Simulated, most)
	}
	whole, err := problem.DocumentOf(&c)
	if err != nil {
		t.Fatal(err)
	}
	whole.Steps.Warmup, whole.Steps.Measured = 20, 20
	cfg, err := simulation(whole)
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]float64{"staleness": {c.Simulated.StalenessMean, result.Summary.Staleness.Mean}, "period": {c.Simulated.PeriodS, result.Summary.PeriodS.Mean}} {
		if math.Abs(pair[0]/pair[1]-1) > 0.03 {
			t.Errorf("%s: %g by a part, %g of the whole fleet", name, pair[0], pair[1])
		}
	}
}
