package record

import (
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/train/grpo"
)

// lagLines are the ranges of a step that hold tokens.
func lagLines(ranges [port.LagRanges]port.LagReport) []steps.Lag {
	var lines []steps.Lag
	for i, r := range ranges {
		if r.Tokens > 0 {
			lines = append(lines, steps.Lag{Staleness: port.LagRange(i), Tokens: r.Tokens, ClipFraction: r.ClipFraction, ActiveClipFraction: r.ActiveClipFraction, PredictedClipFraction: r.PredictedClipFraction,
				MeanLogRatio: r.MeanLogRatio, EffectiveSampleSize: r.EffectiveSampleSize, MaskedFraction: r.MaskedFraction, Health: LagHealth(r.ClipFraction, r.MeanLogRatio)})
		}
	}
	return lines
}

// LagHealth names the worse of the two.
func LagHealth(clip, logRatio float64) string {
	return max(grpo.ClipHealth(clip), grpo.LogRatioHealth(logRatio)).String()
}
