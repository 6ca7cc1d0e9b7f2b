package reproduce

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/hardware"
)

// The documents of the case studies say that their speeds are the hardware model's: they
// must be, and their step that of the published MFU.
func TestDocumentsHaveTheSpeedsTheyClaim(t *testing.T) {
	model, err := hardware.ModelNamed(matchingModel)
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := hardware.GPUNamed(matchingGPU)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name            string
		gpus, trainGPUs int
		attention       bool // counted in the step
	}{{"slime_swe", 8, 32, false}, {"verl_uni_agent", 4, 40, true}} {
		d, err := readDocument(test.name)
		if err != nil {
			t.Fatal(err)
		}
		lengths, err := d.LengthModel()
		if err != nil {
			t.Fatal(err)
		}
		replica := hardware.Replica{Model: model, GPU: gpu, GPUs: test.gpus, WeightBytes: 1, PromptTokens: matchingPrompt,
			MeanTokens: lengths.Mean(), MeanSquareTokens: lengths.MeanSquare()}
		slots, err := replica.Slots()
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range d.Modelled.DecodeCurve {
			want := replica.SlotSpeed(float64(min(point.Active, slots))) * math.Min(1, float64(slots)/float64(point.Active))
			if math.Abs(point.TokensPerS/want-1) > 0.05 {
				t.Errorf("%s: %d active: %g tokens/s, the model says %.1f", test.name, point.Active, point.TokensPerS, want)
			}
		}
		trainer := hardware.Trainer{Model: model, GPU: gpu, GPUs: test.trainGPUs, MFU: 0.105, Recompute: true}
		if test.attention {
			trainer.ContextTokens = lengths.Mean()
		}
		if want := float64(d.Train.Batch) * lengths.Mean() / trainer.TokensPerS(); math.Abs(d.Modelled.Train.StepS/want-1) > 0.05 {
			t.Errorf("%s: a step of %g s, the model says %.1f", test.name, d.Modelled.Train.StepS, want)
		}
		prefill := 10000 / replica.PrefillSeconds(10000)
		if math.Abs(d.Modelled.Prefill.TokensPerS/prefill-1) > 0.05 {
			t.Errorf("%s: prefill at %g tokens/s, the model says %.0f", test.name, d.Modelled.Prefill.TokensPerS, prefill)
		}
	}
}

func TestSizedSpreadsSlots(t *testing.T) {
	d := config.Config{Engines: make([]config.Engine, 6)}
	for _, n := range []int{96, 256, 361} {
		at, sum := sized(d, n), 0
		for _, e := range at.Engines {
			sum += e.Slots
		}
		if sum != n || at.Rollout.Concurrency != n || at.Engines[0].Slots-at.Engines[5].Slots > 1 {
			t.Errorf("%d slots: %+v", n, at.Engines)
		}
	}
	if d.Engines[0].Slots != 0 {
		t.Error("the document itself was changed")
	}
}

func TestBufferCountsWhatIsInterruptedAtOnce(t *testing.T) {
	r := observed{buffered: []int{0, 5, 0, 0, 0, 7}}
	r.buffered = append(r.buffered, make([]int, slimeSteps)...)
	if got := r.spikes(5); len(got) != 1 || got[0] != 1 {
		t.Errorf("spikes after %v, want after step 1 alone", got)
	}
}
