package parts

import (
	"context"
	"errors"
	"github.com/headway-rl/headway/config"
	engine "github.com/headway-rl/headway/engine/embedded"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/store/weights"
	trainer "github.com/headway-rl/headway/train/embedded"
	"github.com/headway-rl/headway/train/grpo"
	"os"
)

// PolicyShape is the shape of a document's own policy: that of its model, with the vocabulary of its task.
func PolicyShape(cfg config.Config, task env.Task) transformer.Config {
	m := cfg.Model
	return transformer.Config{Vocabulary: task.Vocabulary().Size(), Context: m.Context, Width: m.Width, Layers: m.Layers, Heads: m.Heads}.WithDefaults()
}

// buildEngines makes the embedded engines of the document, which load from p.weights.
func (p *Parts) buildEngines() error {
	p.closesEngines()
	var elastic []*engine.Elastic
	for _, e := range p.Cfg.Engines {
		opt := engine.Options{
			Name: e.Name, Slots: e.Slots + p.Cfg.EvaluationSlots(e.Name), Model: PolicyShape(p.Cfg, p.Task), PromptTokens: p.Task.Limits().PromptTokens,
			End: env.End, Seed: p.Cfg.Seed, DecodeStepS: e.DecodeStepS, Weights: p.Weights,
		}
		var made interface {
			port.Engine
			Greedy
		}
		var err error
		if p.Cfg.Elastic() {
			var comes *engine.Elastic
			comes, err = engine.NewElastic(opt)
			made, elastic = comes, append(elastic, comes)
		} else {
			made, err = engine.New(opt)
		}
		if err != nil {
			return err
		}
		p.Engines = append(p.Engines, made)
		if p.Greedy == nil && p.Cfg.Environment.Kind == "embedded" { // whose held-out prompts are known
			p.Greedy = made
		}
	}
	if p.Cfg.Elastic() {
		p.Fleet = p.fleetOf(engine.Fleet(elastic), nil)
	}
	return nil
}

// closesEngines has close end the engines, those that are made by then, and after them their fleet.
func (p *Parts) closesEngines() {
	p.OnClose(func() error {
		if p.Fleet == nil {
			return nil
		}
		return p.Fleet.Close()
	})
	p.OnClose(func() error {
		var errs []error
		for _, e := range p.Engines {
			errs = append(errs, e.Close())
		}
		return errors.Join(errs...)
	})
}

// buildTrainer makes the embedded trainer, which publishes in p.weights.
func (p *Parts) buildTrainer() error {
	made, err := NewTrainer(p.Cfg, p.Task, p.Change, p.Weights)
	if err != nil {
		return err
	}
	p.Trainer = made
	p.OnClose(made.Close)
	return nil
}

// NewTrainer makes the embedded trainer of a document's task; change moves its train steps' time.
func NewTrainer(cfg config.Config, task env.Task, change workload.Change, published port.Weights) (*trainer.Trainer, error) {
	t := cfg.Trainer
	opt := trainer.Options{
		Model: PolicyShape(cfg, task), PromptTokens: task.Limits().PromptTokens, Seed: cfg.Seed, LearningRate: t.LearningRate,
		GradientNorm: t.GradientNorm, ClipEpsilon: t.ClipEpsilon, Correction: correction(t.Correction),
		Minibatches: t.Minibatches, ShuffleMinibatches: t.ShuffleMinibatches, NormalizeStd: t.NormalizeStd, Threads: t.Threads, StepS: t.StepS, Weights: published,
		KeepLogRatios: func(loop.Version) bool { return true }, // to be read, in the dashboard and in samples/
	}
	if t.StepS > 0 {
		opt.StepFactor = func(from loop.Version) float64 { return change.StepFactor(int64(from)) }
	}
	if cfg.Environment.SupervisedSteps > 0 {
		opt.WarmupSteps = cfg.Environment.SupervisedSteps
		opt.Demonstrations = func(step int) []trainer.Demonstration { return demonstrations(cfg, task, step) }
	}
	return trainer.New(opt)
}

// Spelling renders tokens of the task as text, nil where the policy's words are not known here.
func (p *Parts) Spelling() func([]int32) string {
	if p.Task == nil {
		return nil
	}
	return p.Task.Vocabulary().Decode
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
func demonstrations(cfg config.Config, task env.Task, step int) []trainer.Demonstration {
	out := make([]trainer.Demonstration, warmupBatch)
	for i := range out {
		p := env.TrainingProblem(task, cfg.Seed, demonstrationGroups+uint64(step*warmupBatch+i), 0)
		out[i] = trainer.Demonstration{Prompt: p.Prompt, Answer: p.Answer}
	}
	return out
}

// ScratchTrainer is a trainer like the run's, with its version 0, that publishes into a directory of its own.
func (p *Parts) ScratchTrainer(ctx context.Context) (port.Trainer, func(), error) {
	dir, err := os.MkdirTemp(p.Dir, "probe-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	store, err := weights.Open(dir, weights.Options{Always: p.Cfg.Store.Durability == "always"})
	if err != nil {
		remove()
		return nil, nil, err
	}
	made, err := NewTrainer(p.Cfg, p.Task, p.Change, store)
	if err == nil {
		err = p.copyVersion(ctx, store)
	}
	if err == nil {
		err = made.Restore(ctx, 0, 0)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return made, func() { made.Close(); remove() }, nil
}

// copyVersion publishes the run's version 0 in another store.
func (p *Parts) copyVersion(ctx context.Context, to port.Weights) error {
	model, err := p.Weights.Model(ctx, 0)
	if err != nil {
		return err
	}
	optimizer, err := p.Weights.Optimizer(ctx, 0)
	if err != nil {
		return err
	}
	return to.Publish(ctx, port.Publication{Model: model, Optimizer: optimizer})
}
