package foreign

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// areal is AReaL. Its stats are logged under the step counted from 0; its staleness is of
// tokens. The session tracer and dump_to_file write a line for each rollout.
var areal = &Framework{
	Name: "areal", Title: "AReaL",
	Marks:        []string{"ppo_actor/*", "timeperf/*", "version_stats/*"},
	MarkSettings: []string{"rollout.max_head_offpolicyness"},
	Queue:        queue("bounded", "areal"),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"gconfig.n_samples"}},
		{Setting: Batch, Settings: []string{"train_dataset.batch_size", "gconfig.n_samples"},
			Formula: "train_dataset.batch_size × gconfig.n_samples", Of: configProduct("train_dataset.batch_size", "gconfig.n_samples")},
		{Setting: Batch, Keys: []string{"ppo_actor/n_seqs"}},
		{Setting: Concurrency, Settings: []string{"rollout.max_concurrent_rollouts", "gconfig.n_samples"},
			Formula: "rollout.max_concurrent_rollouts × gconfig.n_samples", Of: configProduct("rollout.max_concurrent_rollouts", "gconfig.n_samples")},
		{Setting: Concurrency, Settings: []string{"rollout.consumer_batch_size", "gconfig.n_samples"},
			Formula: "rollout.consumer_batch_size × gconfig.n_samples, as max_concurrent_rollouts is not set", Of: configProduct("rollout.consumer_batch_size", "gconfig.n_samples")},
		{Setting: Budget, Settings: []string{"rollout.max_head_offpolicyness"}},
		{Setting: Queue, Settings: []string{"rollout.max_head_offpolicyness"},
			Formula: "(max_head_offpolicyness + 1) × B: no more is admitted and not yet trained", Of: arealQueue},
		{Setting: SyncEvery, Formula: "1: weights are updated after every train step", Of: always(1)},
		{Setting: RolloutGPUs, Settings: []string{"rollout.backend"}, Formula: "data × pipeline × tensor of rollout.backend", Of: arealBackend("rollout.backend")},
		{Setting: TrainGPUs, Settings: []string{"actor.backend"}, Formula: "data × pipeline × tensor of actor.backend", Of: arealBackend("actor.backend")},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{"timeperf/*"}, Formula: "sum of timeperf/*: the loop's parts follow each other"},
		{Notion: Train, Keys: []string{"timeperf/train_step", "timeperf/recompute_logp", "timeperf/ref_logp", "timeperf/critic_values", "timeperf/teacher_logp", "timeperf/compute_advantage", "timeperf/critic_train_step"},
			Formula: "train_step + recompute_logp + ref_logp + critic_values + teacher_logp + compute_advantage + critic_train_step",
			Of:      sum("timeperf/train_step", "timeperf/recompute_logp", "timeperf/ref_logp", "timeperf/critic_values", "timeperf/teacher_logp", "timeperf/compute_advantage", "timeperf/critic_train_step")},
		{Notion: Wait, Keys: []string{"timeperf/rollout"}},
		{Notion: Sync, Keys: []string{"timeperf/update_weights"}},
		{Notion: TrainerIdle, Keys: []string{"timeperf/rollout", "timeperf/*"}, Formula: "timeperf/rollout ÷ sum of timeperf/*", Of: ratio("timeperf/rollout", "timeperf/*")},
		{Notion: TokenStaleness, Keys: []string{arealTheta}, Of: average(arealTheta)},
		{Notion: Trained, Keys: []string{"ppo_actor/n_seqs"}},
		{Notion: InFlight, Keys: []string{"running"}, Formula: "running × n_samples", Of: times("running", GroupSize)},
		{Notion: Reward, Keys: []string{"ppo_actor/task_reward/avg"}},
		{Notion: Response, Keys: []string{"ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"}, Formula: "ppo_actor/seq_len/avg − ppo_actor/prompt_len/avg",
			Of: difference("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg")},
		{Notion: Clipped, Keys: []string{"ppo_actor/update/clip_ratio/avg"}},
		{Notion: Divergence, Keys: []string{"ppo_actor/update/behave_approx_kl/avg"}},
	},
	Files: []OwnFile{
		{Match: "traces-r0.jsonl", What: "the performance tracer's spans of the train loop", Read: readArealTrace},
		{Match: "traces-r*.jsonl", What: "the same of other ranks, left out", Read: passOver},
		{Match: "sessions-r*.jsonl", What: "the session tracer's rollouts", Rollouts: true, Read: readArealSessions},
		{Match: "rollout/[0-9]*/[0-9]*.jsonl", What: "dumped trajectories with the versions of their tokens", Rollouts: true, Read: readArealDump},
		{Match: "eval-rollout/[0-9]*/[0-9]*.jsonl", What: "dumped trajectories of an evaluation, which are no part of training", Read: passOver},
	},
	Adjust: arealAdjust,
	Definition: "AReaL logs the staleness of tokens, as the version that the step trains (theta) less the version that sampled the token, averaged over micro-batches. " +
		"That is our token staleness. Ours of a group counts from its first token, so it is larger wherever a rollout spans versions. Where the session tracer's and the dumped " +
		"trajectories' files are given, it is inferred from the oldest version of every group, the groups being trained in the order in which they were accepted, which is how AReaL takes them. " +
		"Its parts meet at the trainer's version when a group's last reward was done, looked up by the clock among the ends of the train steps: the last token's version is an engine's, which is behind.",
	Lacks: map[string]Lack{
		"staleness_mean":  {Why: "AReaL's stats have the staleness of tokens (token_staleness_mean here), not of a group's first token", Get: "set rollout.dump_to_file and perf_tracer.session_tracer.enabled, and give the directory of both with the log"},
		"pqs":             {Why: "AReaL's stats do not say under which version a group became ready", Get: "set rollout.dump_to_file and perf_tracer.session_tracer.enabled, and give the directory of both with the log"},
		"tail_multiplier": {Why: "stats have no time of a rollout", Get: "set perf_tracer.enabled and perf_tracer.session_tracer.enabled, and give sessions-r*.jsonl with the log"},
	},
	Notes: []string{
		"steps count from 0; a step's row is the step that makes the next version",
		"sample_staleness_theta_max is the mean over micro-batches of their largest, so it is below the step's largest: it is not taken for one",
		"sample_staleness_proximal_* is theta's less one: it is left out",
		"a task of rollout.max_concurrent_rollouts is a group: it is multiplied by gconfig.n_samples",
		"enqueued, running, accepted and rejected stand only in the console's text",
	},
}

const arealTheta = "*version_stats/sample_staleness_theta_avg"

func arealQueue(v Values) (float64, bool) {
	eta, ok := v.Config("rollout.max_head_offpolicyness")
	batch, known := v.Setting(Batch)
	return (eta + 1) * batch, ok && known
}

// arealBackend multiplies the parallel sizes of an allocation like sglang:d4p1t1.
func arealBackend(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		_, sizes, found := strings.Cut(v.Text(name), ":")
		if !found {
			return 0, false
		}
		product := 1.0
		for sizes != "" {
			letters := strings.IndexAny(sizes, "0123456789")
			if letters < 1 {
				return 0, false
			}
			number := digits(sizes[letters:])
			size, err := strconv.Atoi(number)
			if err != nil || size < 1 {
				return 0, false
			}
			product *= float64(size)
			sizes = sizes[letters+len(number):]
		}
		return product, true
	}
}

// arealAdjust joins the two files' halves of every rollout and infers what they say of the steps.
func arealAdjust(v Values, log *Log) {
	groups := arealJoin(log)
	batch, known := v.Setting(Batch)
	size, there := v.Setting(GroupSize)
	if !known || !there || size < 1 || batch < size {
		return
	}
	perStep := int(batch / size)
	if log.droppedTimes { // which group was the first of step 0 is lost
		return
	}
	groups = arealAccepted(groups, log.dropped)
	split := map[int][]arealGroup{}
	for i := range log.Series {
		step := &log.Series[i]
		from := int(step.Step) * perStep
		if step.Steps != 1 || from < 0 || from+perStep > len(groups) {
			continue
		}
		if slices.ContainsFunc(groups[from:from+perStep], func(g arealGroup) bool { return g.oldest < 0 }) {
			continue // its versions were left out
		}
		if arealStep(log, step, groups[from:from+perStep]) {
			split[i] = groups[from : from+perStep]
		}
	}
	arealSplit(log, split)
}

// arealSplit sets the parts of the steps' staleness. A step's stats are written when its weights have been updated.
func arealSplit(log *Log, split map[int][]arealGroup) {
	if len(split) == 0 || splitGiven(log) {
		return
	}
	ends, clocked := newStepEnds(log, arealAfterTraining, func(s *Step) float64 { return float64(s.Step) + 1 })
	if !clocked {
		warnOfClocks(log, 0, 0)
		return
	}
	parts := map[int]readiness{}
	disagreed, count := 0, 0
	for i, groups := range split {
		var r readiness
		for _, g := range groups {
			count++
			if !r.add(ends, readyGroup{oldest: g.oldest, newest: g.newest, trained: float64(log.Series[i].Step), readyS: g.endS}) {
				disagreed++
			}
		}
		parts[i] = r
	}
	if float64(disagreed) > disagreeMax*float64(count) {
		warnOfClocks(log, disagreed, count)
		return
	}
	for i, r := range parts {
		r.put(&log.Series[i])
	}
	log.Inferred = append(log.Inferred, PreQueue.Name+" = "+readyFormula, InQueue.Name+" = "+queuedFormula)
}

// arealAfterTraining is what a step's loop does between the end of its training and its stats.
func arealAfterTraining(s *Step) float64 {
	if s.PeriodS.Known() && s.WaitS.Known() && s.TrainS.Known() {
		return max(0, s.PeriodS.Value-s.WaitS.Value-s.TrainS.Value)
	}
	return s.SyncS.Value
}

const (
	arealOrder = "the oldest version of every group in dumped trajectories, groups trained in the order in which the session tracer accepted them"
	arealTimes = "the session tracer's generate and reward phases"
)

// arealGroup is a task: the indices of its rollouts in Log.Rollouts.
type arealGroup struct {
	oldest, newest, endS float64 // versions of its first and last tokens; when it was whole
	rollouts             []int
}

// arealJoin puts a session's times and a dump's versions into one rollout. Both number a task's rollouts
// in the order in which they were started.
func arealJoin(log *Log) []arealGroup {
	type halves struct{ sessions, dumps []Rollout }
	found := map[string]*halves{}
	var order []string
	for _, r := range log.Rollouts {
		h := found[r.Group]
		if h == nil {
			h = &halves{}
			found[r.Group] = h
			order = append(order, r.Group)
		}
		if r.Start.Known() {
			h.dumps = append(h.dumps, r)
		} else {
			h.sessions = append(h.sessions, r)
		}
	}
	log.Rollouts = log.Rollouts[:0]
	var groups []arealGroup
	for _, name := range order {
		h := found[name]
		if log.dropped && len(h.dumps) < len(h.sessions) {
			h.dumps = nil // some were left out
		}
		g := arealGroup{oldest: -1}
		for i := range max(len(h.sessions), len(h.dumps)) {
			r := Rollout{Group: name}
			if i < len(h.sessions) {
				r = h.sessions[i]
				g.endS = max(g.endS, r.EndS.Value)
			}
			if i < len(h.dumps) {
				d := h.dumps[i]
				r.Start, r.End, r.Tokens, r.Reward = d.Start, d.End, d.Tokens, d.Reward
				if g.oldest < 0 || d.Start.Value < g.oldest {
					g.oldest = d.Start.Value
				}
				g.newest = max(g.newest, d.End.Value)
			}
			g.rollouts = append(g.rollouts, len(log.Rollouts))
			log.Rollouts = append(log.Rollouts, r)
		}
		groups = append(groups, g)
	}
	return groups
}

// arealAccepted puts groups in the order in which they were accepted: that of their last rollouts. Groups whose dumps were
// dropped keep their place.
func arealAccepted(groups []arealGroup, dropped bool) []arealGroup {
	out := make([]arealGroup, 0, len(groups))
	for _, g := range groups {
		if g.endS > 0 && (g.oldest >= 0 || dropped) {
			out = append(out, g)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].endS < out[j].endS })
	return out
}

// arealStep infers a step's figures from the groups that it trained. It is false where steps and versions do not fit: the
// files are not of one run.
func arealStep(log *Log, step *Step, groups []arealGroup) bool {
	sum, top, longest, mean, n := 0.0, 0.0, 0.0, 0.0, 0.0
	for _, g := range groups {
		staleness := float64(step.Step) - g.oldest
		sum, top = sum+staleness, max(top, staleness)
		slowest := 0.0
		for _, i := range g.rollouts {
			r := &log.Rollouts[i]
			r.Trained = Figure{float64(step.Step), Inferred, arealOrder}
			took := r.EndS.Value - r.StartS.Value
			slowest = max(slowest, took)
			mean, n = mean+took, n+1
		}
		longest += slowest
	}
	if sum < 0 {
		return false
	}
	count := float64(len(groups))
	step.StalenessMean, step.StalenessMax = Figure{sum / count, Inferred, arealOrder}, Figure{top, Inferred, arealOrder}
	if n > 0 && mean > 0 {
		step.RolloutMeanS, step.GroupMeanS = Figure{mean / n, Inferred, arealTimes}, Figure{longest / count, Inferred, arealTimes + ": the longest of a group"}
		step.TailMultiplier = Figure{(longest / count) / (mean / n), Inferred, arealTimes + ": the longest of a group over the mean"}
	}
	return true
}
