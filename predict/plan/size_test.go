package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// mixture is a mixture of experts that fits on one GPU, but reads most of its weights for a few rollouts.
const mixture = `
rollout: {group_size: 8}
modelled:
  length: {kind: lognormal, mean_tokens: 3000, tailness: 60, cap_tokens: 16384}
hardware: {model: qwen3-30b-a3b, gpu: h100-sxm, gpus: 64}
prices: {gpu_hour: 2.5}
budget: {staleness_mean: 2}
search: {policies: [drop]}
`

// searching is a problem whose size of a replica is open.
func searching(t *testing.T, text string, overrides ...string) Problem {
	t.Helper()
	p := problemOf(t, text, overrides...)
	p.Larger = LargerMachines(p.Document, p.Lengths, p.Machine)
	return p
}

// Four key-value heads are repeated on eight GPUs: published runs of this model have replicas of 1 to 4.
// A plan that is left the size of a replica is no worse than any that is told it, and its document names the size.
func TestPlanSearchesTheSizeOfAReplica(t *testing.T) {
	problem := searching(t, mixture)
	found, err := Make(&problem)
	if err != nil {
		t.Fatal(err)
	}
	best := found.Recommended.Best()
	for _, gpus := range []string{"1", "2", "4", "8"} {
		told := made(t, mixture, "hardware.gpus_per_replica="+gpus).Recommended.Best()
		if told.UpdateS < best.UpdateS*(1-tie) {
			t.Errorf("an update of %.3g s with replicas of %s GPUs, and %.3g s found", told.UpdateS, gpus, best.UpdateS)
		}
	}
	sizes := found.ReplicaSizes
	if len(sizes) != 4 || sizes[0].GPUs != found.Machine.GPUsPerReplica || sizes[0].GPUs == 1 || sizes[0].GPUs > 4 || sizes[1].UpdateRatio <= 1 || sizes[1].CostRatio <= 1 {
		t.Fatalf("sizes %+v", sizes)
	}
	if text := found.sizeText(); !strings.Contains(text, "slower") || !strings.Contains(strings.Join(found.Why, "\n"), text) {
		t.Errorf("said %q", text)
	}
	document, err := problem.DocumentOf(&found.Recommended)
	if err != nil || document.Hardware.GPUsPerReplica != sizes[0].GPUs {
		t.Errorf("the document has replicas of %d GPUs: %v", document.Hardware.GPUsPerReplica, err)
	}
}

// The size is not searched where the document fixes it, a measured speed has one, or the split allows no other.
func TestSizesThatAreTried(t *testing.T) {
	for _, test := range []struct {
		overrides []string
		larger    []int
	}{
		{nil, []int{2, 4, 8}},
		{[]string{"hardware.gpus_per_replica=2"}, nil},
		{[]string{"hardware.rollout_gpus=12"}, []int{2, 4}},
		{[]string{"hardware.gpus=14"}, []int{2, 4}},
		{[]string{"hardware.rollout_tokens_per_s_per_gpu=400", "hardware.slots_per_gpu=8"}, nil},
		{[]string{"modelled.decode_curve=[{active: 8, tokens_per_s: 50}]"}, nil},
		{[]string{"hardware.model=deepseek-v3", "hardware.gpus=512"}, []int{32, 40, 48}},
		{[]string{"hardware.model=qwen2.5-7b"}, []int{2, 4}}, // 28 heads
	} {
		var larger []int
		for _, m := range searching(t, mixture, test.overrides...).Larger {
			larger = append(larger, m.GPUsPerReplica)
		}
		if len(larger) != len(test.larger) || len(larger) > 0 && larger[len(larger)-1] != test.larger[len(larger)-1] {
			t.Errorf("%q: replicas of %v GPUs are tried, want %v", test.overrides, larger, test.larger)
		}
	}
	if larger := LargerMachines(config.Config{}, nil, Machine{GPUsPerReplica: 1}); larger != nil {
		t.Errorf("without a GPU: %v", larger)
	}
}

// A size that heads do not divide by is planned where the document gives it, and said to be none of an engine's.
func TestASizeThatHeadsDoNotDivideBy(t *testing.T) {
	for gpus, want := range map[string]bool{"4": false, "8": true} {
		p := made(t, small, "hardware.model=qwen2.5-7b", "hardware.gpus_per_replica="+gpus)
		if said := strings.Contains(strings.Join(p.Warnings, "\n"), "cannot share the 28 attention and 4 key-value heads"); said != want {
			t.Errorf("replicas of %s GPUs: %q", gpus, p.Warnings)
		}
	}
}

// The smallest useful replica holds what a replica of that size does: its GPUs beyond the key-value heads hold copies.
func TestTheSmallestReplicaHoldsCopiesToo(t *testing.T) {
	for _, model := range []string{"qwen3-235b-a22b", "deepseek-v3"} {
		smallest := problemOf(t, small, "hardware.model="+model, "hardware.gpus=1024", "search.slots_per_gpu=null").Machine
		told := problemOf(t, small, "hardware.model="+model, "hardware.gpus=1024", "search.slots_per_gpu=null", fmt.Sprint("hardware.gpus_per_replica=", smallest.GPUsPerReplica)).Machine
		if smallest.GPUsPerReplica < 8 || smallest.SlotsMax != told.SlotsMax {
			t.Errorf("%s: replicas of %d GPUs hold %d rollouts, and %d where the document gives that size", model, smallest.GPUsPerReplica, smallest.SlotsMax, told.SlotsMax)
		}
	}
}
