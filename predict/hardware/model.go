package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Model is what the rooflines need to know of a language model. The zero value
// is no model. A preset ([ModelNamed]) carries its architecture; a model of the
// caller's own may give the counts alone.
type Model struct {
	// Name is the preset's, such as qwen3-8b, or the caller's.
	Name string
	// Parameters in all, the input table included.
	Parameters float64
	// ActiveParameters are those one token uses; 0 means all of them.
	ActiveParameters float64
	// LookupParameters are those of an input table that is only looked up, not
	// multiplied: 0 where the output matrix is the same table, or unknown.
	LookupParameters float64
	// Layers is the number of blocks.
	Layers int
	// Hidden is the width of the residual stream. The value 0 leaves out the
	// traffic of tensor parallelism and the memory of activations.
	Hidden int
	// AttentionWidth is heads times head size, for the cost of long contexts; 0 leaves it out.
	AttentionWidth int
	// KVHeads is the number of key-value heads.
	KVHeads int
	// HeadDim is the size of one head.
	HeadDim int
	// KVBytesPerToken is a token's cache in all layers at two bytes a number,
	// where heads do not say it (latent attention); 0 means 4·Layers·KVHeads·HeadDim.
	KVBytesPerToken float64
	// WindowLayers is how many of the layers attend to a sliding window alone.
	WindowLayers int
	// WindowTokens is that window.
	WindowTokens int
	// Experts is the number of routed experts of a layer; 0 for a dense model.
	Experts int
	// ExpertsPerToken is how many of them a token uses.
	ExpertsPerToken int
	// ExpertParameters are the parameters of all routed experts of all layers.
	ExpertParameters float64
	// Architecture is the shape a preset's counts were checked against; zero for a model of the caller's.
	Architecture Architecture
	// PublishedActive is the active count as the model card prints it, usually rounded; 0 for a dense model.
	PublishedActive float64
	// Source names where the preset's figures are published, with its date.
	Source string
}

// Validate says what is wrong with a model, in terms of what a roofline needs.
func (m Model) Validate() error {
	if m == (Model{}) {
		return errors.New("model: none given: name a preset (" + howToList + ") or give parameters, layers, KV heads and head size")
	}
	name := m.label()
	if err := positive(name, "parameters", m.Parameters, 1e14); err != nil {
		return err
	}
	for _, share := range []struct {
		what  string
		value float64
	}{{"active parameters", m.ActiveParameters}, {"lookup parameters", m.LookupParameters}, {"expert parameters", m.ExpertParameters}} {
		if !(share.value >= 0) || share.value > m.Parameters {
			return fmt.Errorf("%s: %s are %g: expected between 0 and the %g parameters of the model", name, share.what, share.value, m.Parameters)
		}
	}
	if m.KVBytesPerToken < 0 || math.IsNaN(m.KVBytesPerToken) || m.KVBytesPerToken > 1e9 {
		return fmt.Errorf("%s: a token's cache is %g bytes: expected between 0 and 1e9; leave it out to have it follow from heads", name, m.KVBytesPerToken)
	}
	if m.KVBytesPerToken == 0 && (m.Layers <= 0 || m.KVHeads <= 0 || m.HeadDim <= 0) {
		return fmt.Errorf("%s: %d layers, %d KV heads of %d: a cache cannot be sized; give all three, or the bytes a token takes", name, m.Layers, m.KVHeads, m.HeadDim)
	}
	return m.validateExperts()
}

// validateExperts checks what a mixture of experts adds.
func (m Model) validateExperts() error {
	name := m.label()
	switch {
	case m.Experts < 0 || m.ExpertsPerToken < 0:
		return fmt.Errorf("%s: %d experts, %d a token: expected none or positive numbers", name, m.Experts, m.ExpertsPerToken)
	case m.Experts == 0 && (m.ExpertsPerToken > 0 || m.ExpertParameters > 0):
		return fmt.Errorf("%s: %d experts a token and %g expert parameters, but no experts: give their number, or leave all three out", name, m.ExpertsPerToken, m.ExpertParameters)
	case m.Experts > 0 && (m.ExpertsPerToken == 0 || m.ExpertsPerToken > m.Experts):
		return fmt.Errorf("%s: %d of %d experts a token: expected 1 to %d", name, m.ExpertsPerToken, m.Experts, m.Experts)
	case m.Experts > 0 && m.ExpertParameters == 0:
		return fmt.Errorf("%s: %d experts, but no expert parameters: give the parameters of all routed experts of all layers", name, m.Experts)
	case m.Experts > 0 && m.ActiveParameters == 0:
		return fmt.Errorf("%s: %d experts, but no active parameters: give those one token uses", name, m.Experts)
	case m.WindowLayers < 0 || m.WindowTokens < 0 || m.WindowLayers > m.Layers || (m.WindowLayers > 0 && m.WindowTokens == 0):
		return fmt.Errorf("%s: %d of %d layers attend to a window of %d tokens: expected at most all layers and a positive window", name, m.WindowLayers, m.Layers, m.WindowTokens)
	}
	return nil
}

// Active returns the parameters one token uses.
func (m Model) Active() float64 {
	if m.ActiveParameters > 0 {
		return m.ActiveParameters
	}
	return m.Parameters
}

// multiplied returns the active parameters that cost arithmetic: all but a
// table that is only looked up.
func (m Model) multiplied() float64 { return math.Max(m.Active()-m.LookupParameters, 0) }

// routed returns those of the active parameters that lie in routed experts.
func (m Model) routed() float64 {
	if m.Experts == 0 {
		return 0
	}
	return math.Min(m.ExpertParameters*float64(m.ExpertsPerToken)/float64(m.Experts), m.multiplied())
}

// attention returns the arithmetic of one token's attention over a context, of which a causal token sees half. Layers with
// a window see no more than that.
func (m Model) attention(context float64) float64 {
	full, windowed := float64(m.Layers-m.WindowLayers), float64(m.WindowLayers)
	return 2 * float64(m.AttentionWidth) * (full*context + windowed*math.Min(context, 2*float64(m.WindowTokens)))
}

// The numbers that a layer's forward pass writes for a token beside its matrices' results: of the width of the residual
// stream (norms, sums, their inputs), of each head's (normalised, turned, output), of keys and values, and of the inner
// layer (gate, input and product). An expert's input and output are copied for each token that it gets.
const (
	residualCopies, headCopies, keyCopies, innerCopies, expertCopies = 8, 3, 4, 3, 2
)

// activations is how many numbers a forward pass writes for a token, in all layers.
func (m Model) activations() float64 {
	a, h := m.Architecture, float64(m.Hidden)
	layer := residualCopies*h + headCopies*float64(m.AttentionWidth) + keyCopies*float64(m.KVHeads*m.HeadDim)
	inner := float64(a.Intermediate)
	if a == (Architecture{}) {
		inner = 4 * h
	}
	dense, experts := float64(m.Layers), 0.0
	if m.Experts > 0 {
		dense, experts = float64(a.DenseLayers), float64(m.Layers-a.DenseLayers)
	}
	routed := float64(m.ExpertsPerToken)*(expertCopies*h+innerCopies*float64(a.ExpertIntermediate)) + float64(a.SharedExperts)*innerCopies*float64(a.ExpertIntermediate)
	return float64(m.Layers)*layer + dense*innerCopies*inner + experts*routed
}

// Tensors is how many tensors the weights come in, for a sync's latencies; an
// estimate from the layers where the architecture is not known.
func (m Model) Tensors() float64 {
	if m.Architecture != (Architecture{}) {
		return float64(m.Architecture.Tensors())
	}
	return float64(m.Layers) * (9 + 3*float64(m.Experts))
}

// WeightBytes returns the bytes of the whole model at that many bytes a parameter.
func (m Model) WeightBytes(perParameter float64) float64 { return m.Parameters * perParameter }

// ReadParameters returns the expected parameters a decode step of so many rollouts
// reads. A dense model reads all but its lookup table. A step of b rollouts that
// draw k of a layer's E routed experts each, independently and evenly, reads
// E·(1−(1−k/E)^b) of them. Real routers favour some experts, so fewer.
func (m Model) ReadParameters(active float64) float64 {
	all := m.Parameters - m.LookupParameters
	if m.Experts == 0 || active <= 0 {
		return all
	}
	missed := math.Pow(1-float64(m.ExpertsPerToken)/float64(m.Experts), active)
	return all - m.ExpertParameters*missed
}

// CacheBytes returns the cache of one rollout with that many tokens of context,
// at that many bytes a number. Sliding-window layers keep their window alone.
func (m Model) CacheBytes(tokens, perNumber float64) float64 {
	perToken := cmp.Or(m.KVBytesPerToken/2, 2*float64(m.Layers)*float64(m.KVHeads)*float64(m.HeadDim))
	full := tokens
	if m.WindowLayers > 0 && m.Layers > 0 {
		share := float64(m.WindowLayers) / float64(m.Layers)
		full = (1-share)*tokens + share*math.Min(tokens, float64(m.WindowTokens))
	}
	return perToken * perNumber * full
}

// label is how errors call the model.
func (m Model) label() string {
	if m.Name == "" {
		return "model"
	}
	return "model " + m.Name
}

// positive refuses a figure that no roofline can use.
func positive(whose, what string, value, most float64) error {
	switch {
	case math.IsNaN(value):
		return fmt.Errorf("%s: %s is not a number: expected above 0, at most %g", whose, what, most)
	case value <= 0 || value > most:
		return fmt.Errorf("%s: %s is %g: expected above 0, at most %g", whose, what, value, most)
	}
	return nil
}

// share refuses what is not a share of a peak.
func share(whose, what string, value float64) error {
	if !(value > 0 && value <= 1) {
		return fmt.Errorf("%s: %s is %g: expected a share of the peak, above 0 and at most 1", whose, what, value)
	}
	return nil
}
