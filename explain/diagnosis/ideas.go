package diagnosis

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// set is an override of a key.
func set(key string, value any) string {
	if v, ok := value.(float64); ok {
		return key + "=" + strconv.FormatFloat(v, 'g', 6, 64)
	}
	return fmt.Sprintf("%s=%v", key, value)
}

// settable reports whether keys of ours can be set.
func (f *facts) settable() bool { return f.own != nil && f.own.documented }

// queueKey sets the queue's capacity to so many batches, by the key the document uses.
func (f *facts) queueKey(factor float64) string {
	if f.own.document.Queue.Capacity > 0 {
		return set("queue.capacity", int(factor*f.fitted.Batch.Value))
	}
	return set("queue.factor", factor)
}

// pinned are the overrides that hold a simulation's speeds while sizes change: its document may give
// the trainer's speed relative to the rollouts', which would move along. factor is on the train step.
func (f *facts) pinned(factor float64) []string {
	if f.source != "simulation" {
		return nil // what takes time was measured, and is measured again
	}
	d := f.own.document
	var list []string
	if d.Modelled.Train.Utilization > 0 {
		list = append(list, "modelled.train.utilization=null")
	}
	if d.Modelled.Train.ThroughputTokensPerS > 0 {
		list = append(list, "modelled.train.throughput_tokens_per_s=null")
	}
	if factor != 1 || len(list) > 0 {
		list = append(list, set("modelled.train.step_s", factor*f.fitted.StepS.Value))
	}
	if d.Modelled.ThroughputTokensPerS > 0 {
		list = append(list, "modelled.throughput_tokens_per_s=null",
			set("modelled.decode_tokens_per_s", d.Modelled.ThroughputTokensPerS/float64(d.Rollout.Concurrency)))
	}
	return list
}

// slots are the overrides that set C: where the document names its engines, each gets its share.
func (f *facts) slots(to int) []string {
	list := []string{set("rollout.concurrency", to)}
	d := f.own.document
	if len(d.Engines) > 1 {
		left, all := to, f.fitted.Concurrency.Value
		for i, e := range d.Engines {
			n := int(math.Round(float64(to) * float64(e.Slots) / all))
			if i == len(d.Engines)-1 {
				n = left
			}
			left -= n
			list = append(list, set(fmt.Sprintf("engines.%d.slots", i), n))
		}
	} else if len(d.Engines) == 1 {
		list = append(list, set("engines.0.slots", to))
	}
	return list
}

// queueIdea sets q.
func (f *facts) queueIdea(factor float64) idea {
	i := idea{holds: "C, B, S and both speeds", price: "groups that find it full are evicted, or wait; a trainer that is faster than expected finds less in stock",
		input: func(in *theory.Input) float64 { in.QueueFactor = factor; return 1 }}
	if f.settable() {
		i.overrides = []string{f.queueKey(factor)}
	} else {
		i.knob = f.knob(leverQueue, fmt.Sprintf("%s rollouts, %s batches", count(factor*f.fitted.Batch.Value), fig(factor)))
	}
	return i
}

// newestIdea is newest first with hold, at a queue of at least two batches.
func (f *facts) newestIdea() idea {
	q := math.Max(f.fitted.QueueFactor.Value, 2)
	return idea{holds: "C, B, S and both speeds", overrides: []string{f.queueKey(q), "queue.select=newest", "queue.hold=0.3"},
		price: "old groups wait until they are evicted; below ρ = 1 the period grows by about 4.5 % · B/C"}
}

// slotsIdea sets C at the speed per slot that it has.
func (f *facts) slotsIdea(to float64) idea {
	factor := to / f.fitted.Concurrency.Value
	i := idea{holds: "B, S, q, the trainer, and the decode speed of a slot (as measured by active slots, where it was)",
		input: func(in *theory.Input) float64 {
			in.ConcurrencyRollouts *= factor
			in.Utilization *= factor
			return 1
		}}
	if f.settable() {
		i.overrides = append(f.slots(int(to)), f.pinned(1)...)
	} else {
		i.knob = f.knob(leverConcurrency, count(to)+" rollouts")
	}
	return i
}

// batchIdea multiplies B, and with it the queue and the train step.
func (f *facts) batchIdea(factor float64) idea {
	i := idea{holds: "C, S, q (the queue grows too) and both speeds in tokens/s", price: fmt.Sprintf("an update needs %s times the rollouts: per rollout it is no dearer, its noise falls with the root", fig(factor)),
		input: func(in *theory.Input) float64 {
			in.BatchRollouts *= factor
			in.StepS *= factor
			return factor
		}}
	if !f.settable() {
		i.knob = f.knob(leverBatch, count(factor*f.fitted.Batch.Value)+" rollouts")
		return i
	}
	d := f.own.document
	i.overrides = []string{set("train.batch", int(factor*f.fitted.Batch.Value))}
	if d.Queue.Capacity > 0 {
		i.overrides = append(i.overrides, set("queue.capacity", int(factor*float64(d.Queue.Capacity))))
	}
	if f.source == "simulation" && d.Modelled.Train.StepBy != "tokens" && d.Modelled.Train.StepBy != "rollouts" {
		i.overrides = append(i.overrides, f.pinned(factor)...)
		i.settings = func(s *replay.Settings) { s.StepScale = factor }
	}
	return i
}

// capIdea cuts responses at a quantile of their lengths. No closed form prices it: of a tail it knows one
// figure, and what a cap does depends on all of it.
func (f *facts) capIdea(quantile float64) (idea, bool) {
	lengths := f.lengths()
	if lengths == nil {
		return idea{}, false
	}
	limit := lengths.Quantile(quantile)
	capped, truncated := lengths.Capped(limit)
	s := f.in.GroupSize
	if limit >= lengths.Quantile(1) || limit < 2 {
		return idea{}, false
	}
	i := idea{holds: "C, B, S, q, and both speeds in tokens/s",
		price: fmt.Sprintf("%s of the rollouts are cut; M %s → %s in tokens", report.Share(truncated), fig(lengths.TailMultiplier(s)), fig(capped.TailMultiplier(s)))}
	stepScale := capped.Mean() / lengths.Mean()
	i.settings = func(r *replay.Settings) { r.CapTokens = int32(limit) }
	if f.source != "simulation" || !f.settable() {
		i.knob = f.knob(leverCap, report.Count(int64(limit))+" tokens")
		return i, true
	}
	i.overrides = []string{set("modelled.length.cap_tokens", limit)}
	if f.own.document.Modelled.Train.StepBy != "tokens" { // the modelled step does not know of lengths: it is told
		i.overrides = append(i.overrides, f.pinned(stepScale)...)
		i.settings = func(r *replay.Settings) { r.CapTokens, r.StepScale = int32(limit), stepScale }
	}
	return i, true
}

// lengths is the distribution of response lengths as measured, nil where it is not known.
func (f *facts) lengths() *workload.Lengths {
	if f.own == nil || len(f.own.tally.lengths.kept) < 64 {
		return nil
	}
	lengths, err := workload.LengthSpec{Kind: workload.KindEmpirical, Groups: f.own.tally.lengths.kept}.Build()
	if err != nil {
		return nil
	}
	return lengths
}

// splitIdea moves GPUs from one side to the other, slots with them.
func (f *facts) splitIdea(rolloutGPUs, trainGPUs, moved float64) idea {
	rollout, train := (rolloutGPUs-moved)/rolloutGPUs, trainGPUs/(trainGPUs+moved)
	i := idea{holds: "the GPUs in all, B, S, q, slots a rollout GPU (C moves with them) and the speed of a slot",
		price: "a GPU changes sides in whole replicas; the trainer has a floor of memory",
		input: func(in *theory.Input) float64 {
			in.ConcurrencyRollouts *= rollout
			in.Utilization *= rollout * train
			in.StepS *= train
			return train
		}}
	i.knob = f.knob(leverSplit, fmt.Sprintf("%s to roll out, %s to train", count(rolloutGPUs-moved), count(trainGPUs+moved)))
	if !f.settable() {
		return i
	}
	slots := math.Round(f.fitted.Concurrency.Value * rollout)
	i.overrides = append(f.slots(int(slots)), f.pinned(train)...)
	if f.source == "simulation" && !hasKey(i.overrides, "modelled.train.step_s") {
		i.overrides = append(i.overrides, set("modelled.train.step_s", train*f.fitted.StepS.Value))
	}
	i.settings = func(s *replay.Settings) { s.StepScale = train }
	return i
}

func hasKey(overrides []string, key string) bool {
	return slices.ContainsFunc(overrides, func(o string) bool { return strings.HasPrefix(o, key+"=") })
}
