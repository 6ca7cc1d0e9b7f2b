package workload

import (
	"fmt"
	"math"
)

// Kinds of length and service-time models, as a config writes them.
const (
	KindNone        = "none"        // service times only: no environment time
	KindFixed       = "fixed"       // always the mean
	KindLognormal   = "lognormal"   // mean and tailness
	KindExponential = "exponential" // mean
	KindPareto      = "pareto"      // mean and alpha
	KindEmpirical   = "empirical"   // measured ones, from a file or given
)

// MaxTokens is the longest response any model makes, and the cap where a
// specification gives none: 2^20 tokens, beyond any context in use.
const MaxTokens = 1 << 20

// sigmaPerTailness is σ of the lognormal per tailness point: 1.3 at 100.
const sigmaPerTailness = 1.3 / 100

// LengthSpec is the `length:` section of a config: how many tokens a response
// has. The zero LengthSpec is not valid; Kind is required.
type LengthSpec struct {
	// Kind is one of fixed, lognormal, exponential, pareto, empirical.
	Kind string `yaml:"kind" json:"kind"`
	// MeanTokens is the nominal mean, before rounding and capping; the mean that
	// counts everywhere else is [Lengths.Mean]. 1 to MaxTokens. Not used by
	// empirical.
	MeanTokens float64 `yaml:"mean_tokens,omitempty" json:"mean_tokens,omitempty"`
	// Tailness is the spread of the lognormal on a 0–100 knob: σ = 1.3·tailness/100.
	// 0 is deterministic. Only lognormal.
	Tailness float64 `yaml:"tailness,omitempty" json:"tailness,omitempty"`
	// Alpha is the tail exponent of pareto, above 1: P(L > l) ~ l^−alpha. Below 2
	// the variance exists only thanks to the cap. Only pareto.
	Alpha float64 `yaml:"alpha,omitempty" json:"alpha,omitempty"`
	// CapTokens truncates: a longer response is cut to exactly this many tokens.
	// 0 means MaxTokens.
	CapTokens int `yaml:"cap_tokens,omitempty" json:"cap_tokens,omitempty"`
	// File holds measured lengths for empirical; see [ReadLengths] for its forms.
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Groups are measured lengths for empirical, instead of File: one inner list
	// a prompt, its siblings in it. They are resampled by whole group, because
	// siblings share a prompt and their lengths correlate. If every list has one
	// length the siblings are drawn independently.
	Groups [][]int `yaml:"groups,omitempty" json:"groups,omitempty"`
}

// Validate reports the first field that cannot be used, as a [*FieldError]. It
// does not open File.
func (s LengthSpec) Validate() error {
	if s.CapTokens < 0 || s.CapTokens > MaxTokens {
		return &FieldError{"cap_tokens", s.CapTokens, fmt.Sprintf("1 to %d, or 0 for no cap below that", MaxTokens)}
	}
	switch s.Kind {
	case KindFixed, KindLognormal, KindExponential, KindPareto:
		return s.validateParametric()
	case KindEmpirical:
		return s.validateEmpirical()
	}
	return &FieldError{"kind", s.Kind, "one of fixed, lognormal, exponential, pareto, empirical"}
}

// validateParametric checks a model that is given by its mean.
func (s LengthSpec) validateParametric() error {
	if err := inRange("mean_tokens", s.MeanTokens, 1, MaxTokens, " tokens"); err != nil {
		return err
	}
	if s.CapTokens != 0 && s.Kind == KindFixed && float64(s.CapTokens) < s.MeanTokens {
		return &FieldError{"cap_tokens", s.CapTokens, fmt.Sprintf("at least mean_tokens (%g) when the length is fixed", s.MeanTokens)}
	}
	if err := unused(s.Kind, "file", s.File != "", s.File); err != nil {
		return err
	}
	if err := unused(s.Kind, "groups", len(s.Groups) > 0, fmt.Sprintf("%d groups", len(s.Groups))); err != nil {
		return err
	}
	if s.Kind == KindLognormal {
		if err := inRange("tailness", s.Tailness, 0, 100, " (0 is deterministic)"); err != nil {
			return err
		}
	} else if err := unused(s.Kind, "tailness", s.Tailness != 0, s.Tailness); err != nil {
		return err
	}
	if s.Kind == KindPareto {
		if !(s.Alpha > 1 && s.Alpha <= 1000) {
			return &FieldError{"alpha", s.Alpha, "a number above 1 (else there is no mean) and up to 1000"}
		}
		return nil
	}
	return unused(s.Kind, "alpha", s.Alpha != 0, s.Alpha)
}

// validateEmpirical checks a model that is given by measured lengths.
func (s LengthSpec) validateEmpirical() error {
	if err := unused(s.Kind, "mean_tokens", s.MeanTokens != 0, s.MeanTokens); err != nil {
		return err
	}
	if err := unused(s.Kind, "tailness", s.Tailness != 0, s.Tailness); err != nil {
		return err
	}
	if err := unused(s.Kind, "alpha", s.Alpha != 0, s.Alpha); err != nil {
		return err
	}
	if s.File != "" && len(s.Groups) > 0 {
		return &FieldError{"file", s.File, "either file or groups, not both"}
	}
	if s.File == "" && len(s.Groups) == 0 {
		return &FieldError{"file", s.File, "the path of a file of measured lengths (or groups)"}
	}
	for g, lengths := range s.Groups {
		if len(lengths) == 0 {
			return &FieldError{fmt.Sprintf("groups[%d]", g), "[]", "at least one length"}
		}
		for i, l := range lengths {
			if l < 1 || l > MaxTokens {
				return &FieldError{fmt.Sprintf("groups[%d][%d]", g, i), l, fmt.Sprintf("1 to %d tokens", MaxTokens)}
			}
		}
	}
	return nil
}

// Build compiles the specification, reading File if there is one. Errors are
// [*FieldError] for a bad field and name file and line for a bad file.
func (s LengthSpec) Build() (*Lengths, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Kind != KindEmpirical {
		return newLengths(s.parametric()), nil
	}
	groups := s.Groups
	if s.File != "" {
		var err error
		if groups, err = ReadLengths(s.File); err != nil {
			return nil, err
		}
	}
	return empiricalLengths(groups, s.maxTokens()), nil
}

// maxTokens is the cap with its default.
func (s LengthSpec) maxTokens() int {
	if s.CapTokens == 0 {
		return MaxTokens
	}
	return s.CapTokens
}

// parametric returns the distribution of the capped, rounded length.
func (s LengthSpec) parametric() Distribution {
	m, limit := s.MeanTokens, s.maxTokens()
	sigma := sigmaPerTailness * s.Tailness
	switch {
	case s.Kind == KindLognormal && sigma > 0:
		return LognormalLengths(m, sigma, limit)
	case s.Kind == KindExponential:
		return rounded(func(x float64) float64 { return math.Exp(-x / m) }, limit)
	case s.Kind == KindPareto:
		least := m * (s.Alpha - 1) / s.Alpha
		return rounded(func(x float64) float64 { return math.Pow(max(x/least, 1), -s.Alpha) }, limit)
	}
	fixed := max(1, min(math.Round(m), float64(limit)))
	return ascending([]float64{fixed}, []float64{1})
}

// LognormalLengths returns the distribution of L = m·exp(σz − σ²/2), z standard
// normal, rounded to at least one token and capped at limit tokens (theory.md
// §1). σ = 1.3·tailness/100. mean and sigma must be positive and limit in
// [1, MaxTokens]; it panics otherwise, since callers validate.
func LognormalLengths(mean, sigma float64, limit int) Distribution {
	if !(mean > 0) || !(sigma > 0) || limit < 1 || limit > MaxTokens {
		panic(fmt.Sprintf("workload: lognormal lengths of mean %v, sigma %v, limit %d", mean, sigma, limit))
	}
	mu := math.Log(mean) - sigma*sigma/2
	return rounded(func(x float64) float64 {
		return math.Erfc((math.Log(x)-mu)/(sigma*math.Sqrt2)) / 2
	}, limit)
}

// tailMass is the probability beyond which an uncapped tail is folded into its
// last value: less than one draw in 10^13.
const tailMass = 1.0 / (1 << 44)

// rounded turns a continuous survival function P(X > x) into the distribution
// of max(1, round(X)) capped at limit.
func rounded(survival func(float64) float64, limit int) Distribution {
	var values, probs []float64
	above := 1.0 // P(length >= k)
	for k := 1; k <= limit; k++ {
		next := 0.0
		if k < limit {
			next = survival(float64(k) + 0.5)
		}
		if next < tailMass {
			next = 0
		}
		if p := above - next; p > 0 {
			values, probs = append(values, float64(k)), append(probs, p)
		}
		if above = next; above == 0 {
			break
		}
	}
	return ascending(values, probs)
}

// Lengths is a compiled length model. It is immutable and safe for concurrent
// use. The zero Lengths is not usable; build one with [LengthSpec.Build].
type Lengths struct {
	marginal Distribution // of one rollout
	table    alias        // of the same distribution; unused when grouped
	groups   *groups      // siblings drawn together, or nil when independent
}

// newLengths compiles independent siblings.
func newLengths(d Distribution) *Lengths {
	return &Lengths{marginal: d, table: newAlias(d)}
}

// NewLengths compiles independent lengths from a distribution of whole token
// counts in [1, MaxTokens].
func NewLengths(d Distribution) (*Lengths, error) {
	if d.Len() == 0 {
		return nil, fmt.Errorf("lengths: the distribution has no values")
	}
	for _, v := range d.values {
		if v != math.Trunc(v) || v < 1 || v > MaxTokens {
			return nil, fmt.Errorf("lengths: value %v is not a whole number of tokens from 1 to %d", v, MaxTokens)
		}
	}
	return newLengths(d), nil
}

// Draw returns the length in tokens of one rollout attempt: a pure function of
// its arguments, without allocation. Attempts number the retries of a sample;
// each draws afresh.
func (l *Lengths) Draw(src Source, group uint64, sample, attempt uint32) int {
	if l.groups != nil {
		return int(l.groups.draw(src, group, sample, attempt))
	}
	return int(l.table.draw(src.Bits(group, sample, attempt)))
}

// DrawMember is Draw for a group whose draws are at hand, where siblings are
// independent. It panics where they are not: see Grouped.
func (l *Lengths) DrawMember(members Members, sample, attempt uint32) int {
	return int(l.table.draw(members.Bits(sample, attempt)))
}

// DrawPrompt is Draw for a group that plays a numbered prompt. Siblings that are resampled together
// come from the measured group that stands for the prompt, the same one whenever it is played.
// Independent ones are as Draw has them.
func (l *Lengths) DrawPrompt(src Source, prompt, group uint64, sample, attempt uint32) int {
	if l.groups != nil {
		return int(l.groups.drawPrompt(src, prompt, group, sample, attempt))
	}
	return int(l.table.draw(src.Bits(group, sample, attempt)))
}

// Mean returns E[L] in tokens, after rounding and capping.
func (l *Lengths) Mean() float64 { return l.marginal.Mean() }

// MeanSquare returns E[L²] in tokens².
func (l *Lengths) MeanSquare() float64 { return l.marginal.MeanSquare() }

// Quantile returns the smallest length that at least a share p of rollouts do
// not exceed.
func (l *Lengths) Quantile(p float64) int { return int(l.marginal.Quantile(p)) }

// CDF returns the share of rollouts of at most so many tokens.
func (l *Lengths) CDF(tokens float64) float64 { return l.marginal.CDF(tokens) }

// Distribution returns the exact distribution of one rollout's length.
func (l *Lengths) Distribution() Distribution { return l.marginal }

// Grouped reports whether siblings are resampled together, so that F^S does
// not hold for their maximum.
func (l *Lengths) Grouped() bool { return l.groups != nil }

// MaxDistribution returns the distribution of the longest of s siblings: F^s
// for independent ones, counted over the measured groups otherwise.
func (l *Lengths) MaxDistribution(s int) Distribution {
	if l.groups != nil {
		return l.groups.maxima(s)
	}
	return l.marginal.Max(s)
}

// MeanMax returns E[max of s siblings] in tokens.
func (l *Lengths) MeanMax(s int) float64 {
	if l.groups != nil {
		return l.groups.maxima(s).Mean()
	}
	return l.marginal.MeanMax(s)
}

// TailMultiplier returns M_tail = E[max of s siblings]/E[L] (loop.md). It is 1
// for s = 1 and for fixed lengths.
func (l *Lengths) TailMultiplier(s int) float64 { return l.MeanMax(s) / l.Mean() }

// MeanMaxSum returns E[max · sum] over s siblings in tokens², the moment that
// token-level staleness needs.
func (l *Lengths) MeanMaxSum(s int) float64 {
	if l.groups != nil {
		return l.groups.meanMaxSum(s)
	}
	return l.marginal.MeanMaxSum(s)
}

// Capped returns the same model under a lower cap, so that a lever can price it, and the share of
// rollouts that the cap truncates. A value of tokens below 1 counts as 1.
func (l *Lengths) Capped(tokens int) (capped *Lengths, truncated float64) {
	tokens = max(tokens, 1)
	truncated = 1 - l.CDF(float64(tokens))
	if l.groups != nil {
		return &Lengths{marginal: l.groups.capped(uint32(tokens)).marginal(), groups: l.groups.capped(uint32(tokens))}, truncated
	}
	values := make([]float64, l.marginal.Len())
	for i, v := range l.marginal.values {
		values[i] = min(v, float64(tokens))
	}
	d, err := NewDistribution(values, l.marginal.probs)
	if err != nil {
		panic(fmt.Sprintf("workload: capping a valid distribution at %d: %v", tokens, err))
	}
	return newLengths(d), truncated
}
