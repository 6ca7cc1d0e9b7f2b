package main

import (
	"cmp"
	"fmt"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/train/grpo"
)

// clipLimits says which band the ratio was compared with, and whether the share of
// tokens outside it tells health: the limits of package grpo are of objectives that
// take the gradient of tokens outside a band near 0.2.
type clipLimits struct {
	low, high float64 // half widths of the band
	kind      string
}

// Half widths of bands for which the limits of the clip fraction were meant.
const (
	bandNarrowest = 0.1
	bandWidest    = 0.4
)

func newClipLimits(c config.Trainer) clipLimits {
	return clipLimits{cmp.Or(c.Correction.EpsilonLow, c.ClipEpsilon), cmp.Or(c.Correction.EpsilonHigh, c.ClipEpsilon), c.Correction.Kind}
}

// clips reports whether the objective clips by the band.
func (j clipLimits) clips() bool {
	return j.kind == "ppo-clip" || j.kind == "token-mask" || j.kind == "sequence-mask"
}

func (j clipLimits) usual() bool {
	return min(j.low, j.high) >= bandNarrowest && max(j.low, j.high) <= bandWidest
}

// band is the band in words.
func (j clipLimits) band() string {
	return fmt.Sprintf("%.4g to %.4g", 1-j.low, 1+j.high)
}

// note says what the figures are of.
func (j clipLimits) note() string {
	switch {
	case !j.clips():
		return fmt.Sprintf("the band is %s; %s does not clip by it, and health is of the log-ratio", j.band(), j.kind)
	case !j.usual():
		return fmt.Sprintf("the band is %s; health is of the log-ratio, since limits of the share outside are known for bands near 0.2 alone", j.band())
	}
	return fmt.Sprintf("the band is %s", j.band())
}

// health of tokens with a share outside the band and a mean log-ratio.
func (j clipLimits) health(clip, logRatio float64) string {
	if j.clips() && j.usual() {
		return record.LagHealth(clip, logRatio)
	}
	return grpo.LogRatioHealth(logRatio).String()
}

// offPolicy sums the steps after the warm-up up by range of staleness: means over tokens.
func offPolicy(trained []steps.Line, warmup loop.Version, limits clipLimits) []steps.Lag {
	var total [port.LagRanges]steps.Lag
	for _, step := range trained {
		if step.Step <= warmup && len(trained) > int(warmup) {
			continue
		}
		for _, line := range step.OffPolicy {
			for i := range total {
				if port.LagRange(i) == line.Staleness {
					addLag(&total[i], line)
				}
			}
		}
	}
	var lines []steps.Lag
	for i, sum := range total {
		if sum.Tokens > 0 {
			lines = append(lines, meanOfLags(sum, port.LagRange(i), limits))
		}
	}
	return lines
}

// addLag adds a step's means to sums over tokens.
func addLag(l *steps.Lag, o steps.Lag) {
	n := float64(o.Tokens)
	l.Tokens += o.Tokens
	l.ClipFraction += n * o.ClipFraction
	l.ActiveClipFraction += n * o.ActiveClipFraction
	l.PredictedClipFraction += n * o.PredictedClipFraction
	l.MeanLogRatio += n * o.MeanLogRatio
	l.EffectiveSampleSize += n * o.EffectiveSampleSize
	l.MaskedFraction += n * o.MaskedFraction
}

// meanOfLags turns sums over tokens into means.
func meanOfLags(l steps.Lag, staleness string, limits clipLimits) steps.Lag {
	n := float64(l.Tokens)
	l.Staleness = staleness
	for _, sum := range []*float64{&l.ClipFraction, &l.ActiveClipFraction, &l.PredictedClipFraction, &l.MeanLogRatio, &l.EffectiveSampleSize, &l.MaskedFraction} {
		*sum /= n
	}
	l.Health = limits.health(l.ClipFraction, l.MeanLogRatio)
	return l
}

// offPolicyRows are the same for the report.
func offPolicyRows(lines []steps.Lag) []report.OffPolicy {
	var rows []report.OffPolicy
	for _, l := range lines {
		predicted := cmp.Or(l.PredictedClipFraction, report.Unknown)
		rows = append(rows, report.OffPolicy{Staleness: l.Staleness, Tokens: int64(l.Tokens), ClipFraction: l.ClipFraction, Predicted: predicted, Clipped: l.ActiveClipFraction,
			MeanLogRatio: l.MeanLogRatio, EffectiveShare: l.EffectiveSampleSize, Health: l.Health})
	}
	return rows
}
