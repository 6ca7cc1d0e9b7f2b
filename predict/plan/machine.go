package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/cases"
	"github.com/headway-rl/headway/predict/hardware"
)

// slotsWanted is how many rollouts the smallest useful replica holds, where the
// document does not say how large one is: fewer read the weights for nothing.
const slotsWanted = 16

// slotsTop bounds the rollouts at once on a replica that nothing else bounds.
const slotsTop = 4096

// NewMachine works out what a document's GPUs can do: by rooflines, by what was
// measured, or by both. The error is a [config.Errors] that blames a key.
func NewMachine(d config.Config, lengths *workload.Lengths) (Machine, error) {
	h := d.Hardware
	if h.GPUs == 0 {
		return Machine{}, d.Refuse("hardware.gpus", "is missing: a plan divides GPUs", "a number of them, such as 64; or --gpus N")
	}
	b := builder{document: d, lengths: lengths}
	b.machine = Machine{spread: spreads{decode: func(float64) float64 { return 0 }, train: func(int, int) float64 { return 0 }}, GPUs: h.GPUs, GPUsPerReplica: max(h.GPUsPerReplica, 1), TrainGPUsUnit: max(h.TrainGPUsUnit, 1), PromptTokens: h.PromptTokens + toolTokens(d)}
	if tools := toolTokens(d); tools > 0 {
		b.note("tools return %.0f tokens a rollout: half of them stand in a running rollout's cache on average, a train step reads all, and engines read them with the prompt; their reading again after a lost cache is left out", tools)
	}
	if d.Modelled.Length.Kind == workload.KindLognormal && d.Modelled.Sessions == "" {
		b.machine.spread.lengths = tailSpread
	}
	for _, build := range []func() error{b.facts, b.decoding, b.prefill, b.training, b.sync, b.enough} {
		if err := build(); err != nil {
			return Machine{}, err
		}
	}
	return b.machine, nil
}

// toolTokens is what the tools of a mean rollout return in all, in tokens.
func toolTokens(d config.Config) float64 {
	return d.Modelled.Tools.Calls * float64(d.Modelled.Tools.OutputTokens)
}

// builder builds a machine.
type builder struct {
	document config.Config
	lengths  *workload.Lengths
	machine  Machine
	model    hardware.Model
	gpu      hardware.GPU
	// known says that both model and GPU are, so that rooflines hold.
	known bool
}

func (b *builder) note(format string, args ...any) {
	b.machine.Notes = append(b.machine.Notes, fmt.Sprintf(format, args...))
}

// facts looks the model and the GPU up.
func (b *builder) facts() error {
	h := b.document.Hardware
	var err error
	if h.Model != "" {
		if b.model, err = hardware.ModelNamed(h.Model); err != nil {
			return b.document.Refuse("hardware.model", unknownName(err), "")
		}
		b.note("%s: %s", b.model.Name, b.model.Source)
	}
	shaped := override(&b.model, h.Shape)
	if h.GPU != "" {
		if b.gpu, err = hardware.GPUNamed(h.GPU); err != nil {
			return b.document.Refuse("hardware.gpu", unknownName(err), "")
		}
		b.note("%s: %s", b.gpu.Name, b.gpu.Source)
		b.machine.GPU = b.gpu.Name
	}
	b.machine.Model = b.model.Name
	if h.Model == "" && !shaped {
		return nil
	}
	if err := b.model.Validate(); err != nil {
		return b.document.Refuse("hardware.shape", err.Error(), "")
	}
	b.known = h.GPU != ""
	return nil
}

// unknownName is what is wrong with a preset's name, without the name itself,
// which stands before it.
func unknownName(err error) string {
	text := err.Error()
	if _, rest, found := strings.Cut(text, " is not known"); found {
		text = "is not known" + rest
	}
	return text
}

// override replaces what a document says of a model's shape, and reports whether it says anything.
func override(m *hardware.Model, s config.ModelShape) bool {
	if s == (config.ModelShape{}) {
		return false
	}
	for _, f := range []struct {
		target *float64
		value  float64
	}{{&m.Parameters, s.Parameters}, {&m.ActiveParameters, s.ActiveParameters}, {&m.KVBytesPerToken, s.KVBytesPerToken}, {&m.ExpertParameters, s.ExpertParameters}} {
		if f.value > 0 {
			*f.target = f.value
		}
	}
	for _, f := range []struct {
		target *int
		value  int
	}{{&m.Layers, s.Layers}, {&m.KVHeads, s.KVHeads}, {&m.HeadDim, s.HeadDim}, {&m.Experts, s.Experts}, {&m.ExpertsPerToken, s.ExpertsPerToken}} {
		if f.value > 0 {
			*f.target = f.value
		}
	}
	if s.KVHeads > 0 || s.HeadDim > 0 {
		m.KVBytesPerToken = 0 // heads say it
	}
	return true
}

// replica is one engine by its roofline, with what published runs show beside it. Keys of the document come before
// that: a step_overhead_s is all of a step that no roofline explains.
func (b *builder) replica() hardware.Replica {
	h := b.document.Hardware
	r := cases.Shipped().Engine(hardware.Replica{Model: b.model, GPU: b.gpu, GPUs: b.machine.GPUsPerReplica, WeightBytes: h.WeightBytes, KVBytes: h.KVBytes,
		MemoryUse: h.MemoryUse, PromptTokens: h.PromptTokens + toolTokens(b.document)/2, MeanTokens: b.lengths.Mean(), MeanSquareTokens: b.lengths.MeanSquare()})
	r.BandwidthUse, r.PrefillUse = cmp.Or(h.BandwidthUse, r.BandwidthUse), h.PrefillUse
	if b.document.Given("hardware.step_overhead_s") {
		r = withOverhead(r, h.StepOverheadS)
	}
	return r
}

// withOverhead is a replica whose step has that much beside its roofline and nothing else.
func withOverhead(r hardware.Replica, seconds float64) hardware.Replica {
	r.LayerS, r.ExchangeS, r.ExpertS = 0, 0, 0
	if r.StepOverheadS = seconds; seconds == 0 {
		r.StepOverheadS = -1 // hardware's word for none
	}
	return r
}

// decoding finds the speed of engines: measured points, a measured speed on the
// roofline's shape, or the roofline.
func (b *builder) decoding() error {
	h := b.document.Hardware
	if b.known {
		if err := b.slots(); err != nil {
			return err
		}
	}
	switch {
	case len(b.document.Modelled.DecodeCurve) > 0:
		if err := b.curve(b.document.Modelled.DecodeCurve); err != nil {
			return err
		}
	case h.RolloutTokensPerSPerGPU > 0:
		return b.measured(h.RolloutTokensPerSPerGPU, h.SlotsPerGPU)
	case b.known:
		r := b.replica()
		b.roofline(r)
		if !b.document.Given("hardware.bandwidth_use") || !b.document.Given("hardware.step_overhead_s") {
			b.machine.spread.decode = func(active float64) float64 { return cases.Shipped().EngineSpread(r, active) }
		}
		b.note("decoding by roofline at %.0f %% of peak bandwidth and %.1f ms a step beside it, %s", 100*r.BandwidthUse, 1e3*r.Decode(1).Overhead, b.source("hardware.bandwidth_use", "hardware.step_overhead_s"))
	default:
		return b.document.Refuse("hardware", "does not say how fast engines are", "model and gpu, or rollout_tokens_per_s_per_gpu with slots_per_gpu, or modelled.decode_curve")
	}
	if h.SlotsPerGPU > 0 && h.RolloutTokensPerSPerGPU == 0 {
		return b.pinned(h.SlotsPerGPU)
	}
	return nil
}

// source says where such keys' figures are from.
func (b *builder) source(keys ...string) string {
	if slices.ContainsFunc(keys, b.document.Given) {
		return "as the document says"
	}
	return "as published runs show: yours may differ until calibrated"
}

// prefill takes the document's own speed of reading, where it gives one.
func (b *builder) prefill() error {
	given, m := b.document.Modelled.Prefill, &b.machine
	speed := b.document.Hardware.PrefillTokensPerS
	switch {
	case given.TokensPerS > 0 && given.Mode != "engine":
		m.PrefillS, m.ReadS = 0, m.PromptTokens/given.TokensPerS
		b.note("prompts and tools' outputs are read at modelled.prefill.tokens_per_s %s, beside decoding; closed forms leave waits for a pool out", plain(given.TokensPerS))
		return nil
	case speed == 0:
		speed = given.TokensPerS
	}
	if speed > 0 && !b.wholeFleet() {
		m.PrefillS = m.PromptTokens / speed
		b.note("a replica reads prompts and tools' outputs at %s tokens/s, as given", plain(speed))
	}
	return nil
}

// wholeFleet reports whether the document's curve is of one engine that stands for
// all replicas, evenly loaded, with the reading of prompts in it: as a plan writes it.
func (b *builder) wholeFleet() bool {
	d := b.document
	points := d.Modelled.DecodeCurve
	return len(points) > 0 && d.Given("engines") && len(d.Engines) == 1 && d.Given("rollout.concurrency") &&
		points[len(points)-1].Active == d.Rollout.Concurrency && d.Hardware.RolloutGPUs > b.machine.GPUsPerReplica
}

// slots sizes a replica and what fits into its cache.
func (b *builder) slots() error {
	r := b.replica()
	if b.document.Hardware.GPUsPerReplica == 0 {
		r.HeadsRepeated = true // as a replica of more than one GPU has them
		smallest, err := hardware.SmallestReplica(r, slotsWanted)
		if err != nil {
			return b.document.Refuse("hardware", err.Error(), "")
		}
		r = smallest
		b.machine.GPUsPerReplica = r.GPUs
	}
	n, err := r.Slots()
	if err != nil {
		return b.document.Refuse("hardware.gpus_per_replica", err.Error(), "")
	}
	b.machine.SlotsMax = min(n, slotsTop)
	if !r.Splits() {
		b.machine.unsplit = fmt.Sprintf("replicas of %d GPUs cannot share the %d attention and %d key-value heads of %s evenly: vLLM and SGLang refuse such a tensor-parallel size",
			r.GPUs, r.Model.Architecture.Heads, r.Model.KVHeads, r.Model.Name)
	}
	b.note("a replica of %d × %s holds the caches of %d rollouts at %.0f tokens of mean resident context", r.GPUs, b.gpu.Name, n, r.ResidentTokens())
	return nil
}

// pinned fixes the rollouts at once.
func (b *builder) pinned(slotsPerGPU float64) error {
	slots := int(math.Round(slotsPerGPU * float64(b.machine.GPUsPerReplica)))
	if b.machine.SlotsMax > 0 && slots > b.machine.SlotsMax {
		return b.document.Refuse("hardware.slots_per_gpu", fmt.Sprintf("makes %d rollouts on a replica of %d GPUs, whose cache holds %d", slots, b.machine.GPUsPerReplica, b.machine.SlotsMax),
			fmt.Sprintf("at most %s", plain(math.Floor(10*float64(b.machine.SlotsMax)/float64(b.machine.GPUsPerReplica))/10)))
	}
	b.machine.SlotsFixed = max(slots, 1)
	return nil
}

// roofline takes a replica's decode step as it is.
func (b *builder) roofline(r hardware.Replica) {
	b.machine.StepS = func(active float64) float64 { return r.Decode(active).Seconds }
	b.machine.StepLimit = func(active float64) string { return string(r.Decode(active).Limit) }
	b.machine.PrefillS = r.PrefillSeconds(b.machine.PromptTokens)
}

// measured takes one measured speed: on the roofline's shape where model and GPU
// are known, else at the slots it was measured with and no others.
func (b *builder) measured(perGPU, slotsPerGPU float64) error {
	replica := float64(b.machine.GPUsPerReplica)
	slots, speed := slotsPerGPU*replica, perGPU*replica
	if !b.known {
		step := slots / speed
		b.machine.StepS = func(float64) float64 { return step }
		b.machine.StepLimit = func(float64) string { return "measured" }
		b.note("decoding as measured: %s tokens/s a GPU with %s rollouts on it; prompts are in that speed", plain(perGPU), plain(slotsPerGPU))
		return b.pinned(slotsPerGPU)
	}
	r, err := b.replica().Measured(slots, speed)
	if err != nil {
		return b.document.Refuse("hardware.rollout_tokens_per_s_per_gpu", "cannot be: "+err.Error(), "")
	}
	b.roofline(r)
	b.note("decoding on the roofline's shape, scaled by %.2f to the measured %s tokens/s a GPU with %s rollouts on it", r.Scale, plain(perGPU), plain(slotsPerGPU))
	return nil
}

// curve takes measured points of one replica: straight lines between the speeds
// of a slot, level below the first; nothing is known above the last.
func (b *builder) curve(points []config.DecodePoint) error {
	replicas := 1
	if b.wholeFleet() {
		replicas = b.document.Hardware.RolloutGPUs / b.machine.GPUsPerReplica
		b.note("the points are of one engine for all %d replicas, and prompts are in their speed", replicas)
	} else if b.known {
		b.machine.PrefillS = b.replica().PrefillSeconds(b.machine.PromptTokens)
	}
	for i, at := range points {
		if err := b.reachable(i, float64(at.Active)/float64(replicas), at.TokensPerS); err != nil {
			return err
		}
	}
	most := points[len(points)-1].Active / replicas
	if b.machine.SlotsMax == 0 || most < b.machine.SlotsMax {
		b.machine.SlotsMax = most
	}
	if replicas > 1 && b.machine.SlotsMax == most { // written by a plan for so many
		b.machine.SlotsFixed = most
	}
	b.machine.StepS = func(active float64) float64 { return 1 / slotSpeedOn(points, active*float64(replicas)) }
	b.machine.StepLimit = func(float64) string { return "measured" }
	b.note("decoding by %d measured points, up to %d rollouts on a replica", len(points), most)
	if b.known && replicas == 1 {
		b.calibrated(points)
	}
	return nil
}

// calibratedMost is how far off the worst step of a roofline may be that is said to be a curve's.
const calibratedMost = 0.1

// calibrated says which roofline the points of a curve are, since they are of one mean length and one replica.
// Compute has no key, so that points which it binds say nothing.
func (b *builder) calibrated(points []config.DecodePoint) {
	speeds := make([]hardware.DecodePoint, len(points))
	for i, at := range points {
		speeds[i] = hardware.DecodePoint{Active: float64(at.Active), TokensPerS: float64(at.Active) * at.TokensPerS}
	}
	c, err := hardware.FitDecode(withOverhead(b.replica(), 0), speeds)
	if err != nil || c.Worst > calibratedMost || !slices.Contains(c.Fitted, "bandwidth_use") || slices.Contains(c.Fitted, "compute_use") {
		return
	}
	keys := fmt.Sprintf("hardware.bandwidth_use %.2f", c.Replica.BandwidthUse)
	if slices.Contains(c.Fitted, "step_overhead_s") {
		keys += fmt.Sprintf(" and hardware.step_overhead_s %.2g", max(c.Replica.StepOverheadS, 0))
	}
	b.note("these points are the roofline with %s, the worst step %.0f %% off: plan other lengths or replicas with that instead of the points", keys, 100*c.Worst)
}

// reachable refuses a point of a curve that the device cannot reach.
func (b *builder) reachable(i int, active, tokensPerS float64) error {
	if !b.known {
		return nil
	}
	if _, err := b.replica().Measured(active, active*tokensPerS); err != nil {
		return b.document.Refuse(fmt.Sprintf("modelled.decode_curve.%d.tokens_per_s", i), "cannot be: "+err.Error(), "")
	}
	return nil
}

// slotSpeedOn reads a curve.
func slotSpeedOn(points []config.DecodePoint, active float64) float64 {
	for i, p := range points {
		if active > float64(p.Active) {
			continue
		}
		if i == 0 {
			return p.TokensPerS
		}
		before := points[i-1]
		share := (active - float64(before.Active)) / float64(p.Active-before.Active)
		return before.TokensPerS + share*(p.TokensPerS-before.TokensPerS)
	}
	return points[len(points)-1].TokensPerS
}

// training finds the trainer's speed and its memory floor.
func (b *builder) training() error {
	h, m := b.document.Hardware, &b.machine
	m.TrainGPUsMin, m.TrainFloor = m.TrainGPUsUnit, fmt.Sprintf("one unit of %d GPUs", m.TrainGPUsUnit)
	if h.TrainGPUsMin > 0 {
		m.TrainGPUsMin = up(h.TrainGPUsMin, m.TrainGPUsUnit)
		m.TrainFloor = fmt.Sprintf("hardware.train_gpus_min %d", h.TrainGPUsMin)
	}
	if !b.known {
		if h.TrainTokensPerSPerGPU == 0 {
			return b.document.Refuse("hardware", "does not say how fast the trainer is", "model and gpu, or train_tokens_per_s_per_gpu")
		}
		m.TrainTokensPerSPerGPU = h.TrainTokensPerSPerGPU
		b.note("training as measured: %s tokens/s a GPU, prompt and response together", plain(h.TrainTokensPerSPerGPU))
		return nil
	}
	t := hardware.Trainer{Model: b.model, GPU: b.gpu, GPUs: 1, MFU: h.MFU, Recompute: h.Recompute, MemoryUse: h.MemoryUse, Unit: m.TrainGPUsUnit,
		ContextTokens: b.context()}
	floor, err := t.MinimumGPUs()
	if err != nil {
		return b.document.Refuse("hardware", err.Error(), "")
	}
	if h.TrainGPUsMin == 0 {
		m.TrainGPUsMin = floor
		m.TrainFloor = fmt.Sprintf("weights, gradients and optimizer take %.0f GB, in units of %d × %s", t.StateBytes()/1e9, m.TrainGPUsUnit, b.gpu.Name)
	}
	if h.TrainTokensPerSPerGPU > 0 {
		mfu, err := t.MFUOf(h.TrainTokensPerSPerGPU)
		if err != nil {
			return b.document.Refuse("hardware.train_tokens_per_s_per_gpu", "cannot be: "+err.Error(), "")
		}
		m.TrainTokensPerSPerGPU = h.TrainTokensPerSPerGPU
		b.note("training as measured: %s tokens/s a GPU, an MFU of %.0f %%", plain(h.TrainTokensPerSPerGPU), 100*mfu)
		return nil
	}
	if h.MFU > 0 {
		m.TrainTokensPerSPerGPU = t.TokensPerS()
		b.note("training at an MFU of %.0f %%: %.0f tokens/s a GPU, prompt and response together", 100*h.MFU, m.TrainTokensPerSPerGPU)
		return nil
	}
	b.passes(t)
	return nil
}

// manyRollouts is a batch so large that launches and pipelines are as small a part of a step as they get.
const manyRollouts = 1 << 24

// passes takes a train step from its passes over micro-batches, as published runs show them. Each packs as much as the
// longest sequence has.
func (b *builder) passes(t hardware.Trainer) {
	m := &b.machine
	longest := m.PromptTokens + float64(b.lengths.Quantile(1))
	passes := 3.0
	if t.Recompute {
		passes++
	}
	m.TrainS = func(rollouts, tokens float64, gpus int) float64 {
		t := t
		t.GPUs = gpus
		fitted, layout := cases.Shipped().Trainer(t, t.UsualLayout(longest))
		return fitted.PassesS(layout, hardware.Batch{Tokens: tokens, Sequences: rollouts, MicroTokens: longest}, passes, 2)
	}
	m.spread.train = func(gpus, batch int) float64 {
		t := t
		t.GPUs = gpus
		rollouts := float64(batch)
		return cases.Shipped().TrainerSpread(t, t.UsualLayout(longest), hardware.Batch{Tokens: rollouts * (b.lengths.Mean() + m.PromptTokens), Sequences: rollouts, MicroTokens: longest})
	}
	tokens, gpus := manyRollouts*(b.lengths.Mean()+m.PromptTokens), max(m.TrainGPUsMin, b.gpu.NodeGPUs)
	m.TrainTokensPerSPerGPU = tokens / m.TrainS(manyRollouts, tokens, gpus) / float64(gpus)
	t.GPUs = gpus
	mfu, err := t.MFUOf(m.TrainTokensPerSPerGPU * float64(gpus))
	if err != nil {
		mfu = 0
	}
	b.note("training as published runs of trainers that split a model show: at most %.0f tokens/s a GPU, prompt and response together, an MFU of %.0f %% (hardware.mfu sets one: sharded trainers reach about %.0f %%)",
		m.TrainTokensPerSPerGPU, 100*mfu, 100*cases.Shipped().ShardedMFU(t, hardware.Batch{Tokens: tokens, Sequences: manyRollouts, MicroTokens: longest}, passes))
}

// context is the context that a mean trained token's sequence has, E[(p+L)²]/E[p+L]
// for a prompt of p and a response of L tokens: attention costs a sequence its square,
// and long ones have the more tokens.
func (b *builder) context() float64 {
	p, mean := b.document.Hardware.PromptTokens+toolTokens(b.document), b.lengths.Mean()
	return (p*p + 2*p*mean + b.lengths.MeanSquare()) / (p + mean)
}

// sync finds the time of a weight sync: the document's, else the model's.
func (b *builder) sync() error {
	d := b.document
	if d.Given("modelled.sync.time_s") || !b.known {
		at := d.Modelled.Sync.TimeS
		b.machine.SyncS = func(int, int) float64 { return at }
		if !d.Given("modelled.sync.time_s") {
			b.note("a weight sync takes no time: give modelled.sync.time_s, or model and gpu")
		}
		return nil
	}
	b.machine.SyncS = b.syncSeconds()
	b.machine.spread.sync = syncSpread
	b.machine.SwitchS = cases.Shipped().SwitchS(b.model)
	b.note("a weight sync is reckoned from %.1f GB of weights over %.0f GB/s a node", b.model.WeightBytes(2)/1e9, d.Hardware.NetworkBytesPerS/1e9)
	return nil
}

// syncSeconds is the usual sync of [hardware.SyncBetween] over the document's
// network. Where the model leaves it undefined it takes no time.
func (b *builder) syncSeconds() func(rolloutGPUs, trainGPUs int) float64 {
	h := b.document.Hardware
	trainer, replica := hardware.Trainer{Model: b.model, GPU: b.gpu}, b.replica()
	replica.WeightBytes = min(h.WeightBytes, 2)
	return func(rolloutGPUs, trainGPUs int) float64 {
		trainer := trainer
		trainer.GPUs = trainGPUs
		sync := hardware.SyncBetween(trainer, replica, max(rolloutGPUs/replica.GPUs, 1))
		sync.NetworkBytesPerS = h.NetworkBytesPerS
		times, err := sync.Times()
		if err != nil {
			return 0
		}
		return times.Seconds
	}
}

// enough refuses GPUs that hold no trainer beside one replica.
func (b *builder) enough() error {
	m := b.machine
	least := m.TrainGPUsMin + m.GPUsPerReplica
	if h := b.document.Hardware; h.TrainGPUs > 0 && h.TrainGPUs < m.TrainGPUsMin {
		return b.document.Refuse("hardware.train_gpus", "is below the trainer's floor: "+m.TrainFloor, fmt.Sprintf("at least %d", m.TrainGPUsMin))
	}
	if least <= m.GPUs {
		return nil
	}
	return b.document.Refuse("hardware.gpus", fmt.Sprintf("are too few: the trainer needs at least %d (%s) and one replica %d", m.TrainGPUsMin, m.TrainFloor, m.GPUsPerReplica),
		fmt.Sprintf("at least %d, or a smaller model, or a GPU with more memory", least))
}

// up rounds to the next multiple.
func up(n, unit int) int { return (n + unit - 1) / unit * unit }
