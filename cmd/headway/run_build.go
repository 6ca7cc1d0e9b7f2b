package main

import (
	"fmt"
	"math"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/drive/live"
)

// intro is printed before anything is shown.
func (j *job) intro() string {
	what := fmt.Sprintf("%s: %s, %d train steps, concurrency C %d, batch B %d and group S %d rollouts", j.Dir, j.Cfg.EnvironmentName(), j.Cfg.Trainer.Steps,
		j.Cfg.Rollout.Concurrency, j.Cfg.Train.Batch, j.Cfg.Rollout.GroupSize)
	if j.resumed != nil {
		return fmt.Sprintf("%s; going on from version %d", what, j.resumed.state.Loop.Version())
	}
	if p := j.expected; p.StalenessMean != nil {
		what += fmt.Sprintf("\npredicted staleness %.2f versions (%s, utilization %.2f)", *p.StalenessMean, p.Regime, p.Calibration.Utilization)
	}
	if j.expected.StalenessMean == nil && len(j.expected.Warnings) > 0 {
		what += "\n" + j.expected.Warnings[0]
	}
	return what + "\n" + splitWords
}

// splitWords say what the parts of a step's staleness are called.
const splitWords = "staleness in versions: PQS before its group was ready, IQS in the queue"

// viewWindow is how many of the last steps the progress view averages.
const viewWindow = 20

// newProgress is what the view shows after a step.
func (j *job) newProgress(d live.StepDone) progress {
	lines := j.steps.lines
	recent := lines[max(0, len(lines)-viewWindow):]
	p := progress{Step: int64(d.Point.Step), Steps: int64(j.Cfg.Trainer.Steps), Version: int64(d.Point.Step),
		Accuracy: math.NaN(), Rates: d.Rates, QueueGroups: d.Status.QueueGroups, QueueCapacity: d.Status.QueueCapacityGroups, Elapsed: time.Duration(d.Point.TimeNS)}
	p.Control = api.ControlOf(j.Rules.Control, d.Status.Control, nil)
	if e := j.newestEvaluation(); e != nil {
		p.Accuracy, p.AccuracyStep = e.Accuracy, int64(e.Version)
	}
	for i := range d.Status.Engines {
		e := &d.Status.Engines[i]
		p.Active += e.Active
		p.Slots += e.Slots
		p.Version = min(p.Version, int64(e.Version))
	}
	n := float64(len(recent))
	var span, tokens float64
	for _, line := range recent {
		p.Reward += line.Reward / n
		p.PQS += line.PQS / n
		p.IQS += line.IQS / n
		p.ClipFraction += line.ClipFraction / n
		p.TrainerIdle += line.TrainerIdleRatio * line.PeriodS
		p.RolloutIdle += line.RolloutIdleRatio * line.PeriodS
		tokens += float64(line.ResponseTokens)
		span += line.PeriodS
	}
	p.Staleness = p.PQS + p.IQS
	if span > 0 {
		p.TrainerIdle /= span
		p.RolloutIdle /= span
		p.TokensPerS = tokens / span
		p.ETA = time.Duration(span / n * float64(p.Steps-p.Step) * 1e9)
	}
	return p
}

// newestEvaluation is the last evaluation that stands in the step log.
func (j *job) newestEvaluation() *evaluation {
	lines := j.steps.lines
	for i := len(lines) - 1; i >= max(0, len(lines)-1000); i-- {
		if lines[i].HeldOutAccuracy != nil {
			return &evaluation{*lines[i].HeldOutStep, *lines[i].HeldOutAccuracy}
		}
	}
	return nil
}
