package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/grpo"
	"github.com/headway-rl/headway/train/sequence"
)

// Options of a trainer.
type Options struct {
	// Model is the policy's shape, complete (WithDefaults).
	Model transformer.Config
	// PromptTokens is the longest prompt: shorter ones begin at a later position, so
	// that the response always begins at this one.
	PromptTokens int
	// Seed of the initial weights.
	Seed uint64
	// LearningRate of Adam, above 0. GradientNorm bounds the gradient's norm; 0 means no bound.
	LearningRate, GradientNorm float64
	// ClipEpsilon bounds the importance ratio to 1 ± epsilon, above 0, where Correction
	// has no band of its own.
	ClipEpsilon float64
	// Correction says what is done about tokens that another version sampled. Zero is PPO's clip.
	Correction grpo.Correction
	// Minibatches divides the groups of a batch over that many optimizer steps; 0
	// means 1. With one, the policy being trained is the proximal one at every token: clipping
	// acts on staleness alone and decoupled PPO never clips. With more, the proximal
	// log-probs are computed once at the step's start.
	Minibatches int
	// ShuffleMinibatches draws the groups of each minibatch by the seed and the
	// version, where otherwise they come in the order of the batch.
	ShuffleMinibatches bool
	// NormalizeStd divides advantages by the standard deviation of their group's rewards.
	NormalizeStd bool
	// KeepLogRatios, if not nil, says of a version whether the report of the step that starts from it has
	// every token's log-ratio.
	KeepLogRatios func(loop.Version) bool
	// Threads share a step's work; 0 means 1.
	Threads int
	// StepS is the least time of a step in seconds: a faster one waits for it. 0 for none.
	StepS float64
	// StepFactor, if not nil, multiplies StepS by the version that a step starts from.
	StepFactor func(loop.Version) float64
	// Weights is where versions are published.
	Weights port.Weights
	// WarmupSteps supervised steps make version 0 from Demonstrations, before any rollout. 0 for none.
	WarmupSteps int
	// Demonstrations returns the problems of a supervised step: prompts with right answers.
	Demonstrations func(step int) []Demonstration
}

// Demonstration is a prompt with a right response, the end token included.
type Demonstration struct {
	Prompt, Answer []int32
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	if err := o.Model.Validate(); err != nil {
		return err
	}
	switch {
	case !(o.LearningRate > 0):
		return fmt.Errorf("trainer: learning rate is %g, want above 0", o.LearningRate)
	case !(o.ClipEpsilon > 0 && o.ClipEpsilon < 1):
		return fmt.Errorf("trainer: clip epsilon is %g, want between 0 and 1", o.ClipEpsilon)
	case o.GradientNorm < 0 || o.StepS < 0 || o.Threads < 0 || o.WarmupSteps < 0 || o.Minibatches < 0:
		return errors.New("trainer: gradient norm, step time, threads, warm-up steps and minibatches must not be negative")
	case o.PromptTokens < 1 || o.PromptTokens >= o.Model.Context:
		return fmt.Errorf("trainer: prompts of %d tokens leave no room in a context of %d", o.PromptTokens, o.Model.Context)
	case o.Weights == nil:
		return errors.New("trainer: Weights is missing")
	case o.WarmupSteps > 0 && o.Demonstrations == nil:
		return errors.New("trainer: a warm-up needs demonstrations")
	}
	if err := o.Correction.Validate(); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	return nil
}

// correction is Correction, complete, with ClipEpsilon as its band if it has none.
func (o Options) correction() grpo.Correction {
	c := o.Correction
	c.EpsilonLow = cmp.Or(c.EpsilonLow, o.ClipEpsilon)
	return c.WithDefaults()
}

// Trainer implements port.Trainer and port.Paced. Its methods are called from one goroutine at a time.
type Trainer struct {
	opt        Options
	correction grpo.Correction
	version    loop.Version
	current    *transformer.Parameters
	adam       *transformer.Adam
	grad       []float32
	shards     []*shard
	reporter   sequence.Reporter
	pacer      port.Pacer
}

var (
	_ port.Trainer = (*Trainer)(nil)
	_ port.Paced   = (*Trainer)(nil)
)

// New returns a trainer without weights: Initialize or Restore comes first.
func New(opt Options) (*Trainer, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	t := &Trainer{opt: opt, correction: opt.correction(), version: loop.NoVersion, grad: make([]float32, opt.Model.ParameterCount())}
	t.adam = transformer.NewAdam(len(t.grad), float32(opt.LearningRate))
	t.adam.ClipNorm = float32(opt.GradientNorm)
	for range max(opt.Threads, 1) {
		pass, err := transformer.NewPass(opt.Model)
		if err != nil {
			return nil, err
		}
		t.shards = append(t.shards, &shard{pass: pass, grad: make([]float32, len(t.grad))})
	}
	return t, nil
}

// Initialize implements port.Trainer: fresh weights, the supervised warm-up if
// there is one, version 0 published.
func (t *Trainer) Initialize(ctx context.Context) error {
	w, err := transformer.NewParameters(t.opt.Model, t.opt.Seed)
	if err != nil {
		return err
	}
	t.current, t.version = w, 0
	for step := range t.opt.WarmupSteps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.imitate(t.opt.Demonstrations(step)); err != nil {
			return fmt.Errorf("trainer: supervised step %d: %w", step, err)
		}
	}
	return t.publish(ctx, 0)
}

// Train implements port.Trainer.
func (t *Trainer) Train(ctx context.Context, batch port.Batch) (port.StepReport, error) {
	began := time.Now()
	if t.current == nil || batch.Version != t.version {
		return port.StepReport{}, fmt.Errorf("trainer: the batch starts from version %d, the trainer is at %d", batch.Version, t.version)
	}
	report, err := t.step(ctx, batch)
	if err != nil {
		return report, err
	}
	if err := t.publish(ctx, batch.Lease); err != nil {
		// Another attempt must start from the version that is published.
		return report, errors.Join(err, t.Restore(context.WithoutCancel(ctx), t.version, 0))
	}
	return report, t.wait(ctx, began, t.least(batch.Version))
}

// TakePace implements [port.Paced]: of train steps, none without StepS.
func (t *Trainer) TakePace() port.Pace { return t.pacer.Take() }

// least is the least time of the step from a version, 0 for none.
func (t *Trainer) least(from loop.Version) time.Duration {
	factor := 1.0
	if t.opt.StepFactor != nil {
		factor = t.opt.StepFactor(from)
	}
	return time.Duration(t.opt.StepS * factor * float64(time.Second))
}

// wait returns when the least time of a step has passed. A trainer rests between its steps, so that
// one which took longer is not made up for.
func (t *Trainer) wait(ctx context.Context, began time.Time, least time.Duration) error {
	if least <= 0 {
		return nil
	}
	left := t.pacer.Step(began, time.Now(), least)
	t.pacer.Rest()
	if left <= 0 {
		return nil
	}
	return pause.For(ctx, left)
}

// publish publishes the current weights as the version after the last, or as version 0.
func (t *Trainer) publish(ctx context.Context, lease loop.LeaseID) error {
	next := t.version
	if lease != 0 {
		next++
	}
	mean, variance, steps := t.adam.State()
	p := port.Publication{Version: next, Lease: lease, Optimizer: []port.Tensor{
		{Name: "adam.mean", Shape: []int{len(mean)}, Data: mean},
		{Name: "adam.variance", Shape: []int{len(variance)}, Data: variance},
		{Name: "adam.steps", Shape: []int{2}, Data: []float32{float32(steps >> 16), float32(steps & 0xffff)}},
	}}
	p.Model = weights.Tensors(t.current)
	if err := t.opt.Weights.Publish(ctx, p); err != nil {
		return err
	}
	t.version = next
	return nil
}

// Restore implements port.Trainer.
func (t *Trainer) Restore(ctx context.Context, version loop.Version, _ loop.LeaseID) error {
	model, err := t.opt.Weights.Model(ctx, version)
	if err != nil {
		return err
	}
	w, err := weights.Parameters(t.opt.Model, model)
	if err != nil {
		return fmt.Errorf("trainer: version %d: %w", version, err)
	}
	optimizer, err := t.opt.Weights.Optimizer(ctx, version)
	if err != nil {
		return err
	}
	state := make(map[string][]float32)
	for _, tensor := range optimizer {
		state[tensor.Name] = tensor.Data
	}
	steps := state["adam.steps"]
	if len(steps) != 2 {
		return fmt.Errorf("trainer: version %d has no optimizer state: want adam.mean, adam.variance and adam.steps", version)
	}
	if err := t.adam.Restore(state["adam.mean"], state["adam.variance"], int(steps[0])<<16|int(steps[1])); err != nil {
		return fmt.Errorf("trainer: version %d: %w", version, err)
	}
	t.current, t.version = w, version
	return nil
}

// Close implements port.Trainer.
func (t *Trainer) Close() error { return nil }
