package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

const (
	keyOversample = "rollout.oversample"
	keyRedundancy = "rollout.redundancy"
	keyPrune      = "rollout.prune.tokens"
	keyCheck      = "rollout.prune.check"
	keyRequeue    = "prompts.requeue"
	keyInterrupt  = "rollout.partial.interrupt"
)

// biasWarning is the length bias, in either direction, from which on it is a warning.
const biasWarning = 0.02

var shapeChecks = []check{
	{Kind{
		Code: "oversampling-bias", Severities: []Severity{Warning, Info}, Keys: []string{keyOversample},
		When:  "more groups are opened than a batch has, and the first to be ready are trained: short ones; a warning from a bias of 2 % on",
		Known: "order statistics of the modelled times where slots cover all groups (a seeded estimate), else a simulation",
	}, (*examination).oversampling},
	{Kind{
		Code: "redundancy-bias", Severities: []Severity{Warning, Info}, Keys: []string{keyRedundancy},
		When:  "more rollouts are started than a group has, and the first to be scored are kept: short ones; a warning from a bias of 2 % on",
		Known: "order statistics of the modelled times (a seeded estimate) where slots cover eight groups, else a simulation",
	}, (*examination).redundancy},
	{Kind{
		Code: "prune-share", Severities: []Severity{Error, Warning, Info}, Keys: []string{keyPrune},
		When:  "rollouts are pruned at a length: how many, and how many whole groups; a warning above 5 % of rollouts, an error above 90 % of groups, an info where none is that long",
		Known: "the modelled lengths: P(L > tokens), and its power S + R for a whole group of siblings, integrated over the prompts' own factor where `prompt_sigma` is set; a simulation where measured siblings go together or such prompts are requeued",
	}, (*examination).prune},
	{Kind{
		Code: "prune-check", Severities: []Severity{Warning}, Keys: []string{keyCheck},
		When:  "rollouts are pruned as soon as the answer cannot be wholly right: what is left of a group is all right, its rewards are equal, and it teaches nothing",
		Known: "arithmetic: advantages are differences of a group's rewards (`headway run --seed 1 --steps 300` reaches an accuracy of 0.54, and of 0 with `rollout.prune.check: task`, which prunes 99.7 % of its rollouts)",
	}, (*examination).pruneCheck},
	{Kind{
		Code: "requeue-bias", Severities: []Severity{Warning}, Keys: []string{keyRequeue},
		When:  "prompts of discarded groups are played again: slow prompts take slots again and again, and are still trained less. Prompts of groups that were wholly pruned, or failed, are not: they would end so again",
		Known: "the share that ends so is a simulation's",
	}, (*examination).requeue},
	{Kind{
		Code: "interrupt-without-effect", Severities: []Severity{Warning, Info}, Keys: []string{keyInterrupt},
		When:  "rollouts are to be interrupted when a batch is ready, and none ever is",
		Known: "arithmetic under `schedule: synchronous` without oversampling, where a full batch is all there is; else a simulation in which none was interrupted",
	}, (*examination).interrupt},
}

func (e *examination) oversampling() {
	extra := e.rules.ExtraGroups
	if e.rules.Policy != loop.PolicySynchronous || extra == 0 || e.rules.InterruptAtBatch {
		return
	}
	all := e.rules.BatchGroups + extra
	if e.alikePrompts() && e.rules.Concurrency() >= all*e.stride() {
		ratio := e.keptLength(all, e.rules.BatchGroups, e.stride())
		e.biased(keyOversample, ClosedForm, ratio, fmt.Sprintf("of %d groups the first %d to be ready are trained", all, e.rules.BatchGroups))
		return
	}
	e.biasedBySimulation(keyOversample, fmt.Sprintf("of %d groups the first %d to be ready are trained, in slots for %d rollouts", all, e.rules.BatchGroups, e.rules.Concurrency()))
}

func (e *examination) redundancy() {
	s, n := e.rules.GroupSize, e.stride()
	if n == s {
		return
	}
	why := fmt.Sprintf("of %d rollouts of a prompt the first %d to be scored are kept", n, s)
	if e.alikePrompts() && e.rules.Concurrency() >= 8*n {
		e.biased(keyRedundancy, ClosedForm, e.keptLength(1, 1, n), why)
		return
	}
	e.biasedBySimulation(keyRedundancy, why)
}

// biasedBySimulation is biased with the ratio of a simulation.
func (e *examination) biasedBySimulation(key, why string) {
	p := e.probe()
	if p == nil {
		return
	}
	if p.stalled != nil {
		f := e.add(Info, key, Arithmetic)
		f.What = "trained responses are shorter than sampled ones, by an unknown share: the run stands still"
		f.Why = why + ", which favours short ones"
		return
	}
	e.biased(key, Simulated, p.result.Summary.Length.TrainedMeanTokens/e.meanTokens(), why)
}

// biased notes the ratio of the trained mean length to the true one.
func (e *examination) biased(key string, basis Basis, ratio float64, why string) {
	severity := Info
	if math.Abs(ratio-1) >= biasWarning {
		severity = Warning
	}
	f := e.add(severity, key, basis)
	f.What = fmt.Sprintf("trained responses are %s shorter than sampled ones", percent(1-ratio))
	f.Why = why + ", which favours short ones"
	f.Do = "an asynchronous schedule, which waits for no straggler and drops none by its length; or measure that the bias does no harm"
	f.Figures = Figures{{"trained_over_true_length", ratio}, {"true_mean_tokens", e.meanTokens()}}
}

func (e *examination) prune() {
	limit := e.document.Rollout.Prune.Tokens
	if limit == 0 || e.setting == nil {
		return
	}
	if longest := e.longestTokens(); longest <= float64(limit) {
		f := e.add(Info, keyPrune, ClosedForm)
		f.What = fmt.Sprintf("no rollout is pruned: the longest has %.0f tokens", longest)
		f.Why = fmt.Sprintf("rollout.prune.tokens is %d", limit)
		f.Figures = Figures{{"pruned_rollouts_share", 0}, {"pruned_groups_share", 0}}
		return
	}
	share, whole, basis := e.pruned(limit)
	severity := Info
	switch {
	case whole > wasteError:
		severity = Error
	case share > 0.05:
		severity = Warning
	}
	f := e.add(severity, keyPrune, basis)
	f.Figures = Figures{{"pruned_rollouts_share", share}, {"pruned_groups_share", whole}}
	f.What = fmt.Sprintf("%s of rollouts are pruned, %s of groups wholly", percent(share), percent(whole))
	f.Why = fmt.Sprintf("so many of the modelled lengths exceed %d tokens; a pruned rollout is generated so far, and counts for nothing", limit)
	if !e.alikePrompts() {
		f.Why += ". Prompts differ in length, so that those with long responses lose whole groups"
	}
	f.Do = "modelled.length.cap_tokens, if a long answer shall count as it stands; a higher limit, if it shall count in full"
}

// pruned returns the share of rollouts that are longer than a limit, and of groups
// in which all are. Where it is not a matter of the modelled lengths alone, since
// measured siblings go together or prompts that were lost are played more often, the
// simulation has it, if there is one.
func (e *examination) pruned(limit int) (rollouts, groups float64, basis Basis) {
	if e.setting.Lengths.Grouped() || e.rules.Requeue && !e.alikePrompts() {
		if p := e.probe(); p != nil && p.groups > 0 && p.scored > 0 {
			return float64(p.pruned) / float64(p.scored), float64(p.ended[loop.EndPruned]) / float64(p.groups), Simulated
		}
	}
	rollouts, groups = e.shareOver(limit, e.stride())
	return rollouts, groups, ClosedForm
}

func (e *examination) pruneCheck() {
	if e.document.Rollout.Prune.Check != "task" {
		return
	}
	f := e.add(Warning, keyCheck, Arithmetic)
	f.What = "what is left of a group after its task has pruned it teaches next to nothing"
	f.Why = "a rollout is stopped once its answer cannot be wholly right, so that those that are scored are right, with equal rewards and no advantage; and a policy that solves little yet is left with hardly a rollout to train on"
	f.Do = "rollout.prune.tokens to save on long rollouts, or check: none, which keeps the wrong answers that right ones are compared with"
	f.Figures = Figures{{"group_size", float64(e.rules.GroupSize)}}
}

func (e *examination) requeue() {
	if !e.rules.Requeue {
		return
	}
	p := e.probe()
	if p == nil || p.groups == 0 {
		return
	}
	share := float64(p.ended[loop.EndDiscarded]) / float64(p.groups)
	if share < 0.01 {
		return
	}
	f := e.add(Warning, keyRequeue, Simulated)
	f.What = fmt.Sprintf("%s of groups end for being slow, and their prompts are played again", percent(share))
	f.Why = "a prompt with long responses misses the budget every time: it takes slots again and again, and what is trained of it are its short responses"
	f.Do = "policy drop or bounded, which end no group for its length; or requeue off, which at least spends no more on them"
	f.Figures = Figures{{"ended_slow_share", share}}
	if ratio, ok := p.lengthRatio(); ok {
		f.Figures = append(f.Figures, Figure{"trained_over_sampled_length", ratio})
	}
}

func (e *examination) interrupt() {
	if !e.rules.InterruptAtBatch {
		return
	}
	if e.rules.Policy == loop.PolicySynchronous {
		if e.rules.ExtraGroups > 0 {
			return
		}
		f := e.add(Warning, keyInterrupt, Arithmetic)
		f.What = "interrupting at a full batch has no effect: nothing else is in flight"
		f.Why = "under schedule: synchronous exactly one batch is opened, and is full when its last rollout has ended"
		f.Do = "rollout.oversample above 1, or leave it out"
		return
	}
	p := e.probe()
	if p == nil || p.stalled != nil || e.rules.Sync == loop.SyncRestart || p.interrupts > 0 {
		return
	}
	f := e.add(Info, keyInterrupt, Simulated)
	f.What = fmt.Sprintf("interrupting at a full batch had no effect in %d groups", p.groups)
	f.Why = "a batch was never full while the trainer worked: it takes every one at once"
	f.Do = "nothing; it would act in a train-bound run"
}

// keptLength returns the mean length of what is trained over the true mean, where
// all of n-rollout groups start at once, the first S rollouts of each are kept,
// and of all groups the first kept ones. It is a seeded estimate over at least
// 8192 groups, of the modelled lengths and environment times.
func (e *examination) keptLength(all, kept, n int) float64 {
	const groups = 8192
	src, env := newSources()
	s := e.rules.GroupSize
	in := e.setting
	total, count := 0.0, 0
	batch := make([]keptGroup, all)
	rollouts := make([]timed, n)
	for first := 0; first < groups; first += all {
		for g := range batch {
			id := uint64(first + g)
			for k := range rollouts {
				tokens := float64(in.Lengths.Draw(src, id, uint32(k), 1))
				t := tokens / in.DecodeTokensPerS
				if !in.Environment.Zero() {
					t += float64(in.Environment.Draw(env, id, uint32(k), 1)) / 1e9
				}
				rollouts[k] = timed{t, tokens}
			}
			slices.SortFunc(rollouts, earlier)
			batch[g] = keptGroup{at: rollouts[s-1].at}
			for _, r := range rollouts[:s] {
				batch[g].tokens += r.tokens
			}
		}
		slices.SortFunc(batch, func(a, b keptGroup) int { return cmp.Compare(a.at, b.at) })
		for _, g := range batch[:kept] {
			total += g.tokens
			count += s
		}
	}
	return total / float64(count) / in.Lengths.Mean()
}

// timed is a rollout's end and its length; keptGroup a group's, with the tokens kept of it.
type (
	timed     struct{ at, tokens float64 }
	keptGroup struct{ at, tokens float64 }
)

func earlier(a, b timed) int { return cmp.Compare(a.at, b.at) }
