package schedule

import (
	"fmt"
	"math"
)

// Phase is a phase of the trainer over one batch: a part that shrinks with the GPUs
// and one that does not.
type Phase struct {
	// S is the time of a mean batch on GPUs GPUs, in seconds. 0 is a phase there is none of.
	S float64 `json:"s"`
	// GPUs is how many S was taken on. At least 1 where S is not 0.
	GPUs int `json:"gpus"`
	// FixedS is the part of S that more GPUs do not shorten. 0 to S.
	FixedS float64 `json:"fixed_s"`
	// Slowdown, if not nil, is the factor by which the part that shrinks takes
	// longer than its share on that many GPUs, relative to GPUs. It is the cost of
	// uneven shares.
	Slowdown func(gpus int) float64 `json:"-"`
}

// On returns the time of a mean batch on that many GPUs, in seconds.
func (p Phase) On(gpus int) float64 { return p.fixed() + p.shared(gpus) }

func (p Phase) fixed() float64 { return p.FixedS }

// shared is the part that shrinks.
func (p Phase) shared(gpus int) float64 {
	if p.S == 0 {
		return 0
	}
	t := (p.S - p.FixedS) * float64(p.GPUs) / float64(gpus)
	if p.Slowdown != nil {
		t *= p.Slowdown(gpus)
	}
	return t
}

// validate reports what cannot be a phase.
func (p Phase) validate(name string) error {
	switch {
	case !(p.S >= 0) || p.S > phaseSMax:
		return fmt.Errorf("schedule: %s.S is %g, want 0 to %g seconds", name, p.S, float64(phaseSMax))
	case p.S > 0 && p.GPUs < 1:
		return fmt.Errorf("schedule: %s.GPUs is %d, want the GPUs on which %s.S was taken, at least 1", name, p.GPUs, name)
	case !(p.FixedS >= 0) || p.FixedS > p.S || math.IsNaN(p.FixedS):
		return fmt.Errorf("schedule: %s.FixedS is %g, want 0 to %s.S (%g)", name, p.FixedS, name, p.S)
	}
	return nil
}

// phaseSMax is the longest believable phase, in seconds.
const phaseSMax = 1e7
