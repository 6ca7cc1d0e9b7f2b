package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// Policies beside theory's, as a document names them.
const (
	policyBounded   = "bounded"
	policyThreshold = "threshold"
)

// Setting is one candidate: the values that a plan chooses. Everything else is the problem's.
type Setting struct {
	// RolloutGPUs and TrainGPUs are the split; GPUs beyond their sum are not rented.
	RolloutGPUs int `json:"rollout_gpus"`
	TrainGPUs   int `json:"train_gpus"`
	// Replicas are the engines, SlotsPerReplica the rollouts at once on each.
	Replicas        int `json:"replicas"`
	SlotsPerReplica int `json:"slots_per_replica"`
	// BatchRollouts is B, QueueFactor q.
	BatchRollouts int     `json:"batch_rollouts"`
	QueueFactor   float64 `json:"queue_factor,omitempty"`
	// Policy is the queue's, or synchronous for that schedule.
	Policy string `json:"policy"`
	// Select and Hold are the queue's selection order and θ.
	Select string  `json:"select,omitempty"`
	Hold   float64 `json:"hold,omitempty"`
	// MaxStaleness, Eta, StalenessThreshold and Partial are of policies max, bounded and threshold.
	MaxStaleness       int     `json:"max_staleness,omitempty"`
	Eta                float64 `json:"eta,omitempty"`
	StalenessThreshold float64 `json:"staleness_threshold,omitempty"`
	Partial            bool    `json:"partial_rollout,omitempty"`
	// SyncEvery is the train steps per sync, verl's trigger_parameter_sync_step.
	SyncEvery int `json:"sync_every"`

	slots int // of all replicas, where a simulation has fewer than the setting; else 0
}

// Concurrency is C, the slots of all replicas.
func (s Setting) Concurrency() int {
	if s.slots > 0 {
		return s.slots
	}
	return s.Replicas * s.SlotsPerReplica
}

// GPUs are those the setting rents.
func (s Setting) GPUs() int { return s.RolloutGPUs + s.TrainGPUs }

// Rule names the policy with what it is set to, short enough for a table.
func (s Setting) Rule() string {
	parts := []string{s.Policy}
	switch s.Policy {
	case theory.PolicyMax:
		parts = append(parts, fmt.Sprintf("≤ %d", s.MaxStaleness))
	case policyBounded:
		parts = append(parts, "η "+plain(s.Eta))
	case policyThreshold:
		parts = append(parts, "θ "+plain(s.StalenessThreshold))
		if s.Partial {
			parts = append(parts, "partial")
		}
	}
	if s.Select != "" && s.Select != theory.SelectOldest {
		parts = append(parts, s.Select)
	}
	if s.Hold > 0 {
		parts = append(parts, "hold "+plain(s.Hold))
	}
	return strings.Join(parts, " ")
}

// keyed is one key of a document with its value.
type keyed struct{ key, value string }

// overrides are the keys that make a document this setting.
func (s Setting) overrides() []keyed {
	number := func(n int) string { return strconv.Itoa(n) }
	set := []keyed{
		{"preset", "null"},
		{"hardware.rollout_gpus", number(s.RolloutGPUs)}, {"hardware.train_gpus", number(s.TrainGPUs)},
		{"engines", "null"}, {"rollout.concurrency", number(s.Concurrency())},
		{"train.batch", number(s.BatchRollouts)}, {"modelled.train.utilization", "null"}, {"modelled.train.throughput_tokens_per_s", "null"},
		{"modelled.throughput_tokens_per_s", "null"},
	}
	if s.Policy == theory.PolicySynchronous {
		return append(set, keyed{"schedule", s.Policy})
	}
	set = append(set, keyed{"schedule", "asynchronous"}, keyed{"queue", "{policy: " + s.Policy + "}"}, keyed{"sync.every", number(s.SyncEvery)})
	switch s.Policy {
	case policyBounded:
		set = append(set, keyed{"queue.eta", plain(s.Eta)})
	case policyThreshold:
		mode := "drain"
		if s.Partial {
			mode = theory.SyncRestart
		}
		set = append(set, keyed{"queue.staleness_threshold", plain(s.StalenessThreshold)}, keyed{"sync.mode", mode})
	case theory.PolicyMax:
		set = append(set, keyed{"queue.factor", plain(s.QueueFactor)}, keyed{"queue.max_staleness", number(s.MaxStaleness)})
	default:
		set = append(set, keyed{"queue.factor", plain(s.QueueFactor)})
	}
	if s.Select != "" {
		set = append(set, keyed{"queue.select", s.Select})
	}
	if s.Hold > 0 {
		set = append(set, keyed{"queue.hold", plain(s.Hold)})
	}
	return set
}

// plain prints a number without digits that say nothing.
func plain(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
