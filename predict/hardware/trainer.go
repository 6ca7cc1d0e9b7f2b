package hardware

import (
	"cmp"
	"fmt"
	"math"
)

// Trainer is the training side: a model, sharded evenly over whole GPUs. Every
// method applies [Trainer.WithDefaults].
type Trainer struct {
	Model Model
	GPU   GPU
	// GPUs that train; they share weights, gradients and optimizer state evenly.
	GPUs int
	// MFU is the share of peak bf16 FLOP/s reached by the arithmetic counted here. Default 0.35.
	MFU float64
	// ExpertUse is that share for the matrices of routed experts of width 1024. Narrower ones reach less, wider ones more:
	// see [Trainer.PassesS]. The value 0 means MFU for experts of any width.
	ExpertUse float64
	// AttentionUse is that share for attention over the context, whose kernels are others. The value 0 means MFU.
	AttentionUse float64
	// TrafficUse is the share of memory bandwidth at which passes write and read activations beside their matrices; 0
	// means 1.
	TrafficUse float64
	// LogitS is what one logit of one token takes in a pass beside its matrix, on one GPU: seconds. 0 leaves it out.
	LogitS float64
	// Recompute counts the forward pass twice (8 instead of 6 FLOPs a parameter and token), as activation checkpointing does.
	Recompute bool
	// ContextTokens is the sequence that a mean trained token is in, for attention's cost: E[S²]/E[S] for sequences of S tokens, prompt included. The value 0 leaves it out.
	ContextTokens float64
	// BytesPerParameter counts weights, gradients and optimizer state in all. It is 16 for bf16 weights and gradients with an fp32 master and two moments, 18 with fp32 gradients. Default 18.
	BytesPerParameter float64
	// ReferenceBytes is what a frozen reference policy adds for each parameter; 0 for none.
	ReferenceBytes float64
	// MicroBatchTokens is what is in flight of activations at a time. Default 16384, or so much less that it fits: see [Trainer.InFlight].
	MicroBatchTokens float64
	// MemoryUse is the share of memory that may be taken. Default 0.9.
	MemoryUse float64
	// Unit is the number by which GPUs are added. Default 8.
	Unit int
}

// WithDefaults returns a copy with every unset figure filled in.
func (t Trainer) WithDefaults() Trainer {
	for _, d := range []struct {
		field *float64
		value float64
	}{{&t.MFU, 0.35}, {&t.BytesPerParameter, 18}, {&t.MicroBatchTokens, 16384}, {&t.MemoryUse, 0.9}} {
		*d.field = cmp.Or(*d.field, d.value)
	}
	t.Unit = cmp.Or(t.Unit, 8)
	return t
}

// Validate says what is wrong with a trainer.
func (t Trainer) Validate() error {
	if err := t.Model.Validate(); err != nil {
		return err
	}
	if err := t.GPU.Validate(); err != nil {
		return err
	}
	t = t.WithDefaults()
	if err := share("trainer", "MFU", t.MFU); err != nil {
		return err
	}
	if err := share("trainer", "memory use", t.MemoryUse); err != nil {
		return err
	}
	switch {
	case t.GPUs < 0 || t.GPUs > 1e6:
		return fmt.Errorf("trainer: %d GPUs: expected 1 to 1000000", t.GPUs)
	case t.Unit < 1 || t.Unit > 4096:
		return fmt.Errorf("trainer: GPUs come in units of %d: expected 1 to 4096", t.Unit)
	case !(t.BytesPerParameter >= 2) || t.BytesPerParameter > 64:
		return fmt.Errorf("trainer: %g bytes a parameter: expected 2 to 64 (16 to 18 for Adam in mixed precision)", t.BytesPerParameter)
	case !(t.ReferenceBytes >= 0) || t.ReferenceBytes > 8:
		return fmt.Errorf("trainer: %g bytes a parameter of a reference policy: expected 0 to 8", t.ReferenceBytes)
	case !(t.MicroBatchTokens >= 0) || t.MicroBatchTokens > 1e9 || !(t.ContextTokens >= 0) || t.ContextTokens > 1e9:
		return fmt.Errorf("trainer: %g tokens in flight, context %g: expected 0 to 1e9", t.MicroBatchTokens, t.ContextTokens)
	}
	return nil
}

// FLOPsPerToken is the arithmetic one trained token costs: 6·N_active, 8 with
// recomputation, plus attention over half the context of the sequence.
func (t Trainer) FLOPsPerToken() float64 {
	passes := 3.0
	if t.Recompute {
		passes = 4
	}
	attention := t.Model.attention(t.ContextTokens)
	return passes * (2*t.Model.multiplied() + attention)
}

// TokensPerS is the trained tokens per second of all GPUs: a train step's
// tokens over it is 6·N_active·tokens/(MFU·peak·GPUs), with recomputation 8.
func (t Trainer) TokensPerS() float64 {
	t = t.WithDefaults()
	return t.MFU * t.GPU.BF16 * float64(t.GPUs) / t.FLOPsPerToken()
}

// StateBytes is what weights, gradients, optimizer and a reference policy take on all GPUs together.
func (t Trainer) StateBytes() float64 {
	t = t.WithDefaults()
	return t.Model.Parameters * (t.BytesPerParameter + t.ReferenceBytes)
}

// activationBytes is what so many tokens in flight take: 34 bytes for each token,
// layer and unit of width (Korthikanti et al. 2022, attention matrices not stored),
// or 2 with recomputation, where one layer is whole at a time, plus four bytes of
// logits for each token and word, a quarter of the tokens at a time.
func (t Trainer) activationBytes(tokens float64) float64 {
	perLayer := tokens * float64(t.Model.Hidden)
	logits := 4 * tokens / 4 * float64(t.Model.Architecture.Vocabulary)
	if t.Recompute {
		return perLayer*(2*float64(t.Model.Layers)+34) + logits
	}
	return perLayer*34*float64(t.Model.Layers) + logits
}

// activationShare is the share of usable memory that activations may take before
// GPUs of a node divide them, and then micro-batches are made smaller.
const activationShare = 0.5

// microBatchLeast is the smallest micro-batch, in tokens, that is tried.
const microBatchLeast = 1024

// InFlight is how many tokens are in flight at a time and how many GPUs divide
// their activations among them. They divide by sequence parallelism beside
// tensor parallelism (Korthikanti et al. 2022). The GPUs are the fewest, in
// powers of two up to a node, with which activations take no more than half of
// the usable memory. Where a whole node is not enough, and MicroBatchTokens was
// not given, the micro-batch is halved until it is. It does not go below the
// mean sequence or 1024 tokens. The MFU must include the speed that dividing
// costs.
func (t Trainer) InFlight() (tokens float64, gpus int) {
	given := t.MicroBatchTokens > 0
	t = t.WithDefaults()
	tokens, gpus = t.MicroBatchTokens, 1
	most := activationShare * t.GPU.MemoryBytes * t.MemoryUse
	for gpus*2 <= max(t.GPU.NodeGPUs, 1) && t.activationBytes(tokens) > most*float64(gpus) {
		gpus *= 2
	}
	for !given && tokens/2 >= math.Max(t.ContextTokens, microBatchLeast) && t.activationBytes(tokens) > most*float64(gpus) {
		tokens /= 2
	}
	return tokens, gpus
}

// ActivationBytes is what one GPU's part of the tokens in flight takes.
func (t Trainer) ActivationBytes() float64 {
	tokens, gpus := t.InFlight()
	return t.activationBytes(tokens) / float64(gpus)
}

// MinimumGPUs is the fewest GPUs, in whole units, whose memory holds the state
// and the activations, and an error where activations alone do not fit.
func (t Trainer) MinimumGPUs() (int, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	tokens, together := t.InFlight()
	activations, advice := t.ActivationBytes(), t.lighter()
	t = t.WithDefaults()
	left := t.GPU.MemoryBytes*t.MemoryUse - activations
	if left <= 0 {
		return 0, fmt.Errorf("trainer: activations of %.0f tokens at a time take %.1f GB on each of the %d × %s that divide them, of %.1f GB usable: %s",
			tokens, activations/1e9, together, t.GPU.Name, t.GPU.MemoryBytes*t.MemoryUse/1e9, advice)
	}
	gpus := max(int(math.Ceil(t.StateBytes()/left)), together)
	return (gpus + t.Unit - 1) / t.Unit * t.Unit, nil
}

// lighter says what would make activations smaller that is not done already.
func (t Trainer) lighter() string {
	advice := "use a GPU with more memory"
	if !t.Recompute {
		advice = "recompute activations, or " + advice
	}
	if t.MicroBatchTokens > 0 {
		return "train fewer tokens at once, " + advice
	}
	return "cap lengths, " + advice
}

// MFUOf is the efficiency that a measured train speed of all GPUs amounts to. It
// refuses one above 1, or one so low that the numbers are of another set-up.
func (t Trainer) MFUOf(tokensPerS float64) (float64, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	if t.GPUs < 1 {
		return 0, fmt.Errorf("measured training: %d GPUs: give the number that trained", t.GPUs)
	}
	if err := positive("measured training", "tokens/s", tokensPerS, 1e15); err != nil {
		return 0, err
	}
	mfu := tokensPerS * t.FLOPsPerToken() / (t.GPU.BF16 * float64(t.GPUs))
	switch {
	case mfu > 1:
		return 0, fmt.Errorf("measured training: %.4g tokens/s on %d × %s would be an MFU of %.3g: expected below 1. Check units (tokens), GPUs, and the model (%s)", tokensPerS, t.GPUs, t.GPU.Name, mfu, t.Model.label())
	case mfu < 1e-4:
		return 0, fmt.Errorf("measured training: %.4g tokens/s on %d × %s would be an MFU of %.2g: expected above 0.0001; check units (tokens, not samples; seconds) and GPUs", tokensPerS, t.GPUs, t.GPU.Name, mfu)
	}
	return mfu, nil
}
