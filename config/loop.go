package config

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/workload"
)

// The words of a document as the loop's rules. Every word the schema allows is
// in its table; a test holds them together.
var (
	policies   = map[string]loop.Policy{"drop": loop.PolicyDrop, "max": loop.PolicyMax, "block": loop.PolicyBlock}
	starts     = map[string]loop.StartOrder{"stream": loop.StartStream, "gang": loop.StartGang}
	selections = map[string]loop.Selection{"oldest": loop.SelectOldest, "newest": loop.SelectNewest, "oldest-version": loop.SelectOldestVersion}
	modes      = map[string]loop.SyncMode{"in_flight": loop.SyncInFlight, "pause": loop.SyncPause, "drain": loop.SyncDrain}
	failures   = map[string]loop.FailureRule{"drop_group": loop.DropGroup, "shrink": loop.ShrinkGroup}
)

// BatchGroups is G, the groups one train step consumes.
func (c Config) BatchGroups() int { return c.Train.Batch / c.Rollout.GroupSize }

// QueueGroups is the queue's capacity in whole groups; a factor that does not
// give whole groups is rounded down.
func (c Config) QueueGroups() int {
	if c.Queue.Capacity != 0 {
		return c.Queue.Capacity / c.Rollout.GroupSize
	}
	// A millionth of a group is below what a factor written in decimals means.
	return int(math.Floor(c.Queue.Factor*float64(c.BatchGroups()) + 1e-6))
}

// LoopConfig returns the loop's rules under a resolved Config. TrainSteps stays
// 0: a run ends by trainer.steps, a simulation by steps.
func (c Config) LoopConfig() loop.Config {
	slots := make([]int, len(c.Engines))
	for i, engine := range c.Engines {
		slots[i] = engine.Slots
	}
	rules := loop.Config{
		GroupSize:           c.Rollout.GroupSize,
		BatchGroups:         c.BatchGroups(),
		EngineSlots:         slots,
		Policy:              policies[c.Queue.Policy],
		QueueGroups:         c.QueueGroups(),
		Select:              selections[c.Queue.Select],
		MaxStaleness:        loop.Version(c.Queue.MaxStaleness),
		Abort:               c.Queue.Abort,
		Start:               starts[c.Rollout.Start],
		Sync:                modes[c.Sync.Mode],
		SyncEvery:           c.Sync.Every,
		TrainerBlocked:      c.Sync.Trainer == "blocked",
		RollingSwitch:       c.Sync.Switch == "rolling",
		FilterZeroAdvantage: c.Filter.ZeroAdvantage,
		MaxAttempts:         c.Failures.MaxAttempts,
		OnFailure:           failures[c.Failures.OnFailure],
		TrainAttempts:       c.Failures.TrainAttempts,
	}
	if c.Schedule == synchronousSchedule {
		rules.Policy = loop.PolicySynchronous
	}
	return rules
}

// LengthModel compiles the length model, reading its file if it has one. The
// error is an [Errors].
func (c Config) LengthModel() (*workload.Lengths, error) {
	lengths, err := c.Rollout.Length.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError("rollout.length", err)}
	}
	return lengths, nil
}

// ServiceModel compiles the environment's service time, reading its file if it
// has one. The error is an [Errors].
func (c Config) ServiceModel() (*workload.Service, error) {
	service, err := c.Rollout.Environment.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError("rollout.environment", err)}
	}
	return service, nil
}

// AcceptanceModel returns the filter's model. The error is an [Errors].
func (c Config) AcceptanceModel() (workload.Acceptance, error) {
	acceptance, err := workload.NewAcceptance(c.Filter.Acceptance)
	if err != nil {
		return workload.Acceptance{}, Errors{c.modelError("filter", err)}
	}
	return acceptance, nil
}

// ForSimulation returns a copy with the speeds a simulation needs: 50 tokens
// per second and slot where none is given. The train step's time has no default
// to guess: without one the error is an [Errors].
func (c Config) ForSimulation() (Config, error) {
	c = c.clone()
	if c.Rollout.DecodeTokensPerS == 0 && c.Rollout.ThroughputTokensPerS == 0 {
		c.Rollout.DecodeTokensPerS = simulatedSpeed
	}
	if c.Train.Utilization == 0 && c.Train.StepS == 0 && c.Train.ThroughputTokensPerS == 0 {
		return c, Errors{c.problem("train", "", "does not say how fast the trainer is, which a simulation needs",
			"one of utilization, step_s, throughput_tokens_per_s")}
	}
	return c, nil
}

// spec is the length model in the words of package workload.
func (l Length) spec() workload.LengthSpec {
	return workload.LengthSpec{Kind: l.Kind, MeanTokens: l.MeanTokens, Tailness: l.Tailness, Alpha: l.Alpha,
		CapTokens: l.CapTokens, File: l.File, Groups: l.Groups}
}

// spec is the service time in the words of package workload.
func (s Service) spec() workload.ServiceSpec {
	return workload.ServiceSpec{Kind: s.Kind, MeanS: s.MeanS, Tailness: s.Tailness, CapS: s.CapS, File: s.File, Groups: s.Groups}
}

// model notes what package workload refuses about a section; nil is fine.
func (v *validator) model(section string, err error) {
	if err != nil {
		v.errs = append(v.errs, v.config.modelError(section, err))
	}
}

// modelError places an error of package workload in the document.
func (c Config) modelError(section string, err error) *Error {
	var refused *workload.FieldError
	if errors.As(err, &refused) {
		placed := c.problem(join(section, refused.Field), valueText(refused.Value), "is not allowed", refused.Allowed)
		placed.Cause = err
		return placed
	}
	placed := c.problem(section, "", err.Error(), "")
	placed.Cause = err
	return placed
}

// sorted lists the keys of a table in order.
func sorted(table map[string][]string) []string { return slices.Sorted(maps.Keys(table)) }
