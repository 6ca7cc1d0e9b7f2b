package workload

import "math"

// Acceptance decides which groups carry an advantage: a group whose rewards
// are all equal teaches nothing and is filtered (loop.md). The zero Acceptance
// accepts nothing; use [NewAcceptance].
type Acceptance struct {
	rate      float64
	threshold uint64
}

// NewAcceptance returns the filter that accepts a share rate of the groups, in
// (0, 1]. A rate of 0 would never fill a batch and is refused.
func NewAcceptance(rate float64) (Acceptance, error) {
	if !(rate > 0 && rate <= 1) {
		return Acceptance{}, &FieldError{"acceptance", rate, "a share above 0 and up to 1 (at 0 no batch would ever fill)"}
	}
	threshold := uint64(math.MaxUint64)
	if rate < 1 {
		threshold = uint64(rate * (1 << 63) * 2)
	}
	return Acceptance{rate, threshold}, nil
}

// Rate returns the share of groups that are accepted.
func (a Acceptance) Rate() float64 { return a.rate }

// Accept reports whether the group survives the filter: a pure function of the
// source and the group. The number is drawn per group, so it is the same
// whenever and however often the group is scored.
func (a Acceptance) Accept(src Source, group uint64) bool {
	return a.rate >= 1 || src.groupBits(group) < a.threshold
}
