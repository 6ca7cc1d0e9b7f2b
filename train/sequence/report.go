package sequence

import (
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// fading is what a step's log-ratios still count for at the next, in the
// prediction of clip fractions: about twenty steps, since a policy drifts at a pace that
// changes as it learns.
const fading = 0.95

// Tally is what one thread sees of a step. The zero value has seen nothing; [Reporter.Begin] makes it so.
type Tally struct {
	report grpo.Report
	// scratch is here so that the hot path does not allocate one a sequence.
	scratch grpo.Sequence
}

// Gradient writes the derivative of the optimizer step's loss by each token's log-prob under the current weights, and
// takes in the statistics of the tokens. Each token is weighted by one over the scored tokens of the optimizer step.
// The correction must be complete and valid; derivative and current have one element a token.
func (t *Tally) Gradient(c *grpo.Correction, derivative []float32, s *Sequence, current []float32, scored float32) {
	t.scratch = grpo.Sequence{Sampled: s.Sampled, Current: current, Proximal: s.Proximal, Behaviour: s.Logprobs,
		Lags: s.Lags, Advantage: s.Advantage, Staleness: s.Staleness}
	c.Gradient(derivative, &t.scratch, &t.report)
	for k := range derivative {
		derivative[k] /= scored
	}
	start := current
	if s.Proximal != nil {
		start = s.Proximal
	}
	for k := range s.Ratios {
		if s.Sampled[k] != 0 {
			s.Ratios[k] = start[k] - s.Logprobs[k]
		}
	}
	s.drift, s.driftTokens = grpo.AbsoluteLogRatio(start, s.Logprobs, s.Sampled)
}

// Reporter says of each step what its tallies saw, and remembers it for the prediction of the next one's clip
// fraction. The zero value has seen no step.
type Reporter struct {
	// moments of earlier steps' log-ratios, fading; what a step's clip fraction is predicted from.
	moments grpo.Moments
}

// Begin clears tallies and gives them what earlier steps say of this one, under a correction's band.
func (r *Reporter) Begin(c *grpo.Correction, tallies ...*Tally) {
	var prediction []float64
	if drift := grpo.FitDrift(&r.moments); drift.Lags > 0 {
		prediction = make([]float64, grpo.LagMax+1)
		drift.Predict(prediction, c.EpsilonLow, c.EpsilonHigh)
	}
	for _, t := range tallies {
		t.report = grpo.Report{Prediction: prediction}
	}
}

// Tell fills in what the tallies saw of a step on sequences of these groups, which were trained on in parts.
func (r *Reporter) Tell(to *port.StepReport, groups []port.Group, trained [][]Sequence, tallies ...*Tally) {
	var seen grpo.Report
	for _, t := range tallies {
		seen.Merge(&t.report)
	}
	r.moments.Fade(fading)
	r.moments.Merge(&seen.Moments)
	a := &seen.All
	to.Loss = a.MeanLoss()
	to.ClipFraction, to.ActiveClipFraction, to.PredictedClipFraction = a.ClipFraction(), a.ActiveClipFraction(), a.ExpectedClipFraction()
	to.MeanLogRatio, to.MeanProximalLogRatio = a.MeanLogRatio(), seen.Moments.MeanLogRatio()
	to.EffectiveSampleSize, to.MeanWeight, to.MaxWeight = a.EffectiveSampleSize(), a.MeanWeight(), a.WeightMax
	to.MaskedFraction, to.TruncatedFraction = a.MaskedFraction(), a.TruncatedFraction()
	to.Health = a.Health().String()
	for b := range to.TokenLag {
		to.TokenLag[b], to.GroupLag[b] = lagReport(&seen.ByToken[b]), lagReport(&seen.ByGroup[b])
	}
	to.Drifts = drifts(groups, trained)
}

// Sizes fills in how many rollouts and tokens a step is on.
func Sizes(to *port.StepReport, groups []port.Group, sequences []Sequence) {
	for g := range groups {
		to.Rollouts += len(groups[g].Samples)
	}
	for i := range sequences {
		to.Tokens += len(sequences[i].Tokens)
	}
}

// KeepRatios gives sequences room for their log-ratios, which [LogRatios] returns after the step.
func KeepRatios(sequences []Sequence) {
	for i := range sequences {
		sequences[i].Ratios = make([]float32, len(sequences[i].Tokens))
	}
}

// LogRatios puts the sequences of a rollout, which follow one another, together again.
func LogRatios(sequences []Sequence) map[port.RolloutID][]float32 {
	out := make(map[port.RolloutID][]float32, len(sequences))
	for i := range sequences {
		out[sequences[i].ID] = append(out[sequences[i].ID], sequences[i].Ratios...)
	}
	return out
}

func lagReport(s *grpo.Statistics) port.LagReport {
	if s.Tokens == 0 {
		return port.LagReport{}
	}
	return port.LagReport{Tokens: s.Tokens, ClipFraction: s.ClipFraction(), ActiveClipFraction: s.ActiveClipFraction(),
		PredictedClipFraction: s.ExpectedClipFraction(), MeanLogRatio: s.MeanLogRatio(), EffectiveSampleSize: s.EffectiveSampleSize(),
		MeanWeight: s.MeanWeight(), MaxWeight: s.WeightMax, MaskedFraction: s.MaskedFraction()}
}

// drifts are the mean absolute log-ratios of the groups, in their order.
func drifts(groups []port.Group, trained [][]Sequence) []port.GroupDrift {
	out := make([]port.GroupDrift, len(groups))
	tokens := make([]int, len(groups))
	for g := range groups {
		out[g].Group = groups[g].ID
	}
	for _, share := range trained {
		for i := range share {
			out[share[i].Group].Drift += share[i].drift
			tokens[share[i].Group] += share[i].driftTokens
		}
	}
	for g := range out {
		out[g].Drift /= float64(max(tokens[g], 1))
	}
	return out
}
