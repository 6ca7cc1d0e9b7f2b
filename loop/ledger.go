package loop

// Ledger counts rollout attempts by state. Admitted is the sum of all others:
// every attempt is somewhere, and ends once. The zero value is the empty ledger.
type Ledger struct {
	// Admitted counts attempts ever started.
	Admitted int64 `json:"admitted"`
	// InFlight counts attempts at an engine or in their environment.
	InFlight int64 `json:"in_flight"`
	// Waiting counts scored rollouts whose group is not ready or is kept out of a full queue.
	Waiting int64 `json:"waiting"`
	// Queued counts rollouts of groups in the queue.
	Queued int64 `json:"queued"`
	// Leased counts rollouts of the batch at the trainer.
	Leased int64 `json:"leased"`
	// Trained counts rollouts that a train step consumed.
	Trained int64 `json:"trained"`
	// Evicted counts rollouts that a full queue dropped.
	Evicted int64 `json:"evicted"`
	// Discarded counts rollouts past the staleness budget.
	Discarded int64 `json:"discarded"`
	// Filtered counts rollouts of groups that teach nothing.
	Filtered int64 `json:"filtered"`
	// Pruned counts rollouts stopped early by a rule on the rollout, and the scored ones of groups that this ended.
	Pruned int64 `json:"pruned"`
	// Cancelled counts attempts stopped in flight because their group was no longer wanted.
	Cancelled int64 `json:"cancelled"`
	// Failed counts attempts that failed, retried or not.
	Failed int64 `json:"failed"`
}

// Ended returns the attempts that have left the loop.
func (l Ledger) Ended() int64 { return l.ended() }

func (l *Ledger) ended() int64 {
	return l.Trained + l.Evicted + l.Discarded + l.Filtered + l.Pruned + l.Cancelled + l.Failed
}

// Balanced reports whether every admitted attempt is accounted for and no count is negative.
func (l Ledger) Balanced() bool { return l.balanced() }

func (l *Ledger) balanced() bool {
	negative := l.Admitted|l.InFlight|l.Waiting|l.Queued|l.Leased|l.Trained|l.Evicted|
		l.Discarded|l.Filtered|l.Pruned|l.Cancelled|l.Failed < 0
	return !negative && l.Admitted == l.InFlight+l.Waiting+l.Queued+l.Leased+l.ended()
}

// end returns the counter of an end; EndNone has none.
func (l *Ledger) end(e End) *int64 {
	switch e {
	case EndTrained:
		return &l.Trained
	case EndEvicted:
		return &l.Evicted
	case EndDiscarded:
		return &l.Discarded
	case EndFiltered:
		return &l.Filtered
	case EndPruned:
		return &l.Pruned
	case EndCancelled:
		return &l.Cancelled
	case EndFailed:
		return &l.Failed
	}
	panic(&InvariantError{What: "an attempt ended without an end"})
}
