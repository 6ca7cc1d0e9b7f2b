package attribution

var sourceLabels = [Sources]string{
	Sync:        "weights that a sync had not brought yet when the group began",
	Inner:       "weights of train steps that share a sync",
	Concurrency: "while its rollouts generated, on average, and while held outside a full queue",
	Environment: "while tools, sandboxes and verifiers took their time",
	Tail:        "waiting for its last rollout, beyond the mean",
	Queue:       "in the queue behind other batches",
	Fill:        "in the queue for its own batch: a step was running, or the batch not full",
}

// Label says what the source is, for people.
func (s Source) Label() string { return sourceLabels[s] }

// Reasons are an Idle's parts by name, in one order.
func (i Idle) Reasons() []Reason {
	return []Reason{{"starved", i.Starved}, {"syncing", i.Syncing}, {"validating", i.Validating}, {"paused", i.Paused}, {"blocked", i.Blocked}}
}

// Reason is one part of what somebody waited for, as a share of the time.
type Reason struct {
	Name  string
	Share float64
}

// pausedMuch is the share of the engines' time from which on a rule that pauses them binds as well: more slots would be
// paused too.
const pausedMuch = 0.1

// Binding lists what limits the rate of updates, of the side that metrics.Throughput names. Admission stands before a
// part of a rollout's time where a rule pauses the engines for a tenth of theirs or more.
func Binding(side string, engines Idle) []string {
	switch side {
	case "", "train", "sync", "validation", "admission":
		return []string{side}
	}
	if engines.Paused >= pausedMuch {
		return []string{"admission", side}
	}
	return []string{side}
}
