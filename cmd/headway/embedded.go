package main

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

// policyShape is the shape of a document's own policy: that of its model, with the vocabulary of its task.
func policyShape(cfg config.Config, task env.Problems) transformer.Config {
	m := cfg.Model
	return transformer.Config{Vocabulary: task.Vocabulary().Size(), Context: m.Context, Width: m.Width, Layers: m.Layers, Heads: m.Heads}.WithDefaults()
}

// buildEngines makes the embedded engines of the document, which load from p.weights.
func (p *parts) buildEngines() error {
	p.closesEngines()
	var elastic []*engine.Elastic
	for _, e := range p.cfg.Engines {
		opt := engine.Options{
			Name: e.Name, Slots: e.Slots, Model: policyShape(p.cfg, p.task), PromptTokens: p.task.Limits().PromptTokens,
			End: env.End, Seed: p.cfg.Seed, DecodeStepS: e.DecodeStepS, Weights: p.weights,
		}
		var made interface {
			port.Engine
			greedyEngine
		}
		var err error
		if p.cfg.Elastic() {
			var comes *engine.Elastic
			comes, err = engine.NewElastic(opt)
			made, elastic = comes, append(elastic, comes)
		} else {
			made, err = engine.New(opt)
		}
		if err != nil {
			return err
		}
		p.engines = append(p.engines, made)
		if p.greedy == nil {
			p.greedy = made
		}
	}
	if p.cfg.Elastic() {
		p.fleet = p.fleetOf(engine.Fleet(elastic), nil)
	}
	return nil
}

// closesEngines has close end the engines, those that are made by then, and after them their fleet.
func (p *parts) closesEngines() {
	p.onClose(func() error {
		if p.fleet == nil {
			return nil
		}
		return p.fleet.Close()
	})
	p.onClose(func() error {
		var errs []error
		for _, e := range p.engines {
			errs = append(errs, e.Close())
		}
		return errors.Join(errs...)
	})
}

// buildTrainer makes the embedded trainer, which publishes in p.weights.
func (p *parts) buildTrainer() error {
	made, err := newTrainer(p.cfg, p.task, p.change, p.weights)
	if err != nil {
		return err
	}
	p.trainer = made
	p.onClose(made.Close)
	return nil
}

// newTrainer makes the embedded trainer of a document's task, whose train steps change as change says.
func newTrainer(cfg config.Config, task env.Problems, change workload.Change, published port.Weights) (*trainer.Trainer, error) {
	t := cfg.Trainer
	opt := trainer.Options{
		Model: policyShape(cfg, task), PromptTokens: task.Limits().PromptTokens, Seed: cfg.Seed, LearningRate: t.LearningRate,
		GradientNorm: t.GradientNorm, ClipEpsilon: t.ClipEpsilon, Correction: correction(t.Correction),
		Minibatches: t.Minibatches, ShuffleMinibatches: t.ShuffleMinibatches, NormalizeStd: t.NormalizeStd, Threads: t.Threads, StepS: t.StepS, Weights: published,
		KeepLogRatios: func(loop.Version) bool { return true }, // to be read, in the dashboard and in samples/
	}
	if t.StepS > 0 {
		opt.StepFactor = func(from loop.Version) float64 { return change.StepFactor(int64(from)) }
	}
	if cfg.Environment.WarmupSteps > 0 {
		opt.WarmupSteps = cfg.Environment.WarmupSteps
		opt.Demonstrations = func(step int) []trainer.Demonstration { return demonstrations(cfg, task, step) }
	}
	return trainer.New(opt)
}

// spelling renders tokens of the task as text, nil where the policy's words are not known here.
func (p *parts) spelling() func([]int32) string {
	if p.task == nil {
		return nil
	}
	return p.task.Vocabulary().Decode
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
func demonstrations(cfg config.Config, task env.Problems, step int) []trainer.Demonstration {
	out := make([]trainer.Demonstration, warmupBatch)
	for i := range out {
		p := env.TrainingProblem(task, cfg.Seed, demonstrationGroups+uint64(step*warmupBatch+i), 0)
		out[i] = trainer.Demonstration{Prompt: p.Prompt, Answer: p.Answer}
	}
	return out
}

// scratchTrainer is a trainer like the run's, with its version 0, that publishes into a directory of its own.
func (p *parts) scratchTrainer(ctx context.Context) (port.Trainer, func(), error) {
	dir, err := os.MkdirTemp(p.dir, "probe-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) }
	store, err := weights.Open(dir, weights.Options{Always: p.cfg.Store.Sync == "always"})
	if err != nil {
		remove()
		return nil, nil, err
	}
	made, err := newTrainer(p.cfg, p.task, p.change, store)
	if err == nil {
		err = p.copyVersion(ctx, store)
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
func (p *parts) copyVersion(ctx context.Context, to port.Weights) error {
	model, err := p.weights.Model(ctx, 0)
	if err != nil {
		return err
	}
	optimizer, err := p.weights.Optimizer(ctx, 0)
	if err != nil {
		return err
	}
	return to.Publish(ctx, port.Publication{Model: model, Optimizer: optimizer})
}
