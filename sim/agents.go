package sim

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/workload"
)

// PrefillMode says who reads tokens into a rollout's cache.
type PrefillMode uint8

// Prefill modes.
const (
	// PrefillSlot has every rollout read for itself, and slows no other.
	PrefillSlot PrefillMode = iota
	// PrefillEngine has an engine read one rollout after the other, in the order in which they
	// ask, while its others stand still, as where prefill comes before decoding.
	PrefillEngine
	// PrefillPool has workers apart from the engines read, each one rollout at a time.
	PrefillPool
)

// Agents models what rollouts do beside decoding. A rollout holds its slot through
// all of it.
//
// A rollout reads its prompt, generates the first part of its tokens, calls a tool,
// reads what that returned, generates the next part, and so on; after the last part
// comes the environment's time (Response.EnvironmentNS) and then the judge. A
// sandbox is started before the first call, or before the environment's time where
// there is none, or with the rollout; it is the rollout's until that ends.
//
// An interrupted rollout that is not at its engine goes on where it is, without a
// slot, as far as it can without one, and keeps its sandbox; what it reads when it is
// resumed is all it has. One that fails meanwhile says so once it is resumed.
type Agents struct {
	// Seed of its draws.
	Seed uint64
	// PromptTokens are read before the first token.
	PromptTokens int32
	// Prefill says who reads, PrefillNSPerToken how long a token takes, in ns, at engine speed 1;
	// PrefillWorkers is the size of the pool.
	Prefill           PrefillMode
	PrefillNSPerToken float64
	PrefillWorkers    int
	// Tools are the calls; nil for none. At most ToolWorkers run at once, 0 for no limit; each
	// returns ToolTokens to be read.
	Tools       *workload.Tools
	ToolWorkers int
	ToolTokens  int32
	// Change multiplies the mean number of calls as the policy learns.
	Change workload.Change
	// Sandboxes are what tools and environment run in; nil for none.
	Sandboxes *Sandboxes
	// Judge is the time of a verdict, nil for none. At most JudgeWorkers are judged at once, 0
	// for no limit.
	Judge        *workload.Service
	JudgeWorkers int
}

// Sandboxes models their start and number.
type Sandboxes struct {
	// Early starts one with the rollout, else it starts when it is needed.
	Early bool
	// Start is how long a start takes; nil for no time.
	Start *workload.Service
	// Limit is the number there may be at once, Starting the number that may start at once; 0 for no limit.
	Limit, Starting int
	// TimeoutNS ends a start that is not done after so long, its wait for other starts included, as
	// failed; 0 never.
	TimeoutNS int64
	// FailureRate is the share of starts that fail, in [0, 1).
	FailureRate float64
	// MTBFNS is the mean time one lives, in ns, exponential; 0 for ever. A rollout whose sandbox
	// is gone fails as it uses it: in a call, or in its environment's time.
	MTBFNS float64
	// Retries of a start that failed, before the rollout does.
	Retries int
}

// validate reports what cannot be simulated, each fault by one call.
func (a *Agents) validate(c *Config, bad func(format string, args ...any)) {
	if c.Lockstep {
		bad("Agents under Lockstep are not modelled: leave one of the two out")
	}
	if a.PromptTokens < 0 || a.ToolTokens < 0 || a.PrefillWorkers < 0 || a.ToolWorkers < 0 || a.JudgeWorkers < 0 {
		bad("Agents has a negative number of tokens or workers")
	}
	if !(a.PrefillNSPerToken >= 0) || math.IsInf(a.PrefillNSPerToken, 0) {
		bad("Agents.PrefillNSPerToken is %g, want a finite number of at least 0", a.PrefillNSPerToken)
	}
	if a.Prefill > PrefillPool || a.Prefill == PrefillPool && a.PrefillWorkers < 1 {
		bad("Agents.Prefill is %d with %d workers, want a mode of this package, and at least 1 worker in a pool", a.Prefill, a.PrefillWorkers)
	}
	if s := a.Sandboxes; s != nil {
		if err := workload.FailureRate("FailureRate", s.FailureRate); err != nil {
			bad("Agents.Sandboxes: %v", err)
		}
		if !(s.MTBFNS >= 0) {
			bad("Agents.Sandboxes.MTBFNS is %g, want at least 0", s.MTBFNS)
		}
		if s.Limit < 0 || s.Starting < 0 || s.TimeoutNS < 0 || s.Retries < 0 {
			bad("Agents.Sandboxes has a negative limit, time-out or number of retries")
		}
	}
}

// Faults are what goes wrong with engines and train steps.
type Faults struct {
	// Seed of its draws.
	Seed uint64
	// MTBFNS is the mean time an engine is there before it is lost, in ns, exponential; 0 never.
	// DownNS is the mean time until it joins again, exponential, too.
	MTBFNS, DownNS float64
	// Plan are losses at given times.
	Plan []EngineLoss
	// TrainRate is the share of train steps that fail at their end, in [0, 1).
	TrainRate float64
}

// EngineLoss is one planned loss of an engine.
type EngineLoss struct {
	// Engine is its index.
	Engine int
	// AtNS is when it is lost, DownNS after how long it joins again; 0 never.
	AtNS, DownNS int64
}

// none reports whether nothing goes wrong.
func (f *Faults) none() bool { return f.MTBFNS == 0 && len(f.Plan) == 0 && f.TrainRate == 0 }

func (f *Faults) validate(c *Config, bad func(format string, args ...any)) {
	if !(f.MTBFNS >= 0) || !(f.DownNS >= 0) || f.MTBFNS > 0 && f.DownNS == 0 {
		bad("Faults has engines lost every %g ns for %g ns, want times above 0", f.MTBFNS, f.DownNS)
	}
	if err := workload.FailureRate("TrainRate", f.TrainRate); err != nil {
		bad("Faults: %v", err)
	}
	for _, loss := range f.Plan {
		if loss.Engine < 0 || loss.Engine >= len(c.Loop.EngineSlots) || loss.AtNS < 0 || loss.DownNS < 0 {
			bad("Faults.Plan loses engine %d at %d ns for %d ns, want an engine from 0 to %d and times of at least 0", loss.Engine, loss.AtNS, loss.DownNS, len(c.Loop.EngineSlots)-1)
		}
	}
}

// Validation models the evaluation of a policy during the run.
type Validation struct {
	// Every is the number of train steps between two; 0 for none.
	Every int
	// Rollouts are generated by each, in all slots, every freed slot taking the next; they take part in
	// nothing else. NS is how long it takes instead; 0 to work it out.
	Rollouts int
	NS       int64
	// Trainer has the train step after it wait. Else all engines stand still for it, from the end of the
	// sync on that brought the version.
	Trainer bool
}

func (v *Validation) validate(bad func(format string, args ...any)) {
	if v.Every < 0 || v.NS < 0 || v.Every > 0 && v.NS == 0 && v.Rollouts < 1 {
		bad("Validation of %d rollouts in %d ns every %d steps, want at least 1 rollout or a time", v.Rollouts, v.NS, v.Every)
	}
}

// ErrEnded is wrapped by the error of a simulation that ended before its train steps
// were done: the last attempt of one failed.
var ErrEnded = fmt.Errorf("the simulated run has ended early")

// endedEarly is the error of a run that the loop finished before its time.
func (r *runner) endedEarly(why loop.Reason) error {
	return fmt.Errorf("sim: %w after %d of %d train steps: the %s failed %d times in a row; lower train.failure_rate, or raise failures.train_attempts",
		ErrEnded, r.l.Version(), r.cfg.Loop.TrainSteps, why, r.cfg.Loop.TrainAttempts)
}
