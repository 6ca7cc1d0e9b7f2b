package doctor

import (
	"cmp"
	"fmt"
	"math"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

const keyBudget = "queue.max_staleness"

var budgetChecks = []check{
	{Kind{
		Code: "budget-starves", Severities: []Severity{Error}, Keys: []string{keyBudget, keyEta},
		When:  "`queue.max_staleness`, or `eta`, is below what groups have that are generated while the trainer works",
		Known: "arithmetic. With K = `sync.every`, engines serve the version of the last sync until the trainer is K versions on. Below K−1 the trainer has nothing to train on before it reaches the next sync, which it alone brings: the run stands still. At K−1 what is generated from the start of a cycle's last step on, until a sync that takes time is done, is K versions old when the next step starts, and discarded. With `abort` and a budget of 0 every rollout that runs while a train step does is cancelled. Policy `bounded` takes a batch off its bound for every version that engines are behind: below η = K−1 less than a batch is left",
	}, (*examination).budgetStarves},
	{Kind{
		Code: "budget-cannot-bind", Severities: []Severity{Warning, Info}, Keys: []string{keyBudget, keyEta},
		When:  "`queue.max_staleness` is above every staleness that occurs, or `eta` admits more groups than are ever live: it decides nothing",
		Known: "arithmetic, where lengths have a cap (with `prompt_sigma` a `cap_tokens`) and the train step a time: a group generates for at most (1 + ⌈(S−1)/C⌉)·d, d the longest rollout, and each version takes at least t_step, so PQS ≤ ⌊D/t_step⌋ + 1 + what engines are behind; oldest first, at most ⌈Q/B⌉ selections follow (for `bounded` and `threshold` what they admit, in place of Q). Else a simulation in which it ended at most one group in a thousand, or held back as few: a warning where the budget is at least twice the mean",
	}, (*examination).budgetCannotBind},
}

// actsRarely is the share of groups up to which a budget that ends them decides nothing.
const actsRarely = 1.0 / 1000

// behind returns how many versions engines can be behind the trainer when a group
// starts: K−1 before the last step of a sync cycle, and K through a sync that takes
// time while the trainer is free to go on.
func (e *examination) behind() int {
	if e.syncS() > 0 && !e.rules.TrainerBlocked {
		return e.rules.SyncEvery
	}
	return e.rules.SyncEvery - 1
}

// syncS is how long engines are behind the version of a sync, in seconds: while they fetch it, and while they switch.
func (e *examination) syncS() float64 {
	return e.document.Modelled.Sync.LoadS + e.document.Modelled.Sync.TimeS
}

func (e *examination) budgetStarves() {
	budget, k := int(e.rules.MaxStaleness), e.rules.SyncEvery
	if e.rules.Policy == loop.PolicyBounded {
		e.etaStarves()
		return
	}
	if e.rules.Policy != loop.PolicyMax && !(e.rules.Policy == loop.PolicyReplay && budget > 0) {
		return
	}
	behind := e.behind()
	what, why := "", ""
	switch {
	case budget < k-1:
		what = fmt.Sprintf("under a staleness budget of %d the run stands still", budget)
		why = fmt.Sprintf("engines serve a new version after every %d train steps; %s after one they make nothing that the trainer may take, and without it there is no next sync", k, plural(float64(budget+1), "step"))
	case budget < behind:
		what = fmt.Sprintf("a staleness budget of %d discards what is generated while the trainer works towards a sync, and during it", budget)
		why = fmt.Sprintf("from the start of the last train step before a sync until that sync of %s s is done, engines serve a version that is %d behind the one the next step starts from",
			short(e.syncS()), behind)
	case budget == 0 && e.rules.Abort && e.rules.Policy == loop.PolicyMax:
		what = "a staleness budget of 0 with abort cancels every rollout that runs while a train step does"
		why = "the earliest step that could train on it starts from the next version, when it is one version old"
		behind = 1
	default:
		return
	}
	f := e.add(Error, keyBudget, Arithmetic)
	f.What, f.Why = what, why
	f.Do = fmt.Sprintf("%s of at least %d, or schedule: synchronous, which generates nothing in vain", keyBudget, behind)
	f.Figures = Figures{{"budget_versions", float64(budget)}, {"engines_behind_versions", float64(behind)}}
}

// etaStarves is budgetStarves for policy bounded.
func (e *examination) etaStarves() {
	g, k := e.rules.BatchGroups, e.rules.SyncEvery
	left := e.rules.LiveGroupsMax() - (k-1)*g
	if left >= g {
		return
	}
	f := e.add(Error, keyEta, Arithmetic)
	f.What = fmt.Sprintf("under eta %s the run stands still", short(e.rules.Eta))
	f.Why = fmt.Sprintf("before a sync engines are %d versions behind, which admission takes off its bound: it leaves room for %s, and a batch has %d",
		k-1, plural(float64(max(left, 0)), "group"), g)
	f.Do = fmt.Sprintf("%s of at least %d, or sync.every 1", keyEta, k-1)
	f.Figures = Figures{{"eta", e.rules.Eta}, {"engines_behind_versions", float64(k - 1)}, {"groups_left", float64(max(left, 0))}}
}

// etaCannotBind is budgetCannotBind for policy bounded, where engines are never
// behind, which would move the bound.
func (e *examination) etaCannotBind() {
	p := e.probe()
	if e.behind() > 0 || p == nil || p.stalled != nil || p.starts == 0 || float64(p.bounded) > actsRarely*float64(p.starts) {
		return
	}
	f := e.add(Warning, keyEta, Simulated)
	f.What = fmt.Sprintf("eta %s decides nothing: of %d groups started, %d found as many live as it admits", short(e.rules.Eta), p.starts, p.bounded)
	f.Why = fmt.Sprintf("it admits %d groups, and %d rollouts in flight with what is ready and in training are fewer; the mean staleness is %s",
		e.rules.LiveGroupsMax(), e.rules.Concurrency(), short(p.result.Summary.Staleness.Mean))
	f.Do = fmt.Sprintf("keep it as a safety net; a bound that acts is an eta below about %s, or more rollouts in flight", short(math.Ceil(10*p.result.Summary.Staleness.Mean)/10))
	f.Figures = Figures{{"eta", e.rules.Eta}, {"groups_admitted", float64(e.rules.LiveGroupsMax())}, {"staleness_mean_versions", p.result.Summary.Staleness.Mean},
		{"starts_at_bound_share", float64(p.bounded) / float64(p.starts)}}
}

func (e *examination) budgetCannotBind() {
	if e.rules.Policy == loop.PolicyBounded {
		e.etaCannotBind()
		return
	}
	if e.rules.Policy != loop.PolicyMax && !(e.rules.Policy == loop.PolicyReplay && e.rules.MaxStaleness > 0) {
		return
	}
	budget := int(e.rules.MaxStaleness)
	if bound, why := e.stalest(); bound >= 0 && bound <= budget {
		f := e.add(Warning, keyBudget, Arithmetic)
		f.What = fmt.Sprintf("the staleness budget of %d can never act: no group can be staler than %d", budget, bound)
		f.Why = why
		f.Do = fmt.Sprintf("read the run's staleness as what admission and the queue make it; a budget that acts is below %d", bound)
		f.Figures = Figures{{"budget_versions", float64(budget)}, {"staleness_max_versions", float64(bound)}}
		return
	}
	p := e.probe()
	if p == nil || p.stalled != nil || float64(p.stale) > actsRarely*float64(p.groups) {
		return
	}
	severity := Info
	if float64(budget) >= 2*p.result.Summary.Staleness.Mean {
		severity = Warning
	}
	f := e.add(severity, keyBudget, Simulated)
	f.What = fmt.Sprintf("the staleness budget of %d did not act: the bound in effect is %d, the staleness of the stalest of %d groups", budget, p.stalest, p.groups)
	if p.stale > 0 {
		f.What = fmt.Sprintf("the staleness budget of %d hardly ever acts: it ended %d of %d groups", budget, p.stale, p.groups)
	}
	f.Why = fmt.Sprintf("%d rollouts in flight and a queue of %d against batches of %d keep the mean at %s versions; only a straggler could exceed the budget",
		e.rules.Concurrency(), e.rules.QueueGroups*e.rules.GroupSize, e.batch(), short(p.result.Summary.Staleness.Mean))
	if e.rules.PauseGroups > 0 {
		f.Why += fmt.Sprintf(", and queue.pause_at opens no group while %d are ready", e.rules.PauseGroups)
	}
	f.Do = fmt.Sprintf("keep it as a safety net; a budget that acts here is below %d", max(p.stalest, 1))
	f.Figures = Figures{{"budget_versions", float64(budget)}, {"staleness_max_versions", float64(p.stalest)}, {"staleness_mean_versions", p.result.Summary.Staleness.Mean},
		{"ended_share", float64(p.stale) / float64(max(p.groups, 1))}}
	if closed, ok := e.predict(); ok && closed.Distribution != nil && e.plain() && e.rules.Hold == 0 && e.rules.Select == loop.SelectOldest && e.rules.Policy == loop.PolicyMax {
		f.Figures = append(f.Figures, Figure{"predicted_share_over_budget", closed.Distribution.ShareAbove(budget)})
	}
}

// batch is B.
func (e *examination) batch() int { return e.rules.BatchGroups * e.rules.GroupSize }

// provable bounds what a proof is printed of: a larger bound is no news.
const provable = 1 << 20

// stalest returns the largest staleness a group can be trained at, by arithmetic
// alone and whatever is drawn, and why; −1 where arithmetic gives no bound:
// without a cap on lengths (or on those that prompts scale), with engines that stand still, or with a selection
// that may leave a group behind.
func (e *examination) stalest() (versions int, why string) {
	r := &e.rules
	if r.Policy == loop.PolicySynchronous {
		if r.InterruptAtBatch && r.ExtraGroups > 0 {
			return -1, ""
		}
		return 0, "under schedule: synchronous every group is trained from the version it was started under"
	}
	atOnce := r.Select == loop.SelectOldest || r.QueueGroups == r.BatchGroups
	still := r.InterruptAtBatch || r.Sync != loop.SyncInFlight && (e.document.Modelled.Sync.TimeS > 0 || r.Sync != loop.SyncPause)
	room := r.QueueGroups
	switch r.Policy {
	case loop.PolicyBounded, loop.PolicyThreshold:
		room = r.LiveGroupsMax()
	case loop.PolicyDrop, loop.PolicyMax:
	default:
		return -1, ""
	}
	if e.setting == nil || e.beside != "" || !atOnce || still {
		return -1, ""
	}
	longest := e.longestS()
	rounds := math.Ceil(float64(e.stride()-1) / float64(r.Concurrency()))
	if r.Start == loop.StartGang {
		rounds = 0
	}
	step := e.setting.StepS
	group := (1 + rounds) * longest
	inStep := math.Floor(group/step) + 1
	during := math.Floor(e.syncS() / step)
	behind := float64(r.SyncEvery - 1)
	if e.syncS() > 0 {
		behind = max(float64(r.SyncEvery), during+1) + during
	}
	waits := math.Ceil(float64(room) / float64(r.BatchGroups))
	bound := inStep + behind + waits
	if !(step > 0) || !(bound < provable) {
		return -1, ""
	}
	return int(bound), fmt.Sprintf("the longest rollout takes %s s, so a group generates for at most %s s and at most %s train steps of %s s end meanwhile; engines are at most %s behind when it starts, and oldest first it waits for at most %s selections",
		short(longest), short(group), short(inStep), short(step), plural(behind, "version"), short(waits))
}

// longestS is the longest a rollout can take that waits for nothing, in seconds: its
// environment, tools, sandbox, verifier and scorer included; infinite where one of them has no cap.
func (e *examination) longestS() float64 {
	longest := e.longestTokens()/e.setting.DecodeTokensPerS + capS(e.document.Modelled.Environment) + capS(e.document.Modelled.Verifier.Time) + capS(e.document.Modelled.Scorer.Time)
	score := 0.0 // of a token
	if speed := e.document.Modelled.Scorer.TokensPerS; speed > 0 {
		score = 1 / speed
	}
	longest += score * (e.longestTokens() + float64(e.document.Modelled.PromptTokens))
	if e.document.Modelled.Sandbox.When != "" {
		longest += capS(e.document.Modelled.Sandbox.Start)
	}
	if e.document.Modelled.Tools.Calls == 0 {
		return longest
	}
	calls := float64(e.document.Modelled.Tools.CallsMax)
	if e.document.Modelled.Tools.CallsKind == "" || e.document.Modelled.Tools.CallsKind == workload.KindFixed {
		calls = math.Ceil(e.document.Modelled.Tools.Calls)
	} else if calls == 0 {
		return math.Inf(1)
	}
	read := 0.0 // a slot reads what a tool returns
	if speed := cmp.Or(e.document.Modelled.Prefill.TokensPerS, e.document.Modelled.Sync.PrefillTokensPerS); speed > 0 {
		read = float64(e.document.Modelled.Tools.OutputTokens) / speed
	}
	read += score * float64(e.document.Modelled.Tools.OutputTokens)
	return longest + calls*(capS(e.document.Modelled.Tools.Time)+read)
}

// capS is the longest a modelled time can be, in seconds.
func capS(s config.TimeModel) float64 {
	switch {
	case s.Kind == "" || s.Kind == "none":
		return 0
	case s.CapS > 0:
		return s.CapS
	case s.Kind == workload.KindFixed:
		return s.MeanS
	}
	return math.Inf(1)
}
