package sim

import (
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/workload"
)

// Work says how much there is to do, as a function of identity alone.
type Work interface {
	// Rollout returns an attempt's response length in tokens, and the environment's time after it in nanoseconds.
	Rollout(group loop.GroupID, sample, attempt int32) (tokens int32, environmentNS int64)
	// Reject reports whether the group's rollouts teach nothing.
	Reject(group loop.GroupID) bool
	// StepNS returns how long the train step with this lease takes on so many tokens, in nanoseconds.
	StepNS(lease loop.LeaseID, rollouts, tokens int64) int64
}

// Speed is an engine's decode speed relative to Config.NSPerToken, by how many
// slots are generating and whether a train step runs. Nil means always 1.
type Speed func(active int, trainerBusy bool) float64

// Config is one simulation.
type Config struct {
	// Loop holds the rules. TrainSteps is set by Run to Warmup+Measured.
	Loop loop.Config
	// Work is the workload.
	Work Work
	// NSPerToken is the time of one token in one slot, in nanoseconds, at speed 1. Above 0.
	NSPerToken float64
	// Speed scales it; nil for a constant speed.
	Speed Speed
	// Lockstep has every engine advance its rollouts by common decode steps of one token
	// each, as continuous batching does: a rollout, and a switch of weights, waits for
	// the running step to end. The first token of every rollout is then reported.
	Lockstep bool
	// StartNS is the time from a rollout's start until its engine takes it up.
	StartNS int64
	// SyncNS is the time a weight sync takes: engines generate through it in flight, and
	// stand still through it under pause and drain.
	SyncNS int64
	// LoadNS is the part of a sync before that, through which engines generate in every
	// mode (under drain, the rollouts they have).
	LoadNS int64
	// Warmup and Measured are train steps before and in the window that is reported.
	Warmup, Measured int
	// Observe, if not nil, is called for every event with what followed from it, which is
	// valid during the call. GenerateNS and EnvironmentNS split a scored rollout's time.
	Observe func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action)
}

// Validate reports what cannot be simulated.
func (c Config) Validate() error {
	var errs []error
	if err := c.Loop.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Work == nil {
		errs = append(errs, errors.New("sim: Work is missing"))
	}
	if !(c.NSPerToken > 0) || math.IsInf(c.NSPerToken, 0) {
		errs = append(errs, fmt.Errorf("sim: NSPerToken is %g, want a positive number of nanoseconds", c.NSPerToken))
	}
	if c.SyncNS < 0 || c.LoadNS < 0 || c.StartNS < 0 {
		errs = append(errs, fmt.Errorf("sim: SyncNS is %d, LoadNS %d and StartNS %d, want at least 0", c.SyncNS, c.LoadNS, c.StartNS))
	}
	if c.Warmup < 0 || c.Measured < 1 {
		errs = append(errs, fmt.Errorf("sim: %d warm-up and %d measured steps, want at least 0 and 1", c.Warmup, c.Measured))
	}
	return errors.Join(errs...)
}

// Modelled is the workload of package workload's models with a train step of constant length.
type Modelled struct {
	lengths    *workload.Lengths
	service    *workload.Service
	acceptance workload.Acceptance
	stepNS     int64
	length     workload.Source
	env        workload.Source
	accept     workload.Source
	noService  bool
	acceptAll  bool
}

// NewModelled returns the workload; stepNS is the time of every train step. A nil
// service takes no time.
func NewModelled(seed uint64, lengths *workload.Lengths, service *workload.Service, acceptance workload.Acceptance, stepNS int64) *Modelled {
	return &Modelled{
		lengths: lengths, service: service, acceptance: acceptance, stepNS: stepNS,
		length:    workload.NewSource(seed, workload.StreamLength),
		env:       workload.NewSource(seed, workload.StreamEnvironment),
		accept:    workload.NewSource(seed, workload.StreamAcceptance),
		noService: service == nil || service.Zero(),
		acceptAll: acceptance.Rate() >= 1,
	}
}

// Rollout implements Work.
func (m *Modelled) Rollout(group loop.GroupID, sample, attempt int32) (int32, int64) {
	g, k, a := uint64(group), uint32(sample), uint32(attempt)
	tokens := int32(m.lengths.Draw(m.length, g, k, a))
	if m.noService {
		return tokens, 0
	}
	return tokens, m.service.Draw(m.env, g, k, a)
}

// Reject implements Work.
func (m *Modelled) Reject(group loop.GroupID) bool {
	return !m.acceptAll && !m.acceptance.Accept(m.accept, uint64(group))
}

// StepNS implements Work.
func (m *Modelled) StepNS(loop.LeaseID, int64, int64) int64 { return m.stepNS }
