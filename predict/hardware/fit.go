package hardware

import (
	"fmt"
	"math"
)

// DecodePoint is a measured decoding speed: so many rollouts at once on one
// replica, so many generated tokens per second of the whole replica.
type DecodePoint struct {
	Active     float64
	TokensPerS float64
}

// Fit says what a fit found and how well it holds.
type Fit struct {
	// Replica with the fitted efficiencies.
	Replica Replica
	// Fitted names what the points determined, in order: bandwidth_use, compute_use, step_overhead_s.
	Fitted []string
	// RMS and Worst are the relative errors of the step times of the points.
	RMS, Worst float64
}

// FitDecode fits effective bandwidth, effective FLOP/s and t₀ to measured
// points, by least squares of relative step times. Which of them the points
// determine depends on their spread: t₀ needs two speeds, and a bound that no
// point reaches keeps its default. Points that the device cannot have reached
// are refused.
func FitDecode(r Replica, points []DecodePoint) (Fit, error) {
	if err := r.Validate(); err != nil {
		return Fit{}, err
	}
	r = r.WithDefaults()
	r.Scale = 1
	if len(points) == 0 {
		return Fit{}, fmt.Errorf("calibration: no points: give rollouts at once and tokens/s of a replica, several of them for t₀")
	}
	for i, p := range points {
		if err := positive(fmt.Sprintf("calibration point %d", i+1), "rollouts at once", p.Active, 1e9); err != nil {
			return Fit{}, err
		}
		if err := positive(fmt.Sprintf("calibration point %d", i+1), "tokens/s", p.TokensPerS, 1e12); err != nil {
			return Fit{}, err
		}
		if err := r.plausible(p.Active, p.TokensPerS); err != nil {
			return Fit{}, fmt.Errorf("calibration point %d: %w", i+1, err)
		}
	}
	return fitDecode(r, points)
}

// fitDecode alternates between saying which bound each point is under and
// solving for the bounds, until nothing changes.
func fitDecode(r Replica, points []DecodePoint) (Fit, error) {
	best := Fit{RMS: math.Inf(1)}
	distinct := distinctSpeeds(points)
	for range 20 {
		rows := make([]fitRow, 0, len(points))
		for _, p := range points {
			rows = append(rows, rowOf(r, p))
		}
		bandwidth, compute, overhead := solveBounds(rows, distinct, r)
		next := r
		var fitted []string
		if bandwidth > 0 {
			next.BandwidthUse = math.Min(bandwidth, 1)
			fitted = append(fitted, "bandwidth_use")
		}
		if compute > 0 {
			next.ComputeUse = math.Min(compute, 1)
			fitted = append(fitted, "compute_use")
		}
		if overhead >= 0 {
			next.StepOverheadS = overhead
			if overhead == 0 {
				next.StepOverheadS = -1
			}
			fitted = append(fitted, "step_overhead_s")
		}
		c := Fit{Replica: next, Fitted: fitted}
		c.RMS, c.Worst = residuals(next, points)
		if c.RMS < best.RMS {
			best = c
		}
		if next == r {
			break
		}
		r = next
	}
	if math.IsInf(best.RMS, 1) || best.Worst > 0.5 {
		return Fit{}, fmt.Errorf("calibration: no roofline comes closer than %.0f %% to the points: check that they are one replica's, of one model and context, with generated tokens alone", 100*best.Worst)
	}
	return best, nil
}

// fitRow is a point as a linear equation in 1/bandwidth use, 1/compute use and t₀.
type fitRow struct {
	memory, compute, link, seconds float64
	bound                          Limit
}

// rowOf reads a point with the ideal step's parts.
func rowOf(r Replica, p DecodePoint) fitRow {
	now := r.Decode(p.Active)
	row := fitRow{
		memory: (now.Weights + now.Cache) * r.BandwidthUse, compute: now.Compute * r.ComputeUse,
		link: now.Link, seconds: p.Active / p.TokensPerS, bound: LimitBandwidth,
	}
	if now.Compute > now.Weights+now.Cache {
		row.bound = LimitCompute
	}
	return row
}

// distinctSpeeds counts different numbers of rollouts at once.
func distinctSpeeds(points []DecodePoint) int {
	seen := map[float64]bool{}
	for _, p := range points {
		seen[p.Active] = true
	}
	return len(seen)
}

// solveBounds finds the uses and t₀ of least relative squares; 0 (or −1 for
// t₀) where the points do not determine one. A negative t₀ is none.
func solveBounds(rows []fitRow, distinct int, r Replica) (bandwidth, compute, overhead float64) {
	withOverhead := distinct > 1
	fixed := 0.0
	if !withOverhead {
		fixed = r.overhead()
	}
	memory, multiply, t0 := leastSquares(rows, fixed, withOverhead)
	if withOverhead && t0 < 0 {
		memory, multiply, _ = leastSquares(rows, 0, false)
		t0 = 0
	}
	if memory > 0 {
		bandwidth = 1 / memory
	}
	if multiply > 0 {
		compute = 1 / multiply
	}
	if !withOverhead {
		t0 = -1
	}
	return bandwidth, compute, t0
}

// leastSquares solves the normal equations of rows weighted by 1/seconds².
// Each row has one of two slopes, by its bound, and a common intercept.
func leastSquares(rows []fitRow, fixed float64, withOverhead bool) (memory, compute, t0 float64) {
	type sums struct{ xx, x, xy float64 }
	var slope [2]sums
	var ones, ys float64
	for _, row := range rows {
		weight := 1 / (row.seconds * row.seconds)
		x, k := row.memory, 0
		if row.bound == LimitCompute {
			x, k = row.compute, 1
		}
		y := row.seconds - row.link - fixed
		slope[k].xx += weight * x * x
		slope[k].x += weight * x
		slope[k].xy += weight * x * y
		ones += weight
		ys += weight * y
	}
	// Eliminating the slopes leaves one equation in the intercept.
	for k := range slope {
		if slope[k].xx > 0 {
			ones -= slope[k].x * slope[k].x / slope[k].xx
			ys -= slope[k].x * slope[k].xy / slope[k].xx
		}
	}
	if withOverhead && ones > 1e-12 {
		t0 = ys / ones
	}
	solve := func(s sums) float64 {
		if s.xx == 0 {
			return 0
		}
		return (s.xy - t0*s.x) / s.xx
	}
	return solve(slope[0]), solve(slope[1]), t0
}

// residuals compares predicted to measured step times.
func residuals(r Replica, points []DecodePoint) (rms, worst float64) {
	for _, p := range points {
		e := r.Decode(p.Active).Seconds/(p.Active/p.TokensPerS) - 1
		rms += e * e
		worst = math.Max(worst, math.Abs(e))
	}
	return math.Sqrt(rms / float64(len(points))), worst
}
