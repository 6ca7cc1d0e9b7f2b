package workload

import (
	"fmt"
	"math"
)

// KindLogistic is the solve-rate model with a skill that drifts; see [SolveSpec].
const KindLogistic = "logistic"

// Bounds of a solve-rate model's numbers: at 30 a probability is 1 to the last bit.
const (
	logitMax       = 30
	spreadMax      = 10
	solveLevelsMax = 1024
)

// SolveSpec says how often a rollout is solved: a policy of some skill plays
// prompts of some difficulty, both in logits,
//
//	P(solved) = 1/(1+exp(−(skill(v) − level − prompt)))
//	skill(v)  = from + (to−from)·min(max(v−begin, 0)/steps, 1)
//
// with v the policy version that plays. Rewards are 1 for solved and 0
// otherwise. The zero SolveSpec is kind none: nothing has a reward.
type SolveSpec struct {
	// Kind is none, fixed or logistic. Empty means none.
	Kind string `yaml:"kind" json:"kind"`
	// Rate is the probability of every rollout, in [0, 1]. Only fixed.
	Rate float64 `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Begin is the version at which the skill begins to move. Only logistic.
	Begin int `yaml:"begin,omitempty" json:"begin,omitempty"`
	// From and To are the skill up to version Begin and from version Begin+Steps on, in logits,
	// −30 to 30. Only logistic.
	From float64 `yaml:"from,omitempty" json:"from,omitempty"`
	To   float64 `yaml:"to,omitempty" json:"to,omitempty"`
	// Steps is the number of train steps in which the skill goes from From to To; at
	// least 1 where they differ. Only logistic.
	Steps int `yaml:"steps,omitempty" json:"steps,omitempty"`
	// Levels are the difficulties a curriculum chooses from, in logits, that of level 1
	// first. A group without a level has difficulty 0. Only logistic.
	Levels []float64 `yaml:"levels,omitempty" json:"levels,omitempty"`
	// Spread is the standard deviation of the prompts' own difficulty around their
	// level's, normally distributed, in logits, 0 to 10. Only logistic.
	Spread float64 `yaml:"spread,omitempty" json:"spread,omitempty"`
}

// Validate reports the first field that cannot be used, as a [*FieldError].
func (s SolveSpec) Validate() error {
	switch s.Kind {
	case KindNone, "":
		if err := unused(KindNone, "rate", s.Rate != 0, s.Rate); err != nil {
			return err
		}
		return s.validateNotLogistic(KindNone)
	case KindFixed:
		if err := inRange("rate", s.Rate, 0, 1, " (a probability)"); err != nil {
			return err
		}
		return s.validateNotLogistic(KindFixed)
	case KindLogistic:
		return s.validateLogistic()
	}
	return &FieldError{"kind", s.Kind, "one of none, fixed, logistic"}
}

// validateNotLogistic refuses what only the logistic kind has.
func (s SolveSpec) validateNotLogistic(kind string) error {
	for _, f := range []struct {
		name  string
		set   bool
		value any
	}{
		{"begin", s.Begin != 0, s.Begin}, {"from", s.From != 0, s.From}, {"to", s.To != 0, s.To}, {"steps", s.Steps != 0, s.Steps},
		{"levels", len(s.Levels) != 0, fmt.Sprintf("%d levels", len(s.Levels))}, {"spread", s.Spread != 0, s.Spread},
	} {
		if err := unused(kind, f.name, f.set, f.value); err != nil {
			return err
		}
	}
	return nil
}

func (s SolveSpec) validateLogistic() error {
	if err := unused(s.Kind, "rate", s.Rate != 0, s.Rate); err != nil {
		return err
	}
	if err := inRange("from", s.From, -logitMax, logitMax, " logits"); err != nil {
		return err
	}
	if err := inRange("to", s.To, -logitMax, logitMax, " logits"); err != nil {
		return err
	}
	if s.Begin < 0 {
		return &FieldError{"begin", s.Begin, "a version of at least 0"}
	}
	if s.Steps < 0 || s.Steps == 0 && s.From != s.To {
		return &FieldError{"steps", s.Steps, "at least 1 train step in which the skill goes from one value to the other"}
	}
	if len(s.Levels) > solveLevelsMax {
		return &FieldError{"levels", fmt.Sprintf("%d levels", len(s.Levels)), fmt.Sprintf("at most %d", solveLevelsMax)}
	}
	for i, d := range s.Levels {
		if err := inRange(fmt.Sprintf("levels[%d]", i), d, -logitMax, logitMax, " logits"); err != nil {
			return err
		}
	}
	return inRange("spread", s.Spread, 0, spreadMax, " logits")
}

// Build compiles the specification.
func (s SolveSpec) Build() (*Solve, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c := &Solve{kind: s.Kind, rate: s.Rate, begin: float64(s.Begin), from: s.From, to: s.To, steps: max(float64(s.Steps), 1), spread: s.Spread}
	c.levels = append(c.levels, s.Levels...)
	return c, nil
}

// Solve is a compiled solve-rate model. It is immutable and safe for concurrent
// use. The zero Solve, and nil, are of kind none.
type Solve struct {
	kind     string
	rate     float64
	begin    float64
	from, to float64
	steps    float64
	levels   []float64
	spread   float64
}

// None reports whether the model gives nothing a reward.
func (s *Solve) None() bool { return s == nil || s.kind == "" || s.kind == KindNone }

// Levels returns the number of difficulties; 0 without any.
func (s *Solve) Levels() int {
	if s == nil {
		return 0
	}
	return len(s.levels)
}

// Skill returns the policy's skill at a version, in logits.
func (s *Solve) Skill(version int64) float64 {
	return s.from + (s.to-s.from)*min(max(float64(version)-s.begin, 0)/s.steps, 1)
}

// margin is skill less difficulty of a level, in logits: a prompt's own
// difficulty comes off it. Levels beyond the last count as the last.
func (s *Solve) margin(level int, version int64) float64 {
	m := s.Skill(version)
	if level > 0 && len(s.levels) > 0 {
		m -= s.levels[min(level, len(s.levels))-1]
	}
	return m
}

// Draw reports whether a rollout attempt is solved: a pure function of its
// arguments, without allocation. The prompt's own difficulty is the same for all
// of its rollouts, whenever they are played.
func (s *Solve) Draw(src Source, prompt uint64, level int, version int64, group uint64, sample, attempt uint32) bool {
	if s.None() {
		return false
	}
	p := s.rate
	if s.kind == KindLogistic {
		own := 0.0
		if s.spread > 0 {
			own = s.spread * src.normal(prompt)
		}
		p = logistic(s.margin(level, version) - own)
	}
	return src.Float64(group, sample, attempt) < p
}

// Share returns the probability that between low and high of n siblings are solved, both inclusive,
// over prompts. It is E[P(low ≤ X ≤ high)] with X binomial of the prompt's own rate. Share(n, 1,
// n−1, …) is the acceptance of the zero-advantage filter.
func (s *Solve) Share(n, low, high, level int, version int64) float64 {
	switch {
	case s.None():
		return binomialShare(n, low, high, 0)
	case s.kind == KindFixed:
		return binomialShare(n, low, high, s.rate)
	case s.spread == 0:
		return binomialShare(n, low, high, logistic(s.margin(level, version)))
	}
	// The trapezoid rule is exact to rounding for a smooth integrand that vanishes at both ends.
	const cells, width = 512, 9.0
	sum, weights := 0.0, 0.0
	for i := range cells + 1 {
		z := width * (2*float64(i)/cells - 1)
		w := math.Exp(-z * z / 2)
		sum += w * binomialShare(n, low, high, logistic(s.margin(level, version)-s.spread*z))
		weights += w
	}
	return sum / weights
}

// Rate returns the mean solve rate of a level's prompts at a version.
func (s *Solve) Rate(level int, version int64) float64 { return s.Share(1, 1, 1, level, version) }

// binomialShare is P(low ≤ X ≤ high) for X binomial of n trials of probability p.
func binomialShare(n, low, high int, p float64) float64 {
	low, high = max(low, 0), min(high, n)
	switch {
	case low > high:
		return 0
	case p <= 0:
		return step(low == 0)
	case p >= 1:
		return step(high == n)
	}
	logN, _ := math.Lgamma(float64(n) + 1)
	sum := 0.0
	for k := low; k <= high; k++ {
		a, _ := math.Lgamma(float64(k) + 1)
		b, _ := math.Lgamma(float64(n-k) + 1)
		sum += math.Exp(logN - a - b + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	}
	return min(sum, 1)
}

func step(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
