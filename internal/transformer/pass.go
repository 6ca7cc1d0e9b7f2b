package transformer

import (
	"fmt"
	"math"
)

// Batch is a micro-batch of whole sequences, packed one after the other
// without padding.
type Batch struct {
	// Tokens of all sequences. Sequence s is Tokens[Offsets[s]:Offsets[s+1]],
	// of at least two tokens; its last token is only ever a target.
	Tokens []int32
	// Offsets has one element more than there are sequences and starts at 0.
	Offsets []int32
	// First is the position of each sequence's first token. Counting positions
	// from the separator (a short prompt starts later) lets the model learn
	// "the k-th before the separator" once for all prompt lengths.
	First []int32
	// Scored marks the tokens whose log-prob is wanted, the loss mask. The
	// first token of a sequence has no predecessor and cannot be scored.
	Scored []bool
}

// Pass runs batches of sequences forward and backward through one set of
// weights at a time. It owns the activations between the two: one goroutine
// per Pass. Its memory grows to the largest batch seen and is then reused.
type Pass struct {
	config Config
	layout layout

	rows    int // inputs: all tokens but the last of each sequence
	scored  int // rows whose next token is scored
	longest int // rows of the longest sequence

	tokens, positions []int32 // of each row
	starts            []int32 // first row of each sequence, and the end
	scoredRow         []int32 // row index of each scored row
	scoredAt          []int32 // index in Batch.Tokens of the token it predicts

	layers     []activation
	normed     []float32 // final normalization, scored rows only
	inverse    []float32
	probs      []float32 // next-token probabilities, scored rows only
	keys       []float32 // one head's keys, transposed
	scratch    gradients
	transposed []float32 // weights transposed for a product
}

// activation is what one layer keeps for its backward pass. In the last layer
// everything after the attention holds scored rows only: nobody reads the rest.
type activation struct {
	input     []float32 // residual stream entering the layer, all rows
	inverse   []float32
	normed    []float32
	qkv       []float32
	weights   []float32 // attention probabilities, sequence by head by row
	attended  []float32 // all rows
	gathered  []float32 // attended, scored rows only (last layer)
	middle    []float32 // residual stream after the attention
	inverseUp []float32
	normedUp  []float32
	hidden    []float32 // after the ReLU
	output    []float32 // residual stream leaving the layer
}

type gradients struct {
	residual, normed, qkv, attended, gathered, hidden, logits, scores, keys []float32
}

// NewPass returns a pass for models of that shape.
func NewPass(c Config) (*Pass, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Pass{config: c, layout: newLayout(c), layers: make([]activation, c.Layers)}, nil
}

// grow returns a slice of n elements, reusing s where it is large enough. The
// contents are undefined.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/4)[:n]
	}
	return s[:n]
}

// pad16 rounds n up to whole tiles of sixteen columns.
func pad16(n int) int { return (n + 15) &^ 15 }

// load checks the batch and lays out its rows.
func (p *Pass) load(b *Batch) error {
	sequences := len(b.Offsets) - 1
	if sequences < 1 || len(b.First) != sequences || len(b.Scored) != len(b.Tokens) ||
		b.Offsets[0] != 0 || int(b.Offsets[sequences]) != len(b.Tokens) {
		return fmt.Errorf("transformer: batch of %d offsets, %d first positions, %d tokens, %d scored marks is not consistent",
			len(b.Offsets), len(b.First), len(b.Tokens), len(b.Scored))
	}
	p.tokens, p.positions, p.starts = p.tokens[:0], p.positions[:0], p.starts[:0]
	p.scoredRow, p.scoredAt, p.longest = p.scoredRow[:0], p.scoredAt[:0], 0
	for s := range sequences {
		low, high := b.Offsets[s], b.Offsets[s+1]
		n := int(high - low)
		if n < 2 || b.First[s] < 0 || int(b.First[s])+n-1 > p.config.Context {
			return fmt.Errorf("transformer: sequence %d has %d tokens from position %d; it must have at least 2 and end within the context of %d",
				s, n, b.First[s], p.config.Context)
		}
		p.starts = append(p.starts, int32(len(p.tokens)))
		p.longest = max(p.longest, n-1)
		for i := low; i < high; i++ {
			token := b.Tokens[i]
			if token < 0 || int(token) >= p.config.Vocabulary {
				return fmt.Errorf("transformer: sequence %d holds token %d; the vocabulary has %d", s, token, p.config.Vocabulary)
			}
			if b.Scored[i] {
				if i == low {
					return fmt.Errorf("transformer: sequence %d scores its first token, which nothing predicts", s)
				}
				p.scoredRow = append(p.scoredRow, int32(len(p.tokens)-1))
				p.scoredAt = append(p.scoredAt, i)
			}
			if i < high-1 {
				p.tokens = append(p.tokens, token)
				p.positions = append(p.positions, b.First[s]+i-low)
			}
		}
	}
	p.rows, p.scored = len(p.tokens), len(p.scoredRow)
	p.starts = append(p.starts, int32(p.rows))
	p.resize()
	return nil
}

func (p *Pass) resize() {
	c, n := p.config, p.rows
	padded := pad16(p.longest)
	for i := range p.layers {
		a := &p.layers[i]
		after := n
		if i == c.Layers-1 {
			after = p.scored
			a.gathered = grow(a.gathered, after*c.Width)
		}
		if i == 0 {
			a.input = grow(a.input, n*c.Width)
		}
		a.inverse = grow(a.inverse, n)
		a.normed = grow(a.normed, n*c.Width)
		a.qkv = grow(a.qkv, n*3*c.Width)
		a.weights = grow(a.weights, n*c.Heads*padded)
		a.attended = grow(a.attended, n*c.Width)
		a.middle = grow(a.middle, after*c.Width)
		a.inverseUp = grow(a.inverseUp, after)
		a.normedUp = grow(a.normedUp, after*c.Width)
		a.hidden = grow(a.hidden, after*c.Hidden)
		a.output = grow(a.output, after*c.Width)
	}
	p.normed = grow(p.normed, p.scored*c.Width)
	p.inverse = grow(p.inverse, p.scored)
	p.probs = grow(p.probs, p.scored*c.Vocabulary)
	p.keys = grow(p.keys, c.headWidth()*padded)
}

// Forward computes the log-prob of every scored token under the weights and writes it to logp at the
// token's index. The other elements are left alone. The length of logp must be that of the batch's
// tokens.
func (p *Pass) Forward(w *Parameters, b *Batch, logp []float32) error {
	if w.config != p.config {
		return fmt.Errorf("transformer: weights of shape %+v in a pass of shape %+v", w.config, p.config)
	}
	if len(logp) != len(b.Tokens) {
		return fmt.Errorf("transformer: room for %d log-probs for %d tokens", len(logp), len(b.Tokens))
	}
	if err := p.load(b); err != nil {
		return err
	}
	if p.scored == 0 {
		return nil
	}
	c := p.config
	p.embed(w)
	for i := range p.layers {
		p.attentionForward(w, i)
		p.hiddenForward(w, i)
	}
	last := p.layers[c.Layers-1].output
	normalize(p.normed, last, w.data[p.layout.norm:p.layout.norm+c.Width], p.inverse, p.scored)
	p.transposed = grow(p.transposed, c.Width*c.Vocabulary)
	w.unembed(p.transposed, p.probs, p.normed, p.scored)
	for i, at := range p.scoredAt {
		row := p.probs[i*c.Vocabulary : (i+1)*c.Vocabulary]
		token := b.Tokens[at]
		score := row[token]
		logp[at] = score - softmax(row)
	}
	return nil
}

func (p *Pass) embed(w *Parameters) {
	width := p.config.Width
	x := p.layers[0].input
	for i, token := range p.tokens {
		t := w.data[p.layout.token+int(token)*width:][:width]
		q := w.data[p.layout.position+int(p.positions[i])*width:][:width]
		row := x[i*width : (i+1)*width]
		for j := range row {
			row[j] = t[j] + q[j]
		}
	}
}

// attentionForward runs layer i up to the attended values of every row.
func (p *Pass) attentionForward(w *Parameters, i int) {
	c, a, l := p.config, &p.layers[i], p.layout.layers[i]
	if i > 0 {
		a.input = p.layers[i-1].output
	}
	normalize(a.normed, a.input, w.data[l.attentionNorm:l.attentionNorm+c.Width], a.inverse, p.rows)
	gemm(p.rows, 3*c.Width, c.Width, a.normed, c.Width, 1, w.data[l.qkv:], 3*c.Width, a.qkv, 3*c.Width, false)
	padded := pad16(p.longest)
	for s := range len(p.starts) - 1 {
		low, n := int(p.starts[s]), int(p.starts[s+1]-p.starts[s])
		for h := range c.Heads {
			weights := a.weights[(low*c.Heads+h*n)*padded:][:n*padded]
			p.attend(a, low, n, h, weights, padded)
		}
	}
}

// attend computes one head's attention within one sequence of n rows.
func (p *Pass) attend(a *activation, low, n, head int, weights []float32, padded int) {
	width, hw := p.config.Width, p.config.headWidth()
	stride := 3 * width
	q := a.qkv[low*stride+head*hw:]
	k := a.qkv[low*stride+width+head*hw:]
	v := a.qkv[low*stride+2*width+head*hw:]
	for j := range n {
		for d, e := range k[j*stride : j*stride+hw] {
			p.keys[d*padded+j] = e
		}
	}
	gemm(n, n, hw, q, stride, 1, p.keys, padded, weights, padded, false)
	scale := attentionScale(hw)
	for r := range n {
		row := weights[r*padded : r*padded+n]
		for j := range row[:r+1] {
			row[j] *= scale
		}
		softmax(row[:r+1])
		clear(row[r+1:])
	}
	gemm(n, hw, n, weights, padded, 1, v, stride, a.attended[low*width+head*hw:], width, false)
}

func attentionScale(headWidth int) float32 {
	return float32(1 / math.Sqrt(float64(headWidth)))
}

// hiddenForward runs layer i from the attended values to its output.
func (p *Pass) hiddenForward(w *Parameters, i int) {
	c, a, l := p.config, &p.layers[i], p.layout.layers[i]
	n, attended := p.rows, a.attended
	if i == c.Layers-1 {
		n, attended = p.scored, a.gathered
		p.gather(attended, a.attended)
		p.gather(a.middle, a.input)
	} else {
		copy(a.middle, a.input)
	}
	gemm(n, c.Width, c.Width, attended, c.Width, 1, w.data[l.output:], c.Width, a.middle, c.Width, true)
	normalize(a.normedUp, a.middle, w.data[l.hiddenNorm:l.hiddenNorm+c.Width], a.inverseUp, n)
	gemm(n, c.Hidden, c.Width, a.normedUp, c.Width, 1, w.data[l.up:], c.Hidden, a.hidden, c.Hidden, false)
	rectify(a.hidden)
	copy(a.output, a.middle)
	gemm(n, c.Width, c.Hidden, a.hidden, c.Hidden, 1, w.data[l.down:], c.Width, a.output, c.Width, true)
}

// rectify clamps negative elements to zero.
func rectify(x []float32) {
	for i, v := range x {
		x[i] = max(v, 0)
	}
}

// gather copies the scored rows of src to dst.
func (p *Pass) gather(dst, src []float32) {
	width := p.config.Width
	for i, r := range p.scoredRow {
		copy(dst[i*width:(i+1)*width], src[int(r)*width:])
	}
}
