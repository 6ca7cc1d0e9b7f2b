package doctor

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
)

const (
	keyConcurrency = "rollout.concurrency"
	keyCapacity    = "queue.capacity"
	keyPause       = "queue.pause_at"
	keyEngines     = "engines"
)

var capacityChecks = []check{
	{Kind{
		Code: "no-slots", Severities: []Severity{Error}, Keys: []string{keyConcurrency},
		When:  "`start: gang` waits for more free slots than there are: no group ever starts",
		Known: "arithmetic: a group starts when `group_size` + `redundancy` slots are free, of `concurrency` in all",
	}, (*examination).noSlots},
	{Kind{
		Code: "no-batch", Severities: []Severity{Error}, Keys: []string{keyCapacity, keyPause},
		When:  "the queue, or admission, stops below a batch: no batch ever fills",
		Known: "arithmetic: a train step takes G groups from the queue at once, so capacity and `pause_at` are at least a batch",
	}, (*examination).noBatch},
	{Kind{
		Code: "batch-of-groups", Severities: []Severity{Error}, Keys: []string{keyBatch},
		When:  "`train.batch` is not a whole number of groups: no batch can be put together",
		Known: "arithmetic: rollouts of a group are trained together, since their advantages compare them",
	}, (*examination).batchOfGroups},
	{Kind{
		Code: "no-spare-engine", Severities: []Severity{Warning}, Keys: []string{keyEngines},
		When:  "with `start: gang`, the loss of one engine leaves fewer slots than a group needs: no further group starts until it is back",
		Known: "arithmetic: slots without the largest engine, against `group_size` + `redundancy`",
	}, (*examination).noSpareEngine},
	{Kind{
		Code: "group-over-slots", Severities: []Severity{Warning}, Keys: []string{keyConcurrency},
		When:  "`concurrency` is below a group: siblings run one after another, and PQS grows with their sum instead of their longest",
		Known: "arithmetic: `group_size` + `redundancy` against the slots there are",
	}, (*examination).groupOverSlots},
	{Kind{
		Code: "stalls", Severities: []Severity{Error}, Keys: []string{keyPolicy, keyPrune, keyBand, "filter.zero_advantage", "modelled.filter.acceptance", keyBudget},
		When:  "a short simulation of the document comes to a standstill",
		Known: "simulation by the production loop: no batch fills although thousands of rollouts end, or nothing is left to happen. It is about the key for which most groups ended since the last train step, `queue.policy` where none did",
	}, (*examination).stalls},
}

func (e *examination) noSlots() {
	slots, need := e.rules.Concurrency(), e.stride()
	if e.rules.Start != loop.StartGang || slots >= need {
		return
	}
	f := e.add(Error, keyConcurrency, Arithmetic)
	f.What = fmt.Sprintf("no group will ever start: it waits for %d free slots, and there are %d", need, slots)
	f.Why = "start: gang starts a group only when every one of its rollouts has a slot"
	f.Do = fmt.Sprintf("rollout.concurrency of at least %d, or rollout.start: stream", need)
	f.Figures = Figures{{"slots", float64(slots)}, {"slots_needed", float64(need)}}
}

func (e *examination) noBatch() {
	if e.rules.Policy == loop.PolicySynchronous {
		return
	}
	g := e.rules.BatchGroups
	for _, limit := range []struct {
		key    string
		groups int
		given  bool
		what   string
	}{
		{keyCapacity, e.rules.QueueGroups, e.document.Queue.Capacity > 0, "the queue holds"},
		{keyPause, e.rules.PauseGroups, e.rules.PauseGroups > 0, "no group opens while the queue holds"},
	} {
		if !limit.given || limit.groups >= g {
			continue
		}
		f := e.add(Error, limit.key, Arithmetic)
		f.What = fmt.Sprintf("no batch will ever fill: %s %d groups, and a batch has %d", limit.what, limit.groups, g)
		f.Why = "a train step takes its whole batch from the queue at once"
		f.Do = fmt.Sprintf("at least one batch: %s", plural(float64(g), "group"))
		f.Figures = Figures{{"limit_groups", float64(limit.groups)}, {"batch_groups", float64(g)}}
	}
}

func (e *examination) batchOfGroups() {
	batch, size := e.document.Train.Batch, e.document.Rollout.GroupSize
	if wholeGroups(e.document) || batch < 1 || size < 1 {
		return
	}
	f := e.add(Error, keyBatch, Arithmetic)
	f.What = fmt.Sprintf("a batch of %d rollouts is not a whole number of groups of %d", batch, size)
	f.Why = "the queue holds groups, and a group is trained whole: its advantages compare its rollouts"
	f.Do = fmt.Sprintf("train.batch of %d or %d", max(batch/size, 1)*size, (batch+size-1)/size*size)
	f.Figures = Figures{{"batch_rollouts", float64(batch)}, {"group_size", float64(size)}}
}

// wholeGroups reports whether batches are made of groups.
func wholeGroups(d config.Config) bool {
	return d.Train.Batch >= d.Rollout.GroupSize && d.Rollout.GroupSize >= 1 && d.Train.Batch%d.Rollout.GroupSize == 0
}

func (e *examination) noSpareEngine() {
	slots := e.rules.EngineSlots
	if e.rules.Start != loop.StartGang || len(slots) < 2 {
		return
	}
	total, need := e.rules.Concurrency(), e.stride()
	left := total - slices.Max(slots)
	if total < need || left >= need {
		return
	}
	f := e.add(Warning, keyEngines, Arithmetic)
	f.What = fmt.Sprintf("if the largest engine is lost, no group starts until it is back: %d slots are left and a group needs %d", left, need)
	f.Why = "start: gang starts a group only when every one of its rollouts has a slot"
	f.Do = fmt.Sprintf("rollout.start: stream, or at least %d slots beside any one engine", need)
	f.Figures = Figures{{"slots_left", float64(left)}, {"slots_needed", float64(need)}}
}

func (e *examination) groupOverSlots() {
	slots, need := e.rules.Concurrency(), e.stride()
	if slots >= need || e.rules.Start == loop.StartGang {
		return
	}
	f := e.add(Warning, keyConcurrency, Arithmetic)
	f.What = fmt.Sprintf("a group of %d rollouts has %d slots: siblings run one after another", need, slots)
	f.Why = fmt.Sprintf("the first of them is on average %s rollouts old before the last begins, and its version with it; the closed form does not cover this", short(float64(need-slots)/float64(slots)))
	f.Do = fmt.Sprintf("rollout.concurrency of at least %d", need)
	f.Figures = Figures{{"slots", float64(slots)}, {"group_rollouts", float64(need)}}
}

func (e *examination) stalls() {
	p := e.probe()
	if p == nil || p.stalled == nil {
		return
	}
	key, do := p.stallCause()
	f := e.add(Error, key, Simulated)
	f.What = "the run stands still"
	f.Why = p.stalled.Error()
	f.Do = do
	f.Figures = Figures{{"trained_groups", float64(p.trained)}}
}

// stallCause returns the key behind the reason for which most groups ended since the
// last train step, and what to do about it.
func (p *probe) stallCause() (key, do string) {
	causes := []struct {
		reason  loop.Reason
		key, do string
	}{
		{loop.ReasonPruned, keyPrune, "a higher rollout.prune.tokens, or modelled.length.cap_tokens in its place"},
		{loop.ReasonSolveRate, keyBand, "a wider band, or prompts of another difficulty"},
		{loop.ReasonZeroAdvantage, "filter.zero_advantage", "easier or harder prompts, or leave the filter off"},
		{loop.ReasonRejected, "modelled.filter.acceptance", "prompts of which more are accepted"},
		{loop.ReasonStale, keyBudget, "raise queue.max_staleness, or keep fewer rollouts in flight"},
	}
	key, do = keyPolicy, "headway simulate on the same document shows how it comes to that; widen what the message names"
	most := int64(0)
	for _, c := range causes {
		if n := p.ending[c.reason]; n > most {
			key, do, most = c.key, c.do, n
		}
	}
	return key, do
}
