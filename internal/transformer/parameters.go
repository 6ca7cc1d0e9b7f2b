package transformer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Parameters is one set of weights: a flat vector and named views into it.
// It must not be written to once an engine or a pass on another goroutine holds it. A trainer writes
// each new version into a set of its own.
type Parameters struct {
	config Config
	layout layout
	data   []float32
}

// NewParameters returns weights drawn from seed: the same seed and config give
// the same bits. The config must be valid and complete (WithDefaults).
func NewParameters(c Config, seed uint64) (*Parameters, error) {
	p, err := ZeroParameters(c)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 0x7061_7261_6d73))
	for _, t := range p.layout.tensors {
		view := p.data[t.Offset : t.Offset+t.Elements()]
		switch {
		case strings.HasSuffix(t.Name, "norm"):
			gain := float32(1)
			if t.Name == "final_norm" {
				gain = finalGain
			}
			for i := range view {
				view[i] = gain
			}
		case strings.HasSuffix(t.Name, "_embedding"):
			fillNormal(rng, view, embeddingDeviation)
		case strings.HasSuffix(t.Name, "attention_output"), strings.HasSuffix(t.Name, "hidden_down"):
			// Residual branches start quieter with depth, as in GPT-2.
			fillNormal(rng, view, 1/math.Sqrt(float64(t.Shape[0])*2*float64(c.Layers)))
		default:
			fillNormal(rng, view, 1/math.Sqrt(float64(t.Shape[0])))
		}
	}
	return p, nil
}

// embeddingDeviation is the standard deviation of the first embeddings.
const embeddingDeviation = 0.5

// finalGain is the first gain of the last normalization. It scales the logits,
// so that the first policy is close to uniform and explores.
const finalGain = 0.15

func fillNormal(rng *rand.Rand, view []float32, deviation float64) {
	for i := range view {
		view[i] = float32(rng.NormFloat64() * deviation)
	}
}

// ZeroParameters returns a set of zeros, to be filled through Data or Tensor
// before it is published.
func ZeroParameters(c Config) (*Parameters, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := newLayout(c)
	return &Parameters{config: c, layout: l, data: make([]float32, l.count)}, nil
}

// unembed writes the logits of rows of the last normalization: their products
// with the token embeddings. scratch holds at least one embedding table.
func (p *Parameters) unembed(scratch, logits, normed []float32, rows int) {
	vocabulary, width := p.config.Vocabulary, p.config.Width
	transpose(scratch, p.data[p.layout.token:p.layout.token+vocabulary*width], vocabulary, width)
	gemm(rows, vocabulary, width, normed, width, 1, scratch, vocabulary, logits, vocabulary, false)
}

// Clone returns a copy that shares nothing that can be written.
func (p *Parameters) Clone() *Parameters {
	return &Parameters{config: p.config, layout: p.layout, data: append([]float32(nil), p.data...)}
}

// Data is the flat vector itself, not a copy.
func (p *Parameters) Data() []float32 { return p.data }

// Tensors lists the views in the order of the flat vector.
func (p *Parameters) Tensors() []Tensor { return p.layout.tensors }

// Tensor is the view of that name, not a copy; an unknown name is an error
// that lists the known ones.
func (p *Parameters) Tensor(name string) ([]float32, error) {
	known := make([]string, 0, len(p.layout.tensors))
	for _, t := range p.layout.tensors {
		if t.Name == name {
			return p.data[t.Offset : t.Offset+t.Elements()], nil
		}
		known = append(known, t.Name)
	}
	return nil, fmt.Errorf("transformer: no tensor %q; the model has %s", name, strings.Join(known, ", "))
}
