package workload

import (
	"cmp"
	"fmt"
	"math"
)

// Kinds of how many tool calls a rollout makes, beside [KindFixed].
const (
	KindPoisson   = "poisson"
	KindGeometric = "geometric"
)

// Ways to split a rollout's tokens over its turns.
const (
	SplitEven   = "even"
	SplitRandom = "random"
)

// Limits of a tools model's numbers. A turn and a try must fit into a draw's
// name beside the sample and the attempt; see place.
const (
	MaxToolCalls   = 1 << 12
	MaxToolRetries = 1000
)

// ToolsSpec is the `tools:` section of a config: the calls of a multi-turn
// rollout, each between two parts of its generation. The zero ToolsSpec makes no
// call.
type ToolsSpec struct {
	// Calls is the mean number of calls of a rollout, 0 to MaxToolCalls; one more
	// turn than calls is generated.
	Calls float64 `json:"calls"`
	// CallsKind is one of fixed, poisson, geometric. Under fixed every rollout makes Calls of them.
	// Where that is not whole, it makes the whole number below it or above, drawn so that the mean
	// holds. Empty means fixed.
	CallsKind string `json:"calls_kind,omitempty"`
	// CallsMax cuts the number of calls. 0 means MaxToolCalls.
	CallsMax int `json:"calls_max,omitempty"`
	// Split is even (all turns alike, to a token) or random (every composition of
	// the tokens into turns equally likely, but for rounding). Empty means even.
	Split string `json:"split,omitempty"`
	// Time of one call.
	Time TimesSpec `json:"time"`
	// FailureRate is the share of calls that fail, in [0, 1); a failed call takes its
	// time and is made again, Retries times at most.
	FailureRate float64 `json:"failure_rate,omitempty"`
	// Retries of one call, 0 to MaxToolRetries.
	Retries int `json:"retries,omitempty"`
}

// Validate reports the first field that cannot be used, as a [*FieldError]. Those
// of Time are named time.mean_s and so on.
func (s ToolsSpec) Validate() error {
	if err := inRange("calls", s.Calls, 0, MaxToolCalls, ""); err != nil {
		return err
	}
	switch s.CallsKind {
	case KindFixed, KindPoisson, KindGeometric, "":
	default:
		return &FieldError{"calls_kind", s.CallsKind, "one of fixed, poisson, geometric"}
	}
	if s.CallsMax < 0 || s.CallsMax > MaxToolCalls {
		return &FieldError{"calls_max", s.CallsMax, fmt.Sprintf("1 to %d, or 0 for no limit below that", MaxToolCalls)}
	}
	if s.Split != SplitEven && s.Split != SplitRandom && s.Split != "" {
		return &FieldError{"split", s.Split, "one of even, random"}
	}
	if err := FailureRate("failure_rate", s.FailureRate); err != nil {
		return err
	}
	if s.Retries < 0 || s.Retries > MaxToolRetries {
		return &FieldError{"retries", s.Retries, fmt.Sprintf("0 to %d", MaxToolRetries)}
	}
	return under("time", s.Time.Validate())
}

// FailureRate reports a share of failures that cannot be, as a [*FieldError] of
// the named field: at 1 nothing would ever succeed.
func FailureRate(field string, rate float64) error {
	if rate >= 0 && rate < 1 {
		return nil
	}
	return &FieldError{field, rate, "a share of at least 0 and below 1 (at 1 nothing ever succeeds, and no batch fills)"}
}

// under places the error of a section within another one.
func under(section string, err error) error {
	if refused, ok := err.(*FieldError); ok {
		return &FieldError{section + "." + refused.Field, refused.Value, refused.Allowed}
	}
	return err
}

// Build compiles the specification, reading Time's file if there is one.
func (s ToolsSpec) Build() (*Tools, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	time, err := s.Time.Build()
	if err != nil {
		return nil, under("time", err)
	}
	t := &Tools{kind: s.CallsKind, mean: s.Calls, limit: s.CallsMax, random: s.Split == SplitRandom, time: time, failures: s.FailureRate, retries: s.Retries}
	t.limit = cmp.Or(t.limit, MaxToolCalls)
	return t, nil
}

// Tools is a compiled model of tool calls. It is immutable and safe for
// concurrent use. The zero Tools, and nil, make no call.
type Tools struct {
	kind     string
	mean     float64
	limit    int
	random   bool
	time     *Times
	failures float64
	retries  int
}

// None reports whether no rollout makes a call.
func (t *Tools) None() bool { return t == nil || t.mean == 0 }

// Retries returns how often a failed call is made again.
func (t *Tools) Retries() int {
	if t == nil {
		return 0
	}
	return t.retries
}

// Turn names one turn of a rollout attempt, and one try of its call, from 0.
type Turn struct {
	Group           uint64
	Sample, Attempt uint32
	Turn, Try       uint32
}

// place maps a turn to a draw's sample and attempt: the turn above the sample's
// bits, the try above the attempt's. Distinct turns of one attempt are distinct
// draws.
func (t Turn) place() (sample, attempt uint32) { return t.Sample ^ t.Turn<<19, t.Attempt ^ t.Try<<21 }

// Calls returns how many calls a rollout attempt makes, their mean multiplied by
// factor: a pure function of its arguments. The same rollout makes no fewer calls
// under a larger factor.
func (t *Tools) Calls(src Source, group uint64, sample, attempt uint32, factor float64) int {
	if t.None() {
		return 0
	}
	return min(countOf(t.kind, t.mean*factor, src.Float64(group, sample, attempt)), t.limit)
}

// countOf is the inverse distribution function of a number of calls.
func countOf(kind string, mean, p float64) int {
	switch kind {
	case KindPoisson:
		return poisson(mean, p)
	case KindGeometric: // from 0 on
		if mean <= 0 {
			return 0
		}
		return int(min(math.Log1p(-p)/-math.Log1p(1/mean), MaxToolCalls))
	}
	whole, part := math.Modf(max(mean, 0))
	if p < part {
		whole++
	}
	return int(whole)
}

// poissonDirect is the largest mean whose e^−mean is far from the smallest number.
const poissonDirect = 600

// poisson returns the smallest k with P(X ≤ k) ≥ p.
func poisson(mean, p float64) int {
	if mean <= 0 {
		return 0
	}
	if mean <= poissonDirect {
		term, below := math.Exp(-mean), 0.0
		for k := range MaxToolCalls {
			if below += term; below >= p {
				return k
			}
			term *= mean / float64(k+1)
		}
		return MaxToolCalls
	}
	logTerm, below := -mean, 0.0
	for k := range MaxToolCalls {
		if below += math.Exp(logTerm); below >= p {
			return k
		}
		logTerm += math.Log(mean) - math.Log(float64(k+1))
	}
	return MaxToolCalls
}

// MeanCalls returns the expected number of calls, cut to the most there may be.
func (t *Tools) MeanCalls() float64 {
	if t.None() {
		return 0
	}
	if t.kind != KindPoisson && t.kind != KindGeometric {
		whole, part := math.Modf(t.mean)
		limit := float64(t.limit)
		return (1-part)*min(whole, limit) + part*min(whole+1, limit)
	}
	// E[min(X, limit)] = Σ over k below the limit of P(X > k).
	sum, at, term := 0.0, 0.0, -t.mean
	for k := range t.limit {
		if t.kind == KindPoisson {
			at += math.Exp(term)
			term += math.Log(t.mean) - math.Log(float64(k+1))
		} else {
			at = -math.Expm1(-math.Log1p(1/t.mean) * float64(k+1))
		}
		if at >= 1 {
			break
		}
		sum += 1 - at
	}
	return sum
}

// Part returns the number of the remaining tokens that the present turn generates, if so many
// turns, this one included, share them. Each turn gets at least one, and the last all of them.
// Under random the parts of a rollout are uniform among all that add up to it, drawn one by one.
// The first of k is a Beta(1, k−1) share.
func (t *Tools) Part(src Source, turn Turn, left, turns int) int {
	if turns <= 1 {
		return left
	}
	share := 1 / float64(turns)
	if t.random {
		share = -math.Expm1(math.Log(src.Float64(turn.Group, turn.Sample^turn.Turn<<19, turn.Attempt)) / float64(turns-1))
	}
	return max(1, min(int(math.Round(float64(left)*share)), left-turns+1))
}

// CallNS returns how long one try of a call takes, in ns.
func (t *Tools) CallNS(src Source, turn Turn) int64 {
	if t == nil {
		return 0
	}
	sample, attempt := turn.place()
	return t.time.Draw(src, turn.Group, sample, attempt)
}

// Failed reports whether one try of a call fails.
func (t *Tools) Failed(src Source, turn Turn) bool {
	sample, attempt := turn.place()
	return t != nil && t.failures > 0 && src.Float64(turn.Group, sample, attempt) < t.failures
}

// MeanNS returns the expected time of a rollout's calls, the tries of failed ones included, in ns.
// It assumes that none of them waits and no rollout fails.
func (t *Tools) MeanNS() float64 {
	if t.None() {
		return 0
	}
	// A call is tried again after a failure: the expected tries of one are Σ f^k, k up to the retries.
	tries := 0.0
	for k := range t.retries + 1 {
		tries += math.Pow(t.failures, float64(k))
	}
	return t.MeanCalls() * tries * t.time.Mean()
}
