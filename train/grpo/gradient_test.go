package grpo

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// corrections is one of each kind, and of each of its variants.
func corrections() map[string]Correction {
	out := map[string]Correction{
		"decoupled, capped":     {Kind: DecoupledPPO, Cap: 1.3, Floor: 0.4},
		"decoupled, dropping":   {Kind: DecoupledPPO, Cap: 1.3, DropOverCap: true},
		"icepop":                {Kind: DecoupledPPO, Floor: 0.5, Cap: 5, DropOverCap: true, DropUnderFloor: true},
		"icepop, narrow":        {Kind: DecoupledPPO, Floor: 0.9, Cap: 1.1, DropOverCap: true, DropUnderFloor: true},
		"tis, both dropped":     {Kind: TIS, Floor: 0.8, Cap: 1.2, DropOverCap: true, DropUnderFloor: true},
		"prime-rl":              {Kind: DPPO, Penalty: 1e-3},
		"dppo, lopsided":        {Kind: DPPO, DifferenceLow: 0.05, DifferenceHigh: 0.1, Penalty: 0.3},
		"tis by sequence":       {Kind: TIS, Level: LevelSequence, Cap: 1.5},
		"tis by geometric mean": {Kind: TIS, Level: LevelGeometric, Cap: 1.1, Floor: 0.5},
		"tis, dropping":         {Kind: TIS, DropOverCap: true, Cap: 1.2},
		"sequences by kl":       {Kind: SequenceMask, Metric: MetricKL, MaxKL: 0.1},
		"opsm":                  {Kind: SequenceMask, Low: math.Exp(-1e-4), High: math.Inf(1), NegativeOnly: true},
		"lopsided":              {EpsilonLow: 0.1, EpsilonHigh: 0.4},
		"newest":                {VersionMask: VersionsNewest},
		"training":              {Kind: CISPO, VersionMask: VersionsTraining, VersionLag: 2},
		"spans":                 {Kind: None, MaxSpans: 2},
	}
	for _, k := range Kinds() {
		out[string(k)] = Correction{Kind: k}
	}
	return out
}

// drawSequence makes a sequence of n tokens in up to three spans of versions.
func drawSequence(rng *rand.Rand, n int) Sequence {
	s := Sequence{Advantage: float32(rng.NormFloat64()), Staleness: int32(rng.IntN(12))}
	lag := s.Staleness
	for range n {
		s.Sampled = append(s.Sampled, uint8(min(rng.IntN(4), 1)))
		behaviour := -3 * rng.Float32()
		proximal := behaviour + float32(0.4*rng.NormFloat64())
		s.Behaviour = append(s.Behaviour, behaviour)
		s.Proximal = append(s.Proximal, proximal)
		s.Current = append(s.Current, proximal+float32(0.2*rng.NormFloat64()))
		if lag > 0 && rng.IntN(5) == 0 {
			lag--
		}
		s.Lags = append(s.Lags, lag)
	}
	return s
}

// reference is the loss of a sequence at log-probs at, written from the
// formulas alone, token by token, with everything that holds no gradient taken
// at the sequence's own log-probs. It returns false near a kink.
func reference(c Correction, s Sequence, at []float64) (loss float64, smooth bool) {
	held := func(k int) float64 { return float64(s.Current[k]) - float64(s.Behaviour[k]) }
	var sum, kl, n, spans float64
	newest, last := int32(math.MaxInt32), int32(-1)
	for k := range s.Sampled {
		if s.Sampled[k] == 0 {
			continue
		}
		n++
		sum += held(k)
		kl += math.Exp(held(k)) - 1 - held(k)
		newest = min(newest, s.Lags[k])
		if s.Lags[k] != last {
			spans++
		}
		last = s.Lags[k]
	}
	if n == 0 || c.MaxSpans > 0 && spans > float64(c.MaxSpans) {
		return 0, true
	}
	geometric := math.Exp(sum / n)
	if c.Kind == SequenceMask && !(c.NegativeOnly && s.Advantage >= 0) {
		if c.Metric == MetricKL && kl/n > c.MaxKL || c.Metric == MetricGeometric && (geometric < c.Low || geometric > c.High) {
			return 0, true
		}
	}
	smooth = true
	a := float64(s.Advantage)
	clip := func(r float64) float64 {
		smooth = smooth && math.Abs(r-1+c.EpsilonLow) > 1e-4 && math.Abs(r-1-c.EpsilonHigh) > 1e-4
		return -math.Min(r*a, math.Min(math.Max(r, 1-c.EpsilonLow), 1+c.EpsilonHigh)*a)
	}
	for k := range s.Sampled {
		if s.Sampled[k] == 0 ||
			c.VersionMask == VersionsNewest && s.Lags[k]-newest > int32(c.VersionLag) ||
			c.VersionMask == VersionsTraining && s.Lags[k] > int32(c.VersionLag) {
			continue
		}
		r := math.Exp(at[k] - float64(s.Behaviour[k]))
		w := math.Exp(held(k))
		switch c.Kind {
		case None:
			loss -= a * at[k]
		case CISPO:
			loss -= math.Min(math.Max(w, 1-c.EpsilonLow), 1+c.EpsilonHigh) * a * at[k]
		case TIS:
			switch c.Level {
			case LevelSequence:
				w = math.Exp(sum)
			case LevelGeometric:
				w = geometric
			}
			if !(c.DropOverCap && w > c.Cap) && !(c.DropUnderFloor && w < c.Floor) {
				loss -= math.Min(math.Max(w, c.Floor), c.Cap) * a * at[k]
			}
		case DecoupledPPO:
			w = math.Exp(float64(s.Proximal[k]) - float64(s.Behaviour[k]))
			switch {
			case c.DropOverCap && w > c.Cap, c.DropUnderFloor && w < c.Floor:
				continue
			case c.Cap > 0:
				w = math.Min(w, c.Cap)
			}
			loss += math.Max(w, c.Floor) * clip(math.Exp(at[k]-float64(s.Proximal[k])))
		case DPPO:
			moved := math.Exp(float64(s.Current[k])) - math.Exp(float64(s.Behaviour[k]))
			if a > 0 && moved <= c.DifferenceHigh || a <= 0 && moved >= -c.DifferenceLow {
				loss -= r * a
			}
			loss += c.Penalty * math.Pow(at[k]-float64(s.Behaviour[k]), 2)
		case TokenMask:
			if w >= c.Low && w <= c.High {
				loss += clip(r)
			}
		default:
			loss += clip(r)
		}
	}
	return loss, smooth
}

// TestGradient checks every correction against finite differences of its
// formula, and its loss against the formula itself.
func TestGradient(t *testing.T) {
	for name, c := range corrections() {
		t.Run(name, func(t *testing.T) {
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			c = c.WithDefaults()
			rng := rand.New(rand.NewPCG(7, 7))
			const step = 1e-6
			checked, moved := 0, 0
			for range 300 {
				s := drawSequence(rng, 1+rng.IntN(12))
				derivative := make([]float32, len(s.Current))
				var r Report
				c.Gradient(derivative, &s, &r)
				at := make([]float64, len(s.Current))
				for k := range at {
					at[k] = float64(s.Current[k])
				}
				loss, smooth := reference(c, s, at)
				if !smooth {
					continue
				}
				if !close64(r.All.Loss, loss, 1e-6) {
					t.Fatalf("loss %g, the formula gives %g: %+v", r.All.Loss, loss, s)
				}
				for k := range at {
					at[k] += step
					above, _ := reference(c, s, at)
					at[k] -= 2 * step
					below, _ := reference(c, s, at)
					at[k] += step
					checked++
					if derivative[k] != 0 {
						moved++
					}
					if d := (above - below) / (2 * step); math.Abs(d-float64(derivative[k])) > 1e-5*(1+math.Abs(d)) {
						t.Fatalf("token %d: derivative %g, finite difference %g: %+v", k, derivative[k], d, s)
					}
				}
			}
			if checked < 1000 || moved < 100 {
				t.Errorf("only %d derivatives checked, %d of them not 0", checked, moved)
			}
		})
	}
}

// TestOnPolicyIsNeutral: where all log-probs agree every correction is the plain
// policy gradient, and nothing is clipped, cut or left out.
func TestOnPolicyIsNeutral(t *testing.T) {
	for name, c := range corrections() {
		c = c.WithDefaults()
		logp := []float32{-0.1, -1, -2.5}
		derivative := make([]float32, 3)
		var r Report
		c.Gradient(derivative, &Sequence{Current: logp, Behaviour: logp, Advantage: 0.7}, &r)
		for _, d := range derivative {
			if !close64(float64(d), -0.7, 1e-6) {
				t.Errorf("%s: derivative %g on policy, want minus the advantage", name, d)
			}
		}
		if a := &r.All; a.Outside != 0 || a.Masked != 0 || a.Truncated != 0 || a.LogRatio != 0 || a.EffectiveSampleSize() != 1 || a.Health() != Healthy {
			t.Errorf("%s: on-policy statistics %+v", name, *a)
		}
	}
}

// TestBounds: what bounds weights does.
func TestBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, c := range []struct {
		correction Correction
		most       float64
	}{
		{Correction{Kind: TIS, Cap: 1.7}, 1.7},
		{Correction{Kind: TIS, Cap: 1.7, Level: LevelSequence}, 1.7},
		{Correction{Kind: CISPO, EpsilonHigh: 0.3}, 1.3},
		{Correction{Kind: None}, 1},
		{Correction{Kind: TokenMask, High: 3}, 3},
	} {
		full := c.correction.WithDefaults()
		for range 500 {
			s := drawSequence(rng, 8)
			d := make([]float32, 8)
			full.Gradient(d, &s, &Report{})
			for _, v := range d {
				if math.Abs(float64(v)) > c.most*math.Abs(float64(s.Advantage))*(1+1e-6) {
					t.Fatalf("%+v: derivative %g with advantage %g", c.correction, v, s.Advantage)
				}
			}
		}
	}
}

// TestProximalOfOneStep: without proximal log-probs the current ones are taken.
func TestProximalOfOneStep(t *testing.T) {
	c := Correction{Kind: DecoupledPPO, Cap: 1.5}.WithDefaults()
	s := Sequence{Current: []float32{-0.5, -2, -1}, Behaviour: []float32{-1.5, -1, -1}, Advantage: 2}
	d := make([]float32, 3)
	var r Report
	c.Gradient(d, &s, &r)
	for k, want := range []float64{-3, -2 * math.Exp(-1), -2} {
		if !close64(float64(d[k]), want, 1e-6) {
			t.Errorf("token %d: derivative %g, want %g", k, d[k], want)
		}
	}
	if r.All.Clipped != 0 || r.All.Truncated != 1 || r.All.Outside != 2 {
		t.Errorf("statistics %+v, want 2 outside, none clipped, 1 cut", r.All)
	}
}

// TestNotANumberIsNotMasked: a broken log-prob reaches the optimizer, which refuses the step.
func TestNotANumberIsNotMasked(t *testing.T) {
	for name, c := range corrections() {
		if c = c.WithDefaults(); c.Kind == None {
			continue // uses no ratio
		}
		s := Sequence{Current: []float32{float32(math.NaN()), -1}, Behaviour: []float32{-1, -1}, Advantage: -1}
		d := make([]float32, 2)
		c.Gradient(d, &s, &Report{})
		if !math.IsNaN(float64(d[0])) {
			t.Errorf("%s: derivative %g of a log-prob that is no number", name, d[0])
		}
	}
}

// TestGradientDoesNotAllocate: it runs once a sample.
func TestGradientDoesNotAllocate(t *testing.T) {
	s := drawSequence(rand.New(rand.NewPCG(1, 1)), 64)
	d := make([]float32, 64)
	var r Report
	for name, c := range corrections() {
		c = c.WithDefaults()
		if n := testing.AllocsPerRun(20, func() { c.Gradient(d, &s, &r) }); n != 0 {
			t.Errorf("%s: %g allocations a sequence", name, n)
		}
	}
}

func TestGradientPanicsOnUnequalSlices(t *testing.T) {
	c := Correction{}.WithDefaults()
	for name, s := range map[string]Sequence{
		"current":   {Current: make([]float32, 2), Behaviour: make([]float32, 3)},
		"proximal":  {Current: make([]float32, 3), Behaviour: make([]float32, 3), Proximal: make([]float32, 2)},
		"behaviour": {Current: make([]float32, 3), Behaviour: make([]float32, 4)},
		"marks":     {Current: make([]float32, 3), Behaviour: make([]float32, 3), Sampled: make([]uint8, 1)},
		"lags":      {Current: make([]float32, 3), Behaviour: make([]float32, 3), Lags: make([]int32, 1)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: slices of different lengths went through", name)
				}
			}()
			c.Gradient(make([]float32, 3), &s, &Report{})
		}()
	}
}

// FuzzGradient: whatever the log-probs, versions and settings, derivatives are
// finite and bounded, masked tokens have none, and the statistics add up.
func FuzzGradient(f *testing.F) {
	f.Add([]byte("a few bytes to begin with: the kind, the version mask, then tokens"))
	f.Add([]byte{6, 1, 255, 255, 0, 0, 128, 3, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 {
			return
		}
		kinds := Kinds()
		c := Correction{Kind: kinds[int(data[0])%len(kinds)], VersionMask: []VersionMask{VersionsAll, VersionsNewest, VersionsTraining}[data[1]%3], MaxSpans: int(data[2] % 4)}.WithDefaults()
		s := Sequence{Advantage: float32(int8(data[3])) / 32}
		sampled := 0
		for rest := data[4:]; len(rest) >= 9; rest = rest[9:] {
			logp := func(at int) float32 { return -float32(binary.LittleEndian.Uint16(rest[at:])) / 2048 }
			s.Current, s.Proximal, s.Behaviour = append(s.Current, logp(0)), append(s.Proximal, logp(2)), append(s.Behaviour, logp(4))
			s.Sampled = append(s.Sampled, rest[6]&1)
			sampled += int(rest[6] & 1)
			s.Lags = append(s.Lags, int32(int8(rest[7])))
			s.Staleness = int32(int8(rest[8]))
		}
		d := make([]float32, len(s.Current))
		var r Report
		c.Gradient(d, &s, &r)
		moved := 0
		for k, v := range d {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("derivative %v of token %d: %+v with %+v", v, k, s, c)
			}
			if v != 0 {
				moved++
			}
			if v != 0 && s.Sampled[k] == 0 {
				t.Fatalf("token %d was not sampled but has derivative %v", k, v)
			}
		}
		if r.All.Tokens != sampled || moved > sampled-r.All.Masked-r.All.Clipped {
			t.Fatalf("%d tokens sampled, %d with a gradient: %+v", sampled, moved, r.All)
		}
		var byToken, byGroup Statistics
		for b := range r.ByToken {
			byToken.Merge(r.ByToken[b])
			byGroup.Merge(r.ByGroup[b])
		}
		for _, part := range []Statistics{byToken, byGroup} {
			if part.Tokens != r.All.Tokens || part.Outside != r.All.Outside || part.Masked != r.All.Masked || !close64(part.Loss, r.All.Loss, 1e-9) {
				t.Fatalf("parts add up to %+v, the whole is %+v", part, r.All)
			}
		}
		if e := r.All.EffectiveSampleSize(); !(e > 0 && e <= 1+1e-9) {
			t.Fatalf("effective sample size %g", e)
		}
	})
}

func BenchmarkGradient(b *testing.B) {
	for _, k := range Kinds() {
		b.Run(string(k), func(b *testing.B) {
			c := Correction{Kind: k}.WithDefaults()
			s := drawSequence(rand.New(rand.NewPCG(1, 1)), 1024)
			d := make([]float32, 1024)
			var r Report
			for b.Loop() {
				c.Gradient(d, &s, &r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/token")
		})
	}
}

func ExampleCorrection_Gradient() {
	correction := Correction{Kind: TIS, Cap: 2}.WithDefaults()
	if err := correction.Validate(); err != nil {
		panic(err)
	}
	derivative := make([]float32, 2)
	var seen Report
	correction.Gradient(derivative, &Sequence{
		Current:   []float32{-1, -1},
		Behaviour: []float32{-1, -3}, // the second token is e² times as likely now
		Lags:      []int32{0, 2},
		Advantage: 1,
	}, &seen)
	fmt.Println(derivative, seen.All.ClipFraction(), seen.ByToken[Bucket(2)].TruncatedFraction())
	// Output: [-1 -2] 0.5 1
}
