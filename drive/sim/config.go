package sim

import (
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

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
	// PrefillNSPerToken is the time, in nanoseconds, that an engine needs for every token a resumed rollout has before
	// it generates on. The value 0 is free, as where the KV cache is kept. A validation does not hold it up. With
	// Agents theirs holds instead.
	PrefillNSPerToken float64
	// Speed scales NSPerToken; nil for a constant speed. Prefill is not scaled.
	Speed Speed
	// Lockstep has every engine advance its rollouts by common decode steps of one
	// token each, as continuous batching does. A rollout, a switch of weights and
	// an interruption wait for the running step to end. The first token of every
	// rollout is then reported.
	Lockstep bool
	// Paced has every rollout start and generate by the times of its own that its Response names, as
	// where they were measured. Its first token is then reported. Not with Lockstep or Agents.
	Paced bool
	// StartNS is the time from a rollout's start until its engine takes it up. Agents have none.
	StartNS int64
	// SyncNS is the time a weight sync takes: engines generate through it in flight, and
	// stand still through it under pause, drain and restart.
	SyncNS int64
	// LoadNS is the part of a sync before that, through which engines generate in every
	// mode (under drain, the rollouts they have).
	LoadNS int64
	// SyncTimes, if not nil, returns the LoadNS and SyncNS of the sync that brings a version.
	SyncTimes func(v loop.Version) (loadNS, syncNS int64)
	// AskNS is the time until a trainer which asks for its batches (loop.Config.TrainerAsks) asks. It counts from the
	// start of the run for the first batch, and from the end of each train step for the next.
	AskNS int64
	// LateNS is by how much later it asks for the first: a trainer that is started after the engines.
	LateNS int64
	// PruneTokens is the length at which a longer rollout is pruned; 0 prunes nothing.
	PruneTokens int32
	// DriftPerVersion is the mean absolute log-ratio, in nats, that a trained
	// group is measured to have per version of lag. DriftSpread is the standard
	// deviation of the logarithm of the groups' own factor, lognormal with mean 1.
	// A group is measured at every train step, and only under loop.EvictDrift:
	// drift = lag · DriftPerVersion · factor.
	DriftPerVersion, DriftSpread float64
	// EngineSpeed is each engine's speed, relative to that of NSPerToken, by which Speed and prefill at the
	// engine are multiplied; nil for 1 everywhere.
	EngineSpeed []float64
	// Agents models what rollouts do beside generating and the environment's time; nil for nothing.
	Agents *Agents
	// Faults are what goes wrong; the zero value is nothing.
	Faults Faults
	// EngineStartNS is the time from AcquireEngine until the engine is there, with no weights.
	EngineStartNS int64
	// Validation is the evaluation of the policy during the run; the zero value is none.
	Validation Validation
	// CapTokens is the length at which the workload cuts responses, 0 for no count of those that were.
	CapTokens int32
	// Warmup and Measured are train steps before and in the window that is reported.
	Warmup, Measured int
	// TokenVersions has Beside told which version sampled which tokens (metrics.Measured.ByVersion);
	// a goal that counts tokens turns it on.
	TokenVersions bool
	// Observe, if not nil, is called for every event with what followed from it,
	// which is valid during the call. GenerateNS and EnvironmentNS split a scored
	// rollout's time; neither counts the time it stood interrupted.
	Observe func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action)
	// Beside, if not nil, observes beside the simulation's recorder, after it.
	Beside metrics.Beside
	// Stepped, if not nil, is called after every train step with the version it made. It costs
	// nothing between two steps, as Observe does at every event.
	Stepped func(made loop.Version)
	// Steer, if not nil, moves settings that Loop.Control gives ranges. PollNS is how often it is asked beside train
	// steps, in virtual time, and shown the engines; 0 for never.
	Steer  Steer
	PollNS int64
	// Stop, if not nil, is asked before every event: an error ends the simulation, and is what Run returns.
	Stop func() error
}

// stopped asks Stop.
func (c *Config) stopped() error {
	if c.Stop == nil {
		return nil
	}
	return c.Stop()
}

// Validate reports what cannot be simulated.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sim: "+format, args...)) }
	if err := c.Loop.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Work == nil {
		bad("Work is missing")
	}
	if m, ok := c.Work.(interface{ check(loop.Config) error }); ok {
		if err := m.check(c.Loop); err != nil {
			errs = append(errs, err)
		}
	}
	if !(c.NSPerToken > 0) || math.IsInf(c.NSPerToken, 0) {
		bad("NSPerToken is %g, want a positive number of nanoseconds", c.NSPerToken)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"PrefillNSPerToken", c.PrefillNSPerToken}, {"DriftPerVersion", c.DriftPerVersion}, {"DriftSpread", c.DriftSpread}} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			bad("%s is %g, want a finite number of at least 0", f.name, f.value)
		}
	}
	if c.SyncNS < 0 || c.LoadNS < 0 || c.StartNS < 0 || c.EngineStartNS < 0 {
		bad("SyncNS is %d, LoadNS %d, StartNS %d and EngineStartNS %d, want at least 0", c.SyncNS, c.LoadNS, c.StartNS, c.EngineStartNS)
	}
	if c.PollNS < 0 || c.Steer != nil && c.Loop.Control == nil {
		bad("PollNS is %d and Steer needs Loop.Control with ranges, want at least 0, and ranges of what is steered", c.PollNS)
	}
	if c.PruneTokens < 0 {
		bad("PruneTokens is %d, want a length in tokens, or 0 to prune nothing", c.PruneTokens)
	}
	if c.EngineSpeed != nil && len(c.EngineSpeed) != len(c.Loop.EngineSlots) {
		bad("EngineSpeed has %d speeds for %d engines", len(c.EngineSpeed), len(c.Loop.EngineSlots))
	}
	for i, speed := range c.EngineSpeed {
		if !(speed > 0) || math.IsInf(speed, 0) {
			bad("EngineSpeed[%d] is %g, want a positive number", i, speed)
		}
	}
	if c.Paced && (c.Lockstep || c.Agents != nil) {
		bad("Paced goes neither with Lockstep nor with Agents")
	}
	if c.Agents != nil {
		c.Agents.validate(&c, bad)
	}
	c.Faults.validate(&c, bad)
	c.Validation.validate(bad)
	if c.Warmup < 0 || c.Measured < 1 {
		bad("%d warm-up and %d measured steps, want at least 0 and 1", c.Warmup, c.Measured)
	}
	return errors.Join(errs...)
}

// merged reports whether the end of a whole rollout is known when it starts: no
// engine changes its speed, stands still or is interrupted.
func (c *Config) merged() bool {
	return c.NSPerToken >= 1 && c.Agents == nil && c.EngineSpeed == nil && c.Faults.none() && !c.elastic() && (c.Validation.Every == 0 || c.Validation.Trainer) &&
		c.Speed == nil && !c.Lockstep && !c.Paced && c.StartNS == 0 && !c.Loop.InterruptAtBatch &&
		(c.Loop.Sync == loop.SyncInFlight || c.SyncNS == 0 && c.SyncTimes == nil && c.Loop.Sync != loop.SyncRestart)
}

// relative is the speed of an engine relative to the others.
func (c *Config) relative(engine int) float64 {
	if c.EngineSpeed == nil {
		return 1
	}
	return c.EngineSpeed[engine]
}

// syncTimes are the LoadNS and SyncNS of the sync that brings a version.
func (c *Config) syncTimes(v loop.Version) (loadNS, syncNS int64) {
	if c.SyncTimes == nil {
		return c.LoadNS, c.SyncNS
	}
	return c.SyncTimes(v)
}

// countsTokens reports whether the loop is to be told which version sampled which tokens.
func (c *Config) countsTokens() bool { return c.Loop.Control != nil && c.Loop.Control.Tokens }
