package hardware

import "math"

// Layout is how a trainer splits one copy of a model over GPUs, with the cost of it beyond
// arithmetic. Zero counts mean 1.
type Layout struct {
	// Tensor, Context and Pipeline are the GPUs that split layers, sequences and depth; Expert those that share the
	// experts of a layer. Experts are shared among copies, so that Expert makes none of them larger.
	Tensor, Context, Expert, Pipeline int
	// LayerS is what a layer takes in one pass of one micro-batch however small: launches and exchanges, in seconds.
	LayerS float64
	// ExpertS is what each expert that lies on a GPU adds to that, in seconds.
	ExpertS float64
}

// Batch is what is trained in one step of the loop.
type Batch struct {
	// Tokens of all Sequences, prompts included. Above 0.
	Tokens, Sequences float64
	// Updates is the optimizer steps that they are split over; 0 means 1.
	Updates int
	// MicroTokens is the most tokens that one micro-batch packs; 0 means one sequence in each.
	MicroTokens float64
	// Frozen says that the weights get no gradients, as under adapters: their matrices need one pass less.
	Frozen bool
}

// stateShare is the share of usable memory that a stage's weights and gradients may take, and gradientBytes what they
// are of a parameter: bf16 and fp32. The optimizer's state is spread over copies.
const (
	stateShare    = 0.5
	gradientBytes = 6
)

// UsualLayout is how trainers split such a model where nothing says how, with micro-batches of so many tokens. Experts
// are shared in a node. GPUs of a node divide the activations. The depth is cut, in powers of two, until a stage's
// weights and gradients take half of the memory.
func (t Trainer) UsualLayout(microTokens float64) Layout {
	t.MicroBatchTokens = microTokens
	_, tensor := t.InFlight()
	l := Layout{Tensor: tensor, Expert: 1, Pipeline: 1}
	t = t.WithDefaults()
	if t.Model.Experts > 0 {
		l.Expert = max(min(t.Model.Experts, t.GPU.NodeGPUs, t.GPUs), 1)
	}
	experts := t.Model.ExpertParameters
	held := (t.Model.Parameters-experts)/float64(l.Tensor) + experts/float64(l.Expert)
	for held*gradientBytes/float64(l.Pipeline) > stateShare*t.GPU.MemoryBytes*t.MemoryUse && 2*l.Pipeline*l.Tensor <= t.GPUs && 2*l.Pipeline <= t.Model.Layers {
		l.Pipeline *= 2
	}
	return l
}

// copies is how many copies of the model GPUs hold, at least 1.
func (l Layout) copies(gpus int) float64 {
	return math.Max(float64(gpus)/float64(max(l.Tensor, 1)*max(l.Context, 1)*max(l.Pipeline, 1)), 1)
}

// layerS is what a layer takes beyond arithmetic in one pass.
func (l Layout) layerS(m Model) float64 {
	if m.Experts == 0 {
		return l.LayerS
	}
	return l.LayerS + l.ExpertS*float64(m.Experts)/float64(max(l.Expert, 1))
}

// trafficBytes is what a pass writes and reads of activations for each token, layer and unit of width, beside its
// matrices: the 34 bytes of Korthikanti et al. 2022, once each way.
const trafficBytes = 68

// PassesS is the time of so many passes over a batch, in seconds. A forward pass counts as one: an
// update has 3, with recomputation 4, log-probs have 1. It is
//
//	passes·(2·N_active/MFU + attention/use)·tokens/(peak·GPUs)·bubble + updates·(m+p−1)·layers/p·passes·layer
//
// and the traffic of activations, with m micro-batches of each copy an update, a pipeline of p stages, and the bubble 1 + (p−1)/m.
// The last term is launches and exchanges, which small micro-batches of many experts pay most.
// WeightBytes of 1 or less multiply at the peak of fp8.
func (t Trainer) PassesS(l Layout, b Batch, passes, weightBytes float64) float64 {
	t = t.WithDefaults()
	updates, stages := float64(max(b.Updates, 1)), float64(max(l.Pipeline, 1))
	micro := b.Sequences / updates / l.copies(t.GPUs)
	if b.MicroTokens > 0 {
		micro = math.Min(micro, math.Ceil(b.Tokens/b.MicroTokens/updates/l.copies(t.GPUs)))
	}
	micro = math.Max(micro, 1)
	attention := t.Model.attention(t.ContextTokens)
	matrices := 2 * t.Model.multiplied() / (t.MFU * t.GPU.FLOPs(weightBytes))
	if t.AttentionUse > 0 {
		attention /= t.AttentionUse * t.GPU.BF16
	} else {
		attention /= t.MFU * t.GPU.FLOPs(weightBytes)
	}
	multiplied := passes
	if b.Frozen {
		multiplied--
	}
	arithmetic := b.Tokens * (multiplied*matrices + passes*attention) / float64(t.GPUs) * (1 + (stages-1)/micro)
	traffic := passes * b.Tokens * float64(t.Model.Layers) * float64(t.Model.Hidden) * trafficBytes / (t.GPU.MemoryBytesPerS * float64(t.GPUs))
	return arithmetic + traffic + updates*(micro+stages-1)*float64(t.Model.Layers)/stages*passes*l.layerS(t.Model)
}
