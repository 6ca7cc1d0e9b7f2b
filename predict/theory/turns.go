package theory

import (
	"fmt"
	"math"
)

// Turns are the parts of a step in which engines and trainer take turns on the same GPUs, in seconds of one batch.
type Turns struct {
	// StepS is the whole step, GenerateS the generation of its batch, and TrainS the passes that train on it. Above 0.
	StepS, GenerateS, TrainS float64
	// LogProbsS is the trainer's pass for the old log-probs, and SyncS the time to hand the weights over; 0 for none.
	LogProbsS, SyncS float64
	// BusyShare is the mean share of the batch that still generates while GenerateS lasts, above 0 to 1. The rest is the
	// tail, in which slots are empty. The value 0 is not known: Apart then counts no tail.
	BusyShare float64
}

// Apart bounds what the same batch would take on the same GPUs, divided between engines and a trainer that do not wait
// for each other.
type Apart struct {
	// LowS and HighS bound the time of a step, in seconds.
	LowS, HighS float64
	// RolloutLow and RolloutHigh bound the share of the GPUs that generates where neither side waits.
	RolloutLow, RolloutHigh float64
}

// RestS is what of a step no part names, in seconds.
func (t Turns) RestS() float64 {
	return math.Max(t.StepS-t.GenerateS-t.TrainS-t.LogProbsS-t.SyncS, 0)
}

// Validate reports parts that are no parts of a step.
func (t Turns) Validate() error {
	for _, part := range []struct {
		name  string
		value float64
		above bool
	}{{"StepS", t.StepS, true}, {"GenerateS", t.GenerateS, true}, {"TrainS", t.TrainS, true}, {"LogProbsS", t.LogProbsS, false}, {"SyncS", t.SyncS, false}} {
		if !(part.value >= 0) || part.above && part.value == 0 || math.IsInf(part.value, 0) {
			return fmt.Errorf("theory: %s is %g seconds", part.name, part.value)
		}
	}
	if !(t.BusyShare >= 0 && t.BusyShare <= 1) {
		return fmt.Errorf("theory: BusyShare is %g, want 0 to 1", t.BusyShare)
	}
	if parts := t.GenerateS + t.TrainS + t.LogProbsS + t.SyncS; parts > 1.05*t.StepS {
		return fmt.Errorf("theory: the parts of a step add up to %g s, and the step takes %g", parts, t.StepS)
	}
	return nil
}

// Apart returns the bounds. With g = GenerateS, u = TrainS, l = LogProbsS, r = RestS and b = BusyShare they are
//
//	HighS = g + u + l + r
//	LowS  = max(u, b·g)
//
// At worst both sides need the GPU time that they need now. At the best split x, T = g/x = (u+l+r)/(1−x), so that the sum
// stays and only the weight sync is hidden. At best the trainer is as fast on its share of the GPUs as on all of them.
// The log-probs are then those of the engines. Full slots decode as fast as empty ones, so that a batch takes b·g of the
// engines' time and has no tail.
func (t Turns) Apart() Apart {
	work, rest := t.GenerateS, t.RestS()
	if t.BusyShare > 0 {
		work *= t.BusyShare
	}
	a := Apart{HighS: t.GenerateS + t.TrainS + t.LogProbsS + rest, LowS: math.Max(t.TrainS, work)}
	worst, best := t.GenerateS/a.HighS, work/(work+t.TrainS+rest)
	a.RolloutLow, a.RolloutHigh = math.Min(worst, best), math.Max(worst, best)
	a.LowS = math.Min(a.LowS, a.HighS)
	return a
}
