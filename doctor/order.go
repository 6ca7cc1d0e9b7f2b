package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/theory"
)

const (
	keyHold   = "queue.hold"
	keySelect = "queue.select"
	keyFactor = "queue.factor"
)

// The limits within which hold keeps lengths unbiased (theory.md §5).
const (
	holdMax           = 0.3
	groupsFlyingLeast = 16
	// holdGroupLeast is the group time, in train periods, below which hold was
	// measured to bias the lengths of a train-bound run by more than 0.5 %, at 32
	// groups in flight, ρ = 1.5, q = 2, tailness 50 and 90, S 1 to 8, C/B ½ to 4.
	holdGroupLeast = 2.3
)

// quiet is the effective ρ below which the queue is emptied by almost every
// batch, and its order hardly matters.
const quiet = 0.8

var orderChecks = []check{
	{Kind{
		Code: "hold-bias", Severities: []Severity{Warning}, Keys: []string{keyHold},
		When:  "`hold` above 0.3, or below 16 groups in flight (C/S), or in a train-bound run whose groups take less than 2.3 train periods: what is trained comes to depend on length",
		Known: "limits within which the simulator shows a bias of at most 0.5 % (ρ = 1.5, q = 2, tailness 50 and 90): beyond the first two up to 1 %, beyond the third up to 6 % (S = 1, C/B = ½, tailness 90), whichever the order of selection. The group time is the closed form's PQS",
	}, (*examination).holdBias},
	{Kind{
		Code: "hold-price", Severities: []Severity{Info}, Keys: []string{keyHold},
		When:  "`hold` in a rollout-bound run: what the saved version costs",
		Known: "closed form: T rises by a factor of about 1 + θ²B/(2C); from ρ = 1 on it is free until the slack is used",
	}, (*examination).holdPrice},
	{Kind{
		Code: "select-without-effect", Severities: []Severity{Warning}, Keys: []string{keySelect},
		When:  "`select` other than `oldest` where a batch is all there is to select from (q = 1)",
		Known: "arithmetic: a queue of one batch is taken whole",
	}, (*examination).selectWithoutEffect},
	{Kind{
		Code: "newest-without-need", Severities: []Severity{Info}, Keys: []string{keySelect},
		When:  "`select: newest` at an effective ρ below 0.8, where nearly every batch empties the queue",
		Known: "closed form: IQS is ρ, whatever the order",
	}, (*examination).newestWithoutNeed},
	{Kind{
		Code: "queue-factor", Severities: []Severity{Warning, Info}, Keys: []string{keyFactor, keyCapacity},
		When:  "policy `drop`, oldest first, q ≥ 2: the rule of thumb is q = 1. It fails near ρ = 1, where q = 1 starves the trainer: then this is an info, and `newest` with `hold` is better than either",
		Known: "closed form, corrected near ρ = 1, at the queue's factor and at 1",
	}, (*examination).queueFactor},
}

func (e *examination) holdBias() {
	theta := e.rules.Hold
	flying := float64(e.rules.Concurrency()) / float64(e.rules.GroupSize)
	if theta == 0 {
		return
	}
	if theta <= holdMax && flying >= groupsFlyingLeast {
		e.holdShort()
		return
	}
	p := e.probe()
	basis := Arithmetic
	if p != nil && p.stalled == nil {
		basis = Simulated
	}
	f := e.add(Warning, keyHold, basis)
	f.What = fmt.Sprintf("hold %s with %s groups in flight is outside the limits (at most %s, at least %d) within which it does not bias lengths", short(theta), short(flying), short(holdMax), groupsFlyingLeast)
	f.Why = "held starts line up with the train period, and which groups end before an update comes to depend on their length: a bias of up to 1 % in what is trained"
	f.Do = fmt.Sprintf("hold of at most %s", short(holdMax))
	f.Figures = Figures{{"hold", theta}, {"groups_in_flight", flying}}
	if flying < groupsFlyingLeast {
		f.Do = fmt.Sprintf("at least %d rollouts in flight, or hold 0", groupsFlyingLeast*e.rules.GroupSize)
	}
	if basis == Simulated {
		if ratio, ok := p.lengthRatio(); ok {
			f.Why += fmt.Sprintf("; in this simulation trained lengths are %s of sampled ones, chance included", short(ratio))
			f.Figures = append(f.Figures, Figure{"trained_over_sampled_length", ratio})
		}
	}
}

// holdShort warns of hold where groups are dropped and take hardly longer than a
// train period.
func (e *examination) holdShort() {
	p, ok := e.predict()
	pqs, known := p.PQS.Value()
	if !ok || !known || pqs >= holdGroupLeast || p.Utilization <= 1 || e.rules.Policy != loop.PolicyDrop && e.rules.Policy != loop.PolicyMax {
		return
	}
	f := e.add(Warning, keyHold, ClosedForm)
	f.What = fmt.Sprintf("hold biases lengths here: groups take %s train periods, and some are dropped", short(pqs))
	f.Why = fmt.Sprintf("held starts line up with the period; a group that takes less than about %s of them is ready in the same or the next ones by its length, and those that come together are dropped together: a bias of 1 to 3 %% at one period, up to 6 %% at a third of one", short(holdGroupLeast))
	f.Do = "more rollouts in flight per batch, so that a group lives through more updates; or hold 0"
	f.Figures = Figures{{"group_periods", pqs}, {"hold", e.rules.Hold}}
}

func (e *examination) holdPrice() {
	p, ok := e.predict()
	theta := e.rules.Hold
	if !ok || theta == 0 || p.Utilization >= 1 {
		return
	}
	ratio := 1 + theta*theta*float64(e.batch())/(2*float64(e.rules.Concurrency()))
	f := e.add(Info, keyHold, ClosedForm)
	f.What = fmt.Sprintf("hold %s costs about %s of the train period", short(theta), percent(ratio-1))
	f.Why = fmt.Sprintf("at an effective ρ of %s engines are what the run waits for, and a held slot stands empty", short(p.Utilization))
	f.Do = "nothing if a version less is worth it; from ρ = 1 on hold is free"
	f.Figures = Figures{{"period_ratio", ratio}, {"effective_utilization", p.Utilization}}
}

func (e *examination) selectWithoutEffect() {
	if e.rules.Select == loop.SelectOldest || e.rules.QueueGroups > e.rules.BatchGroups || e.rules.Policy == loop.PolicyReplay {
		return
	}
	f := e.add(Warning, keySelect, Arithmetic)
	f.What = fmt.Sprintf("select: %s has no effect", e.document.Queue.Select)
	f.Why = fmt.Sprintf("the queue holds %d groups, one batch: a selection takes all of them", e.rules.QueueGroups)
	f.Do = "queue.factor of at least 2, or leave select out"
	f.Figures = Figures{{"queue_groups", float64(e.rules.QueueGroups)}, {"batch_groups", float64(e.rules.BatchGroups)}}
}

func (e *examination) newestWithoutNeed() {
	p, ok := e.predict()
	if !ok || e.rules.Select != loop.SelectNewest || e.rules.QueueGroups == e.rules.BatchGroups || p.Utilization >= quiet || e.rules.Policy == loop.PolicyReplay {
		return
	}
	f := e.add(Info, keySelect, ClosedForm)
	f.What = "select: newest changes little"
	f.Why = fmt.Sprintf("at an effective ρ of %s nearly every batch empties the queue, so there is seldom a choice", short(p.Utilization))
	f.Figures = Figures{{"effective_utilization", p.Utilization}}
}

func (e *examination) queueFactor() {
	q := float64(e.rules.QueueGroups) / float64(e.rules.BatchGroups)
	if e.rules.Policy != loop.PolicyDrop || e.rules.Select != loop.SelectOldest || q < 2 || !e.plain() {
		return
	}
	here, ok := e.predict()
	if !ok || here.Utilization < quiet {
		return
	}
	one := *e.setting
	one.Policy, one.Select, one.QueueFactor = theory.PolicyDrop, theory.SelectOldest, 1
	there, err := theory.Predict(one)
	if err != nil {
		e.err = err
		return
	}
	mean, known := here.Corrected.Mean.Value()
	less, knownOne := there.Corrected.Mean.Value()
	period, knownPeriod := here.Corrected.Period.RelativeToStep.Value()
	slower, knownSlower := there.Corrected.Period.RelativeToStep.Value()
	if !known || !knownOne || !knownPeriod || !knownSlower {
		return
	}
	cost := slower/period - 1
	severity, key := Info, keyFactor
	if cost < 0.01 && mean-less > 0.25 {
		severity = Warning
	}
	if e.document.Queue.Capacity > 0 {
		key = keyCapacity
	}
	f := e.add(severity, key, ClosedForm)
	f.What = fmt.Sprintf("a queue of %s batches costs %s versions of staleness against one of a single batch", short(q), short(mean-less))
	f.Why = fmt.Sprintf("at an effective ρ of %s groups wait in it for their turn, oldest first", short(here.Utilization))
	f.Do = "queue.factor: 1"
	if severity == Info {
		f.Why += fmt.Sprintf("; a single batch would make the train period %s longer, since near ρ = 1 the trainer then starves", percent(max(cost, 0)))
		f.Do = "queue.select: newest with queue.hold: 0.3, which keeps this queue's period"
	}
	f.Figures = Figures{{"staleness_mean_versions", mean}, {"staleness_mean_at_one_versions", less}, {"period_ratio_at_one", slower / period}}
}
