package schedule

import (
	"fmt"
	"math"
)

// Decode is how long one decode step of one engine takes, by the rollouts that
// generate on it. It is FixedS + max(WeightsS + n·SlotReadS, n·SlotComputeS), the
// roofline of batched decoding. All are in seconds. Engines that run empty at the
// end of a batch are faster for each rollout that is left, though slower in all.
// The cost of barriers depends on this curve.
type Decode struct {
	// FixedS is what no roofline explains: kernel launches, sampling, communication. At least 0.
	FixedS float64 `json:"fixed_s"`
	// WeightsS is the time in which the weights are read once. At least 0.
	WeightsS float64 `json:"weights_s"`
	// SlotReadS is the time in which one rollout's cache is read. At least 0.
	SlotReadS float64 `json:"slot_read_s"`
	// SlotComputeS is the time of one token's arithmetic. At least 0.
	SlotComputeS float64 `json:"slot_compute_s"`
	// Curve is measured steps instead of the roofline, by rising numbers of rollouts. Between two points it is a line.
	// Before the first and after the last one it goes on as the nearest segment, never below the first step's half.
	Curve []Point `json:"curve,omitempty"`
}

// Point is one measured decode step.
type Point struct {
	// Active is the number of rollouts that generated on the engine. At least 1.
	Active float64 `json:"active"`
	// StepS is the time of the step, one token for each of them, in seconds. Above 0.
	StepS float64 `json:"step_s"`
}

// Constant returns the decode of engines whose slots always make that many tokens
// per second, however many are busy.
func Constant(tokensPerS float64) Decode { return Decode{FixedS: 1 / tokensPerS} }

// Sampled returns the decode of a function of the rollouts on an engine, taken at
// numbers up to slots that are about a tenth apart.
func Sampled(stepS func(active int) float64, slots int) Decode {
	var d Decode
	for n := 1; n < slots; n += max(n/10, 1) {
		d.Curve = append(d.Curve, Point{float64(n), stepS(n)})
	}
	d.Curve = append(d.Curve, Point{float64(slots), stepS(slots)})
	return d
}

// StepS returns the time of a decode step with that many rollouts, in seconds;
// fewer than one count as one.
func (d Decode) StepS(active float64) float64 {
	active = max(active, 1)
	if len(d.Curve) > 0 {
		return d.measured(active)
	}
	return d.FixedS + max(d.WeightsS+active*d.SlotReadS, active*d.SlotComputeS)
}

// measured interpolates the curve.
func (d Decode) measured(active float64) float64 {
	if len(d.Curve) == 1 {
		return d.Curve[0].StepS
	}
	i := 1
	for i < len(d.Curve)-1 && d.Curve[i].Active < active {
		i++
	}
	a, b := d.Curve[i-1], d.Curve[i]
	return max(a.StepS+(active-a.Active)*(b.StepS-a.StepS)/(b.Active-a.Active), d.Curve[0].StepS/2)
}

// validate reports what cannot be a decode step's time.
func (d Decode) validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"FixedS", d.FixedS}, {"WeightsS", d.WeightsS}, {"SlotReadS", d.SlotReadS}, {"SlotComputeS", d.SlotComputeS}} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("schedule: Decode.%s is %g, want a finite number of at least 0 seconds", f.name, f.value)
		}
	}
	last := 0.0
	for i, p := range d.Curve {
		if !(p.StepS > 0) || math.IsInf(p.StepS, 0) || !(p.Active > last) || p.Active < 1 || math.IsInf(p.Active, 0) {
			return fmt.Errorf("schedule: Decode.Curve[%d] is %g rollouts in %g s, want at least 1, more than the point before, in a positive time", i, p.Active, p.StepS)
		}
		last = p.Active
	}
	if !(d.StepS(1) > 0) || !(d.StepS(1) < stepSMax) {
		return fmt.Errorf("schedule: a decode step takes %g s, want above 0 and below %d", d.StepS(1), stepSMax)
	}
	return nil
}

// stepSMax is the longest believable decode step, in seconds.
const stepSMax = 3600
