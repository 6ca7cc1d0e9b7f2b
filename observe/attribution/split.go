package attribution

import "github.com/headway-rl/headway/loop"

// Source is what a version of staleness comes from.
type Source uint8

// Sources, in the order in which a group meets them. docs/attribution.md says more.
const (
	// Sync: versions made before the group began, that a weight sync without any duration would have
	// brought to the engine by then.
	Sync Source = iota
	// Inner: versions made before the group began, that were not to be served: several train steps
	// share a sync.
	Inner
	// Concurrency: versions made while the rollouts of the group generated, up to the mean of their ends.
	// It includes those made while the group was held outside a full queue, where more is in flight than
	// the queue takes. It grows with the rollouts in flight over the batch.
	Concurrency
	// Environment: versions made in the same stretch, as far as tools, sandboxes and verifiers took the
	// time. After it, versions made as far as the last rollout is the last because of them.
	Environment
	// Tail: versions made from the mean of the ends to the last one, for which the others wait.
	Tail
	// Queue: versions made, while the group was ready, by steps that began when it was: other batches
	// went before it.
	Queue
	// Fill: the other versions made while it was ready. They come from the step that ran when it
	// became ready, for whose batch it came too late, or from a trainer that went back.
	Fill

	// Sources is their number.
	Sources
)

var sourceNames = [Sources]string{"sync", "inner_steps", "concurrency", "environment", "tail", "queue", "fill"}

// String returns the source's name, as in JSON and metrics.
func (s Source) String() string { return sourceNames[s] }

// Split is staleness by source, in versions.
type Split [Sources]float64

// Sum is the staleness that the parts add up to.
func (s Split) Sum() (sum float64) {
	for _, part := range s {
		sum += part
	}
	return sum
}

// Group is the split of one trained group.
type Group struct {
	ID loop.GroupID
	// Version its train step started from; Staleness as the loop has it, which Split adds up to.
	Version   loop.Version
	Staleness loop.Version
	Split     Split
}

// Idle is what somebody waited for, as shares of the time, 0 to 1.
type Idle struct {
	// Starved: no batch was ready, or too few slots were free for a whole group. Syncing: weights were
	// being switched, and that kept it from going on. Validating: the policy was evaluated. Paused: a
	// rule of the loop wanted nothing started (a full queue, hold, admission, the end of the run).
	// Blocked: an engine was gone, or came back and had no weights yet; for the trainer, all were.
	Starved    float64 `json:"starved"`
	Syncing    float64 `json:"syncing"`
	Validating float64 `json:"validating"`
	Paused     float64 `json:"paused"`
	Blocked    float64 `json:"blocked"`
	// Total is the idle ratio, which the others add up to.
	Total float64 `json:"total"`
}

// Standing is the share of the engines' slots, by time, that hold a rollout which stands still.
type Standing struct {
	// Syncing: its engine switches weights. Validating: its engine evaluates the policy.
	Syncing    float64 `json:"syncing"`
	Validating float64 `json:"validating"`
}

// Part is a source with what it adds.
type Part struct {
	Source string `json:"source"`
	// Versions is the mean over trained groups, Share that of the mean staleness, 0 to 1.
	Versions float64 `json:"versions"`
	Share    float64 `json:"share"`
}

// Little holds the discrete form of Little's law: the staleness of all trained groups is the number
// of updates that they lived through. The compared counts are kept apart.
type Little struct {
	// Staleness is the sum over trained groups, Lived the sum over updates of the groups then open
	// or queued that were trained later.
	Staleness int64 `json:"staleness"`
	Lived     int64 `json:"lived"`
	// Mismatch is |Staleness − Lived|/max(Lived, 1). Over 0.01 it is a finding.
	Mismatch float64 `json:"mismatch"`
}

// Summary is the attribution of a window.
type Summary struct {
	// Groups were trained in it.
	Groups int64 `json:"groups"`
	// StalenessMean in versions; the parts add up to it. Parts are in the order of Source.
	StalenessMean float64 `json:"staleness_mean"`
	Parts         []Part  `json:"parts"`
	// Dominant is the largest part, Share its share, Ties others within 5 % of it.
	Dominant string   `json:"dominant"`
	Share    float64  `json:"share"`
	Ties     []string `json:"ties"`
	// Trainer and Engines say what they waited for.
	Trainer Idle `json:"trainer_idle"`
	Engines Idle `json:"engines_idle"`
	// Standing is time of engines in which they are not idle, but do not generate either.
	Standing Standing `json:"engines_standing"`
	Little   Little   `json:"little"`
}
