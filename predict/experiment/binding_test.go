package experiment

import (
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/predict/plan"
)

// Plan and simulate name the same sides of the same document.
func TestPlanAndSimulateNameTheSameSides(t *testing.T) {
	seen := map[string]bool{}
	for _, settings := range [][]string{
		{"hardware.rollout_gpus=12", "budget.staleness_mean=1"},
		{"hardware.rollout_gpus=12", "budget.staleness_mean=4", "modelled.sync.time_s=8"},
		{"hardware.rollout_gpus=2", "budget.staleness_mean=8"},
		{"hardware.rollout_gpus=12", "budget.staleness_mean=12"},
		{"hardware.rollout_gpus=12", "budget.staleness_mean=4", "sync.trainer=blocked", "modelled.sync.time_s=30"},
	} {
		raw, err := config.Parse("plan.yaml", plan.Example)
		if err == nil {
			raw, err = raw.Set(append([]string{"hardware.train_gpus=4", "hardware.gpus_per_replica=1", "search.batch=[128]", "search.slots_per_gpu=[128]",
				"search.policies=[bounded]", "search.finalists=1",
				"hardware.bandwidth_use=0.7", "hardware.step_overhead_s=0.003", "hardware.mfu=0.35"}, settings...)...)
		}
		if err != nil {
			t.Fatal(err)
		}
		problem, err := PlanProblem(raw, func(config.Warning) {})
		if err != nil {
			t.Fatal(err)
		}
		made, err := plan.Make(&problem)
		if err != nil {
			t.Fatal(err)
		}
		document, err := problem.DocumentOf(&made.Recommended)
		if err != nil {
			t.Fatal(err)
		}
		document.Steps.Measured, document.Steps.Warmup = 300, 50
		setting, err := Input(document)
		if err != nil {
			t.Fatal(err)
		}
		found, err := simulate(Case{Document: document, Setting: setting})
		if err != nil {
			t.Fatal(err)
		}
		said := made.Recommended.Simulated
		planned, simulated := attribution.Binding(said.Binding, *said.Engines), attribution.Binding(found.Throughput.Binding, found.Attribution.Engines)
		if !slices.Equal(planned, simulated) {
			t.Errorf("%v: plan names %v, simulate %v", settings, planned, simulated)
		}
		if waits := found.Attribution.Trainer; simulated[0] == "sync" != (waits.Syncing > waits.Total/2) && simulated[0] != "train" {
			t.Errorf("%v: %v bind, and the trainer waits %+v", settings, simulated, waits)
		}
		seen[strings.Join(simulated, " ")] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %v bind", seen)
	}
}
