package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/cmd/lab/study"
	engine "github.com/headway-rl/headway/engine/embedded"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
	trainer "github.com/headway-rl/headway/train/embedded"
)

// lagRun teaches a policy from batches of one exact lag. Nothing in it reads a
// clock: engine and trainer take turns, so that what is sampled and trained on is a
// function of the document, its seed and the lag alone.
type lagRun struct {
	study.LagRun
	parts       *parts.Parts // of the document, without a directory
	weights     *newestWeights
	environment port.Environment
	engine      *engine.Engine
	trainer     *trainer.Trainer
	// ahead are batches that were sampled and are not trained on yet, the next one first.
	ahead []port.Batch
	// behind are those of the last steps, the newest last, where drift is measured.
	behind []port.Batch
	drift  *driftMeter
}

// teach implements [study.Teach] with the embedded engine and trainer.
func teach(ctx context.Context, task study.LagRun) (study.Learned, error) {
	l := &lagRun{LagRun: task, weights: &newestWeights{}}
	if err := l.build(); err != nil {
		return study.Learned{}, err
	}
	defer l.engine.Close()
	return l.run(ctx)
}

// build makes the parts of a document. A lesson takes one thread: studies run many at once.
func (l *lagRun) build() error {
	cfg := l.Document
	cfg.Trainer.Threads = 1
	var err error
	if l.parts, err = parts.New(cfg, "", parts.RunRules(cfg), nil); err != nil {
		return err
	}
	l.environment = l.parts.Environment
	cold := cfg
	cold.Environment.SupervisedSteps = 0
	if l.trainer, err = parts.NewTrainer(cold, l.parts.Task, l.parts.Change, l.weights); err != nil {
		return err
	}
	if l.DriftEvery > 0 {
		if l.drift, err = newDriftMeter(parts.PolicyShape(cfg, l.parts.Task), l.parts.Task.Limits().PromptTokens, cfg.Trainer.ClipEpsilon); err != nil {
			return err
		}
	}
	l.engine, err = engine.New(engine.Options{
		Name: "study", Slots: cfg.Train.Batch, Model: parts.PolicyShape(cfg, l.parts.Task), PromptTokens: l.parts.Task.Limits().PromptTokens,
		End: env.End, Seed: cfg.Seed, Weights: l.weights,
	})
	return err
}

// run makes the steps. A gradient that is no number ends the lesson, not the study.
func (l *lagRun) run(ctx context.Context) (study.Learned, error) {
	var out study.Learned
	if err := l.begin(ctx); err != nil {
		return out, err
	}
	var m lagMeter
	for step := 0; ; step++ {
		if err := l.serve(ctx, loop.Version(step)); err != nil {
			return out, err
		}
		if step%l.EvaluateEvery == 0 {
			accuracy, err := l.evaluate(ctx, loop.Version(step))
			if err != nil {
				return out, err
			}
			out.Curve = append(out.Curve, m.point(step, accuracy))
			m = lagMeter{}
		}
		if step == l.Document.Trainer.Steps {
			break
		}
		if err := l.sample(ctx, step); err != nil {
			return out, err
		}
		batch := l.next(step)
		if l.drift != nil && step%l.DriftEvery == 0 {
			if err := l.drift.measure(l.weights.newest.Model, l.behind); err != nil {
				return out, err
			}
		}
		report, err := l.trainer.Train(ctx, batch)
		if errors.Is(err, transformer.ErrNotFinite) {
			out.Broke = fmt.Sprintf("step %d: %v", step, err)
			break
		}
		if err != nil {
			return out, err
		}
		m.add(&report, &batch, l.Document.Trainer.ClipEpsilon)
	}
	if l.drift != nil {
		out.Drift = l.drift.points()
	}
	return out, nil
}

// begin makes version 0, by the supervised warm-up of the document at its own learning rate.
func (l *lagRun) begin(ctx context.Context) error {
	warm := l.Document
	warm.Trainer.Threads, warm.Trainer.LearningRate = 1, l.WarmupRate
	first, err := parts.NewTrainer(warm, l.parts.Task, workload.Change{}, l.weights)
	if err != nil {
		return err
	}
	return errors.Join(first.Initialize(ctx), l.trainer.Restore(ctx, 0, 0))
}

// serve has the engine sample with a version, the newest there is.
func (l *lagRun) serve(ctx context.Context, version loop.Version) error {
	return errors.Join(l.engine.Load(ctx, version), l.engine.Switch(ctx, version, false))
}

// sample makes the batches that the served version is to sample: version 0 those of the
// first Lag steps and of the one after them, every other version one, Lag steps ahead.
func (l *lagRun) sample(ctx context.Context, step int) error {
	first := step + l.Lag
	if step == 0 {
		first = 0
	}
	for t := first; t <= step+l.Lag && t < l.Document.Trainer.Steps; t++ {
		batch, err := l.play(ctx, t, loop.Version(step))
		if err != nil {
			return err
		}
		l.ahead = append(l.ahead, batch)
	}
	return nil
}

// next takes the batch of a step, and keeps it for the drift.
func (l *lagRun) next(step int) port.Batch {
	batch := l.ahead[0]
	l.ahead = l.ahead[1:]
	batch.Lease, batch.Attempt, batch.Version = loop.LeaseID(step+1), 1, loop.Version(step)
	if l.drift != nil {
		l.behind = append(l.behind, batch)
		if most := study.DriftLags[len(study.DriftLags)-1] + 1; len(l.behind) > most {
			l.behind = l.behind[1:]
		}
	}
	return batch
}

// play samples the batch of a step: the same prompts and the same draws in every lesson of a seed.
func (l *lagRun) play(ctx context.Context, step int, version loop.Version) (port.Batch, error) {
	size := l.Document.Rollout.GroupSize
	groups := l.Document.Train.Batch / size
	batch := port.Batch{Groups: make([]port.Group, groups)}
	errs := make([]error, groups*size)
	var wait sync.WaitGroup
	for g := range batch.Groups {
		group := &batch.Groups[g]
		group.ID = loop.GroupID(step*groups + g + 1)
		group.StartVersion, group.ReadyVersion, group.Rollouts = version, version, size
		group.Samples = make([]port.Sample, size)
		for s := range group.Samples {
			id := port.RolloutID{Group: group.ID, Sample: int32(s), Attempt: 1}
			wait.Go(func() {
				group.Samples[s], errs[g*size+s] = l.environment.Play(ctx, port.RolloutRequest{ID: id}, lagSampler{l.engine, id})
			})
		}
	}
	wait.Wait()
	return batch, errors.Join(errs...)
}

// lagSampler samples one rollout.
type lagSampler struct {
	engine *engine.Engine
	id     port.RolloutID
}

// Sample implements [port.Sampler].
func (s lagSampler) Sample(ctx context.Context, r port.SampleRequest) (port.Generation, error) {
	return s.engine.Generate(ctx, port.GenerateRequest{Rollout: s.id, Prompt: r.Prompt, MaxTokens: r.MaxTokens, Check: r.Check, Sampling: r.Sampling})
}

// evaluate is the held-out accuracy of a version.
func (l *lagRun) evaluate(ctx context.Context, version loop.Version) (float64, error) {
	e, err := env.Evaluate(ctx, l.parts.Task, l.parts.Verdicts, l.parts.HeldOut, func(ctx context.Context, prompts [][]int32, tokens int) ([][]int32, error) {
		return l.engine.Greedy(ctx, version, prompts, tokens)
	})
	return e.Accuracy(), err
}

// newestWeights is a [port.Weights] in memory that keeps the newest version alone.
type newestWeights struct{ newest port.Publication }

var errNotKept = errors.New("only the newest version is kept")

// Publish implements [port.Weights].
func (w *newestWeights) Publish(_ context.Context, p port.Publication) error {
	w.newest = p
	return nil
}

// Model implements [port.Weights].
func (w *newestWeights) Model(_ context.Context, version loop.Version) ([]port.Tensor, error) {
	if version != w.newest.Version {
		return nil, fmt.Errorf("version %d: %w", version, errNotKept)
	}
	return w.newest.Model, nil
}

// Optimizer implements [port.Weights]. Version 0 has the state of an optimizer that has made
// no step, whatever its warm-up left; the trainer changes that of the others in place, so that
// there is no going back to them.
func (w *newestWeights) Optimizer(_ context.Context, version loop.Version) ([]port.Tensor, error) {
	if version != 0 || w.newest.Version != 0 {
		return nil, fmt.Errorf("the optimizer of version %d: %w", version, errNotKept)
	}
	fresh := make([]port.Tensor, len(w.newest.Optimizer))
	for i, t := range w.newest.Optimizer {
		fresh[i] = port.Tensor{Name: t.Name, Shape: t.Shape, Data: make([]float32, len(t.Data))}
	}
	return fresh, nil
}

// Committed implements [port.Weights].
func (w *newestWeights) Committed(version loop.Version) (loop.LeaseID, bool, error) {
	return w.newest.Lease, version == w.newest.Version, nil
}

// Prune implements [port.Weights].
func (w *newestWeights) Prune(loop.Version) error { return nil }
