package main

import (
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/observe/steps"
)

// shownFigures are the figures of a step that the dashboard shows.
func shownFigures(l *steps.Line) dashboard.StepFigures {
	f := dashboard.StepFigures{Step: int64(l.Step), ClipFraction: l.ClipFraction, MeanLogRatio: l.MeanLogRatio, EffectiveSampleSize: l.EffectiveSampleSize}
	if l.HeldOutAccuracy != nil && l.HeldOutStep != nil {
		f.HeldOut, f.HeldOutStep = l.HeldOutAccuracy, int64(*l.HeldOutStep)
	}
	return f
}
