package workload

import (
	"fmt"
	"math"
)

// MaxServiceS is the longest service time any model makes, in seconds: a week.
const MaxServiceS = 7 * 24 * 3600

const nsPerS = 1e9

// TimesSpec is the `environment:` section of a config: the time a rollout
// spends in tools, sandboxes and verifiers, on top of its generation. The zero
// TimesSpec is kind none.
type TimesSpec struct {
	// Kind is one of none, fixed, lognormal, exponential, empirical. Empty means
	// none.
	Kind string `yaml:"kind" json:"kind"`
	// MeanS is the nominal mean in seconds, before the cap. 0 to MaxServiceS.
	// Not used by none and empirical.
	MeanS float64 `yaml:"mean_s,omitempty" json:"mean_s,omitempty"`
	// Tailness is the lognormal's spread, on the same knob as lengths:
	// σ = 1.3·tailness/100. Only lognormal.
	Tailness float64 `yaml:"tailness,omitempty" json:"tailness,omitempty"`
	// CapS cuts longer times to this many seconds, as a time-out would. 0 means
	// MaxServiceS.
	CapS float64 `yaml:"cap_s,omitempty" json:"cap_s,omitempty"`
	// File holds measured times for empirical; see [ReadServiceTimes].
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Groups are measured times in seconds for empirical, instead of File, one
	// inner list a prompt, resampled as [LengthSpec] Groups are.
	Groups [][]float64 `yaml:"groups,omitempty" json:"groups,omitempty"`
}

// Validate reports the first field that cannot be used, as a [*FieldError]. It
// does not open File.
func (s TimesSpec) Validate() error {
	if s.CapS != 0 {
		if !(s.CapS > 0 && s.CapS <= MaxServiceS) {
			return &FieldError{"cap_s", s.CapS, fmt.Sprintf("seconds above 0 and up to %d, or 0 for no cap below that", MaxServiceS)}
		}
	}
	switch s.Kind {
	case KindNone, "":
		return s.validateUnused(true)
	case KindFixed, KindLognormal, KindExponential:
		return s.validateParametric()
	case KindEmpirical:
		return s.validateEmpirical()
	}
	return &FieldError{"kind", s.Kind, "one of none, fixed, lognormal, exponential, empirical"}
}

// validateUnused refuses the parameters that none and empirical do not have.
func (s TimesSpec) validateUnused(none bool) error {
	kind := s.Kind
	if none {
		kind = KindNone
		if err := unused(kind, "cap_s", s.CapS != 0, s.CapS); err != nil {
			return err
		}
		if err := s.validateUnmeasured(kind); err != nil {
			return err
		}
	}
	if err := unused(kind, "mean_s", s.MeanS != 0, s.MeanS); err != nil {
		return err
	}
	return unused(kind, "tailness", s.Tailness != 0, s.Tailness)
}

// validateUnmeasured refuses measured times beside a model.
func (s TimesSpec) validateUnmeasured(kind string) error {
	if err := unused(kind, "file", s.File != "", s.File); err != nil {
		return err
	}
	return unused(kind, "groups", len(s.Groups) > 0, fmt.Sprintf("%d groups", len(s.Groups)))
}

// validateParametric checks a model that is given by its mean.
func (s TimesSpec) validateParametric() error {
	if err := inRange("mean_s", s.MeanS, 0, MaxServiceS, " seconds"); err != nil {
		return err
	}
	if s.CapS != 0 && s.Kind == KindFixed && s.CapS < s.MeanS {
		return &FieldError{"cap_s", s.CapS, fmt.Sprintf("at least mean_s (%g) when the time is fixed", s.MeanS)}
	}
	if err := s.validateUnmeasured(s.Kind); err != nil {
		return err
	}
	if s.Kind == KindLognormal {
		return inRange("tailness", s.Tailness, 0, 100, " (0 is deterministic)")
	}
	return unused(s.Kind, "tailness", s.Tailness != 0, s.Tailness)
}

// validateEmpirical checks a model that is given by measured times.
func (s TimesSpec) validateEmpirical() error {
	if err := s.validateUnused(false); err != nil {
		return err
	}
	if s.File != "" && len(s.Groups) > 0 {
		return &FieldError{"file", s.File, "either file or groups, not both"}
	}
	if s.File == "" && len(s.Groups) == 0 {
		return &FieldError{"file", s.File, "the path of a file of measured times (or groups)"}
	}
	for g, times := range s.Groups {
		if len(times) == 0 {
			return &FieldError{fmt.Sprintf("groups[%d]", g), "[]", "at least one time"}
		}
		for i, t := range times {
			if err := inRange(fmt.Sprintf("groups[%d][%d]", g, i), t, 0, MaxServiceS, " seconds"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Build compiles the specification, reading File if there is one.
func (s TimesSpec) Build() (*Times, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	limit := s.CapS * nsPerS
	if s.CapS == 0 {
		limit = MaxServiceS * nsPerS
	}
	switch s.Kind {
	case KindEmpirical:
		measured := s.Groups
		if s.File != "" {
			var err error
			if measured, err = ReadServiceTimes(s.File); err != nil {
				return nil, err
			}
		}
		return empiricalTimes(measured, limit), nil
	case KindNone, "":
		return &Times{kind: KindNone}, nil
	}
	if s.MeanS == 0 {
		return &Times{kind: KindNone}, nil
	}
	kind, sigma := s.Kind, sigmaPerTailness*s.Tailness
	if kind == KindLognormal && sigma == 0 {
		kind = KindFixed
	}
	return &Times{kind: kind, mean: s.MeanS * nsPerS, sigma: sigma, limit: limit}, nil
}

// Times is a compiled service-time model. It is immutable and safe for
// concurrent use. The zero Times takes no time, as kind none does.
type Times struct {
	kind  string
	mean  float64 // nominal, ns
	sigma float64 // of the lognormal's logarithm
	limit float64 // ns
	times *measured
}

// measured are empirical times: values are indices into the distinct sorted
// times, since a time in ns does not fit the 32 bits of a table cell.
type measured struct {
	sorted Distribution // of the times, ns
	ns     []int64      // distinct times by index
	table  alias        // over indices, when siblings are independent
	groups *groups      // of indices, when they are drawn together
}

// Draw returns the service time of one rollout attempt in nanoseconds: a pure
// function of its arguments, without allocation. Lengths and empirical times
// that were measured on the same groups stay joint if both are drawn from the
// same Source.
func (s *Times) Draw(src Source, group uint64, sample, attempt uint32) int64 {
	switch s.kind {
	case KindFixed:
		return int64(math.Round(min(s.mean, s.limit)))
	case KindLognormal, KindExponential:
		return int64(math.Round(s.Inverse(src.Float64(group, sample, attempt))))
	case KindEmpirical:
		if s.times.groups != nil {
			return s.times.ns[s.times.groups.draw(src, group, sample, attempt)]
		}
		return s.times.ns[s.times.table.draw(src.Bits(group, sample, attempt))]
	}
	return 0
}

// DrawPrompt is Draw for a group that plays a numbered prompt, as
// [Lengths.DrawPrompt] is.
func (s *Times) DrawPrompt(src Source, prompt, group uint64, sample, attempt uint32) int64 {
	if s.Grouped() {
		return s.times.ns[s.times.groups.drawPrompt(src, prompt, group, sample, attempt)]
	}
	return s.Draw(src, group, sample, attempt)
}

// Inverse returns the time in ns that a share p of rollouts do not exceed, for
// p in (0,1).
func (s *Times) Inverse(p float64) float64 {
	switch s.kind {
	case KindFixed:
		return min(s.mean, s.limit)
	case KindLognormal:
		z := -math.Sqrt2 * math.Erfcinv(2*p)
		return min(s.mean*math.Exp(s.sigma*(z-s.sigma/2)), s.limit)
	case KindExponential:
		return min(-s.mean*math.Log1p(-p), s.limit)
	case KindEmpirical:
		return s.times.sorted.Quantile(p)
	}
	return 0
}

// Mean returns the expected service time in ns, after the cap.
func (s *Times) Mean() float64 {
	switch s.kind {
	case KindFixed:
		return min(s.mean, s.limit)
	case KindLognormal:
		z := math.Log(s.limit/s.mean)/s.sigma + s.sigma/2 // of the cap
		return s.mean*normalCDF(z-s.sigma) + s.limit*normalCDF(-z)
	case KindExponential:
		return -s.mean * math.Expm1(-s.limit/s.mean)
	case KindEmpirical:
		return s.times.sorted.Mean()
	}
	return 0
}

// Zero reports whether the model never takes any time.
func (s *Times) Zero() bool { return s == nil || s.kind == KindNone || s.kind == "" }

// Grouped reports whether siblings' times are resampled together.
func (s *Times) Grouped() bool { return s != nil && s.times != nil && s.times.groups != nil }

// normalCDF is Φ, accurate in both tails.
func normalCDF(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// empiricalTimes compiles measured times.
func empiricalTimes(groupsS [][]float64, limit float64) *Times {
	var all, ones []float64
	single := true
	for _, times := range groupsS {
		single = single && len(times) == 1
		for _, t := range times {
			all = append(all, math.Round(min(t*nsPerS, limit)))
			ones = append(ones, 1/float64(len(times)))
		}
	}
	d, err := NewDistribution(all, ones)
	if err != nil {
		panic(fmt.Sprintf("workload: measured service times: %v", err))
	}
	m := &measured{sorted: d}
	index := make(map[float64]uint32, d.Len())
	positions := make([]float64, d.Len())
	for i, v := range d.values {
		m.ns = append(m.ns, int64(v))
		index[v] = uint32(i)
		positions[i] = float64(i)
	}
	if single {
		m.table = newAlias(ascending(positions, d.probs))
		return &Times{kind: KindEmpirical, limit: limit, times: m}
	}
	packed := make([][]uint32, len(groupsS))
	next := 0
	for i, times := range groupsS {
		for range times {
			packed[i] = append(packed[i], index[all[next]])
			next++
		}
	}
	m.groups = newGroups(packed)
	return &Times{kind: KindEmpirical, limit: limit, times: m}
}
