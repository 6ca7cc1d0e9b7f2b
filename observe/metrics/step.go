package metrics

import "github.com/headway-rl/headway/loop"

// Step is one point of the series: a train step and the period that it ended.
type Step struct {
	// Step is the version produced; TimeNS when.
	Step   loop.Version
	TimeNS int64
	// PeriodNS is the time since the step before ended, AbsentNS the part of it without a trainer (Attendance). TrainNS
	// is the time in this step and in the trainer's work beside: all but that and its idle time.
	PeriodNS, TrainNS, AbsentNS int64
	// Staleness, PQS, IQS are means over the step's groups; StalenessMax the largest.
	Staleness, PQS, IQS float64
	StalenessMax        loop.Version
	// TokenStaleness is the mean over trained tokens.
	TokenStaleness float64
	// Reward is the mean over trained rollouts, Tokens their response tokens in all.
	Reward float64
	Tokens int64
	// TrainerIdle and RolloutIdle are the idle shares of the period.
	TrainerIdle, RolloutIdle float64
	// QueueGroups is the queue's content after the step's end, BacklogRollouts what
	// stands interrupted then.
	QueueGroups, BacklogRollouts int
	// Control is the controller after the step.
	Control StepControl
}

// warmedUp begins the measured window at the version it is to begin at.
func (r *Recorder) warmedUp() {
	if r.run.Version == r.Warmup {
		r.Reset()
	}
}
