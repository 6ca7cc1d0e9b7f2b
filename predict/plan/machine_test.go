package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// Attention costs a sequence its square: with a long tail a mean trained token is in a
// sequence far longer than the mean, and the trainer is slower for it than with equal
// lengths of the same mean.
func TestTheTrainersContextIsThatOfItsTokens(t *testing.T) {
	const long = "modelled.length={kind: lognormal, mean_tokens: 16000, tailness: 70, cap_tokens: 131072}"
	p := problemOf(t, small, long, "hardware.prompt_tokens=512")
	b := builder{document: p.Document, lengths: p.Lengths}
	mean, square := p.Lengths.Mean(), p.Lengths.MeanSquare()
	if have, want := b.context(), (512*512+2*512*mean+square)/(512+mean); math.Abs(have/want-1) > 1e-12 || have < 1.5*(512+mean) {
		t.Errorf("context %g, by hand %g, mean sequence %g", have, want, 512+mean)
	}
	level := problemOf(t, small, "modelled.length={kind: fixed, mean_tokens: 16000}", "hardware.prompt_tokens=512")
	if tail, even := p.Machine.TrainTokensPerSPerGPU, level.Machine.TrainTokensPerSPerGPU; tail > 0.95*even {
		t.Errorf("%g tokens/s a GPU with a tail, %g without", tail, even)
	}
}

// A 405B model can be planned on GPUs of 80 GB.
func TestLargeModelsCanBePlanned(t *testing.T) {
	p := problemOf(t, small, "hardware.model=llama-3.1-405b", "hardware.gpus=512", "hardware.train_gpus_unit=8")
	if m := p.Machine; m.TrainGPUsMin < 96 || m.TrainGPUsMin > 256 || m.GPUsPerReplica < 16 {
		t.Errorf("%d train GPUs at least (%s), %d a replica", m.TrainGPUsMin, m.TrainFloor, m.GPUsPerReplica)
	}
}

// Measured points of a known model and GPU are said as keys, which plan other lengths with them.
func TestPointsAreSaidAsKeys(t *testing.T) {
	const bandwidth, overhead = "hardware.bandwidth_use=0.45", "hardware.step_overhead_s=0.006"
	made := problemOf(t, small, bandwidth, overhead).Machine
	var points []string
	for _, active := range []float64{1, 8, 32, 64} {
		points = append(points, fmt.Sprintf("{active: %g, tokens_per_s: %g}", active, 1/made.StepS(active)))
	}
	measured := problemOf(t, small, "modelled.decode_curve=["+strings.Join(points, ", ")+"]").Machine
	const want = "these points are the roofline with hardware.bandwidth_use 0.45 and hardware.step_overhead_s 0.006, the worst step 0 % off"
	if !slices.ContainsFunc(measured.Notes, func(note string) bool { return strings.HasPrefix(note, want) }) {
		t.Errorf("%q do not say %q", measured.Notes, want)
	}
}
