package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	engine "github.com/headway-rl/headway/engine/embedded"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	trainer "github.com/headway-rl/headway/train/embedded"
	"github.com/headway-rl/headway/train/grpo"
)

// modelConfig is the policy's shape: the config's, with the task's vocabulary.
func (j *job) modelConfig() transformer.Config {
	m := j.cfg.Model
	return transformer.Config{Vocabulary: j.task.Vocabulary().Size(), Context: m.Context, Width: m.Width, Layers: m.Layers, Heads: m.Heads}.WithDefaults()
}

// build makes engines and trainer.
func (j *job) build() error {
	if err := j.buildEngines(); err != nil {
		return err
	}
	made, err := j.newTrainer(j.weights)
	if err != nil {
		return err
	}
	j.trainer = made
	return nil
}

// buildEngines makes the engines of the document, which load from j.weights.
func (j *job) buildEngines() error {
	var elastic []*engine.Elastic
	for _, e := range j.cfg.Engines {
		opt := engine.Options{
			Name: e.Name, Slots: e.Slots, Model: j.modelConfig(), PromptTokens: j.task.Limits().PromptTokens,
			End: env.End, Seed: j.cfg.Seed, DecodeStepS: e.DecodeStepS, Weights: j.weights,
		}
		var made interface {
			port.Engine
			greedyEngine
		}
		var err error
		if j.cfg.Elastic() {
			var comes *engine.Elastic
			comes, err = engine.NewElastic(opt)
			made, elastic = comes, append(elastic, comes)
		} else {
			made, err = engine.New(opt)
		}
		if err != nil {
			return err
		}
		j.engines = append(j.engines, made)
		if j.greedy == nil {
			j.greedy = made
		}
	}
	if j.cfg.Elastic() {
		j.elasticOf(elastic)
	}
	return nil
}

func (j *job) newTrainer(published port.Weights) (*trainer.Trainer, error) {
	t := j.cfg.Trainer
	opt := trainer.Options{
		Model: j.modelConfig(), PromptTokens: j.task.Limits().PromptTokens, Seed: j.cfg.Seed, LearningRate: t.LearningRate,
		GradientNorm: t.GradientNorm, ClipEpsilon: t.ClipEpsilon, Correction: correction(t.Correction),
		Minibatches: t.Minibatches, ShuffleMinibatches: t.ShuffleMinibatches, NormalizeStd: t.NormalizeStd, Threads: t.Threads, StepS: t.StepS, Weights: published,
		KeepLogRatios: func(loop.Version) bool { return true }, // to be read, in the dashboard and in samples/
	}
	if t.StepS > 0 {
		opt.StepFactor = func(from loop.Version) float64 { return j.change.StepFactor(int64(from)) }
	}
	if j.cfg.Environment.WarmupSteps > 0 {
		opt.WarmupSteps = j.cfg.Environment.WarmupSteps
		opt.Demonstrations = j.demonstrations
	}
	return trainer.New(opt)
}

// spelling renders tokens of the task as text, nil where the policy's words are not known here.
func (j *job) spelling() func([]int32) string {
	if j.task == nil {
		return nil
	}
	return j.task.Vocabulary().Decode
}

// correction is what a train step does about stale tokens, in the words of package grpo.
func correction(c config.Correction) grpo.Correction {
	return grpo.Correction{
		Kind: grpo.Kind(c.Kind), EpsilonLow: c.EpsilonLow, EpsilonHigh: c.EpsilonHigh,
		Level: grpo.Level(c.Level), Floor: c.Floor, Cap: c.Cap, DropOverCap: c.DropOverCap, DropUnderFloor: c.DropUnderFloor, Low: c.Low, High: c.High,
		DifferenceLow: c.DifferenceLow, DifferenceHigh: c.DifferenceHigh, Penalty: c.Penalty,
		Metric: grpo.Metric(c.Metric), MaxKL: c.MaxKL, NegativeOnly: c.NegativeOnly,
		VersionMask: grpo.VersionMask(c.VersionMask), VersionLag: c.VersionLag, MaxSpans: c.MaxSpans,
	}
}

// warmupBatch is how many problems a supervised step shows.
const warmupBatch = 64

// demonstrationGroups keeps the problems of the warm-up apart from those of rollouts.
const demonstrationGroups = 1 << 41

// demonstrations are the problems of one supervised step.
func (j *job) demonstrations(step int) []trainer.Demonstration {
	out := make([]trainer.Demonstration, warmupBatch)
	for i := range out {
		p := env.TrainingProblem(j.task, j.cfg.Seed, demonstrationGroups+uint64(step*warmupBatch+i), 0)
		out[i] = trainer.Demonstration{Prompt: p.Prompt, Answer: p.Answer}
	}
	return out
}

// scratchTrainer is a trainer like the run's, with its version 0, that publishes into a directory of its own.
func (j *job) scratchTrainer(ctx context.Context) (port.Trainer, func(), error) {
	dir, err := os.MkdirTemp(j.dir, "probe-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	store, err := weights.Open(dir, weights.Options{Always: j.cfg.Store.Sync == "always"})
	if err != nil {
		remove()
		return nil, nil, err
	}
	made, err := j.newTrainer(store)
	if err == nil {
		err = j.copyVersion(ctx, store)
	}
	if err == nil {
		err = made.Restore(ctx, 0)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return made, func() { made.Close(); remove() }, nil
}

// copyVersion publishes the run's version 0 in another store.
func (j *job) copyVersion(ctx context.Context, to port.Weights) error {
	model, err := j.weights.Model(ctx, 0)
	if err != nil {
		return err
	}
	optimizer, err := j.weights.Optimizer(ctx, 0)
	if err != nil {
		return err
	}
	return to.Publish(ctx, port.Publication{Model: model, Optimizer: optimizer})
}

// intro is printed before anything is shown.
func (j *job) intro() string {
	what := fmt.Sprintf("%s: %s, %d train steps, concurrency C %d, batch B %d and group S %d rollouts", j.dir, j.cfg.EnvironmentName(), j.cfg.Trainer.Steps,
		j.cfg.Rollout.Concurrency, j.cfg.Train.Batch, j.cfg.Rollout.GroupSize)
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
	p := progress{Step: int64(d.Point.Step), Steps: int64(j.cfg.Trainer.Steps), Version: int64(d.Point.Step),
		Accuracy: math.NaN(), Rates: d.Rates, QueueGroups: d.Status.QueueGroups, QueueCapacity: d.Status.QueueCapacityGroups, Elapsed: time.Duration(d.Point.TimeNS)}
	p.Control = api.ControlOf(j.rules.Control, d.Status.Control, nil)
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
