package transformer

import "fmt"

// Backward adds to grad, laid out as the flat parameter vector, the gradient of a loss. The loss has
// the derivative dlogp[i] by the log-prob of token i, at the batch and weights of the last Forward.
// Elements of dlogp at tokens that are not scored are ignored.
func (p *Pass) Backward(w *Parameters, b *Batch, dlogp, grad []float32) error {
	if len(dlogp) != len(b.Tokens) || len(grad) != p.layout.count {
		return fmt.Errorf("transformer: %d derivatives for %d tokens, room for a gradient of %d of %d elements",
			len(dlogp), len(b.Tokens), len(grad), p.layout.count)
	}
	if p.scored == 0 {
		return nil
	}
	c, g := p.config, &p.scratch
	g.residual = grow(g.residual, p.rows*c.Width)
	g.normed = grow(g.normed, p.rows*c.Width)
	g.qkv = grow(g.qkv, p.rows*3*c.Width)
	g.attended = grow(g.attended, p.rows*c.Width)
	g.gathered = grow(g.gathered, p.scored*c.Width)
	g.hidden = grow(g.hidden, p.rows*c.Hidden)
	g.logits = grow(g.logits, p.scored*c.Vocabulary)
	p.transposed = grow(p.transposed, c.Width*max(3*c.Width, c.Hidden))

	p.logitsBackward(w, b, dlogp, grad)
	for i := c.Layers - 1; i >= 0; i-- {
		p.hiddenBackward(w, i, grad)
		p.attentionBackward(w, i, grad)
	}
	p.embedBackward(grad)
	return nil
}

// logitsBackward leaves the gradient of the last layer's output, scored rows
// only, in the residual gradient.
func (p *Pass) logitsBackward(w *Parameters, b *Batch, dlogp, grad []float32) {
	c, g, l := p.config, &p.scratch, p.layout
	for i, at := range p.scoredAt {
		d := dlogp[at]
		row := g.logits[i*c.Vocabulary : (i+1)*c.Vocabulary]
		for j, q := range p.probs[i*c.Vocabulary : (i+1)*c.Vocabulary] {
			row[j] = -d * q
		}
		row[b.Tokens[at]] += d
	}
	// The embedding takes part twice, here and in embedBackward; both add up.
	gemm(c.Vocabulary, c.Width, p.scored, g.logits, 1, c.Vocabulary, p.normed, c.Width, grad[l.token:], c.Width, true)
	gemm(p.scored, c.Width, c.Vocabulary, g.logits, c.Vocabulary, 1, w.data[l.token:], c.Width, g.normed, c.Width, false)
	residual := g.residual[:p.scored*c.Width]
	clear(residual)
	normalizeBackward(residual, grad[l.norm:l.norm+c.Width], g.normed, p.layers[c.Layers-1].output,
		w.data[l.norm:l.norm+c.Width], p.inverse, p.scored)
}

// matrixBackward goes back through y = x·W for the in×out matrix at offset: it
// adds to the matrix's gradient and overwrites dx.
func (p *Pass) matrixBackward(w *Parameters, offset int, grad []float32, rows, in, out int, x, dy, dx []float32) {
	gemm(in, out, rows, x, 1, in, dy, out, grad[offset:], out, true)
	transpose(p.transposed, w.data[offset:offset+in*out], in, out)
	gemm(rows, in, out, dy, out, 1, p.transposed, in, dx, in, false)
}

// hiddenBackward turns the gradient of layer i's output into those of its
// residual input (partly: the attention's share follows) and attended values.
func (p *Pass) hiddenBackward(w *Parameters, i int, grad []float32) {
	c, a, l, g := p.config, &p.layers[i], p.layout.layers[i], &p.scratch
	n, attended, dattended := p.rows, a.attended, g.attended
	if i == c.Layers-1 {
		n, attended, dattended = p.scored, a.gathered, g.gathered
	}
	residual := g.residual[:n*c.Width]
	hidden := g.hidden[:n*c.Hidden]
	p.matrixBackward(w, l.down, grad, n, c.Hidden, c.Width, a.hidden, residual, hidden)
	for j, v := range a.hidden[:n*c.Hidden] {
		if v == 0 {
			hidden[j] = 0
		}
	}
	p.matrixBackward(w, l.up, grad, n, c.Width, c.Hidden, a.normedUp, hidden, g.normed)
	normalizeBackward(residual, grad[l.hiddenNorm:l.hiddenNorm+c.Width], g.normed, a.middle,
		w.data[l.hiddenNorm:l.hiddenNorm+c.Width], a.inverseUp, n)
	p.matrixBackward(w, l.output, grad, n, c.Width, c.Width, attended, residual, dattended)
	if i == c.Layers-1 {
		p.scatter(g.attended, dattended)
		p.scatterResidual()
	}
}

// scatter writes the scored rows of src to their places in dst, zeros between.
func (p *Pass) scatter(dst, src []float32) {
	width := p.config.Width
	clear(dst[:p.rows*width])
	for i, r := range p.scoredRow {
		copy(dst[int(r)*width:int(r+1)*width], src[i*width:])
	}
}

// scatterResidual spreads the residual gradient of the scored rows over all
// rows in place: from the back, so that no row is overwritten before it moved.
func (p *Pass) scatterResidual() {
	width, x := p.config.Width, p.scratch.residual
	next := p.rows
	for i := p.scored - 1; i >= 0; i-- {
		r := int(p.scoredRow[i])
		clear(x[(r+1)*width : next*width])
		copy(x[r*width:(r+1)*width], x[i*width:(i+1)*width])
		next = r
	}
	clear(x[:next*width])
}

// attentionBackward goes from the gradient of layer i's attended values to the
// gradient of its input, which it adds to the residual gradient.
func (p *Pass) attentionBackward(w *Parameters, i int, grad []float32) {
	c, a, l, g := p.config, &p.layers[i], p.layout.layers[i], &p.scratch
	padded := pad16(p.longest)
	g.scores = grow(g.scores, p.longest*padded)
	g.keys = grow(g.keys, c.headWidth()*padded)
	for s := range len(p.starts) - 1 {
		low, n := int(p.starts[s]), int(p.starts[s+1]-p.starts[s])
		for h := range c.Heads {
			weights := a.weights[(low*c.Heads+h*n)*padded:][:n*padded]
			p.attendBackward(a, low, n, h, weights, padded)
		}
	}
	p.matrixBackward(w, l.qkv, grad, p.rows, c.Width, 3*c.Width, a.normed, g.qkv, g.normed)
	normalizeBackward(g.residual, grad[l.attentionNorm:l.attentionNorm+c.Width], g.normed, a.input,
		w.data[l.attentionNorm:l.attentionNorm+c.Width], a.inverse, p.rows)
}

// attendBackward writes the gradients of one head's queries, keys and values.
func (p *Pass) attendBackward(a *activation, low, n, head int, weights []float32, padded int) {
	g, width, hw := &p.scratch, p.config.Width, p.config.headWidth()
	stride := 3 * width
	at := low*stride + head*hw
	dout := g.attended[low*width+head*hw:]
	// dV = weightsᵀ·dout
	gemm(n, hw, n, weights, 1, padded, dout, width, g.qkv[at+2*width:], stride, false)
	// dweights = dout·Vᵀ
	v := a.qkv[at+2*width:]
	for j := range n {
		for d, e := range v[j*stride : j*stride+hw] {
			g.keys[d*padded+j] = e
		}
	}
	gemm(n, n, hw, dout, width, 1, g.keys, padded, g.scores, padded, false)
	scale := attentionScale(hw)
	for r := range n {
		row := g.scores[r*padded : r*padded+n]
		probs := weights[r*padded : r*padded+n]
		var dot float32
		for j, q := range probs[:r+1] {
			dot += q * row[j]
		}
		for j, q := range probs {
			row[j] = q * (row[j] - dot) * scale
		}
	}
	// dQ = dscores·K and dK = dscoresᵀ·Q
	gemm(n, hw, n, g.scores, padded, 1, a.qkv[at+width:], stride, g.qkv[at:], stride, false)
	gemm(n, hw, n, g.scores, 1, padded, a.qkv[at:], stride, g.qkv[at+width:], stride, false)
}

func (p *Pass) embedBackward(grad []float32) {
	width := p.config.Width
	for i, token := range p.tokens {
		t := grad[p.layout.token+int(token)*width:][:width]
		q := grad[p.layout.position+int(p.positions[i])*width:][:width]
		for j, d := range p.scratch.residual[i*width : (i+1)*width] {
			t[j] += d
			q[j] += d
		}
	}
}
