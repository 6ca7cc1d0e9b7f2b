package plan

import (
	"fmt"
	"math"
	"testing"

	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/schedule"
)

// Steps of NeMo-RL's published synchronous runs (performance summaries of v0.5 and v0.6, 2026-01-20 and 2026-04-29): mean
// of five steps in seconds, on shared GPUs. The lengths here are lognormal with the printed mean after the printed cap.
func TestPublishedSteps(t *testing.T) {
	for _, run := range []struct {
		model, gpu                  string
		gpus, replica, group, batch int
		mean, limit, prompt         int
		recompute                   bool
		measured                    float64
	}{
		{"qwen3-30b-a3b", "h100-sxm", 32, 2, 32, 2048, 5545, 3993, 103, false, 192},
		{"qwen3-235b-a22b", "h100-sxm", 128, 16, 32, 512, 8291, 8074, 118, true, 395},
		{"qwen3-235b-a22b", "gb200", 64, 8, 32, 512, 8324, 8074, 118, true, 286},
		{"deepseek-v3", "h100-sxm", 512, 32, 16, 512, 804, 1429, 107, true, 111},
		{"llama-3.1-8b", "h100-sxm", 16, 1, 32, 2048, 1046, 3969, 127, true, 92.8},
	} {
		p := problemOf(t, small, "hardware.model="+run.model, "hardware.gpu="+run.gpu, fmt.Sprint("hardware.gpus=", run.gpus), fmt.Sprint("hardware.gpus_per_replica=", run.replica),
			fmt.Sprint("rollout.group_size=", run.group), fmt.Sprint("hardware.prompt_tokens=", run.prompt), fmt.Sprint("hardware.recompute=", run.recompute),
			fmt.Sprintf("modelled.length={kind: lognormal, mean_tokens: %d, tailness: 60, cap_tokens: %d}", run.mean, run.limit))
		slots := min(run.batch/(run.gpus/run.replica), p.Machine.SlotsMax)
		in := Schedules(&p, &Candidate{Setting: Setting{RolloutGPUs: run.gpus / 2, TrainGPUs: run.gpus / 2, SlotsPerReplica: slots, BatchRollouts: run.batch, SyncEvery: 1}}).WithDefaults()
		if said := in.ClosedS(in.Arm(schedule.Colocated)); math.Abs(said/run.measured-1) > 0.2 {
			t.Errorf("%s on %d × %s: a step of %.0f s, and %.0f s were measured", run.model, run.gpus, run.gpu, said, run.measured)
		}
	}
}

// Efficiencies of the document come before those of published runs.
func TestGivenEfficienciesWin(t *testing.T) {
	m := problemOf(t, small, "hardware.model=qwen3-30b-a3b", "hardware.gpus_per_replica=2", "hardware.bandwidth_use=0.7", "hardware.step_overhead_s=0.003", "hardware.mfu=0.35").Machine
	free := problemOf(t, small, "hardware.model=qwen3-30b-a3b", "hardware.gpus_per_replica=2")
	b := builder{document: free.Document, lengths: free.Lengths, machine: free.Machine}
	if err := b.facts(); err != nil {
		t.Fatal(err)
	}
	r := b.replica()
	plain := hardware.Replica{Model: r.Model, GPU: r.GPU, GPUs: 2, PromptTokens: r.PromptTokens, MeanTokens: r.MeanTokens, MeanSquareTokens: r.MeanSquareTokens}
	for _, active := range []float64{1, 64} {
		if have, want := m.StepS(active), plain.Decode(active).Seconds; math.Abs(have/want-1) > 1e-12 {
			t.Errorf("a step of %g rollouts takes %g s, by the keys %g s", active, have, want)
		}
		if free.Machine.StepS(active) <= m.StepS(active) {
			t.Errorf("without the keys a step of %g rollouts takes %g s, with them %g s", active, free.Machine.StepS(active), m.StepS(active))
		}
	}
	trainer := hardware.Trainer{Model: r.Model, GPU: r.GPU, GPUs: 1, Recompute: true, ContextTokens: b.context()}
	if have, want := m.updateS(1000, 1000, 8), 1e6/(8*trainer.TokensPerS()); math.Abs(have/want-1) > 1e-12 {
		t.Errorf("an update takes %g s, at the document's MFU %g s", have, want)
	}
	// Small batches pay for launches: a quarter of the rollouts take more than half the time.
	if whole, quarter := free.Machine.updateS(32, 2500, 16), free.Machine.updateS(8, 2500, 16); quarter < 0.5*whole {
		t.Errorf("8 rollouts are trained in %g s, 32 in %g s", quarter, whole)
	}
}
