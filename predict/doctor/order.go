package doctor

import (
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

const (
	keyHold   = "queue.hold"
	keySelect = "queue.select"
	keyFactor = "queue.factor"
)

// The limits within which hold keeps lengths unbiased where groups are dropped
// and the batch is chosen by readiness (docs/theory.md).
const (
	holdMax           = 0.3
	groupsFlyingLeast = 16
	// holdGroupLeast is the group time, in train periods, below which hold was
	// measured to bias the lengths of a train-bound run by more than 0.5 %, at 16
	// groups in flight and more, ρ from 1.2 to 3, q = 2, tailness 50 and 90, S 1 and 8,
	// C/B ½ to 4.
	holdGroupLeast = 2.3
	// holdFresh is the largest hold that select: fresh was measured to keep unbiased, holdLearned that of an
	// adaptive one, which is as long only where what is dropped allows it.
	holdFresh   = 0.7
	holdLearned = 0.9
	// dropping is the effective ρ up to which so few groups are dropped that hold was
	// measured to bias no length by more than 0.4 %, however many groups are in flight.
	dropping = 1.1
)

// quiet is the effective ρ below which the queue is emptied by almost every
// batch, and its order hardly matters.
const quiet = 0.8

var orderChecks = []check{
	{Kind{
		Code: "hold-bias", Severities: []Severity{Warning}, Keys: []string{keyHold},
		When:  "`hold` where groups are dropped (ρ above 1.1), other than with `select: fresh`, and above 0.3, or below 16 groups in flight (C/S), or with groups that take less than 2.3 train periods: what is trained comes to depend on length. With `fresh` above 0.7 (0.9 where it is adaptive), or with groups of one that take less than a period",
		Known: "limits within which the simulator shows a bias of at most 0.5 % (q = 2, tailness 50 and 90, C/B ½ to 4): beyond the first two about 1 %, beyond the third 1 to 3 % at ρ 1.5 and S 8, and up to 27 % at ρ 3, S 1, C/B ½; oldest first too. `fresh` stays within 0.5 %, within 1.4 % for groups of one below a period, and up to ρ = 1.1 every order within 0.4 %. The group time is the closed form's PQS",
	}, (*examination).holdBias},
	{Kind{
		Code: "hold-price", Severities: []Severity{Info}, Keys: []string{keyHold},
		When:  "`hold` in a run whose engines have too little to spare: what the saved version costs",
		Known: "closed form: engines deliver 1 + θ²B/(2C) less, which makes the period longer by as much below ρ = 1, and above by what ρ does not cover. At C/B 2 it is within 0.01 for θ = 0.7 and above what is simulated for 0.3; at C/B ½ to 1 and θ from 0.5 on it is too low (1.25 where the simulator has 1.37, 1.25 where it has 1.34)",
	}, (*examination).holdPrice},
	{Kind{
		Code: "fresh-instead", Severities: []Severity{Info}, Keys: []string{keySelect},
		When:  "policy `drop`, `select: newest` with `hold`, ρ above 1.1: `fresh` allows a longer hold, which drops fewer groups",
		Known: "closed form for the hold, simulations for what it is worth: at ρ 1.5, S 4, tailness 50, q = 2 `fresh` with hold 0.7 has no more staleness than `newest` with 0.3 and no longer period, and drops fewer groups (C/B 2: 21 % instead of 31 %, C/B 4: 28 % instead of 33 %). The hold it names is the closed form's, (1 − 1.1/ρ)/ρ = θ²B/(2C), at most 0.7",
	}, (*examination).freshInstead},
	{Kind{
		Code: "select-without-effect", Severities: []Severity{Warning}, Keys: []string{keySelect},
		When:  "`select` other than `oldest` where a batch is all there is to select from (q = 1)",
		Known: "arithmetic: a queue of one batch is taken whole",
	}, (*examination).selectWithoutEffect},
	{Kind{
		Code: "newest-without-need", Severities: []Severity{Info}, Keys: []string{keySelect},
		When:  "`select: newest` or `fresh` at an effective ρ below 0.8, where nearly every batch empties the queue",
		Known: "closed form: IQS is ρ, whatever the order",
	}, (*examination).newestWithoutNeed},
	{Kind{
		Code: "queue-factor", Severities: []Severity{Warning, Info}, Keys: []string{keyFactor, keyCapacity},
		When:  "policy `drop`, oldest first, q ≥ 2: the rule of thumb is q = 1. It fails near ρ = 1, where q = 1 starves the trainer: then this is an info, and `fresh` with `hold` is better than either",
		Known: "closed form, corrected near ρ = 1, at the queue's factor and at 1",
	}, (*examination).queueFactor},
}

// drops reports whether a full queue or a budget throws groups away.
func (e *examination) drops() bool {
	return e.rules.Policy == loop.PolicyDrop || e.rules.Policy == loop.PolicyMax
}

func (e *examination) holdBias() {
	theta := e.rules.Hold
	flying := float64(e.rules.Concurrency()) / float64(e.rules.GroupSize)
	rho, ok := e.load()
	fresh := e.rules.Select == loop.SelectFresh
	switch {
	case theta == 0 || ok && e.drops() && rho <= dropping:
		return
	case fresh && (theta <= holdFresh || e.rules.HoldAdaptive && theta <= holdLearned) || !fresh && theta <= holdMax && flying >= groupsFlyingLeast:
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
	f.Why = "held starts line up with the train period, and which groups end before an update comes to depend on their length: a bias of about 1 % in what is trained where groups are dropped"
	f.Do = fmt.Sprintf("queue.select: fresh, which chooses at random among the groups that are equally fresh and keeps lengths unbiased up to hold %s; else hold of at most %s", short(holdFresh), short(holdMax))
	f.Figures = Figures{{"hold", theta}, {"groups_in_flight", flying}}
	switch {
	case fresh:
		f.What = fmt.Sprintf("hold %s is above %s, up to which select: fresh was measured to keep lengths unbiased", short(theta), short(holdFresh))
		f.Do = fmt.Sprintf("hold of at most %s", short(holdFresh))
	case flying < groupsFlyingLeast && theta <= holdMax:
		f.Do = fmt.Sprintf("queue.select: fresh; or at least %d rollouts in flight, or hold 0", groupsFlyingLeast*e.rules.GroupSize)
	}
	if basis == Simulated {
		if ratio, ok := p.lengthRatio(); ok {
			f.Why += fmt.Sprintf("; in this simulation trained lengths are %s of sampled ones, chance included", short(ratio))
			f.Figures = append(f.Figures, Figure{"trained_over_sampled_length", ratio})
		}
	}
}

// groupPeriods returns how many train periods a group takes: the closed form's PQS
// where prompts are alike, else the simulation's.
func (e *examination) groupPeriods() (periods float64, basis Basis, ok bool) {
	if e.alikePrompts() {
		p, _ := e.predict()
		periods, ok = p.PQS.Value()
		return periods, ClosedForm, ok
	}
	if p := e.probe(); p != nil && p.stalled == nil {
		return p.result.Summary.PQS.Mean, Simulated, true
	}
	return 0, ClosedForm, false
}

// holdShort warns of hold where groups are dropped and take hardly longer than a
// train period.
func (e *examination) holdShort() {
	rho, ok := e.load()
	if !ok || rho <= dropping || !e.drops() {
		return
	}
	periods, basis, ok := e.groupPeriods()
	least, single := holdGroupLeast, e.rules.GroupSize == 1
	if e.rules.Select == loop.SelectFresh {
		least = 1
		ok = ok && single
	}
	if !ok || periods >= least {
		return
	}
	f := e.add(Warning, keyHold, basis)
	f.What = fmt.Sprintf("hold biases lengths here: groups take %s train periods, and some are dropped", short(periods))
	f.Why = fmt.Sprintf("held starts line up with the period; a group that takes less than about %s of them is ready in the same or the next ones by its length, and those that come together are dropped together: a bias of 1 to 3 %% at one period, more below", short(least))
	f.Do = fmt.Sprintf("queue.select: fresh, which chooses at random among the groups that are equally fresh and keeps lengths unbiased up to hold %s; else hold 0, or more rollouts in flight per batch, so that a group lives through more updates", short(holdFresh))
	if e.rules.Select == loop.SelectFresh {
		f.Why = "groups of one rollout that take less than a period are ready before the next selection or not by their length, and a full queue drops among them: a bias of up to 1.4 %"
		f.Do = "hold 0, or more rollouts in flight per batch, so that a group lives through more updates"
	}
	f.Figures = Figures{{"group_periods", periods}, {"hold", e.rules.Hold}}
}

// holdLoad returns by how much a hold lowers what engines deliver: theory.md's
// 1 + θ²B/(2C).
func (e *examination) holdLoad(theta float64) float64 {
	return 1 + theta*theta*float64(e.batch())/(2*float64(e.rules.Concurrency()))
}

func (e *examination) holdPrice() {
	rho, ok := e.load()
	theta := e.rules.Hold
	if e.rules.HoldAdaptive {
		e.learnedPrice(rho, ok)
		return
	}
	if !ok || theta == 0 || rho >= e.holdLoad(theta) {
		return
	}
	ratio := e.holdLoad(theta) / max(rho, 1)
	f := e.add(Info, keyHold, ClosedForm)
	f.What = fmt.Sprintf("hold %s costs about %s of the train period", short(theta), percent(ratio-1))
	f.Why = fmt.Sprintf("at an effective ρ of %s engines are what the run waits for, and a held slot stands empty", short(rho))
	if perBatch := float64(e.rules.Concurrency()) / float64(e.batch()); perBatch < 2 && theta > holdMax {
		f.Why += fmt.Sprintf("; with %s batches in flight a hold this long costs more than the formula has", short(perBatch))
	}
	f.Do = fmt.Sprintf("nothing if a version less is worth it; from a ρ of %s on this hold is free", short(e.holdLoad(theta)))
	f.Figures = Figures{{"period_ratio", ratio}, {"effective_utilization", rho}}
}

// learnedPrice says what an adaptive hold costs where nothing is dropped: what it may.
func (e *examination) learnedPrice(rho float64, known bool) {
	cost := e.rules.HoldCost
	if !known || rho >= 1 {
		return
	}
	f := e.add(Info, keyHold, Arithmetic)
	f.Figures = Figures{{"period_ratio", 1 + cost}, {"effective_utilization", rho}}
	f.Why = fmt.Sprintf("at an effective ρ of %s engines are what the run waits for, nothing is dropped, and no hold is free", short(rho))
	if cost == 0 {
		f.What = "the adaptive hold stays near 0"
		f.Do = "queue.hold_cost, the share of the period that fresher batches are worth"
		return
	}
	f.What = fmt.Sprintf("the adaptive hold costs %s of the train period, as it may", percent(cost))
	f.Do = "nothing if fresher batches are worth it; a lower queue.hold_cost else"
}

// freeHold returns the hold, from 0.3 to 0.7 in tenths, that what a train-bound run
// would drop pays for: θ²B/(2C) = (1 − 1.1/ρ)/ρ.
func (e *examination) freeHold(rho float64) float64 {
	spare := 2 * float64(e.rules.Concurrency()) / (rho * float64(e.batch())) * max(0, 1-dropping/rho)
	return max(holdMax, min(holdFresh, math.Floor(10*math.Sqrt(spare))/10))
}

func (e *examination) freshInstead() {
	rho, ok := e.load()
	warned := slices.ContainsFunc(e.findings, func(f Finding) bool { return f.Code == "hold-bias" })
	if !ok || warned || rho <= dropping || e.rules.Hold == 0 || e.rules.Select != loop.SelectNewest || e.rules.Policy != loop.PolicyDrop {
		return
	}
	theta := e.freeHold(rho)
	if theta <= e.rules.Hold {
		return
	}
	f := e.add(Info, keySelect, ClosedForm)
	f.What = fmt.Sprintf("select: fresh would allow hold %s, which drops fewer groups and costs no period", short(theta))
	f.Why = fmt.Sprintf("newest first selects by length when starts are held longer than %s; a random choice among the groups that are equally fresh does not, and at an effective ρ of %s engines can afford to stand still for what is dropped anyway", short(holdMax), short(rho))
	f.Do = fmt.Sprintf("queue.select: fresh with queue.hold: %s; or with queue.hold: %s and hold_adaptive, which finds by itself what is free", short(theta), short(holdLearned))
	f.Figures = Figures{{"hold_free", theta}, {"effective_utilization", rho}}
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
	rho, ok := e.load()
	if !ok || e.rules.Select != loop.SelectNewest && e.rules.Select != loop.SelectFresh || e.rules.QueueGroups == e.rules.BatchGroups || rho >= quiet || e.rules.Policy == loop.PolicyReplay {
		return
	}
	f := e.add(Info, keySelect, ClosedForm)
	f.What = fmt.Sprintf("select: %s changes little", e.document.Queue.Select)
	f.Why = fmt.Sprintf("at an effective ρ of %s nearly every batch empties the queue, so there is seldom a choice", short(rho))
	f.Figures = Figures{{"effective_utilization", rho}}
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
		f.Do = fmt.Sprintf("queue.select: fresh with queue.hold: %s, which keeps this queue's period where ρ is above 1", short(e.freeHold(here.Utilization)))
	}
	f.Figures = Figures{{"staleness_mean_versions", mean}, {"staleness_mean_at_one_versions", less}, {"period_ratio_at_one", slower / period}}
}
