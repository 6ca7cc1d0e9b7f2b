package transformer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// batchOf packs random sequences of 2 to longest tokens, each scored from a
// random token on.
func batchOf(rng *rand.Rand, c Config, sequences, longest int) *Batch {
	b := &Batch{Offsets: []int32{0}}
	for range sequences {
		n := 2 + rng.IntN(longest-1)
		scoredFrom := 1 + rng.IntN(n-1)
		for i := range n {
			b.Tokens = append(b.Tokens, rng.Int32N(int32(c.Vocabulary)))
			b.Scored = append(b.Scored, i >= scoredFrom)
		}
		b.Offsets = append(b.Offsets, int32(len(b.Tokens)))
		b.First = append(b.First, rng.Int32N(int32(c.Context-n+2)))
	}
	return b
}

func parameters(t testing.TB, c Config, seed uint64) *Parameters {
	t.Helper()
	w, err := NewParameters(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func pass(t testing.TB, c Config) *Pass {
	t.Helper()
	p, err := NewPass(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shapes include widths that are no multiple of a tile and a single layer.
var shapes = []Config{
	{Vocabulary: 7, Context: 9, Width: 12, Layers: 2, Heads: 3, Hidden: 20},
	{Vocabulary: 29, Context: 20, Width: 16, Layers: 1, Heads: 2, Hidden: 48},
	{Vocabulary: 17, Context: 18, Width: 32, Layers: 3, Heads: 2, Hidden: 64},
}

// weightedLoss is Σ weight[i]·logp[i], a loss with known derivatives.
func weightedLoss(t testing.TB, p *Pass, w *Parameters, b *Batch, weight []float32) float64 {
	t.Helper()
	logp := make([]float32, len(b.Tokens))
	if err := p.Forward(w, b, logp); err != nil {
		t.Fatal(err)
	}
	var sum float64
	for i, l := range logp {
		if b.Scored[i] {
			sum += float64(weight[i]) * float64(l)
		}
	}
	return sum
}

// TestGradientAgainstFiniteDifferences probes every tensor along random
// directions: the central difference of the loss must be the gradient's share
// along it.
func TestGradientAgainstFiniteDifferences(t *testing.T) {
	for _, road := range roads() {
		t.Run(road.name, func(t *testing.T) {
			road.use(t)
			for _, c := range shapes {
				checkGradient(t, c)
			}
		})
	}
}

func checkGradient(t *testing.T, c Config) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, uint64(c.Width)))
	w, p := parameters(t, c, 3), pass(t, c)
	for _, view := range w.Tensors() { // away from the symmetric start
		for i := range view.Elements() {
			w.data[view.Offset+i] += float32(rng.NormFloat64()) * 0.1
		}
	}
	b := batchOf(rng, c, 6, 8)
	weight := randomSlice(rng, len(b.Tokens))
	weightedLoss(t, p, w, b, weight)
	grad := make([]float32, len(w.data))
	if err := p.Backward(w, b, weight, grad); err != nil {
		t.Fatal(err)
	}
	q := pass(t, c)
	for _, view := range w.Tensors() {
		direction := make([]float64, view.Elements())
		var along, norm float64
		for i := range direction {
			// Follow the gradient, disturbed: random directions in many
			// dimensions are nearly orthogonal to it and would only test noise.
			g := float64(grad[view.Offset+i])
			direction[i] = g * (1 + 0.5*rng.NormFloat64())
			along += g * direction[i]
			norm += direction[i] * direction[i]
		}
		norm = math.Sqrt(norm)
		if norm == 0 {
			t.Fatalf("%+v: tensor %s has no gradient", c, view.Name)
		}
		const step = 4e-3
		difference := (shifted(t, q, w, b, weight, view, direction, step/norm) -
			shifted(t, q, w, b, weight, view, direction, -step/norm)) / (2 * step)
		if want := along / norm; math.Abs(difference-want) > 2e-2*math.Abs(want)+2e-3 {
			t.Errorf("%+v: tensor %s: finite difference %.6f, gradient %.6f", c, view.Name, difference, want)
		}
	}
}

func shifted(t *testing.T, p *Pass, w *Parameters, b *Batch, weight []float32, view Tensor, direction []float64, step float64) float64 {
	t.Helper()
	moved := w.Clone()
	for i, d := range direction {
		moved.data[view.Offset+i] += float32(d * step)
	}
	return weightedLoss(t, p, moved, b, weight)
}

// TestDecoderAgreesWithPass feeds sequences through the decoder, prompts in
// chunks and slots at different positions, and compares every log-prob with
// the whole-sequence forward.
func TestDecoderAgreesWithPass(t *testing.T) {
	for _, road := range roads() {
		t.Run(road.name, func(t *testing.T) {
			road.use(t)
			for _, c := range shapes {
				for seed := range uint64(5) {
					checkDecoder(t, c, seed)
				}
			}
		})
	}
}

func checkDecoder(t *testing.T, c Config, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 21))
	w, p := parameters(t, c, seed), pass(t, c)
	const slots = 5
	b := batchOf(rng, c, 3*slots, 8)
	for i := range b.Scored {
		b.Scored[i] = true
	}
	for _, o := range b.Offsets[:len(b.Offsets)-1] {
		b.Scored[o] = false
	}
	want := make([]float32, len(b.Tokens))
	if err := p.Forward(w, b, want); err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder(c, slots, 12)
	if err != nil {
		t.Fatal(err)
	}
	got := decodeAll(t, d, w, b, rng)
	for i := range want {
		if b.Scored[i] && math.Abs(float64(got[i]-want[i])) > 2e-5 {
			t.Fatalf("%+v: token %d: log-prob %g decoded, %g in one pass", c, i, got[i], want[i])
		}
	}
}

// decodeAll runs the batch's sequences through the slots, a random number of
// tokens of each a step, starting the next where one ends.
func decodeAll(t *testing.T, d *Decoder, w *Parameters, b *Batch, rng *rand.Rand) []float32 {
	t.Helper()
	logp := make([]float32, len(b.Tokens))
	slots := d.Slots()
	sequence, fed := make([]int, slots), make([]int32, slots)
	next := 0
	for s := range slots {
		sequence[s], next = next, next+1
	}
	for {
		var rows []Row
		var target []int32
		for s := range slots {
			if sequence[s] >= len(b.First) {
				continue
			}
			low, high := b.Offsets[sequence[s]], b.Offsets[sequence[s]+1]
			for range 1 + rng.IntN(3) {
				at := low + fed[s]
				if at == high-1 || len(rows) == d.Rows() {
					break
				}
				rows = append(rows, Row{Slot: int32(s), Position: b.First[sequence[s]] + fed[s], Token: b.Tokens[at], Start: fed[s] == 0, Logits: true})
				target = append(target, at+1)
				fed[s]++
			}
		}
		if len(rows) == 0 {
			return logp
		}
		logits, err := d.Step(w, rows)
		if err != nil {
			t.Fatal(err)
		}
		v := d.config.Vocabulary
		for i, at := range target {
			row := logits[i*v : (i+1)*v]
			score := row[b.Tokens[at]]
			logp[at] = score - softmax(row)
		}
		for s := range slots {
			if sequence[s] < len(b.First) && b.Offsets[sequence[s]]+fed[s] == b.Offsets[sequence[s]+1]-1 {
				sequence[s], next, fed[s] = next, next+1, 0
			}
		}
	}
}

// road is one implementation of the matrix product.
type road struct {
	name   string
	vector bool
}

func roads() []road {
	all := []road{{"portable", false}}
	if vectorized {
		all = append(all, road{"vectorized", true})
	}
	return all
}

// use makes gemm take the road for the rest of the test.
func (r road) use(t *testing.T) {
	before := vectorized
	vectorized = r.vector
	t.Cleanup(func() { vectorized = before })
}

func TestDecoderStepAllocatesNothing(t *testing.T) {
	c := Config{Vocabulary: 29}.WithDefaults()
	w := parameters(t, c, 1)
	d, err := NewDecoder(c, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]Row, 8)
	for i := range rows {
		rows[i] = Row{Slot: int32(i), Position: int32(i), Token: int32(i), Start: true, Logits: i%2 == 0}
	}
	allocations := testing.AllocsPerRun(20, func() {
		if _, err := d.Step(w, rows); err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations a step, want none", allocations)
	}
}

// TestDecoderRefuses feeds rows that would read outside the cache or skip a
// position; a refused step must leave the cache usable.
func TestDecoderRefuses(t *testing.T) {
	c := shapes[0]
	w := parameters(t, c, 1)
	d, err := NewDecoder(c, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	start := Row{Slot: 0, Position: 2, Token: 1, Start: true, Logits: true}
	if _, err := d.Step(w, []Row{start}); err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string][]Row{
		"none":           {},
		"too many":       {start, {Position: 3}, {Position: 4}, {Position: 5}},
		"skips":          {{Slot: 0, Position: 4}},
		"slot":           {{Slot: 2, Start: true}},
		"token":          {{Slot: 1, Token: 7, Start: true}},
		"position":       {{Slot: 1, Position: 9, Start: true}},
		"starts twice":   {{Slot: 1, Start: true}, {Slot: 1, Start: true}},
		"good then skip": {{Slot: 0, Position: 3}, {Slot: 0, Position: 5}},
	} {
		if _, err := d.Step(w, rows); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := d.Step(w, []Row{{Slot: 0, Position: 3, Token: 1}}); err != nil {
		t.Errorf("after refused steps: %v", err)
	}
}

func TestPassRefuses(t *testing.T) {
	c := shapes[0]
	w, p := parameters(t, c, 1), pass(t, c)
	for name, b := range map[string]*Batch{
		"empty":        {Offsets: []int32{0}},
		"one token":    {Tokens: []int32{1}, Offsets: []int32{0, 1}, First: []int32{0}, Scored: []bool{false}},
		"past context": {Tokens: []int32{1, 1, 1}, Offsets: []int32{0, 3}, First: []int32{8}, Scored: []bool{false, true, true}},
		"token":        {Tokens: []int32{1, 7}, Offsets: []int32{0, 2}, First: []int32{0}, Scored: []bool{false, true}},
		"first scored": {Tokens: []int32{1, 2}, Offsets: []int32{0, 2}, First: []int32{0}, Scored: []bool{true, true}},
		"offsets":      {Tokens: []int32{1, 2}, Offsets: []int32{0, 3}, First: []int32{0}, Scored: []bool{false, true}},
	} {
		if err := p.Forward(w, b, make([]float32, len(b.Tokens))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNewParametersAreAFunctionOfSeed(t *testing.T) {
	c := Config{Vocabulary: 29}.WithDefaults()
	a, b, other := parameters(t, c, 5), parameters(t, c, 5), parameters(t, c, 6)
	same := 0
	for i := range a.data {
		if a.data[i] != b.data[i] {
			t.Fatalf("element %d differs under one seed", i)
		}
		if a.data[i] == other.data[i] {
			same++
		}
	}
	if same > len(a.data)/10 {
		t.Errorf("%d of %d elements are equal under two seeds", same, len(a.data))
	}
}

// TestAdamFindsMinimum descends a quadratic from Parameters' own vector, and
// pins the first step, whose size is the learning rate whatever the gradient.
func TestAdamFindsMinimum(t *testing.T) {
	w := parameters(t, shapes[0], 1)
	a := NewAdam(len(w.data), 0.01)
	grad := make([]float32, len(w.data))
	for step := range 1000 {
		for i, v := range w.data {
			grad[i] = v - 0.5
		}
		before := w.data[0]
		if _, err := a.Step(w, w, grad); err != nil {
			t.Fatal(err)
		}
		if moved := math.Abs(float64(w.data[0] - before)); step == 0 && math.Abs(moved-0.01) > 1e-5 {
			t.Errorf("first step moved %g, want the learning rate 0.01", moved)
		}
	}
	for i, v := range w.data {
		if math.Abs(float64(v)-0.5) > 0.02 {
			t.Fatalf("element %d is %g, want 0.5", i, v)
		}
	}
	grad[3] = float32(math.NaN())
	before := w.Clone()
	if _, err := a.Step(w, w, grad); err == nil {
		t.Error("accepted a gradient that is not a number")
	}
	if before.data[0] != w.data[0] {
		t.Error("a refused step changed the parameters")
	}
}

func TestExp32(t *testing.T) {
	for x := -86.0; x < 88; x += 0.0137 {
		got, want := float64(exp32(float32(x))), math.Exp(float64(float32(x)))
		if math.Abs(got-want) > 3e-7*want {
			t.Fatalf("exp(%g) = %g, want %g", x, got, want)
		}
	}
}

func TestSampleFollowsProbabilities(t *testing.T) {
	logits := []float32{0, 1, -1, 2}
	rng := rand.New(rand.NewPCG(1, 1))
	counts := make([]float64, len(logits))
	const draws = 20000
	var logps [4]float32
	for range draws {
		row := append([]float32(nil), logits...)
		token, logp := Sample(row, rng.Float64())
		counts[token]++
		logps[token] = logp
	}
	var total float64
	for _, l := range logits {
		total += math.Exp(float64(l))
	}
	for i, l := range logits {
		p := math.Exp(float64(l)) / total
		if math.Abs(counts[i]/draws-p) > 4*math.Sqrt(p*(1-p)/draws) {
			t.Errorf("token %d drawn with frequency %g, want %g", i, counts[i]/draws, p)
		}
		if math.Abs(float64(logps[i])-math.Log(p)) > 1e-6 {
			t.Errorf("token %d has log-prob %g, want %g", i, logps[i], math.Log(p))
		}
	}
	if token, _ := Sample([]float32{-1000, 0, -1000}, 0.9999999999); token != 1 {
		t.Errorf("the far end of the draw gave token %d of no probability", token)
	}
	if token, _ := Greedy([]float32{0, 3, 3, 1}); token != 1 {
		t.Errorf("greedy chose %d, want the first of the largest", token)
	}
}

func BenchmarkTrainStep(b *testing.B) {
	c := Config{Vocabulary: 29}.WithDefaults()
	rng := rand.New(rand.NewPCG(1, 1))
	w, p := parameters(b, c, 1), pass(b, c)
	batch := &Batch{Offsets: []int32{0}}
	for range 64 {
		n := 8 + rng.IntN(6)
		for i := range n {
			batch.Tokens = append(batch.Tokens, rng.Int32N(29))
			batch.Scored = append(batch.Scored, i >= n/2)
		}
		batch.Offsets = append(batch.Offsets, int32(len(batch.Tokens)))
		batch.First = append(batch.First, 0)
	}
	logp := make([]float32, len(batch.Tokens))
	dlogp := randomSlice(rng, len(batch.Tokens))
	grad := make([]float32, len(w.data))
	a := NewAdam(len(w.data), 1e-4)
	for b.Loop() {
		clear(grad)
		if err := p.Forward(w, batch, logp); err != nil {
			b.Fatal(err)
		}
		if err := p.Backward(w, batch, dlogp, grad); err != nil {
			b.Fatal(err)
		}
		if _, err := a.Step(w, w, grad); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	c := Config{Vocabulary: 29}.WithDefaults()
	w := parameters(b, c, 1)
	d, err := NewDecoder(c, 32, 32)
	if err != nil {
		b.Fatal(err)
	}
	rows := make([]Row, 32)
	position := int32(0)
	for b.Loop() {
		for i := range rows {
			rows[i] = Row{Slot: int32(i), Position: position, Token: 3, Start: position == 0, Logits: true}
		}
		position = (position + 1) % 12
		if _, err := d.Step(w, rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(32*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}
