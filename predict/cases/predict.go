package cases

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/schedule"
)

// Parts are what a step's time is made of, in seconds. A part that a row does not have is 0. They
// add up to more than the step where some run beside others.
type Parts struct {
	// Generation is the time in which a step's responses are made, Training that of its updates. LogProbs are the passes
	// beside them. Sync is the weights' way back, or the change of shared GPUs.
	Generation float64 `json:"generation_s"`
	Training   float64 `json:"train_s"`
	LogProbs   float64 `json:"logprob_s"`
	Sync       float64 `json:"sync_s"`
	// Step is the whole: of a trainer or a sync alone, that part.
	Step float64 `json:"step_s"`
}

// parts predicts a row under the constants.
func (s *setup) parts(c [constants]float64) Parts {
	switch s.rules.kind {
	case kindSync:
		sync := s.syncS(c)
		return Parts{Sync: sync, Step: sync}
	case kindTrain:
		l := s.lengthsOf(c[lengthSpread])
		t := s.trainS(c, l)
		return Parts{Training: t, Step: t}
	}
	l := s.lengthsOf(c[lengthSpread])
	p := Parts{Training: s.trainS(c, l), LogProbs: s.logProbsS(c, l)}
	if s.rules.shared { // also where both sides take turns before a batch is whole
		p.Sync = switchS(c, s.model)
	} else {
		p.Sync = s.syncS(c) / s.rules.syncEvery
	}
	in, name := s.input(c, l, p)
	arm := in.Arm(name)
	p.Generation = s.generationS(in, arm)
	switch {
	case s.rules.shared && s.rules.async:
		p.Step = p.Generation + p.Training + p.LogProbs + p.Sync
	case s.rules.helping:
		p.Step = s.helpedS(c, in, arm, p)
	default:
		p.Step = in.ClosedS(arm)
	}
	return p
}

// helpedS is a step whose trainer's GPUs generate while they do not train: all GPUs are busy with the work
// of both sides and with changing over. It is no shorter than the training, and no longer than without help.
func (s *setup) helpedS(c [constants]float64, in schedule.Input, arm schedule.Arm, p Parts) float64 {
	train, rollout := float64(s.row.TrainGPUs), float64(in.RolloutGPUs)
	busy := p.Training + p.LogProbs + c[sharedSwitch]
	t := (in.WorkS(arm.RolloutGPUs)*rollout + busy*train) / (rollout + train)
	return math.Min(math.Max(t, p.Training+p.LogProbs)+p.Sync, in.ClosedS(arm))
}

// generationS is the barrier of a batch, or the work where batches overlap.
func (s *setup) generationS(in schedule.Input, arm schedule.Arm) float64 {
	if arm.Name == schedule.Partial {
		return in.WorkS(arm.RolloutGPUs)
	}
	return in.BarrierS(arm.RolloutGPUs)
}

// input is the row's schedule.
func (s *setup) input(c [constants]float64, l *workload.Lengths, p Parts) (schedule.Input, schedule.Name) {
	slots, decode := s.engine(c, l)
	group := max(s.row.Samples, 1)
	if int(s.sequences)%group != 0 {
		group = 1
	}
	in := schedule.Input{Lengths: l, GroupSize: group, BatchGroups: max(int(s.sequences)/group, 1), GPUsPerEngine: s.row.engineGPUs(),
		SlotsPerEngine: slots, Decode: decode, Pieces: s.rules.pieces, Threshold: s.rules.ahead, Kept: s.kept,
		Train: schedule.Phase{S: p.Training + p.LogProbs, GPUs: 1, FixedS: p.Training + p.LogProbs}, SyncS: p.Sync, SwitchS: p.Sync}
	in.RolloutGPUs = s.row.replicas() * in.GPUsPerEngine
	in.GPUs = in.RolloutGPUs + s.row.TrainGPUs
	if s.rules.shared && !s.rules.async {
		in.GPUs = in.RolloutGPUs
	}
	in = in.WithDefaults()
	switch {
	case s.rules.shared && !s.rules.async:
		return in, schedule.Colocated
	case !s.rules.async || s.rules.ahead == 0:
		return in, schedule.Synchronous
	}
	if s.rules.inFlight {
		in.SyncS, in.LoadS = 0, p.Sync // engines generate through it; the trainer waits
	}
	in.Threshold = s.rules.ahead
	return in, schedule.Partial
}

// trainer is the training side under the constants.
func (s *setup) trainer(c [constants]float64, l *workload.Lengths) (hardware.Trainer, hardware.Layout) {
	t := hardware.Trainer{Model: s.model, GPU: s.gpu, GPUs: max(s.row.TrainGPUs, 1), ContextTokens: s.contextTokens(l)}
	layout := hardware.Layout{Tensor: s.row.TrainTP, Context: s.row.TrainCP, Expert: s.row.TrainEP, Pipeline: s.row.TrainPP}
	return trainer(c, t, layout, s.rules.fsdp)
}

// batch is what one step trains.
func (s *setup) batch() hardware.Batch {
	return hardware.Batch{Tokens: s.sequences * (s.promptTokens + s.meanTokens), Sequences: s.sequences, Updates: max(s.row.OptimizerSteps, 1),
		MicroTokens: s.promptTokens + s.capTokens}
}

// crossEntropy is what a logit takes in supervised training, in shares of what it takes where the entropy is formed as well:
// about 30 bytes are moved for each instead of 110.
const crossEntropy = 0.3

// trainS is the time of a step's updates.
func (s *setup) trainS(c [constants]float64, l *workload.Lengths) float64 {
	t, layout := s.trainer(c, l)
	passes := 3.0
	if s.row.Recompute {
		passes++
	}
	b := s.batch()
	b.Frozen = s.rules.lora
	if s.rules.supervised {
		t.LogitS *= crossEntropy
	}
	return t.PassesS(layout, b, passes, s.rules.trainBytes) + s.hostS(c) + s.exportS(c)
}

// The bytes of a parameter that an optimizer in host memory reads and writes, of the state that moves
// to the GPU where it is only kept there, and of all state on GPUs.
const (
	hostTraffic = 28
	stateMoved  = 12
	stateOnGPUs = 16
	stateAtMost = 0.9
	hostPerGPU  = 25e9
)

// hostS is what an optimizer outside the GPUs adds to the updates: all of it where its state does not
// fit there, its way in and out where it is kept away between updates.
func (s *setup) hostS(c [constants]float64) float64 {
	if s.rules.lora {
		return 0
	}
	gpus, updates := float64(max(s.row.TrainGPUs, 1)), float64(max(s.row.OptimizerSteps, 1))
	if s.model.Parameters*stateOnGPUs/gpus > stateAtMost*s.gpu.MemoryBytes {
		nodes := math.Max(gpus/float64(max(min(s.gpu.NodeGPUs, 8), 1)), 1)
		return updates * s.model.Parameters * hostTraffic / nodes / c[hostRate]
	}
	if s.rules.offloaded {
		return updates * 2 * s.model.Parameters * stateMoved / gpus / hostPerGPU
	}
	return 0
}

// exportS is the time in which a sharded trainer that is measured alone gathers its weights and writes them
// for engines, as trainers of reinforcement learning do. Where engines are there, that is the sync.
func (s *setup) exportS(c [constants]float64) float64 {
	if s.rules.kind != kindTrain || !s.rules.fsdp || s.rules.lora || s.rules.supervised {
		return 0
	}
	return s.model.WeightBytes(2) / c[exportRate]
}

// logProbsS is the time of the forward passes beside the updates.
func (s *setup) logProbsS(c [constants]float64, l *workload.Lengths) float64 {
	passes := 0.0
	if s.row.OldLogProbs {
		passes++
	}
	if s.row.Reference {
		passes++
	}
	if passes == 0 {
		return 0
	}
	t, layout := s.trainer(c, l)
	b := s.batch()
	b.Updates = 1
	return t.PassesS(layout, b, passes, s.rules.trainBytes)
}

// syncS is one sync between separate GPUs: tensors gathered and sent whole, one after another, or
// shards into each GPU's memory.
func (s *setup) syncS(c [constants]float64) float64 {
	if s.rules.lora {
		return c[syncStart]
	}
	bytes, start := s.model.WeightBytes(s.rules.rolloutBytes), c[syncStart]
	if s.rules.rolloutBytes < 2 { // the trainer's own are of two bytes or more
		start += s.model.Tensors() * convertS
	}
	if s.rules.sharded {
		return start - 0.75*c[syncStart] + bytes/float64(max(s.row.engineGPUs(), 1))/c[syncRate]
	}
	if s.rules.buckets { // every node takes all of it, by all its cards
		return start + bytes/float64(min(max(s.row.engineGPUs(), 1), max(min(s.gpu.NodeGPUs, 8), 1)))/c[syncRate]
	}
	return start + wholeS(c, s.model, s.rules.rolloutBytes)
}

// convertS is what a tensor takes to become one of fewer bytes, in seconds: its maximum, its scale and the cast are five
// launches of 20 µs.
const convertS = 0.0001
