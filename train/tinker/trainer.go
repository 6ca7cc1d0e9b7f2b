package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
	"github.com/headway-rl/headway/train/sequence"
)

// Options of a trainer.
type Options struct {
	// Session at the service, Model the adapter to train there.
	Session *service.Session
	Model   service.ModelOptions
	// Versions is the record of the states that the service has saved.
	Versions *Versions
	// Run begins the names under which versions are saved at the service: letters, digits, - and _ alone.
	Run string
	// Seed draws minibatches.
	Seed uint64
	// LearningRate of Adam, above 0. GradientNorm bounds the gradient's norm, where the service does so; 0 means no bound.
	LearningRate, GradientNorm float64
	// ClipEpsilon bounds the importance ratio to 1 ± epsilon, above 0, where Correction has no band of its own.
	ClipEpsilon float64
	// Correction says what is done about tokens that another version sampled. Zero is PPO's clip.
	Correction grpo.Correction
	// NormalizeStd divides advantages by the standard deviation of their group's rewards.
	NormalizeStd bool
	// ShuffleMinibatches draws the groups of each minibatch by the seed and the version, where otherwise they
	// come in the order of the batch.
	ShuffleMinibatches bool
	// Minibatches divides the groups of a batch over that many optimizer steps; 0 means 1. With more than one the
	// log-probs that the step begins with are asked for once, before the first.
	Minibatches int
	// KeepLogRatios, if not nil, says of a version whether the report of the step that starts from it has
	// every token's log-ratio.
	KeepLogRatios func(loop.Version) bool
	// Logf is told of repeated tries; nil tells no one.
	Logf func(format string, args ...any)
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	switch {
	case o.Model.Base == "":
		return errors.New("trainer: the base model has no name: set it to one that the service serves")
	case o.Model.Rank < 1:
		return fmt.Errorf("trainer: the adapter's rank is %d, want at least 1", o.Model.Rank)
	case o.Versions == nil:
		return errors.New("trainer: Versions is missing")
	case !isName(o.Run):
		return fmt.Errorf("trainer: the run is called %q at the service, want 1 to 64 letters, digits, - and _", o.Run)
	case !(o.LearningRate > 0) || math.IsInf(o.LearningRate, 1):
		return fmt.Errorf("trainer: learning rate is %g, want above 0 and finite", o.LearningRate)
	case !(o.ClipEpsilon > 0 && o.ClipEpsilon < 1):
		return fmt.Errorf("trainer: clip epsilon is %g, want between 0 and 1", o.ClipEpsilon)
	case !(o.GradientNorm >= 0) || o.Minibatches < 0:
		return errors.New("trainer: gradient norm and minibatches must not be negative")
	}
	if err := o.Correction.Validate(); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	return nil
}

// isName reports whether every service takes a name that begins so.
func isName(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// model is what the trainer asks of an adapter at the service, see [service.Model].
type model interface {
	Forward(ctx context.Context, data []service.Datum, loss service.Loss) (service.Output, error)
	ForwardBackward(ctx context.Context, data []service.Datum, loss service.Loss) (service.Output, error)
	OptimStep(ctx context.Context, adam service.Adam) (map[string]float64, error)
	SaveState(ctx context.Context, name string) (path string, err error)
	SaveSampler(ctx context.Context, name string) (path string, err error)
	LoadState(ctx context.Context, path string) error
	Unload(ctx context.Context) error
}

// Trainer implements port.Trainer. Its methods are called from one goroutine at a time.
type Trainer struct {
	opt        Options
	correction grpo.Correction
	newModel   func(ctx context.Context) (model, error)
	// model has the weights and the optimizer of version, no gradient beside; nil where that is not known.
	model   model
	version loop.Version
	// saved is what the service has saved and is not recorded, with the model at it; nil for none.
	saved    *saved
	reporter sequence.Reporter
	tally    sequence.Tally
	// averages: the service is SkyRL, whose own backend divides a datum's loss by the sum of its weights.
	averages bool
}

// saved is a version at the service.
type saved struct {
	version        loop.Version
	lease          loop.LeaseID
	sampler, state string
	report         port.StepReport
}

var _ port.Trainer = (*Trainer)(nil)

// New returns a trainer without a model: Initialize or Restore comes first.
func New(o Options) (*Trainer, error) {
	if o.Session == nil {
		return nil, errors.New("trainer: Session is missing")
	}
	return newTrainer(o, func(ctx context.Context) (model, error) {
		if err := o.Session.ClearPlace(ctx, o.Model); err != nil {
			return nil, err
		}
		m, err := o.Session.NewModel(ctx, o.Model)
		if err != nil {
			return nil, err // and no model, which a nil *service.Model would be
		}
		return m, nil
	})
}

func newTrainer(o Options, newModel func(ctx context.Context) (model, error)) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	t := &Trainer{opt: o, newModel: newModel, version: loop.NoVersion, correction: o.Correction}
	t.correction.EpsilonLow = cmp.Or(t.correction.EpsilonLow, o.ClipEpsilon)
	t.correction = t.correction.WithDefaults()
	return t, nil
}

// Initialize implements port.Trainer: a fresh adapter, saved as version 0.
func (t *Trainer) Initialize(ctx context.Context) error {
	t.forget()
	m, err := t.newModel(ctx)
	if err != nil {
		return fmt.Errorf("trainer: making an adapter of %s: %w", t.opt.Model.Base, err)
	}
	t.model = m
	if err := t.save(ctx, 0, 0, port.StepReport{}); err != nil {
		return err
	}
	return t.record()
}

// Restore implements port.Trainer. The model that goes on from the version saves the state that the version is sampled
// from anew. There are services (SkyRL's own backend) that sample only from states saved by a model that they still
// hold. The model that saved it before may be of a process that has ended.
func (t *Trainer) Restore(ctx context.Context, version loop.Version, _ loop.LeaseID) error {
	path, err := t.opt.Versions.statePath(version)
	if err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	if t.model != nil && t.saved == nil && t.version == version {
		return nil
	}
	t.forget()
	m, err := t.newModel(ctx)
	if err == nil {
		err = m.LoadState(ctx, path)
	}
	sampler := ""
	if err == nil {
		sampler, err = t.saveAs(ctx, version, m.SaveSampler)
	}
	if err == nil {
		err = t.opt.Versions.sampleFrom(version, sampler)
	}
	if err != nil {
		if m != nil {
			t.unload(ctx, m)
		}
		return fmt.Errorf("trainer: restoring version %d from %s: %w", version, path, err)
	}
	t.model, t.version = m, version
	return nil
}

// unloadTime is how long a service is tried to be told that a model is not wanted.
const unloadTime = 10 * time.Second

// unload gives the place of a model back that has saved nothing which anybody samples from: services may have few.
func (t *Trainer) unload(ctx context.Context, m model) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unloadTime)
	defer cancel()
	if err := m.Unload(ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.opt.Logf("trainer: an adapter that could not be restored stays at the service until the session ends: %v", err)
	}
}

// Close implements port.Trainer: the service frees by itself all that it holds.
func (t *Trainer) Close() error {
	t.forget()
	return nil
}

// forget gives up the model, whose weights, gradients or optimizer are not known any more, or not wanted.
func (t *Trainer) forget() { t.model, t.saved = nil, nil }

// Train implements port.Trainer. After any failure at the service, the next attempt starts from the version that the
// batch starts from.
func (t *Trainer) Train(ctx context.Context, batch port.Batch) (port.StepReport, error) {
	if batch.Version != t.version {
		return port.StepReport{}, fmt.Errorf("trainer: the batch starts from version %d, the trainer is at %d", batch.Version, t.version)
	}
	if s := t.saved; s != nil && s.version == batch.Version+1 && s.lease == batch.Lease {
		return s.report, t.record() // the step has been made, and there was no room to say so
	}
	if t.saved != nil {
		t.forget()
	}
	step, err := t.prepare(batch)
	if err != nil {
		return port.StepReport{}, err
	}
	if t.model == nil {
		if err := t.Restore(ctx, t.version, 0); err != nil {
			return port.StepReport{}, err
		}
	}
	report, err := t.run(ctx, step)
	if err == nil {
		err = t.save(ctx, batch.Version+1, batch.Lease, report)
	}
	if err != nil {
		t.forget()
		return report, fmt.Errorf("trainer: step from version %d: %w", batch.Version, err)
	}
	return report, t.record()
}

// nameTries is how many names a version is tried to be saved under.
const nameTries = 4

// save has the service save the model as a version.
func (t *Trainer) save(ctx context.Context, version loop.Version, lease loop.LeaseID, report port.StepReport) error {
	sampler, err := t.saveAs(ctx, version, t.model.SaveSampler)
	if err != nil {
		return fmt.Errorf("saving version %d to sample from: %w", version, err)
	}
	state, err := t.saveAs(ctx, version, t.model.SaveState)
	if err != nil {
		return fmt.Errorf("saving the state of version %d: %w", version, err)
	}
	t.saved = &saved{version: version, lease: lease, sampler: sampler, state: state, report: report}
	return nil
}

// saveAs saves under the version's name. One that is taken is of an attempt whose answer was lost, or of another
// process: it may hold anything, and so the next name is taken.
func (t *Trainer) saveAs(ctx context.Context, version loop.Version, save func(context.Context, string) (string, error)) (path string, err error) {
	name := fmt.Sprintf("%s-v%06d", t.opt.Run, version)
	for try := 1; try <= nameTries; try++ {
		as := name
		if try > 1 {
			as = fmt.Sprintf("%s-%d", name, try)
		}
		path, err = save(ctx, as)
		if err == nil && path == "" {
			return "", fmt.Errorf("the service names no path of what it has saved as %s", as)
		}
		if err == nil || !errors.Is(err, service.ErrRefused) || errors.Is(err, service.ErrBroken) {
			return path, err
		}
		t.opt.Logf("trainer: saving %s: %v", as, err)
	}
	return "", err
}

// record says durably what has been saved: from then on it is the trainer's version.
func (t *Trainer) record() error {
	s := t.saved
	err := t.opt.Versions.record(s.version, s.lease, s.sampler, s.state)
	if errors.Is(err, ErrConflict) {
		t.forget() // it will never be
	}
	if err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	t.version, t.saved = s.version, nil
	return nil
}
