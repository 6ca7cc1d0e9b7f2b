package transformer

import "math"

// exp32 is e^x in float32, to about two units in the last place: a Cephes-style
// range reduction and polynomial. The log-probs of both roads go through it, so
// that they agree.
func exp32(x float32) float32 {
	if x < -87 {
		return 0
	}
	if x > 88 {
		return float32(math.Inf(1))
	}
	const (
		log2e  = 1.44269504088896341
		ln2Hi  = 0.693359375
		ln2Lo  = -2.12194440e-4
		rounds = 12582912 // 1.5·2²³: adding it rounds to the nearest integer
	)
	n := float32(x*log2e+rounds) - rounds
	r := x - n*ln2Hi - n*ln2Lo
	p := float32(1.9875691500e-4)
	p = p*r + 1.3981999507e-3
	p = p*r + 8.3334519073e-3
	p = p*r + 4.1665795894e-2
	p = p*r + 1.6666665459e-1
	p = p*r + 5.0000001201e-1
	y := p*r*r + r + 1
	return y * math.Float32frombits(uint32(int32(n)+127)<<23)
}

// softmax turns scores into probabilities in place and returns the log of the
// normalizer, so that log p(i) = score(i) − it.
func softmax(scores []float32) float32 {
	largest := scores[0]
	for _, s := range scores[1:] {
		if s > largest {
			largest = s
		}
	}
	var sum float32
	for i, s := range scores {
		e := exp32(s - largest)
		scores[i] = e
		sum += e
	}
	inverse := 1 / sum
	for i := range scores {
		scores[i] *= inverse
	}
	return largest + float32(math.Log(float64(sum)))
}

// normEpsilon keeps the normalization of a zero row finite.
const normEpsilon = 1e-5

// normalize writes the RMS-normalized rows of x, scaled by gain, into y and
// each row's factor into inverse.
func normalize(y, x, gain, inverse []float32, rows int) {
	width := len(gain)
	for i := range rows {
		in := x[i*width : (i+1)*width]
		out := y[i*width : (i+1)*width]
		var a, b, c, d float32
		j := 0
		for ; j+4 <= width; j += 4 {
			a += in[j] * in[j]
			b += in[j+1] * in[j+1]
			c += in[j+2] * in[j+2]
			d += in[j+3] * in[j+3]
		}
		for ; j < width; j++ {
			a += in[j] * in[j]
		}
		s := float32(1 / math.Sqrt(float64((a+b+c+d)/float32(width)+normEpsilon)))
		inverse[i] = s
		for j, v := range in {
			out[j] = v * s * gain[j]
		}
	}
}

// normalizeBackward adds the gradient through normalize to dx and dgain, given
// the gradient dy of its output.
func normalizeBackward(dx, dgain, dy, x, gain, inverse []float32, rows int) {
	width := len(gain)
	for i := range rows {
		in := x[i*width : (i+1)*width]
		out := dy[i*width : (i+1)*width]
		grad := dx[i*width : (i+1)*width]
		s := inverse[i]
		var dot float32
		for j, g := range out {
			gx := g * in[j]
			dot += gx * gain[j]
			dgain[j] += gx * s
		}
		back := dot * s * s * s / float32(width)
		for j, g := range out {
			grad[j] += g*gain[j]*s - in[j]*back
		}
	}
}
