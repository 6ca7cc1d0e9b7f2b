package sim

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// PrefillMode says who reads tokens into a rollout's cache.
type PrefillMode uint8

// Prefill modes.
const (
	// PrefillSlot has every rollout read for itself, and slows no other.
	PrefillSlot PrefillMode = iota
	// PrefillEngine has an engine read one rollout after the other, in the order in which they ask. Its other rollouts
	// stand still, as where prefill comes before decoding.
	PrefillEngine
	// PrefillPool has workers apart from the engines read, each one rollout at a time.
	PrefillPool
)

// Agents models what rollouts do beside decoding. A rollout holds its slot through
// all of it.
//
// A rollout reads its prompt, generates the first part of its tokens, calls a
// tool, reads its result, generates the next part, and so on. After the
// last part comes the environment's time (Response.EnvironmentNS) and then the
// judge, and after the judge the scorer. A sandbox is started before the first call, or before the environment's
// time where there is none, or with the rollout. It is the rollout's until that
// ends.
//
// An interrupted rollout that is not at its engine goes on where it is, without a
// slot, as far as it can. It keeps its sandbox. When it is resumed, it reads all
// its tokens. One that fails meanwhile says so once it is resumed.
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
	// CacheTokens is how many tokens of contexts an engine's cache holds. Rollouts of a group that are on one engine then read
	// their prompt once. One that returns from a tool, or to the engine where it was interrupted, reads all again if others
	// needed the room, or weights changed. 0 lets every rollout keep its own for as long as it has its slot.
	CacheTokens int64
	// Tools are the calls; nil for none. At most ToolWorkers run at once, 0 for no limit; each
	// returns ToolTokens to be read.
	Tools       *workload.Tools
	ToolWorkers int
	ToolTokens  int32
	// Sessions are recorded rollouts that take the place of PromptTokens, ToolTokens, and of Tools' number of
	// calls and division of tokens; nil for none. The Work must play the same ones: see Modelled.WithSessions.
	// SessionTimes has their gaps take the place of Tools' times as well.
	Sessions     *workload.Recorded
	SessionTimes bool
	// Change multiplies the mean number of calls as the policy learns.
	Change workload.Change
	// Sandboxes are what tools and environment run in; nil for none.
	Sandboxes *Sandboxes
	// Verifier rewards a rollout after that, and Scorer scores it then: the pool of teachers and references.
	Verifier, Scorer Review
}

// Sandboxes models their start and number.
type Sandboxes struct {
	// Early starts one with the rollout, else it starts when it is needed.
	Early bool
	// Start is how long a start takes; nil for no time.
	Start *workload.Times
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
	// Warm is how many are kept ready beside those in use. When one is taken, another is started as soon as a place and
	// a starter are free. Rollouts' own starts come first.
	Warm int
	// Uses is how many rollouts one serves: given back, it is made as if it were new in ResetNS and stands
	// ready. 0 and 1 end it with its rollout.
	Uses    int
	ResetNS int64
}

// validate reports what cannot be simulated, each fault by one call.
func (a *Agents) validate(c *Config, bad func(format string, args ...any)) {
	if c.Lockstep {
		bad("Agents under Lockstep are not modelled: leave one of the two out")
	}
	if a.PromptTokens < 0 || a.ToolTokens < 0 || a.CacheTokens < 0 || a.PrefillWorkers < 0 || a.ToolWorkers < 0 || a.Verifier.Workers < 0 || a.Scorer.Workers < 0 {
		bad("Agents has a negative number of tokens or workers")
	}
	if !(a.PrefillNSPerToken >= 0) || math.IsInf(a.PrefillNSPerToken, 0) {
		bad("Agents.PrefillNSPerToken is %g, want a finite number of at least 0", a.PrefillNSPerToken)
	}
	for _, review := range []*Review{&a.Verifier, &a.Scorer} {
		if !(review.NSPerToken >= 0) || math.IsInf(review.NSPerToken, 0) {
			bad("Agents has a review of %g ns a token, want a finite number of at least 0", review.NSPerToken)
		}
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
		if s.Limit < 0 || s.Starting < 0 || s.TimeoutNS < 0 || s.Retries < 0 || s.Warm < 0 || s.Uses < 0 || s.ResetNS < 0 {
			bad("Agents.Sandboxes has a negative limit, time or number")
		}
	}
}
