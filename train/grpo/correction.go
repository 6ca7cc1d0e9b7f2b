package grpo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind names what a train step does about tokens that another policy sampled.
type Kind string

// The corrections. b is the behaviour policy, which sampled; p the proximal one, with which the train step began; θ the
// one being trained. The importance ratio of a token is r = π_θ/π_b, its advantage A.
const (
	// PPOClip is −min(r·A, clip(r, 1−ε_low, 1+ε_high)·A): Schulman et al. 2017, with
	// the two sides apart as in DAPO (Yu et al. 2025). The zero Kind means this one.
	PPOClip Kind = "ppo-clip"
	// None takes tokens as if they were on-policy: −A·log π_θ.
	None Kind = "none"
	// DecoupledPPO clips against the proximal policy and weighs by how far that is from the behaviour policy. It is
	// −w·min(u·A, clip(u)·A), u = π_θ/π_p, w = π_p/π_b (Hilton et al. 2022; AReaL, Fu et al. 2025). With a Cap it is
	// what verl and slime call truncated importance sampling on recomputed log-probs (Yao et al. 2025).
	DecoupledPPO Kind = "decoupled-ppo"
	// TIS is truncated importance sampling: −min(r, C)·A·log π_θ with no gradient
	// through the weight (Ionides 2008; per token as in IMPALA, Espeholt et al. 2018).
	TIS Kind = "tis"
	// TokenMask is PPOClip without the tokens whose r is outside [Low, High], by default
	// the range of IcePop. IcePop itself (Ling Team 2025) weighs what it keeps by w: it is
	// DecoupledPPO with that range as Floor and Cap, DropUnderFloor and DropOverCap.
	TokenMask Kind = "token-mask"
	// SequenceMask is PPOClip without the sequences that are too far away, by the
	// geometric mean of r or by KL. With Metric geometric, NegativeOnly and
	// Low = exp(−δ) it is the off-policy sequence masking of DeepSeek-V3.2 (slime's opsm).
	SequenceMask Kind = "sequence-mask"
	// CISPO is −clip(r, 1−ε_low, 1+ε_high)·A·log π_θ with no gradient through the
	// weight: every token keeps a gradient, of bounded size (MiniMax-M1 2025).
	CISPO Kind = "cispo"
	// DPPO is −r·A without the tokens whose probability has already moved too far to where their advantage pushes it.
	// That is π_θ − π_b above DifferenceHigh where A > 0, below −DifferenceLow elsewhere (the binary total variation of
	// Qi et al. 2026, arXiv 2602.04879). With a Penalty on (log r)², of every sampled token (Kimi K2.5, arXiv
	// 2602.02276), it is the default loss of prime-rl.
	DPPO Kind = "dppo"
)

// Kinds lists the corrections, the default first.
func Kinds() []Kind {
	return []Kind{PPOClip, None, DecoupledPPO, TIS, TokenMask, SequenceMask, CISPO, DPPO}
}

// Level says over what the weight of TIS is taken.
type Level string

const (
	// LevelToken weighs each token by its own ratio; the zero Level means this one.
	LevelToken Level = "token"
	// LevelSequence weighs all tokens of a sequence by the product of their ratios:
	// the unbiased weight of a whole response, of large variance.
	LevelSequence Level = "sequence"
	// LevelGeometric weighs them by the geometric mean of their ratios, as GSPO does (Zheng et al. 2025).
	LevelGeometric Level = "geometric"
)

// Metric says what SequenceMask measures.
type Metric string

const (
	// MetricGeometric is the geometric mean of r, bounded by Low and High; the zero Metric means this one.
	MetricGeometric Metric = "geometric"
	// MetricKL is the mean of r − 1 − log r, an estimate of KL(π_b, π_θ) that is
	// never negative (Schulman 2020), bounded by MaxKL.
	MetricKL Metric = "kl"
)

// VersionMask says which tokens a step leaves out by the version that sampled them.
type VersionMask string

const (
	// VersionsAll leaves none out; the zero VersionMask means this one.
	VersionsAll VersionMask = "all"
	// VersionsNewest keeps the tokens within VersionLag versions of the newest token
	// of their own sample. With VersionLag 0 that is the last span of a resumed
	// rollout: slime's mask-offpolicy-in-partial-rollout.
	VersionsNewest VersionMask = "newest"
	// VersionsTraining keeps the tokens within VersionLag versions of the version
	// that the train step starts from.
	VersionsTraining VersionMask = "training"
)

// Defaults of a Correction.
const (
	// EpsilonDefault is the half width of the band of ratios.
	EpsilonDefault = 0.2
	// CapDefault is the largest weight of TIS (slime's tis-clip).
	CapDefault = 2
	// TokenLowDefault and TokenHighDefault bound the ratios of TokenMask (IcePop's).
	TokenLowDefault, TokenHighDefault = 0.5, 5
	// SequenceLowDefault and SequenceHighDefault bound the geometric mean of SequenceMask; loose.
	SequenceLowDefault, SequenceHighDefault = 0.5, 2
	// MaxKLDefault bounds the KL of SequenceMask, in nats a token.
	MaxKLDefault = 0.1
	// DifferenceDefault bounds the difference of probabilities of DPPO (prime-rl's).
	DifferenceDefault = 0.2
)

// Correction is what a train step does about tokens that another policy
// sampled. The zero value is PPOClip with a band of 0.2. A token or sequence that a mask leaves out has no gradient but
// still counts in the mean over the tokens. So masks make a step smaller and do not reweight the tokens that are left.
type Correction struct {
	// Kind is the objective.
	Kind Kind
	// EpsilonLow and EpsilonHigh make the band [1−ε_low, 1+ε_high] of ratios, also
	// for the clip fraction of objectives that do not clip. 0 means 0.2 for the low
	// side, and the low side's for the high one. EpsilonLow 1 is no lower bound.
	EpsilonLow, EpsilonHigh float64
	// Level of TIS.
	Level Level
	// Floor and Cap bound the weight of TIS (min and max of r) and of DecoupledPPO
	// (of w). A Cap of 0 means 2 for TIS and none for DecoupledPPO.
	Floor, Cap float64
	// DropOverCap leaves tokens with a weight over Cap out instead of cutting it
	// (AReaL's behave_imp_weight_cap). It needs a Cap.
	DropOverCap bool
	// DropUnderFloor leaves tokens with a weight under Floor out instead of raising it. It needs a Floor.
	DropUnderFloor bool
	// Low and High bound the ratio of TokenMask and the geometric mean of
	// SequenceMask. 0 means 0.5 and 5, and 0.5 and 2; High may be +Inf.
	Low, High float64
	// Metric of SequenceMask.
	Metric Metric
	// MaxKL is the largest KL, in nats a token, of MetricKL. 0 means 0.1.
	MaxKL float64
	// DifferenceLow and DifferenceHigh bound the difference of probabilities of DPPO, below and
	// above; 0 means 0.2.
	DifferenceLow, DifferenceHigh float64
	// Penalty of DPPO times (log r)² is added to the loss of every sampled token, those left out
	// too. 0 for none; prime-rl's kl_tau is 0.001.
	Penalty float64
	// NegativeOnly lets SequenceMask drop only sequences with a negative advantage.
	NegativeOnly bool
	// VersionMask leaves out tokens by version, with any Kind; VersionLag is its width
	// in versions, from 0.
	VersionMask VersionMask
	VersionLag  int
	// MaxSpans leaves out samples of more runs of one version than that; 0 for no limit.
	MaxSpans int
}

// WithDefaults returns a copy in which what was left 0 and has a default holds it.
func (c Correction) WithDefaults() Correction {
	c.Kind = cmp.Or(c.Kind, PPOClip)
	c.VersionMask = cmp.Or(c.VersionMask, VersionsAll)
	fill(&c.EpsilonLow, EpsilonDefault)
	fill(&c.EpsilonHigh, c.EpsilonLow)
	switch c.Kind {
	case TIS:
		c.Level = cmp.Or(c.Level, LevelToken)
		fill(&c.Cap, CapDefault)
	case TokenMask:
		fill(&c.Low, TokenLowDefault)
		fill(&c.High, TokenHighDefault)
	case SequenceMask:
		c.Metric = cmp.Or(c.Metric, MetricGeometric)
		if c.Metric == MetricKL {
			fill(&c.MaxKL, MaxKLDefault)
			break
		}
		fill(&c.Low, SequenceLowDefault)
		fill(&c.High, SequenceHighDefault)
	case DPPO:
		fill(&c.DifferenceLow, DifferenceDefault)
		fill(&c.DifferenceHigh, DifferenceDefault)
	}
	return c
}

func fill(value *float64, otherwise float64) {
	*value = cmp.Or(*value, otherwise)
}

// Validate reports the first setting that cannot be, and settings that the Kind
// does not use. It judges what WithDefaults makes of c.
func (c Correction) Validate() error {
	given := c
	c = c.WithDefaults()
	switch {
	case !slices.Contains(Kinds(), c.Kind):
		return fmt.Errorf("correction: kind is %q, want one of %s", c.Kind, join(Kinds()))
	case !(c.EpsilonLow > 0 && c.EpsilonLow <= 1):
		return fmt.Errorf("correction: the band's low epsilon is %g, want above 0 and at most 1, which is no lower bound", c.EpsilonLow)
	case !(c.EpsilonHigh > 0) || math.IsInf(c.EpsilonHigh, 1):
		return fmt.Errorf("correction: the band's high epsilon is %g, want above 0 and finite", c.EpsilonHigh)
	case c.VersionMask != VersionsAll && c.VersionMask != VersionsNewest && c.VersionMask != VersionsTraining:
		return fmt.Errorf("correction: version mask is %q, want one of %s", c.VersionMask, join([]VersionMask{VersionsAll, VersionsNewest, VersionsTraining}))
	case c.VersionLag < 0 || c.MaxSpans < 0:
		return fmt.Errorf("correction: version lag is %d and the most spans %d, neither may be negative", c.VersionLag, c.MaxSpans)
	case c.VersionLag > 0 && c.VersionMask == VersionsAll:
		return fmt.Errorf("correction: version lag is %d without a version mask to use it: set the mask to newest or training", c.VersionLag)
	}
	if err := given.unused(); err != nil {
		return err
	}
	return errors.Join(c.validateWeight(), c.validateMask())
}

// validateWeight checks what bounds weights.
func (c Correction) validateWeight() error {
	switch {
	case c.Kind != TIS && c.Kind != DecoupledPPO:
		return nil
	case c.Kind == TIS && c.Level != LevelToken && c.Level != LevelSequence && c.Level != LevelGeometric:
		return fmt.Errorf("correction: level is %q, want one of %s", c.Level, join([]Level{LevelToken, LevelSequence, LevelGeometric}))
	case !(c.Floor >= 0) || !(c.Cap >= 0) || math.IsInf(c.Floor, 1) || math.IsInf(c.Cap, 1):
		return fmt.Errorf("correction: weights are bounded by floor %g and cap %g, want finite numbers from 0", c.Floor, c.Cap)
	case c.Cap > 0 && c.Floor >= c.Cap:
		return fmt.Errorf("correction: the floor of weights is %g, want below their cap of %g", c.Floor, c.Cap)
	case c.DropOverCap && c.Cap == 0:
		return errors.New("correction: tokens over the cap of weights are to be dropped, but there is no cap: set one")
	case c.DropUnderFloor && c.Floor == 0:
		return errors.New("correction: tokens under the floor of weights are to be dropped, but there is no floor: set one")
	}
	return nil
}

// validateMask checks what decides which tokens and sequences are left out.
func (c Correction) validateMask() error {
	switch {
	case c.Kind == DPPO && !(c.DifferenceLow > 0 && c.DifferenceLow <= 1 && c.DifferenceHigh > 0 && c.DifferenceHigh <= 1):
		return fmt.Errorf("correction: differences of probabilities from −%g to %g are kept, want bounds above 0 and at most 1", c.DifferenceLow, c.DifferenceHigh)
	case c.Kind == DPPO && (!(c.Penalty >= 0) || math.IsInf(c.Penalty, 1)):
		return fmt.Errorf("correction: the penalty on log-ratios is %g, want a finite number from 0", c.Penalty)
	case c.Kind != TokenMask && c.Kind != SequenceMask:
		return nil
	case c.Kind == SequenceMask && c.Metric != MetricGeometric && c.Metric != MetricKL:
		return fmt.Errorf("correction: metric is %q, want one of %s", c.Metric, join([]Metric{MetricGeometric, MetricKL}))
	case c.Metric == MetricKL && !(c.MaxKL > 0):
		return fmt.Errorf("correction: the largest KL is %g, want above 0", c.MaxKL)
	case c.Metric != MetricKL && !(c.Low > 0 && c.Low < 1 && c.High > 1):
		return fmt.Errorf("correction: ratios from %g to %g are kept; the range must hold 1 inside it, from above 0", c.Low, c.High)
	}
	return nil
}

// unused reports settings that would have no effect, because nobody notices those.
func (c Correction) unused() error {
	full := c.WithDefaults()
	weighs, masks := full.Kind == TIS || full.Kind == DecoupledPPO, full.Kind == TokenMask || full.Kind == SequenceMask
	for _, s := range []struct {
		set, used bool
		what, by  string
	}{
		{c.Level != "", full.Kind == TIS, "level", "tis"},
		{c.Floor != 0 || c.Cap != 0 || c.DropOverCap || c.DropUnderFloor, weighs, "floor and cap of weights", "tis and decoupled-ppo"},
		{c.Low != 0 || c.High != 0, masks && full.Metric != MetricKL, "bounds of ratios", "token-mask and, by geometric mean, sequence-mask"},
		{c.Metric != "" || c.NegativeOnly, full.Kind == SequenceMask, "metric of sequences", "sequence-mask"},
		{c.MaxKL != 0, full.Metric == MetricKL, "largest KL", "sequence-mask by kl"},
		{c.DifferenceLow != 0 || c.DifferenceHigh != 0 || c.Penalty != 0, full.Kind == DPPO, "differences of probabilities and the penalty", "dppo"},
	} {
		if s.set && !s.used {
			return fmt.Errorf("correction: %s does not use the %s, only %s does: leave it out", full.Kind, s.what, s.by)
		}
	}
	return nil
}

func join[T ~string](names []T) string {
	text := make([]string, len(names))
	for i, n := range names {
		text[i] = string(n)
	}
	return strings.Join(text, ", ")
}
