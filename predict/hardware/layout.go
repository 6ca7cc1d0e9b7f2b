package hardware

import (
	"cmp"
	"math"
)

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

// PassesS is the time of so many passes over a batch, in seconds. A forward pass counts as one: an
// update has 3, with recomputation 4, log-probs have 1. It is
//
//	passes·((2·N_active/MFU + attention/use)/peak + activations/bandwidth + exchanges)·tokens/GPUs·bubble
//	  + passes·logits·tokens·p/GPUs + updates·(m+p−1)·layers/p·passes·layer
//
// with m micro-batches of each copy an update, a pipeline of p stages, of which the last has the logits, and the bubble
// 1 + (p−1)/m. The last term is launches and exchanges, which small micro-batches of many experts pay most.
// WeightBytes of 1 or less multiply at the peak of fp8.
func (t Trainer) PassesS(l Layout, b Batch, passes, weightBytes float64) float64 {
	t = t.WithDefaults()
	updates, stages, gpus := float64(max(b.Updates, 1)), float64(max(l.Pipeline, 1)), float64(t.GPUs)
	micro := l.microBatches(t.GPUs, b)
	multiplied, attended := passes, passes
	if b.Frozen {
		multiplied--
	}
	if passes > 2 { // one of them is backward
		attended += attentionAgain
	}
	matrices, attention := t.tokenS(weightBytes)
	each := multiplied*matrices + attended*attention + passes*(t.trafficS()+t.exchangeS(l))
	logits := passes * float64(t.Model.Architecture.Vocabulary) * t.LogitS
	launches := updates * (micro + stages - 1) * float64(t.Model.Layers) / stages * passes * l.layerS(t.Model)
	return b.Tokens/gpus*(each*(1+(stages-1)/micro)+logits*stages) + launches
}

// microBatches is how many of them a copy of the model trains in an update, at least 1.
func (l Layout) microBatches(gpus int, b Batch) float64 {
	updates := float64(max(b.Updates, 1))
	micro := b.Sequences / updates / l.copies(gpus)
	if b.MicroTokens > 0 {
		micro = math.Min(micro, math.Ceil(b.Tokens/b.MicroTokens/updates/l.copies(gpus)))
	}
	return math.Max(micro, 1)
}

// attentionAgain is what a backward pass of attention multiplies beyond twice the forward one, in forward passes: it
// forms the scores again instead of keeping them.
const attentionAgain = 0.5

// tokenS is what one GPU takes for a token's matrices and for its attention in a forward pass, in seconds.
func (t Trainer) tokenS(weightBytes float64) (matrices, attention float64) {
	routed := t.Model.routed()
	matrices = 2 * ((t.Model.multiplied()-routed)/t.MFU + routed/t.expertUse()) / t.GPU.FLOPs(weightBytes)
	attention = t.Model.attention(t.ContextTokens)
	if t.AttentionUse > 0 {
		return matrices, attention / (t.AttentionUse * t.GPU.BF16)
	}
	return matrices, attention / (t.MFU * t.GPU.FLOPs(weightBytes))
}

// trafficBytes is what a pass moves for each number that it writes: two bytes, written once and read once.
const trafficBytes = 4

// trafficS is what one GPU takes to write and read what a token's pass leaves beside its matrices, in seconds.
func (t Trainer) trafficS() float64 {
	return t.Model.activations() * trafficBytes / (t.GPU.MemoryBytesPerS * cmp.Or(t.TrafficUse, 1))
}

// linkUse is the share of a link that exchanges of layers reach.
const linkUse = 0.6

// exchangeBytes is what they move for each number of the residual stream: four times two bytes.
const exchangeBytes = 8

// exchangeS is what a token's exchanges take in a pass on the GPU that has it, in seconds: tensor-parallel GPUs gather and
// scatter its numbers twice a layer each, inside a node by its link and beyond by network cards. Those of experts are among
// [Layout.LayerS]: no published run tells them apart.
func (t Trainer) exchangeS(l Layout) float64 {
	n := float64(max(l.Tensor, 1))
	inside := math.Min(n, float64(max(t.GPU.NodeGPUs, 1)))
	s := (inside - 1) / n / t.GPU.LinkBytesPerS
	if t.GPU.NICBytesPerS > 0 {
		s = math.Max(s, (n-inside)/n/t.GPU.NICBytesPerS)
	}
	return float64(t.Model.Layers) * n * exchangeBytes * float64(t.Model.Hidden) * s / linkUse
}

// halfWidth is the width of experts at which their matrices reach half of what wide ones reach: tiles of them are few, and
// each is fetched for little work. usualWidth is the one that [Trainer.ExpertUse] is of.
const halfWidth, usualWidth = 1024, 1024

// expertUse is the share of peak FLOP/s that matrices of routed experts reach.
func (t Trainer) expertUse() float64 {
	if t.ExpertUse == 0 {
		return t.MFU
	}
	width := float64(t.Model.Architecture.ExpertIntermediate)
	if width == 0 {
		width = usualWidth
	}
	return t.ExpertUse * width / (width + halfWidth) * (usualWidth + halfWidth) / usualWidth
}
