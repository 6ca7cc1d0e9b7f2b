package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// The words of a document as the loop's rules. Every word the schema allows is
// in its table; a test holds them together.
var (
	policies = map[string]loop.Policy{"drop": loop.PolicyDrop, "max": loop.PolicyMax, "block": loop.PolicyBlock,
		"bounded": loop.PolicyBounded, "threshold": loop.PolicyThreshold, "replay": loop.PolicyReplay}
	starts     = map[string]loop.StartOrder{"stream": loop.StartStream, "gang": loop.StartGang}
	placements = map[string]loop.Placement{"least_loaded": loop.PlaceLeastLoaded, "cache_aware": loop.PlaceCacheAware}
	selections = map[string]loop.Selection{"oldest": loop.SelectOldest, "newest": loop.SelectNewest, "oldest-version": loop.SelectOldestVersion, "fresh": loop.SelectFresh}
	modes      = map[string]loop.SyncMode{"in_flight": loop.SyncInFlight, "pause": loop.SyncPause, "restart": loop.SyncRestart, "drain": loop.SyncDrain}
	failures   = map[string]loop.FailureRule{"drop_group": loop.DropGroup, "shrink": loop.ShrinkGroup}
	evictions  = map[string]loop.Eviction{"version": loop.EvictOldestVersion, "drift": loop.EvictDrift}
)

// groupEpsilon is below what a number of batches written in decimals means, in groups.
const groupEpsilon = 1e-6

// Nanoseconds is a time of a document, in seconds, as whole nanoseconds.
func Nanoseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }

// BatchGroups is G, the groups one train step consumes.
func (c Config) BatchGroups() int { return c.Train.Batch / c.Rollout.GroupSize }

// ExtraGroups are the groups opened beside a batch's under schedule synchronous;
// an oversample that does not give whole groups is rounded down.
func (c Config) ExtraGroups() int {
	return int(math.Floor(c.Rollout.Oversample*float64(c.BatchGroups())+groupEpsilon)) - c.BatchGroups()
}

// QueueGroups is the queue's capacity in whole groups; a factor that does not
// give whole groups is rounded down. Under bounded and threshold it is by
// default what they admit.
func (c Config) QueueGroups() int {
	switch {
	case c.Schedule == synchronousSchedule:
		return c.BatchGroups() + c.ExtraGroups()
	case c.Queue.Capacity != 0:
		return c.Queue.Capacity / c.Rollout.GroupSize
	case c.Queue.Factor != 0:
		return int(math.Floor(c.Queue.Factor*float64(c.BatchGroups()) + groupEpsilon))
	}
	return max(c.admission().LiveGroupsMax(), c.BatchGroups())
}

// admission is the part of the rules that says how many groups may be live.
func (c Config) admission() loop.Config {
	return loop.Config{BatchGroups: c.BatchGroups(), SyncEvery: c.Sync.Every, Policy: policies[c.Queue.Policy],
		Eta: c.Queue.Eta, StalenessThreshold: c.Queue.StalenessThreshold}
}

// LoopConfig returns the loop's rules under a resolved Config. TrainSteps stays
// 0: a run ends by trainer.steps, a simulation by steps.
func (c Config) LoopConfig() loop.Config {
	slots := make([]int, len(c.Engines))
	for i, engine := range c.Engines {
		slots[i] = engine.Slots
	}
	rules := c.admission()
	rules.GroupSize = c.Rollout.GroupSize
	rules.EngineSlots, rules.EngineCells = slots, c.engineCells()
	rules.StaysInCell = rules.EngineCells != nil // tools, sandboxes and sessions of a rollout are there
	rules.QueueGroups = c.QueueGroups()
	rules.Select = selections[c.Queue.Select]
	rules.MaxStaleness = loop.Version(c.Queue.MaxStaleness)
	rules.Abort = c.Queue.Abort
	rules.Start, rules.Placement = starts[c.Rollout.Start], placements[c.Rollout.Placement]
	rules.Sync = modes[c.Sync.Mode]
	rules.TrainerBlocked = c.Sync.Trainer == "blocked"
	rules.RollingSwitch = c.Sync.Switch == "rolling"
	rules.MaxUses = c.Queue.MaxUses
	rules.Gamma = c.Queue.Gamma
	rules.Balance = c.Queue.Balance
	rules.Evict = evictions[c.Queue.Evict]
	rules.Seed = c.Seed
	rules.PauseGroups = int(math.Floor(c.Queue.PauseAt*float64(c.BatchGroups()) + groupEpsilon))
	rules.Hold, rules.HoldAdaptive, rules.HoldCost = c.Queue.Hold, c.Queue.HoldAdaptive, c.Queue.HoldCost
	rules.MaxAttempts = c.Failures.MaxAttempts
	rules.OnFailure, rules.GroupMin = failures[c.Failures.OnFailure], c.Failures.GroupMin
	rules.ResumeLost = c.Failures.OnEngineLoss == "resume"
	rules.TrainAttempts = c.Failures.TrainAttempts
	if c.Schedule == synchronousSchedule {
		rules.Policy = loop.PolicySynchronous
		rules.ExtraGroups = c.ExtraGroups()
	}
	c.shape(&rules)
	if rules.Control = c.control(); rules.Control != nil {
		if rules.Control.Ranges[loop.SettingEngines].Moves() {
			rules.EnginesStart = c.Fleet.Start
		}
		for _, r := range c.ControlRanges() {
			switch r.Setting {
			case loop.SettingHold:
				rules.Hold = r.Start
			case loop.SettingSyncEvery:
				rules.SyncEvery = int(r.Start)
			}
		}
	}
	return rules
}

// shape sets the rules of what enters and leaves the queue.
func (c Config) shape(rules *loop.Config) {
	rules.InterruptAtBatch = c.Rollout.Partial.Interrupt == "batch"
	rules.MaxSpans = c.Rollout.Partial.MaxSpans
	rules.Redundancy = c.Rollout.Redundancy
	rules.FilterZeroAdvantage = c.Filter.ZeroAdvantage
	rules.FilterSolveRate = c.Filter.SolveRate.Drop
	rules.Levels = c.Filter.Curriculum.Levels
	rules.Explore = c.Filter.Curriculum.Explore
	rules.Prompts = c.Prompts.Count
	rules.Requeue = c.Prompts.Requeue
	if rules.FilterSolveRate || rules.Levels > 0 {
		rules.SolveLow, rules.SolveHigh = c.Filter.SolveRate.Low, c.Filter.SolveRate.High
	}
}

// LengthModel compiles the length model, reading its file if it has one. The
// error is an [Errors].
func (c Config) LengthModel() (*workload.Lengths, error) {
	if c.Modelled.Sessions != "" {
		recorded, err := c.SessionsModel()
		if err != nil {
			return nil, err
		}
		return recorded.Lengths(), nil
	}
	lengths, err := c.Modelled.Length.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError("modelled.length", err)}
	}
	return lengths, nil
}

// PromptModel returns the model of how long prompts make their responses. The error is an [Errors].
func (c Config) PromptModel() (workload.PromptScale, error) {
	scale, err := workload.NewPromptScale(c.Modelled.Length.PromptSigma, c.Modelled.Length.CapTokens)
	if err != nil {
		return scale, Errors{c.modelError("modelled.length", err)}
	}
	return scale, nil
}

// EnvironmentTimes compiles the environment's time in a simulation, reading its file if it
// has one. The error is an [Errors].
func (c Config) EnvironmentTimes() (*workload.Times, error) {
	return c.times("modelled.environment", c.Modelled.Environment)
}

// RunEnvironmentTimes compiles the time that a run's embedded environment really waits, as
// EnvironmentTimes does.
func (c Config) RunEnvironmentTimes() (*workload.Times, error) {
	return c.times("environment.service_time", c.Environment.ServiceTime)
}

// SolveModel compiles the model of rewards. The error is an [Errors].
func (c Config) SolveModel() (*workload.Solve, error) {
	solve, err := c.Modelled.Solve.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError("modelled.solve", err)}
	}
	return solve, nil
}

// AcceptanceModel returns the filter's model. The error is an [Errors].
func (c Config) AcceptanceModel() (workload.Acceptance, error) {
	acceptance, err := workload.NewAcceptance(c.Modelled.Filter.Acceptance)
	if err != nil {
		return workload.Acceptance{}, Errors{c.modelError("modelled.filter", err)}
	}
	return acceptance, nil
}

// ForSimulation returns a copy with the speeds a simulation needs: 50 tokens
// per second and slot where none is given. The train step's time has no default
// to guess: without one the error is an [Errors].
func (c Config) ForSimulation() (Config, error) {
	c = c.clone()
	if c.Modelled.DecodeTokensPerS == 0 && c.Modelled.ThroughputTokensPerS == 0 && len(c.Modelled.DecodeCurve) == 0 {
		c.Modelled.DecodeTokensPerS = simulatedSpeed
	}
	if c.Modelled.Train.Utilization == 0 && c.Modelled.Train.StepS == 0 && c.Modelled.Train.ThroughputTokensPerS == 0 {
		return c, Errors{c.problem("modelled.train", "", "does not say how fast the trainer is, which a simulation needs",
			"one of utilization, step_s, throughput_tokens_per_s, such as --set modelled.train.utilization=0.9")}
	}
	if c.Modelled.Solve.Kind == "none" {
		for _, look := range []struct {
			key string
			set bool
		}{{"filter.solve_rate.drop", c.Filter.SolveRate.Drop}, {"filter.curriculum.levels", c.Filter.Curriculum.Levels > 0}} {
			if look.set {
				return c, Errors{c.problem(look.key, "", "looks at rewards, which a simulation has by modelled.solve alone",
					"modelled.solve of kind fixed or logistic, or leave this out")}
			}
		}
		c.Filter.ZeroAdvantage = false // modelled.filter.acceptance models it
	}
	return c, nil
}

// spec is the length model in the words of package workload.
func (l Length) spec() workload.LengthSpec {
	return workload.LengthSpec{Kind: l.Kind, MeanTokens: l.MeanTokens, Tailness: l.Tailness, Alpha: l.Alpha,
		CapTokens: l.CapTokens, File: l.File, Groups: l.Groups}
}

// spec is the service time in the words of package workload.
func (s TimeModel) spec() workload.TimesSpec {
	return workload.TimesSpec{Kind: s.Kind, MeanS: s.MeanS, Tailness: s.Tailness, CapS: s.CapS, File: s.File, Groups: s.Groups}
}

// spec is the model of rewards in the words of package workload.
func (s Solve) spec() workload.SolveSpec {
	return workload.SolveSpec{Kind: s.Kind, Rate: s.Rate, Begin: s.Begin, From: s.From, To: s.To, Steps: s.Steps, Levels: s.Levels, Spread: s.Spread}
}

// model notes what package workload refuses about a section; nil is fine.
func (v *validator) model(section string, err error) {
	if err != nil {
		v.errs = append(v.errs, v.config.modelError(section, err))
	}
}

// modelError places an error of package workload in the document.
func (c Config) modelError(section string, err error) *Error {
	if refused, is := errors.AsType[*workload.FieldError](err); is {
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

// verlKeys are the keys in verl's words, in the order in which they are read:
// a batch is groups, a whole run is batches. verl counts prompts and calls one a
// sample; its docs/advance/fully_async.md says what each means.
var verlKeys = []verlKey{
	{own: "rollout.group_size", names: []string{"queue.rollout.n"}, value: func(c *Config) any { return c.Queue.Rollout.N }},
	{own: "train.batch", names: []string{"queue.ppo_mini_batch_size", "queue.require_batches"}, value: func(c *Config) any {
		if c.Queue.PPOMiniBatchSize == 0 {
			return nil
		}
		return max(c.Queue.RequireBatches, 1) * c.Queue.PPOMiniBatchSize * orElse(c.Rollout.GroupSize, groupSizeDefault)
	}, lacks: func(*Config) (problem, allowed string) {
		return "says nothing without queue.ppo_mini_batch_size", "give both, or train.batch instead"
	}},
	{own: "sync.every", names: []string{"queue.trigger_parameter_sync_step"}, value: func(c *Config) any { return c.Queue.TriggerParameterSyncStep }},
	{own: "sync.mode", names: []string{"queue.partial_rollout"}, value: func(c *Config) any {
		if c.Queue.PartialRollout {
			return "restart"
		}
		return "drain"
	}},
	{own: "trainer.steps", names: []string{"queue.total_rollout_steps"}, value: func(c *Config) any {
		if steps := c.Queue.TotalRolloutSteps / c.verlBatchGroups(); steps > 0 {
			return steps
		}
		return nil
	}, lacks: func(c *Config) (problem, allowed string) {
		return fmt.Sprintf("is less than the %d groups of one train step", c.verlBatchGroups()), fmt.Sprintf("at least %d", c.verlBatchGroups())
	}},
	{own: "evaluate.every", names: []string{"queue.test_freq"}, value: func(c *Config) any {
		return max(c.Queue.TestFreq, 0) * orElse(c.Sync.Every, 1)
	}},
	{own: "trainer.correction.kind", names: []string{"queue.use_rollout_log_probs"}, value: func(c *Config) any {
		if c.Queue.UseRolloutLogProbs {
			return "ppo-clip"
		}
		return "decoupled-ppo"
	}, agrees: func(c *Config) bool {
		return c.Queue.UseRolloutLogProbs == (c.Trainer.Correction.Kind != "decoupled-ppo")
	}},
}

// verlMinibatches makes verl's mini-batches the trainer's: one optimizer step each.
func (c *Config) verlMinibatches() {
	if _, given := c.rankOf("trainer.minibatches"); !given && c.Queue.PPOMiniBatchSize > 0 && c.Queue.RequireBatches > 1 {
		c.Trainer.Minibatches = c.Queue.RequireBatches
	}
}

// verlBatchGroups is the number of groups of a train step while defaults are
// still to come, at least 1.
func (c *Config) verlBatchGroups() int {
	group := max(orElse(c.Rollout.GroupSize, groupSizeDefault), 1)
	return max(orElse(c.Train.Batch, batchGroupsDefault*group)/group, 1)
}

// orElse returns a count, or a fallback where it is not set.
func orElse(value, fallback int) int {
	if value == 0 {
		return fallback
	}
	return value
}

// verlWarnings name what verl does not heed either.
func (c Config) verlWarnings(warn func(key, format string, args ...any)) {
	if size := c.Queue.TrainBatchSize; size != 0 {
		warn("queue.train_batch_size", "%d has no effect, as in verl's fully asynchronous trainer: a step takes %d rollouts by train.batch", size, c.Train.Batch)
	}
	rollout, trainer := c.Queue.Rollout.Nnodes*c.Queue.Rollout.NGPUsPerNode, c.Queue.Trainer.Nnodes*c.Queue.Trainer.NGPUsPerNode
	if rollout+trainer > 0 {
		warn("queue.trainer", "%d rollout and %d trainer GPUs have no effect: how fast both sides are is said by rollout, train and engines", rollout, trainer)
	}
	if size := c.Queue.GenBatchSize; size > 1 {
		warn("queue.gen_batch_size", "%d has no effect: prompts are fed one by one", size)
	}
}
