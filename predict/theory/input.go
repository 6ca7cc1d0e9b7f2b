package theory

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/loop/workload"
)

// Queue policies, selection orders, start orders and sync settings, by the
// names configs and flags give them (loop.md).
const (
	PolicyDrop        = "drop"
	PolicyMax         = "max"
	PolicyBlock       = "block"
	PolicyThreshold   = "threshold"
	PolicySynchronous = "synchronous" // the schedule, in the policy's place

	SelectOldest        = "oldest"
	SelectNewest        = "newest"
	SelectOldestVersion = "oldest-version"
	SelectFresh         = "fresh"

	StartStream = "stream"
	StartGang   = "gang"

	SyncInFlight = "in_flight"
	SyncPause    = "pause"
	SyncRestart  = "restart"
	SyncDrain    = "drain"

	TrainerFree    = "free"
	TrainerBlocked = "blocked"
)

// policies are the queue's rules that closed forms cover, and the synchronous schedule.
var policies = []string{PolicyDrop, PolicyMax, PolicyBlock, PolicyThreshold, PolicySynchronous}

// CoversPolicy reports whether closed forms know the rule of a queue, or a schedule, by its name.
func CoversPolicy(name string) bool { return slices.Contains(policies, name) }

// Input has the quantities that a prediction is made from: settings of a run to
// come, or measurements of a live one. Fill the first block, one source of the
// tail, and all else that is known; zero fields take the value their comment
// gives.
type Input struct {
	// ConcurrencyRollouts is C, the slots that generate at once. At least 1. A
	// measured mean of busy slots need not be whole.
	ConcurrencyRollouts float64
	// BatchRollouts is B, the rollouts of one train step. At least GroupSize.
	BatchRollouts float64
	// GroupSize is S, the rollouts of one prompt. At least 1.
	GroupSize int
	// QueueFactor is q = Q/B. At least 1; 0 means 1. Ignored by synchronous.
	QueueFactor float64
	// Utilization is ρ, rollout over train throughput in tokens per second while
	// both work. From settings: of decoding alone, so that acceptance and
	// Environment lower it. From a live run: as measured, leaving Environment
	// nil and Acceptance at 1 if they are inside the measurement.
	Utilization float64

	// TailMultiplier is M = E[longest of S]/E[length], where the distribution is
	// not known. Quantiles are then those of a lognormal of this multiplier.
	// 1 to S; give this or Lengths.
	TailMultiplier float64
	// Lengths is the length distribution, instead of TailMultiplier.
	Lengths *workload.Lengths
	// Environment is the time a rollout spends outside the engine with its slot
	// held; nil for none. It needs Lengths and StepS or DecodeTokensPerS, to
	// compare it with generation.
	Environment *workload.Times
	// DecodeTokensPerS is s_R, the decode speed of one slot; 0 where unknown. With
	// Lengths it gives StepS when that is 0.
	DecodeTokensPerS float64
	// StepS is t_step, the train step alone, in seconds. 0 where unknown: periods
	// are then relative to it.
	StepS float64

	// Policy is one of drop, max, block, threshold, synchronous; empty means drop.
	Policy string
	// StalenessThreshold is θ of policy threshold, at least 0: between two syncs at
	// most (1+θ)·SyncEvery·G groups less those carried over may start.
	StalenessThreshold float64
	// PartialRollout: policy threshold interrupts what is in flight at a sync and
	// resumes it; otherwise a sync waits for it.
	PartialRollout bool
	// MaxStaleness is the budget of policy max, in versions.
	MaxStaleness int
	// Select is one of oldest, newest, oldest-version, fresh; empty means oldest.
	Select string
	// Start is one of stream, gang; empty means stream.
	Start string
	// Acceptance is the share of groups that are not filtered, in (0,1]; 0 means 1.
	Acceptance float64

	// SyncTimeS is t_s, the time from a step's end until every engine serves its
	// version. It needs StepS, given or derived.
	SyncTimeS float64
	// SyncMode is one of in_flight, pause, restart, drain; empty means in_flight.
	SyncMode string
	// SyncTrainer is free (it starts its next step during the sync) or blocked;
	// empty means free.
	SyncTrainer string
	// SyncEvery is the train steps per sync; 0 means 1.
	SyncEvery int

	// BudgetVersions is the staleness budget to report the exceeding share of;
	// 0 for none.
	BudgetVersions int
	// SpeedRatio is β* = c_T/c_R, tokens per second of a train GPU over those of a
	// rollout GPU, needed to price a GPU split. 0 assumes 1, and says so.
	SpeedRatio float64
}

// Limits of what is accepted: far outside any real run, close enough that no
// formula overflows.
const (
	maxRollouts    = 1 << 28
	maxQueueFactor = 1e6
	maxUtilization = 1e6
	maxSeconds     = 1e9
	maxGroup       = 1 << 16
	maxSyncEvery   = 1 << 20
)

// fieldError names the input as flags and configs write it.
func fieldError(field string, value any, allowed string) error {
	return &workload.FieldError{Field: field, Value: value, Allowed: allowed}
}

// number refuses a value outside [low, high], NaN included.
func number(field string, value, low, high float64, what string) error {
	if value >= low && value <= high {
		return nil
	}
	plain := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	return fieldError(field, value, fmt.Sprintf("%s from %s to %s", what, plain(low), plain(high)))
}

// oneOf refuses an unknown name.
func oneOf(field, value string, names ...string) error {
	list := ""
	for i, name := range names {
		if value == name {
			return nil
		}
		if i > 0 {
			list += ", "
		}
		list += name
	}
	return fieldError(field, value, "one of "+list)
}

// WithDefaults returns a copy in which fields that were left at zero have the
// value their comments give.
func (in Input) WithDefaults() Input {
	p, mean := in.point(), 0.0
	if in.Lengths != nil && in.Utilization != 0 {
		mean = in.Lengths.Mean()
	}
	p.complete(mean)
	in.Policy, in.Select, in.Start, in.SyncMode, in.SyncTrainer = p.Policy, p.Select, p.Start, p.SyncMode, p.SyncTrainer
	in.QueueFactor, in.Acceptance, in.SyncEvery, in.StepS = p.QueueFactor, p.Acceptance, p.SyncEvery, p.StepS
	return in
}

// Validate reports the first field that cannot be used, as a
// [*workload.FieldError] whose field is the name of interfaces.md's flag with
// underscores. Call it on an Input with defaults.
func (in Input) Validate() error {
	checks := []error{
		number("concurrency", in.ConcurrencyRollouts, 1, maxRollouts, "rollouts"),
		number("group", float64(in.GroupSize), 1, maxGroup, "rollouts of one prompt"),
		number("batch", in.BatchRollouts, 1, maxRollouts, "rollouts"),
		number("queue_factor", in.QueueFactor, 1, maxQueueFactor, "a factor"),
		number("acceptance", in.Acceptance, 1e-6, 1, "a share"),
		number("sync_time", in.SyncTimeS, 0, maxSeconds, "seconds"),
		number("step_time", in.StepS, 0, maxSeconds, "seconds"),
		number("decode_tokens_per_s", in.DecodeTokensPerS, 0, 1e12, "tokens/s of one slot"),
		number("max_staleness", float64(in.MaxStaleness), 0, 1<<30, "versions"),
		number("budget", float64(in.BudgetVersions), 0, 1<<30, "versions"),
		number("sync_every", float64(in.SyncEvery), 1, maxSyncEvery, "train steps"),
		number("staleness_threshold", in.StalenessThreshold, 0, maxQueueFactor, "a share of a sync's rollouts"),
		number("speed_ratio", in.SpeedRatio, 0, 1e6, "train over rollout tokens/s of one GPU"),
		oneOf("policy", in.Policy, policies...),
		oneOf("select", in.Select, SelectOldest, SelectNewest, SelectOldestVersion, SelectFresh),
		oneOf("start", in.Start, StartStream, StartGang),
		oneOf("sync_mode", in.SyncMode, SyncInFlight, SyncPause, SyncRestart, SyncDrain),
		oneOf("sync_trainer", in.SyncTrainer, TrainerFree, TrainerBlocked),
		in.validateUtilization(),
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return in.validateRelations()
}

// validateUtilization checks ρ, whose lower end is not zero.
func (in Input) validateUtilization() error {
	if in.Utilization >= 1/maxUtilization && in.Utilization <= maxUtilization {
		return nil
	}
	return fieldError("utilization", in.Utilization, "rollout over train throughput, above 0 and up to 1000000 (1: both equally fast)")
}

// validateRelations checks fields against each other.
func (in Input) validateRelations() error {
	if in.BatchRollouts < float64(in.GroupSize) {
		return fieldError("batch", in.BatchRollouts, fmt.Sprintf("at least one group of %d rollouts", in.GroupSize))
	}
	if in.Start == StartGang && in.ConcurrencyRollouts < float64(in.GroupSize) {
		return fieldError("concurrency", in.ConcurrencyRollouts, fmt.Sprintf("at least one group of %d slots with start gang", in.GroupSize))
	}
	if err := in.validateTail(); err != nil {
		return err
	}
	if in.SyncTimeS > 0 && in.StepS == 0 {
		return fieldError("sync_time", in.SyncTimeS, "0 unless the step time is given too, since only their ratio matters")
	}
	if in.Environment.Zero() {
		return nil
	}
	if in.Lengths == nil || in.StepS == 0 {
		return fieldError("environment", "given", "none unless the length distribution and the step time or the decode speed are given too, to compare it with generation")
	}
	return nil
}

// validateTail checks the two ways of giving the tail.
func (in Input) validateTail() error {
	m, s := in.TailMultiplier, float64(in.GroupSize)
	switch {
	case in.Lengths != nil && m != 0:
		return fieldError("tail_multiplier", m, "nothing beside a length distribution, which has its own")
	case in.Lengths != nil:
		return nil
	case m == 0:
		return fieldError("tail_multiplier", m, "at least 1, or a length distribution (mean_tokens, tailness)")
	case !(m >= 1) || math.IsInf(m, 0):
		return fieldError("tail_multiplier", m, "at least 1: the longest of a group is not shorter than its mean")
	case in.GroupSize == 1 && m > 1:
		return fieldError("tail_multiplier", m, "1 with group 1: a lone rollout is its group's longest")
	case m > s:
		return fieldError("tail_multiplier", m, fmt.Sprintf("at most the group size %d: the longest of a group is at most their sum", in.GroupSize))
	}
	return nil
}
