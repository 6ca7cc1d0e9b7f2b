package metrics

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/headway-rl/headway/loop"
)

// Summary is what a run or a simulation reports of its measured window, under
// the names that scripts rely on.
type Summary struct {
	Staleness      Staleness `json:"staleness"`
	PQS            Mean      `json:"pqs"`
	IQS            Mean      `json:"iqs"`
	TokenStaleness Mean      `json:"token_staleness"`
	// Utilization is ρ: rollouts produced per second over rollouts a busy trainer consumes
	// per second, before any filter.
	Utilization      float64 `json:"utilization"`
	PeriodS          Mean    `json:"period_s"`
	TrainerIdleRatio float64 `json:"trainer_idle_ratio"`
	// TrainerAbsentRatio is the share of the time in which there was no trainer (Attendance): it neither trained nor waited.
	TrainerAbsentRatio float64    `json:"trainer_absent_ratio,omitempty"`
	RolloutIdleRatio   float64    `json:"rollout_idle_ratio"`
	Throughput         Throughput `json:"throughput"`
	Length             Length     `json:"length"`
	Confidence         Confidence `json:"confidence"`
	// TailMultiplier is E[longest rollout of a group]/E[rollout] of measured durations;
	// Acceptance the share of ready groups that were not filtered.
	TailMultiplier float64 `json:"tail_multiplier"`
	Acceptance     float64 `json:"acceptance"`
	// StepS is the mean train step alone, in seconds.
	StepS Mean `json:"step_s"`
	// SyncS is the mean time from a version to its being served by every engine, in seconds; 0 where no sync ended.
	SyncS Mean `json:"sync_s"`
	// Dominant is the larger part of the staleness: "pqs" or "iqs".
	Dominant string `json:"dominant"`
	// Steps is how many train steps the window holds, WindowS how long it is in seconds.
	Steps   int64   `json:"steps"`
	WindowS float64 `json:"window_s"`
	// Waste, Partial, FilterAcceptance, Reuse and Signal say what became of what was made.
	Waste            Waste   `json:"waste"`
	Partial          Partial `json:"partial"`
	FilterAcceptance Filters `json:"filter_acceptance"`
	Reuse            Reuse   `json:"reuse"`
	Signal           Signal  `json:"signal"`
	// TrainerIdleS is the time in which no train step ran, RolloutStillS that in which no slot held a rollout. SlotIdleS
	// is the mean over slots of the time in which it held none and its engine was there; all in seconds.
	TrainerIdleS  float64 `json:"trainer_idle_s"`
	RolloutStillS float64 `json:"rollout_still_s"`
	SlotIdleS     float64 `json:"slot_idle_s"`
	// RolloutS is the time a scored rollout spent in slots, in seconds: the mean, and the longest of
	// complete groups.
	RolloutS MeanMax `json:"rollout_s"`
	// GroupsReady counts groups whose last rollout was scored, filtered ones included;
	// Syncs the weight syncs since the start of the run, not of the window.
	GroupsReady int64 `json:"groups_ready"`
	Syncs       int64 `json:"syncs"`
	// Latency is how long a scored rollout took, and for what.
	Latency Latency `json:"latency"`
	// Services says what sandboxes, tools, validations and lost engines did.
	Services Services `json:"services"`
	// Failures counts attempts that failed, by why.
	Failures Failures `json:"failures"`
	// Control is what the controller did; nil without a goal.
	Control *Control `json:"control,omitempty"`
}

// MeanMax is a mean and the largest value.
type MeanMax struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Mean is a mean alone, as an object so that more can stand beside it.
type Mean struct {
	Mean float64 `json:"mean"`
}

// Staleness summarises trained groups. All figures count policy versions but MeanSyncs. MeanSyncs
// counts the weight syncs of versions after the group's start and up to the one it was trained
// from.
type Staleness struct {
	Mean float64      `json:"mean"`
	P50  loop.Version `json:"p50"`
	P95  loop.Version `json:"p95"`
	P99  loop.Version `json:"p99"`
	Max  loop.Version `json:"max"`
	// Histogram[k] is how many groups were trained at staleness k.
	Histogram []int64 `json:"histogram"`
	MeanSyncs float64 `json:"mean_syncs"`
}

// Throughput is queue health: the groups that enter and leave, and the side that binds.
type Throughput struct {
	// ProductionRolloutsPerS counts finished rollouts; effective leaves out filtered groups.
	ProductionRolloutsPerS float64 `json:"production_rollouts_per_s"`
	EffectiveRolloutsPerS  float64 `json:"effective_rollouts_per_s"`
	// ConsumptionRolloutsPerS counts trained rollouts per second of train step alone,
	// ConsumptionRolloutsPerWallS per second of wall time, idle and sync included.
	ConsumptionRolloutsPerS     float64 `json:"consumption_rollouts_per_s"`
	ConsumptionRolloutsPerWallS float64 `json:"consumption_rollouts_per_wall_s"`
	// Binding is the side that limits: train, sync or rollout. It is validation where the trainer
	// waits mostly for that or engines do mostly that. Rollouts are named environment, sandbox or
	// judge where they spend most of their time there. They are named prefill where reading takes
	// longer than decoding, for them or for their engines. Binding is admission where a rule has both
	// sides wait, the engines longer.
	Binding string `json:"binding"`
}

// Length compares what was sampled with what was trained, in tokens.
type Length struct {
	SampledMeanTokens float64 `json:"sampled_mean_tokens"`
	TrainedMeanTokens float64 `json:"trained_mean_tokens"`
	SampledMaxTokens  int64   `json:"sampled_max_tokens"`
	TrainedMaxTokens  int64   `json:"trained_max_tokens"`
	// TruncatedShare is the share of sampled rollouts at the length cap; 0 where there is none.
	TruncatedShare float64 `json:"truncated_share"`
}

// Confidence holds 95 % confidence intervals by batch means.
type Confidence struct {
	StalenessMean95 [2]float64 `json:"staleness_mean_95"`
}

// Summary returns the figures of the measured window. All are 0 where nothing happened.
func (r *Recorder) Summary() Summary {
	r.settle()
	w := &r.window
	span := float64(r.run.NowNS-w.start) / 1e9
	s := Summary{
		PQS: Mean{ratio(w.pqs, w.groups)}, IQS: Mean{ratio(w.iqs, w.groups)},
		TokenStaleness:   Mean{ratio(w.versionTokens, w.trainedTokens)},
		PeriodS:          Mean{span / float64(max(w.steps, 1))},
		StepS:            Mean{ratio(w.trainNS, w.steps) / 1e9},
		SyncS:            Mean{ratio(w.broughtNS, w.brought) / 1e9},
		TrainerIdleRatio: ratio(w.trainerIdleNS, r.run.NowNS-w.start), TrainerAbsentRatio: ratio(r.absent(), r.run.NowNS-w.start),
		TailMultiplier: ratio(w.readyMaxNS, w.ready) / math.Max(ratio(w.durationNS, w.sampled), 1e-300),
		Acceptance:     ratio(w.accepted, w.ready),
		Steps:          w.steps, WindowS: span,
	}
	s.RolloutIdleRatio = w.slotsIdle(r.slots() * (r.run.NowNS - w.start))
	r.fates(&s)
	s.Staleness = r.staleness()
	s.Length = Length{ratio(w.sampledTokens, w.sampled), ratio(w.trainedTokens, w.rollouts), w.sampleMax, w.trainedMaxTokens, ratio(w.truncated, w.sampled)}
	s.Latency, s.Services, s.Failures = w.latency(&r.outside), r.services(), w.failures
	s.Throughput = r.throughput(span)
	if s.Throughput.ConsumptionRolloutsPerS > 0 {
		s.Utilization = s.Throughput.ProductionRolloutsPerS / s.Throughput.ConsumptionRolloutsPerS
	}
	s.Throughput.Binding = r.binding(s.Utilization*s.Acceptance*r.window.waste.usable(), s.RolloutIdleRatio)
	s.Dominant = "pqs"
	if s.IQS.Mean > s.PQS.Mean {
		s.Dominant = "iqs"
	}
	if r.control != nil {
		s.Control = r.control.summary()
	}
	s.Confidence = Confidence{interval(r.windowSteps())}
	return s
}

// fates fills in what became of what was made, and the times of both sides.
func (r *Recorder) fates(s *Summary) {
	w := &r.window
	span := r.run.NowNS - w.start
	s.Waste, s.Partial, s.FilterAcceptance, s.Signal = w.waste.summary(), w.partialSummary(span, r.run.Parked.Len()), w.filters(), w.signal.summary()
	s.Reuse = Reuse{ratio(w.waste.usesSum, w.waste.usedGroups), w.waste.usesMax}
	s.TrainerIdleS, s.RolloutStillS = float64(w.trainerIdleNS)/1e9, float64(w.stillNS)/1e9
	s.SlotIdleS = ratio(r.slots()*span-w.awayNS-w.activeNS, r.slots()) / 1e9
	s.RolloutS = MeanMax{ratio(w.durationNS, w.sampled) / 1e9, float64(w.durationMaxNS) / 1e9}
	s.GroupsReady, s.Syncs = w.ready, int64(r.syncsUpTo[len(r.syncsUpTo)-1])
}

func (r *Recorder) throughput(span float64) Throughput {
	w := &r.window
	t := Throughput{}
	if span > 0 {
		t.ProductionRolloutsPerS = float64(w.sampled) / span
		t.EffectiveRolloutsPerS = t.ProductionRolloutsPerS
		if w.ready > 0 {
			t.EffectiveRolloutsPerS *= ratio(w.accepted, w.ready)
		}
		t.ConsumptionRolloutsPerWallS = float64(w.rollouts) / span
	}
	if w.trainNS > 0 {
		t.ConsumptionRolloutsPerS = float64(w.rollouts) / (float64(w.trainNS) / 1e9)
	}
	return t
}

// binding names what limits the rate of updates, while there is a trainer. One that
// hardly waits does. One that waits little does, too, where it could be fed or the engines wait longer.
// Else it waits mostly for weight syncs, or
// for rollouts, and then for whichever part of a rollout's time is the largest;
// unless it trains more than it waits and the engines wait even longer: then
// admission holds them back, and more of them would not help.
func (r *Recorder) binding(utilization, rolloutIdle float64) string {
	w := &r.window
	switch idle := ratio(w.trainerIdleNS, r.run.NowNS-w.start-r.absent()); {
	case idle < 0.02 || idle < 0.1 && (utilization >= 1 || rolloutIdle > idle):
		return "train"
	case 2*w.syncIdleNS > w.trainerIdleNS:
		return "sync"
	case 2*w.validatesIdleNS > w.trainerIdleNS:
		return "validation"
	case idle < 0.5 && rolloutIdle > idle:
		return "admission"
	}
	return w.latency(&r.outside).binding(r.engineTime())
}

func (r *Recorder) staleness() Staleness {
	w := &r.window
	s := Staleness{Mean: ratio(w.pqs+w.iqs, w.groups), Max: w.stalenessMax, MeanSyncs: ratio(w.stalenessSyncs, w.groups)}
	top := min(int64(w.stalenessMax), StalenessMax)
	s.Histogram = append([]int64{}, w.histogram[:top+1]...)
	s.P50, s.P95, s.P99 = Quantile(s.Histogram, 0.50), Quantile(s.Histogram, 0.95), Quantile(s.Histogram, 0.99)
	return s
}

// Quantile returns the smallest k with at least a share p of the histogram's
// counts at or below it; 0 for an empty histogram.
func Quantile(histogram []int64, p float64) loop.Version {
	total := int64(0)
	for _, n := range histogram {
		total += n
	}
	below := int64(0)
	for k, n := range histogram {
		below += n
		if n > 0 && float64(below) >= p*float64(total) {
			return loop.Version(k)
		}
	}
	return 0
}

func (r *Recorder) windowSteps() []Step {
	for i := range r.Steps {
		if r.Steps[i].TimeNS > r.window.start {
			return r.Steps[i:]
		}
	}
	return nil
}

// intervalBatches is how many batch means the interval rests on; fewer steps
// than that give no interval.
const intervalBatches = 20

// interval is the 95 % confidence interval of the mean staleness by batch means:
// steps are correlated, means over long batches of them hardly.
func interval(steps []Step) [2]float64 {
	size := len(steps) / intervalBatches
	if size == 0 {
		return [2]float64{}
	}
	means := make([]float64, intervalBatches)
	for b := range means {
		for _, p := range steps[b*size : (b+1)*size] {
			means[b] += p.Staleness / float64(size)
		}
	}
	mean, sd := stat.MeanStdDev(means, nil)
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: intervalBatches - 1}.Quantile(0.975) * sd / math.Sqrt(intervalBatches)
	return [2]float64{mean - half, mean + half}
}

// slots is how many all engines have.
func (r *Recorder) slots() int64 { return int64(len(r.run.Slots)) }

// slotsIdle is the share of slot time without a rollout, of slots whose engine was there; slotNS is that of all slots.
func (w *window) slotsIdle(slotNS int64) float64 {
	if slotNS <= w.awayNS {
		return 0
	}
	return 1 - ratio(w.activeNS, slotNS-w.awayNS)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
