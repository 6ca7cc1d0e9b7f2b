package main

import (
	"github.com/headway-rl/headway/grpo"
	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/report"
)

// lagLine is what a train step, or a whole run, says of the response tokens of
// groups of one range of staleness.
type lagLine struct {
	Staleness             string  `json:"staleness"`
	Tokens                int     `json:"tokens"`
	ClipFraction          float64 `json:"clip_fraction"`
	ActiveClipFraction    float64 `json:"active_clip_fraction"`
	PredictedClipFraction float64 `json:"predicted_clip_fraction"`
	MeanLogRatio          float64 `json:"mean_log_ratio"`
	EffectiveSampleSize   float64 `json:"effective_sample_size"`
	MaskedFraction        float64 `json:"masked_fraction"`
	Health                string  `json:"health"`
}

// lagLines are the ranges of a step that hold tokens.
func lagLines(ranges [live.LagRanges]live.LagReport) []lagLine {
	var lines []lagLine
	for i, r := range ranges {
		if r.Tokens > 0 {
			lines = append(lines, lagLine{live.LagRange(i), r.Tokens, r.ClipFraction, r.ActiveClipFraction, r.PredictedClipFraction,
				r.MeanLogRatio, r.EffectiveSampleSize, r.MaskedFraction, lagHealth(r.ClipFraction, r.MeanLogRatio)})
		}
	}
	return lines
}

// lagHealth names the worse band of the two.
func lagHealth(clip, logRatio float64) string {
	return max(grpo.ClipHealth(clip), grpo.LogRatioHealth(logRatio)).String()
}

// offPolicy sums the steps after the warm-up up by range of staleness: means over tokens.
func offPolicy(steps []stepLine, warmup loop.Version) []lagLine {
	var total [live.LagRanges]lagLine
	for _, step := range steps {
		if step.Step <= warmup && len(steps) > int(warmup) {
			continue
		}
		for _, line := range step.OffPolicy {
			for i := range total {
				if live.LagRange(i) == line.Staleness {
					total[i].add(line)
				}
			}
		}
	}
	var lines []lagLine
	for i, sum := range total {
		if sum.Tokens > 0 {
			lines = append(lines, sum.mean(live.LagRange(i)))
		}
	}
	return lines
}

// add adds a step's means to sums over tokens.
func (l *lagLine) add(o lagLine) {
	n := float64(o.Tokens)
	l.Tokens += o.Tokens
	l.ClipFraction += n * o.ClipFraction
	l.ActiveClipFraction += n * o.ActiveClipFraction
	l.PredictedClipFraction += n * o.PredictedClipFraction
	l.MeanLogRatio += n * o.MeanLogRatio
	l.EffectiveSampleSize += n * o.EffectiveSampleSize
	l.MaskedFraction += n * o.MaskedFraction
}

// mean turns sums over tokens into means.
func (l lagLine) mean(staleness string) lagLine {
	n := float64(l.Tokens)
	l.Staleness = staleness
	for _, sum := range []*float64{&l.ClipFraction, &l.ActiveClipFraction, &l.PredictedClipFraction, &l.MeanLogRatio, &l.EffectiveSampleSize, &l.MaskedFraction} {
		*sum /= n
	}
	l.Health = lagHealth(l.ClipFraction, l.MeanLogRatio)
	return l
}

// offPolicyRows are the same for the report.
func offPolicyRows(lines []lagLine) []report.OffPolicy {
	var rows []report.OffPolicy
	for _, l := range lines {
		predicted := l.PredictedClipFraction
		if predicted == 0 {
			predicted = report.Unknown
		}
		rows = append(rows, report.OffPolicy{Staleness: l.Staleness, Tokens: int64(l.Tokens), ClipFraction: l.ClipFraction, Predicted: predicted,
			MeanLogRatio: l.MeanLogRatio, EffectiveShare: l.EffectiveSampleSize, Health: l.Health})
	}
	return rows
}
