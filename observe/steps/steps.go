// Package steps holds the figures of a train step as a run directory keeps them:
// the lines of metrics.jsonl. A run writes them; view and diagnose read them.
package steps

import "github.com/headway-rl/headway/loop"

// Lag is what a train step, or a whole run, says of the response tokens of
// groups of one range of staleness.
type Lag struct {
	// Staleness names the range, in versions: 0, 1, 2, 3-4, 5-8 or 9+.
	Staleness string `json:"staleness"`
	// Tokens counts the response tokens of groups in it.
	Tokens int `json:"tokens"`
	// ClipFraction is that of these tokens alone.
	ClipFraction float64 `json:"clip_fraction"`
	// ActiveClipFraction is that of these tokens alone.
	ActiveClipFraction float64 `json:"active_clip_fraction"`
	// PredictedClipFraction is that of these tokens alone.
	PredictedClipFraction float64 `json:"predicted_clip_fraction"`
	// MeanLogRatio is that of these tokens alone.
	MeanLogRatio float64 `json:"mean_log_ratio"`
	// EffectiveSampleSize is that of these tokens alone.
	EffectiveSampleSize float64 `json:"effective_sample_size"`
	// MaskedFraction is that of these tokens alone.
	MaskedFraction float64 `json:"masked_fraction"`
	// Health is that of these tokens alone.
	Health string `json:"health"`
}

// Line is one line of metrics.jsonl: a train step, step and time first.
type Line struct {
	// Step is the version that the train step made.
	Step loop.Version `json:"step"`
	// Time is when it ended, in seconds since the run began.
	Time float64 `json:"time"`
	// Reward is the mean over trained rollouts.
	Reward float64 `json:"reward"`
	// StalenessMean is the mean over the groups of the batch, in versions: PQS + IQS.
	StalenessMean float64 `json:"staleness_mean"`
	// PQS is the part from before the group was ready, IQS the part in the queue.
	PQS float64 `json:"pqs"`
	// IQS is the part of the staleness in the queue.
	IQS float64 `json:"iqs"`
	// FromSync, and the next six, are the parts of StalenessMean by where it comes from, in versions;
	// docs/attribution.md says what each is. They add up to it.
	FromSync float64 `json:"from_sync"`
	// FromInnerSteps is the part of train steps that share a weight sync.
	FromInnerSteps float64 `json:"from_inner_steps"`
	// FromConcurrency is the part from while rollouts generated.
	FromConcurrency float64 `json:"from_concurrency"`
	// FromEnvironment is the part from while their environments took their time.
	FromEnvironment float64 `json:"from_environment"`
	// FromTail is the part from waiting for the last rollout of a group.
	FromTail float64 `json:"from_tail"`
	// FromQueue is the part from waiting behind other batches.
	FromQueue float64 `json:"from_queue"`
	// FromFill is the part from waiting for its own batch.
	FromFill float64 `json:"from_fill"`
	// StalenessMax is the largest of a group.
	StalenessMax loop.Version `json:"staleness_max"`
	// TokenStalenessMean is the mean over trained tokens, by the version that sampled each.
	TokenStalenessMean float64 `json:"token_staleness_mean"`
	// PeriodS is the time since the step before ended, in seconds.
	PeriodS float64 `json:"period_s"`
	// TrainS is the part of it, in seconds, in this train step and in the trainer's work beside: neither idle nor
	// absent.
	TrainS float64 `json:"train_s"`
	// TrainerAbsentS is the time of it in which no trainer was there, in seconds: a trainer of yours had not come yet, or was gone.
	TrainerAbsentS float64 `json:"trainer_absent_s,omitempty"`
	// TrainerIdleRatio is the share of the period in which no train step ran.
	TrainerIdleRatio float64 `json:"trainer_idle_ratio"`
	// RolloutIdleRatio is the share of slot time in which no rollout was in it.
	RolloutIdleRatio float64 `json:"rollout_idle_ratio"`
	// QueueGroups is how many groups the queue held after the step.
	QueueGroups int `json:"queue_groups"`
	// ResponseTokens counts the trained tokens of responses.
	ResponseTokens int64 `json:"response_tokens"`
	// Loss as the trainer reports it; 0 where it reports none. So the next.
	Loss float64 `json:"loss"`
	// GradNorm is the norm of the gradient before it was clipped.
	GradNorm float64 `json:"grad_norm"`
	// ClipFraction is the share of tokens whose ratio of trainer to rollout left the band.
	ClipFraction float64 `json:"clip_fraction"`
	// ActiveClipFraction is the share of tokens without gradient for it.
	ActiveClipFraction float64 `json:"active_clip_fraction"`
	// MeanLogRatio is the mean of log p_trainer - log p_rollout, in nats.
	MeanLogRatio float64 `json:"mean_log_ratio"`
	// EffectiveSampleSize is that of the importance weights, as a share of the tokens.
	EffectiveSampleSize float64 `json:"effective_sample_size"`
	// PredictedClipFraction is what earlier steps' drift says of ClipFraction, 0 while too little is known.
	PredictedClipFraction float64 `json:"predicted_clip_fraction"`
	// MaskedFraction is the share of tokens that a correction left out.
	MaskedFraction float64 `json:"masked_fraction"`
	// TruncatedFraction is the share of tokens whose importance weight was cut.
	TruncatedFraction float64 `json:"truncated_fraction"`
	// Minibatches is how many updates of the optimiser the step made.
	Minibatches int `json:"minibatches"`
	// Health is healthy, workable or broken, by the clip fraction and the mean log-ratio.
	Health string `json:"health"`
	// OffPolicy splits the response tokens by the staleness of their group.
	OffPolicy []Lag `json:"off_policy,omitempty"`
	// Metrics are what a trainer of yours said beside, by its own names.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Control is the goal that the run keeps by moving its settings, after the step; absent without one.
	Control *Control `json:"control,omitempty"`
	// HeldOutAccuracy is the newest evaluation, by greedy decoding, or as the run samples with evaluate.slots; absent where there is none new.
	HeldOutAccuracy *float64 `json:"held_out_accuracy,omitempty"`
	// HeldOutStep is the version that HeldOutAccuracy judged, or at which it began with evaluate.slots.
	HeldOutStep *loop.Version `json:"held_out_step,omitempty"`
	// HeldOut is more of an evaluation by players or workers (evaluate.slots); absent for others.
	HeldOut *HeldOut `json:"held_out,omitempty"`
}

// HeldOut is what players or workers made of held-out prompts while the run went on.
type HeldOut struct {
	// Reward is the mean reward of the prompts that were scored.
	Reward float64 `json:"reward"`
	// Scored counts those.
	Scored int `json:"scored"`
	// Infra counts those that the infrastructure failed in their last attempt.
	Infra int `json:"failed_infra"`
	// Data counts those that failed by their task.
	Data int `json:"failed_data"`
	// Oldest is the oldest policy version that sampled.
	Oldest loop.Version `json:"oldest_version"`
	// Newest is the newest: engines may have switched meanwhile.
	Newest loop.Version `json:"newest_version"`
}

// File is the name of the file of a run directory that holds the lines.
const File = "metrics.jsonl"

// LineMax is more bytes than one of the lines has: a trainer may send 1,024 metrics with names of 128 bytes.
const LineMax = 16 << 20
