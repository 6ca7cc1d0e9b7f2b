package foreign

import (
	"context"
	"encoding/json"
	"math"
)

// pipelineRL is PipelineRL. Its versions are counts of samples: a broadcast is numbered by the samples trained so
// far. Its trainer, actor and preprocessor log apart; the trainer's rows alone say the step.
var pipelineRL = &Framework{
	Name: "pipelinerl", Title: "PipelineRL", Aliases: []string{"pipeline-rl"},
	Marks:        []string{"stats/time_waiting_for_data", "stats/min_actor_version", "stats/samples_too_old_to_train", "preprocessor/*", "actor/trainer_model_version"},
	MarkSettings: []string{"actor.llm_max_rollouts", "finetune.weight_update_interval"},
	Hints:        []string{"throughput/sec_per_step", "rl/ess"},
	StepKeys:     []string{"stats/completed_steps"},
	Queue:        pipelineQueue,
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"attempts"}},
		{Setting: GroupSize, Settings: []string{"finetune.attempts"}},
		{Setting: Batch, Keys: []string{"stats/samples", "stats/completed_steps"}, Formula: "stats/samples ÷ stats/completed_steps", Of: pipelineBatch},
		{Setting: Batch, Settings: []string{"finetune.train_batch_size", "finetune.gradient_accumulation_passes"},
			Formula: "finetune.train_batch_size × finetune.gradient_accumulation_passes", Of: configProduct("finetune.train_batch_size", "finetune.gradient_accumulation_passes")},
		{Setting: Queue, Settings: []string{"preprocess.ring_buffer_size"}},
		{Setting: Budget, Settings: []string{"finetune.max_lag"}, Formula: "finetune.max_lag ÷ B: it is in samples", Of: pipelineBudget},
		{Setting: SyncEvery, Settings: []string{"finetune.weight_update_interval"}, Formula: "finetune.weight_update_interval ÷ B, up to a whole step: it is in samples", Of: pipelineSync},
	},
	Steps: []StepRule{
		{Notion: Train, Keys: []string{"throughput/samples_per_sec"}, Formula: "B ÷ throughput/samples_per_sec: the passes alone", Of: pipelineTrain},
		{Notion: Wait, Keys: []string{"stats/time_waiting_for_data"}, Formula: "rise of stats/time_waiting_for_data", Of: rise("stats/time_waiting_for_data")},
		{Notion: TrainerIdle, Keys: []string{"stats/time_waiting_for_data", "throughput/sec_per_step"}, Formula: "rise of stats/time_waiting_for_data ÷ throughput/sec_per_step", Of: pipelineIdle},
		{Notion: Staleness, Keys: []string{"stats/lag_mean"}, Formula: "stats/lag_mean ÷ B: it is in samples", Of: over("stats/lag_mean", Batch)},
		{Notion: StalenessTop, Keys: []string{"stats/lag_max"}, Formula: "stats/lag_max ÷ B: it is in samples", Of: over("stats/lag_max", Batch), Fold: FoldMax},
		{Notion: StalenessTop, Keys: []string{"stats/lag"}, Formula: "stats/lag ÷ B: it is in samples, and the largest", Of: over("stats/lag", Batch), Fold: FoldMax},
		{Notion: Trained, Keys: []string{"stats/samples"}, Formula: "rise of stats/samples", Of: rise("stats/samples")},
		{Notion: Reward, Keys: []string{"rl/reward"}},
		{Notion: EffectiveSize, Keys: []string{"rl/ess"}},
		{Notion: Clipped, Keys: []string{"rl/clamp_log_ratio_new_old_indicator"}},
		{Notion: TokensPerS, Keys: []string{"throughput/real_tokens_per_sec"}},
	},
	Files: []OwnFile{
		{Match: "streams/actor/*/*/*.jsonl", What: "the actor's stream of groups", Rollouts: true, Read: readPipelineStream},
		{Match: "streams/*/*/*/*.jsonl", What: "streams that say nothing of the loop", Read: passOver},
	},
	Adjust: pipelineAdjust,
	Definition: "PipelineRL numbers a version by the samples trained until its broadcast, and logs as lag the trainer's number less the lowest of the step's rollouts, each numbered when it was started. " +
		"Divided by B it counts train steps from a rollout's start, as ours does from a group's first token; stats/lag is the step's largest (its pull request 152 adds lag_mean, which is read where it is logged).",
	Lacks: map[string]Lack{
		"concurrency_rollouts": {Why: "actor.llm_max_rollouts bounds each inference server, and no log says how many there are", Get: "give it: --set concurrency_rollouts=(llm_max_rollouts × servers)"},
		"staleness_mean":       {Why: "stats/lag is the step's largest lag, not its mean", Get: "update PipelineRL to one with stats/lag_mean (pull request 152)"},
		"sync_s":               {Why: "PipelineRL does not time its broadcast; it is in the period and in no part of it"},
		"tail_multiplier":      {Why: "the actor's latency statistics are of single rollouts over all groups", Get: "give the run's directory, with streams/actor: the groups' lengths stand there"},
		"pqs":                  {Why: "a group's line in the stream carries no time and no version of its end"},
	},
	Notes: []string{
		"versions, lag, max_lag and weight_update_interval are in samples: they are divided by B",
		"stats/lag is the largest of a step, stats/time_waiting_for_data and stats/samples add up over the run",
		"trainer, actor and preprocessor have a W&B run each, and only the trainer's rows carry stats/completed_steps: the others' steps count their own rows",
		"max_lag is a number of samples in the actor, and a difference of versions in the trainer, which counts violations and drops nothing",
	},
}

// pipelineQueue is a ring that drops what is old, unless a lag is set: then no more is started than that lets be trained.
func pipelineQueue(v Values) (policy, preset string) {
	_, bounded := v.Config("finetune.max_lag")
	pops, said := v.Config("pop_old_data")
	switch {
	case bounded:
		return "bounded", ""
	case !said || pops != 0:
		return "drop", "pipelinerl"
	}
	return "block", ""
}

// rise is by how much a counter grew, a step.
func rise(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) { return v.Rise(name) }
}

func pipelineBatch(v Values) (float64, bool) {
	samples, ok := v.Last("stats/samples")
	steps, there := v.Last("stats/completed_steps")
	return samples / steps, ok && there && steps > 0
}

func pipelineBudget(v Values) (float64, bool) {
	lag, ok := v.Config("finetune.max_lag")
	batch, known := v.Setting(Batch)
	return lag / batch, ok && known && batch > 0
}

func pipelineSync(v Values) (float64, bool) {
	interval, ok := v.Config("finetune.weight_update_interval")
	batch, known := v.Setting(Batch)
	return math.Max(1, math.Ceil(interval/batch)), ok && known && batch > 0
}

func pipelineTrain(v Values) (float64, bool) {
	rate, ok := v.Get("throughput/samples_per_sec")
	batch, known := v.Setting(Batch)
	return batch / rate, ok && known && rate > 0
}

func pipelineIdle(v Values) (float64, bool) {
	waited, ok := v.Rise("stats/time_waiting_for_data")
	step, there := v.Get("throughput/sec_per_step")
	return waited / step, ok && there && step > 0
}

// pipelineText is a training text of the actor's stream.
type pipelineText struct {
	GroupID      string   `json:"group_id"`
	Reward       *float64 `json:"reward"`
	OutputTokens *float64 `json:"output_tokens"`
	Metadata     struct {
		ModelVersion *float64 `json:"model_version"`
		StepIndex    int      `json:"step_index"`
	} `json:"metadata"`
}

// readPipelineStream takes the groups of the actor's stream; a line is one. Versions stay in samples until
// the batch is known.
func readPipelineStream(ctx context.Context, file string, taker Taker) error {
	return eachJSON(ctx, file, taker, func(line []byte, _ int64) error {
		var group []pipelineText
		if err := json.Unmarshal(line, &group); err != nil {
			return errJSON
		}
		for _, text := range group {
			if text.Metadata.StepIndex > 0 { // later turns of the rollout before
				continue
			}
			r := Rollout{Group: text.GroupID}
			if text.Metadata.ModelVersion != nil {
				r.Start = Figure{*text.Metadata.ModelVersion, Inferred, "metadata.model_version"}
			}
			if text.OutputTokens != nil {
				r.Tokens = Figure{*text.OutputTokens, Logged, "output_tokens"}
			}
			if text.Reward != nil {
				r.Reward = Figure{*text.Reward, Logged, "reward"}
			}
			taker.Rollout(r)
		}
		return nil
	})
}

// pipelineAdjust turns the rollouts' versions from samples into train steps, and takes the tail from their lengths.
func pipelineAdjust(v Values, log *Log) {
	batch, ok := v.Setting(Batch)
	for i := range log.Rollouts {
		start := &log.Rollouts[i].Start
		if !start.Known() {
			continue
		}
		if !ok || batch <= 0 {
			*start = Figure{}
			continue
		}
		*start = Figure{start.Value / batch, Inferred, "metadata.model_version ÷ B"}
	}
	tail, known := pipelineTail(log.Rollouts)
	if !known {
		return
	}
	const from = "longest response of a group over the mean, of all groups of streams/actor"
	for i := range log.Series {
		log.Series[i].TailMultiplier = Figure{tail, Inferred, from}
	}
	log.Inferred = append(log.Inferred, Tail.Name+" = "+from)
}

// pipelineTail is the mean longest response of a group over the mean response. A group stands in one line, so that its
// rollouts follow each other.
func pipelineTail(rollouts []Rollout) (float64, bool) {
	longest, groups, tokens := 0.0, 0.0, 0.0
	for i, r := range rollouts {
		if !r.Tokens.Known() {
			return 0, false
		}
		tokens += r.Tokens.Value
		if i == 0 || r.Group != rollouts[i-1].Group {
			groups++
			longest += longestOf(rollouts[i:])
		}
	}
	return longest / groups / (tokens / float64(len(rollouts))), groups > 0 && tokens > 0
}

// longestOf is the longest response of the group that rollouts begin with.
func longestOf(rollouts []Rollout) float64 {
	most := 0.0
	for _, r := range rollouts {
		if r.Group != rollouts[0].Group {
			break
		}
		most = max(most, r.Tokens.Value)
	}
	return most
}
