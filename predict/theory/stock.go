package theory

import "math"

// levels is by how many equally likely stocks the stock's law is represented.
const levels = 10

// stock is the stationary law of the groups that wait above the batch being
// taken, in batches, just before a selection. It is the chain
//
//	u' = clip(u + N/G − 1, 0, q−1),   N/G of mean ρ and variance c²/G
//
// which is reflected once a step. Its law is that of a reflected Brownian motion
// of the same drift and variance whose barriers lie 0.5826 of a step's spread
// further out on each side (the mean overshoot of a normal random walk over a
// barrier; Siegmund, Corrected diffusion approximations, 1979), clipped to
// [0, q−1]: density ∝ e^{κu}, κ = 2(ρ−1)G/c², with an atom at either end.
// Derived; for normal steps its mean agrees with the chain's to 3 % of a batch,
// the missing groups to 1 % (TestStockIsTheChain).
type stock struct {
	count   int             // of values that differ; 1 where nothing can wait
	value   [levels]float64 // batches, ascending
	weight  [levels]float64 // their probabilities
	missing float64         // E[groups short at the step's end], batches a step
	starved float64         // share of selections that wait for their last group: near 0 a reach of √½, by Spitzer's identity
}

// overshoot is −ζ(½)/√(2π). overshootAtOnce is what gives a queue of a single
// batch its exact shortage at ρ = 1, 1/√(2π) of a step's spread. emptyReach is
// within which of the lower barrier the walk itself is at 0.
const (
	overshoot       = 0.582597
	overshootAtOnce = 0.626657
	emptyReach      = 0.707107
)

// newStock returns the law for a queue of factor q above 1 and a one-step spread
// of c/√G.
func newStock(queueFactor, rho, c, groups float64) stock {
	width, drift := queueFactor-1, rho-1
	spread := max(c/math.Sqrt(groups), 1e-9)
	var s stock
	reach := barrier(width, spread)
	slope, wide := 2*drift/(spread*spread), width+2*reach
	for _, y := range exponentialSlices(slope, wide) {
		s.add(min(max(y-reach, 0), width))
	}
	s.starved = exponentialCDF(emptyReach*spread, slope, wide)
	s.missing = shortage(drift, spread, wide)
	return s
}

// add adds a slice of the law, to the one before where they are the same.
func (s *stock) add(value float64) {
	if s.count > 0 && s.value[s.count-1] == value {
		s.weight[s.count-1] += 1.0 / levels
		return
	}
	s.value[s.count], s.weight[s.count] = value, 1.0/levels
	s.count++
}

// barrier is how far out the motion is reflected.
func barrier(width, spread float64) float64 {
	return spread * (overshoot + (overshootAtOnce-overshoot)*spread/(spread+width))
}

// shortage is what the lower barrier pushes back per step, drift/(e^{θW} − 1)
// with θ = 2·drift/spread² and W the distance of the barriers.
func shortage(drift, spread, wide float64) float64 {
	theta := 2 * drift / (spread * spread)
	if k := theta * wide; math.Abs(k) < 1e-6 {
		return spread * spread / (2 * wide)
	}
	return drift / math.Expm1(theta*wide)
}

// exponentialSlices are the means of equally likely slices of the density
// ∝ e^{slope·y} on [0, width], ascending.
func exponentialSlices(slope, width float64) (means [levels]float64) {
	k := slope * width
	if math.Abs(k) < 1e-3 {
		for i := range means {
			means[i] = exponentialQuantile((float64(i)+0.5)/levels, slope, width)
		}
		return means
	}
	// The quantile function ln(1 + p(e^k − 1))/slope integrates in closed form. For
	// a rising density it is that of the falling one, mirrored.
	fall := -math.Abs(k)
	gain := math.Expm1(fall)
	last := -1.0 // A·ln A − A at A = 1 + p·gain
	for i := range means {
		a := 1 + float64(i+1)/levels*gain
		next := -a
		if a > 0 {
			next += a * math.Log(a)
		}
		mean := (next - last) / gain * levels / fall * width
		last = next
		if k < 0 {
			means[i] = mean
		} else {
			means[levels-1-i] = width - mean
		}
	}
	return means
}

// exponentialQuantile inverts the density ∝ e^{slope·y} on [0, width].
func exponentialQuantile(p, slope, width float64) float64 {
	k := slope * width
	switch {
	case math.Abs(k) < 1e-6:
		return p * width
	case k > 0:
		return max(width+math.Log(p+(1-p)*math.Exp(-k))/slope, 0)
	}
	return min(math.Log((1-p)+p*math.Exp(k))/slope, width)
}

// exponentialCDF is the mass of the density ∝ e^{slope·y} on [0, width] below y.
func exponentialCDF(y, slope, width float64) float64 {
	if k := slope * width; math.Abs(k) < 1e-6 {
		return y / width
	} else if k > 0 {
		return math.Exp(slope*(y-width)) * -math.Expm1(-slope*y) / -math.Expm1(-k)
	}
	return math.Expm1(slope*y) / math.Expm1(slope*width)
}

// period returns T/t_step: the trainer waits for what is missing, at the speed
// of arrivals.
func (s *stock) period(rho float64) float64 {
	return max(1+s.missing/rho, Period(rho))
}

// positivePart is E[(x + s·z)⁺] for a standard normal z.
func positivePart(x, s float64) float64 {
	if s < 1e-12 {
		return max(x, 0)
	}
	d := x / s
	return x*normalCDF(d) + s*math.Exp(-d*d/2)/math.Sqrt(2*math.Pi)
}
