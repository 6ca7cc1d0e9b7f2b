package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/schedule"
)

// topologies are the schedules that are drawn, in their order.
var topologies = []struct {
	name, title string
	arm         schedule.Name
}{
	{"colocated", "Colocated: every GPU generates, then every GPU trains", schedule.Colocated},
	{"disaggregated", "Disaggregated, synchronous: one side waits for the other", schedule.Synchronous},
	{"one_step_off", "One step off: the next batch is generated while this one is trained", schedule.OneStepOff},
	{"fully_async", "Fully asynchronous: engines never wait, a full queue drops its oldest group", schedule.Drop},
	{"partial", "Partial rollout: a share starts ahead, and a sync interrupts and resumes", schedule.Partial},
}

// scheduleInput is one quantity of the schedules, with its default and the bounds of what is simulated at once.
type scheduleInput struct {
	name               string
	value, least, most float64
	whole              bool
}

// Bounds of one answer: most are simulated in a tenth of a second, none takes longer than some seconds.
const (
	scheduleRollouts = 1 << 14 // of all batches of one schedule, where six batches have no more
	scheduleEvents   = 1 << 18 // of one schedule
	scheduleTokens   = 1000    // the nominal mean length; only times are shown
)

// scheduleInputs are the inputs with the run's own figures as defaults, where it has any.
func (m *Model) scheduleInputs() []scheduleInput {
	s, syncS := m.measured()
	ess, rules := m.meanSampleSize(), m.opt.Rules
	c, b := float64(rules.Concurrency()), float64(rules.BatchGroups*rules.GroupSize)
	rolloutS, trainS, tail := s.RolloutS.Mean, s.StepS.Mean, s.TailMultiplier
	if s.Steps == 0 || rolloutS <= 0 || trainS <= 0 {
		rolloutS, trainS, tail = 60, 60*b/c, 1.8
	}
	n := float64(min(max(len(rules.EngineSlots), 1), 512)) // a GPU an engine, and as many that train: no run says how many it has
	return []scheduleInput{
		{"group", float64(rules.GroupSize), 1, 128, true}, {"batch", b, 1, 1 << 14, true},
		{"concurrency", c, 1, 1 << 14, true}, {"gpus", 2 * n, 2, 1024, true}, {"rollout-gpus", n, 1, 1023, true},
		{"rollout-time", rolloutS, 1e-6, 1e6, false}, {"tail-multiplier", math.Max(tail, 1), 1, 64, false},
		{"train-time", trainS, 1e-6, 1e6, false}, {"logp-time", trainS / 4, 0, 1e6, false}, {"sync-time", syncS, 0, 1e5, false}, {"switch-time", 2 * syncS, 0, 1e5, false},
		{"ahead", 0.5, 0, 8, false}, {"pieces", 1, 1, 64, true}, {"queue-factor", max(float64(rules.QueueGroups)/float64(rules.BatchGroups), 1), 1, 16, false},
		{"max-staleness", 0, 0, 1000, false}, {"kl-per-version", klPerVersion(s, ess), 0, 10, false}, {"kl-exponent", 1, 1, 2, false},
		{"clip-low", 0.2, 0.001, 0.999, false}, {"clip-high", 0.2, 0.001, 100, false},
	}
}

func (m *Model) meanSampleSize() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.series.mean("effective_sample_size")
}

// klPerVersion is how far the policy moves in a version, in nats a token, from the effective sample size of a batch of
// the mean staleness: e^(−Var log w) with a variance of twice the divergence (theory.EffectiveShare). 0 is unknown.
func klPerVersion(s metrics.Summary, ess float64) float64 {
	if !(ess > 0 && ess < 1) || !(s.Staleness.Mean > 0) {
		return 0
	}
	return -math.Log(ess) / 2 / s.Staleness.Mean
}

// meanSync is the mean time of a weight sync of the fleet, in seconds.
func (d *drawing) meanSync() float64 {
	if d.syncs == 0 {
		return 0
	}
	return float64(d.syncNS) / 1e9 / float64(d.syncs)
}

// Schedules simulates the schedules at the inputs asked for, those not given being the run's, until the context ends.
func (m *Model) Schedules(ctx context.Context, given map[string]float64, topology string) (Schedules, error) {
	values := map[string]float64{}
	for _, one := range m.scheduleInputs() {
		v := min(max(one.value, one.least), one.most)
		if asked, is := given[one.name]; is {
			if !(asked >= one.least && asked <= one.most) || one.whole && asked != math.Trunc(asked) {
				return Schedules{}, invalid("%s=%g: want %s from %g to %g", one.name, asked, kindOfNumber(one.whole), one.least, one.most)
			}
			v = asked
		}
		values[one.name] = v
	}
	in, err := m.scheduleOf(ctx, values)
	if err != nil {
		return Schedules{}, err
	}
	out := Schedules{Inputs: values, Schedules: []Schedule{}}
	for _, t := range topologies {
		if topology != "" && topology != t.name {
			continue
		}
		line, err := scheduleLine(ctx, in, t.name, t.title, t.arm, m.computing.eventsMax)
		if err != nil {
			return Schedules{}, err
		}
		out.Schedules = append(out.Schedules, line)
	}
	if len(out.Schedules) == 0 {
		return out, invalid("topology=%s: want colocated, disaggregated, one_step_off, fully_async or partial", topology)
	}
	return out, nil
}

func kindOfNumber(whole bool) string {
	if whole {
		return "a whole number"
	}
	return "a number"
}

// scheduleOf is the input of package schedule for the values. Rollouts have a nominal length, generated at the speed
// that makes them as long as asked for.
func (m *Model) scheduleOf(ctx context.Context, v map[string]float64) (schedule.Input, error) {
	group, gpus, rollout := int(v["group"]), int(v["gpus"]), int(v["rollout-gpus"])
	if rollout >= gpus {
		return schedule.Input{}, invalid("rollout-gpus=%d of gpus=%d: the trainer needs one at least", rollout, gpus)
	}
	lengths, err := m.computing.lengths.of(ctx, v["tail-multiplier"], group)
	if err != nil {
		return schedule.Input{}, err
	}
	rollouts := int(v["batch"])
	if rollouts%group != 0 {
		return schedule.Input{}, invalid("batch=%d is not a whole number of groups of %d", rollouts, group)
	}
	in := schedule.Input{Lengths: lengths, GroupSize: group, BatchGroups: rollouts / group, GPUs: gpus, RolloutGPUs: rollout,
		SlotsPerEngine: max(int(math.Round(v["concurrency"]/float64(rollout))), 1), Decode: schedule.Constant(lengths.Mean() / v["rollout-time"]),
		Train:    schedule.Phase{S: v["train-time"], GPUs: gpus - rollout},
		LogProbs: schedule.Phase{S: v["logp-time"], GPUs: gpus - rollout}, SyncS: v["sync-time"], SwitchS: v["switch-time"], Pieces: int(v["pieces"]),
		Threshold: v["ahead"], QueueFactor: v["queue-factor"], StalenessMax: v["max-staleness"], KLPerBatch: v["kl-per-version"], KLExponent: v["kl-exponent"],
		ClipLow: v["clip-low"], ClipHigh: v["clip-high"], Seed: 1, Warmup: 4, Batches: min(max(scheduleRollouts/rollouts, 6), 30)}
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return in, invalid("%v", err)
	}
	return in, nil
}

// lengthsOf are lognormal lengths whose longest of a group is so many times the mean, as far as a tail can be.
func lengthsOf(ctx context.Context, multiplier float64, group int) (*workload.Lengths, error) {
	build := func(tailness float64) (*workload.Lengths, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: scheduleTokens, Tailness: tailness}.Build()
	}
	low, high := 0.0, 100.0
	for range 12 {
		middle := (low + high) / 2
		l, err := build(middle)
		if err != nil {
			return nil, err
		}
		if l.TailMultiplier(group) < multiplier {
			low = middle
		} else {
			high = middle
		}
	}
	return build((low + high) / 2)
}

// knownLengths are the newest lengths that were made: most questions change something else.
type knownLengths struct {
	mu         sync.Mutex
	multiplier float64
	group      int
	lengths    *workload.Lengths
}

func (k *knownLengths) of(ctx context.Context, multiplier float64, group int) (*workload.Lengths, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lengths != nil && k.multiplier == multiplier && k.group == group {
		return k.lengths, nil
	}
	l, err := lengthsOf(ctx, multiplier, group)
	if err == nil {
		k.multiplier, k.group, k.lengths = multiplier, group, l
	}
	return l, err
}

// scheduleLine simulates one schedule; what cannot run is said in its notes. The error is the context's.
func scheduleLine(ctx context.Context, in schedule.Input, name, title string, arm schedule.Name, eventsMax int64) (Schedule, error) {
	s := Schedule{Topology: name, Title: title, Bars: []Bar{}, Arrows: []Arrow{}, Notes: []string{}}
	a := in.Arm(arm)
	if err := a.Rules.Validate(); err != nil {
		s.Notes = append(s.Notes, "It cannot run here: "+err.Error())
		return s, nil
	}
	o, err := schedule.SimulateWithin(ctx, in, a, eventsMax)
	switch {
	case ctx.Err() != nil:
		return s, ctx.Err()
	case errors.Is(err, schedule.ErrTooMuch):
		s.Notes = append(s.Notes, fmt.Sprintf("Too long to show: its first batches take more than %d events. A smaller batch, or times that lie closer together, take fewer.", eventsMax))
		return s, nil
	case err != nil:
		s.Notes = append(s.Notes, "It cannot run here: "+err.Error())
		return s, nil
	}
	s.measured(in, a, o)
	s.drawn(o.Works)
	return s, nil
}

// measured takes the figures of a schedule.
func (s *Schedule) measured(in schedule.Input, a schedule.Arm, o schedule.Outcome) {
	s.PeriodS = o.Parts.StepS
	s.RolloutsPerS = float64(in.GroupSize*in.BatchGroups) / s.PeriodS
	s.TrainerIdle, s.RolloutIdle = o.Summary.TrainerIdleRatio, 1-o.SlotsBusy
	s.StalenessMean = o.Summary.Staleness.Mean / float64(a.Pieces)
	s.WithinBudget = in.StalenessMax == 0 || s.StalenessMean <= in.StalenessMax
	if clip := in.ClipFraction(o); !math.IsNaN(clip) {
		s.ClipFraction = &clip
	} else {
		s.Notes = append(s.Notes, "How fast the policy moves is not known (kl-per-version): no clip fraction is predicted.")
	}
	if waste := o.Parts.WasteS / (o.Parts.WasteS + o.Parts.WorkS); waste > 0.01 {
		s.Notes = append(s.Notes, fmt.Sprintf("%.0f %% of what is generated is dropped.", 100*waste))
	}
}

// drawn turns the recorded work into bars, and what waits for what into arrows.
func (s *Schedule) drawn(w schedule.Works) {
	bar := func(lane, kind, label string, from, to float64, version int64) int {
		row := 0
		for _, other := range s.Bars {
			if other.Lane == lane && other.Row == row && other.ToS > from+1e-9 && other.FromS < to-1e-9 {
				row++ // bars come in the order of time: rows above were looked at before
			}
		}
		s.Bars = append(s.Bars, Bar{ID: len(s.Bars), Lane: lane, Row: row, FromS: from, ToS: to, Label: label, Kind: kind, Version: version})
		return len(s.Bars) - 1
	}
	made := map[int64]int{}    // the train bar of a version
	brought := map[int64]int{} // the sync bar of a version
	rollouts := map[int64]int{}
	for _, step := range w.Steps {
		rollouts[step.Version] = bar("rollout", "generate", fmt.Sprintf("batch of v%d", step.Version), step.BeganS, step.ReadyS, step.Oldest)
	}
	for _, step := range w.Steps {
		from, last := step.FromS, rollouts[step.Version]
		if step.FromS > step.FirstReadyS+1e-9 {
			wait := bar("queue", "wait", "ready groups wait", step.FirstReadyS, step.FromS, step.Oldest)
			s.Arrows = append(s.Arrows, Arrow{last, wait, "groups are ready one by one"})
			last = wait
		}
		if step.LogProbsS > 0 {
			logProbs := bar("trainer", "logprobs", "old log-probs", from, from+step.LogProbsS, step.Version)
			s.Arrows = append(s.Arrows, Arrow{last, logProbs, "a batch is ready"})
			from, last = from+step.LogProbsS, logProbs
		}
		made[step.Version] = bar("trainer", "train", fmt.Sprintf("train v%d", step.Version), from, step.ToS, step.Version)
		why := "a batch is ready"
		if step.LogProbsS > 0 {
			why = "the loss needs them"
		}
		s.Arrows = append(s.Arrows, Arrow{last, made[step.Version], why})
	}
	for _, sync := range w.Syncs {
		brought[sync.Version] = bar("sync", "sync", fmt.Sprintf("weights v%d", sync.Version), sync.FromS, sync.ToS, sync.Version)
		if train, there := made[sync.Version]; there {
			s.Arrows = append(s.Arrows, Arrow{train, brought[sync.Version], "the version is made"})
		}
	}
	for _, step := range w.Steps {
		if sync, there := brought[step.Oldest]; there {
			s.Arrows = append(s.Arrows, Arrow{sync, rollouts[step.Version], fmt.Sprintf("its first groups begin with v%d", step.Oldest)})
		}
	}
}
