package doctor

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

const (
	keyAbort      = "queue.abort"
	keyGroupSize  = "rollout.group_size"
	keyCorrection = "trainer.correction.kind"
	keyMinibatch  = "trainer.minibatches"
)

const (
	// biasTold is the bias of the mean length from which on it is a finding.
	biasTold = 0.02
	// abortedMuch is the share of groups cancelled while they generate from which on it is one.
	abortedMuch = 0.1
)

var selectionChecks = []check{
	{Kind{
		Code: "discard-bias", Severities: []Severity{Warning}, Keys: []string{keyBudget},
		When:  "groups over the staleness budget are discarded, and trained lengths come out at least 2 % from those sampled: long answers take longer, are older, and go first",
		Known: "simulation: mean trained over mean sampled length, where the difference is above three standard errors",
	}, (*examination).discardBias},
	{Kind{
		Code: "abort-waste", Severities: []Severity{Warning}, Keys: []string{keyAbort},
		When:  "more than 10 % of groups are cancelled while they generate, because they cannot meet the budget: their tokens, and those of finished siblings, are spent",
		Known: "simulation: groups that the budget ends before they are ready, over all that end",
	}, (*examination).abortWaste},
	{Kind{
		Code: "mixed-versions", Severities: []Severity{Warning}, Keys: []string{keyCorrection},
		When:  "rollouts go on across weight updates, and the trainer takes all tokens as if the newest policy had sampled them",
		Known: "arithmetic: `correction.kind: none` with `version_mask: all`, under an asynchronous schedule whose syncs do not drain",
	}, (*examination).mixedVersions},
	{Kind{
		Code: "group-of-one", Severities: []Severity{Warning}, Keys: []string{keyGroupSize},
		When:  "a group is a single rollout: its advantage, its reward less the group's mean, is 0, and nothing is learned. A simulation of staleness does not mind, nor does a run with a teacher of `scoring.servers`",
		Known: "arithmetic: GRPO's advantage",
	}, (*examination).groupOfOne},
	{Kind{
		Code: "minibatches-uneven", Severities: []Severity{Warning}, Keys: []string{keyMinibatch},
		When:  "the groups of a batch do not divide evenly over `minibatches`: optimizer steps of one version differ in size",
		Known: "arithmetic: G modulo `minibatches`",
	}, (*examination).minibatchesUneven},
}

func (e *examination) discardBias() {
	p := e.probe()
	if p == nil || p.stalled != nil || p.stale == 0 || e.rules.Redundancy > 0 || e.document.Rollout.Prune.Tokens > 0 {
		return
	}
	ratio, ok := p.lengthRatio()
	if !ok || !(p.scored > 0) {
		return
	}
	lengths := e.setting.Lengths
	spread := math.Sqrt(max(lengths.MeanSquare()/(lengths.Mean()*lengths.Mean())-1, 0))
	noise := spread * math.Sqrt(2*float64(e.rules.GroupSize)/float64(p.scored))
	if math.Abs(ratio-1) < max(biasTold, 3*noise) {
		return
	}
	f := e.add(Warning, keyBudget, Simulated)
	f.What = fmt.Sprintf("discarding biases lengths: trained responses are %s of the mean length sampled", short(ratio))
	f.Why = fmt.Sprintf("groups with long rollouts live through more updates, and a budget of %d ends %s of all groups, the long ones first", e.rules.MaxStaleness, percent(float64(p.stale)/float64(p.groups)))
	f.Do = fmt.Sprintf("raise %s until it hardly acts, lower rollout.concurrency, or policy bounded, which keeps the mean by admission and discards nothing", keyBudget)
	f.Figures = Figures{{"trained_over_sampled_length", ratio}, {"ended_share", float64(p.stale) / float64(p.groups)}, {"standard_error", noise}}
}

func (e *examination) abortWaste() {
	p := e.probe()
	if !e.rules.Abort || e.rules.Policy != loop.PolicyMax || p == nil || p.stalled != nil || p.groups == 0 {
		return
	}
	share := float64(p.aborted) / float64(p.groups)
	if share <= abortedMuch {
		return
	}
	f := e.add(Warning, keyAbort, Simulated)
	f.What = fmt.Sprintf("%s of groups are cancelled while they generate", percent(share))
	f.Why = fmt.Sprintf("a group that cannot be trained within %s is given up whole: long rollouts lose their tokens, and %d finished siblings the group they are compared in",
		plural(float64(e.rules.MaxStaleness), "version"), p.siblings)
	f.Do = "withhold instead: policy bounded or block, or queue.pause_at, start less; or a higher " + keyBudget
	f.Figures = Figures{{"cancelled_groups_share", share}, {"finished_siblings_lost", float64(p.siblings)}}
}

func (e *examination) mixedVersions() {
	correction := e.document.Trainer.Correction
	if correction.Kind != "none" || correction.VersionMask != "all" || correction.MaxSpans > 0 || e.rules.Policy == loop.PolicySynchronous || e.rules.Sync == loop.SyncDrain {
		return
	}
	f := e.add(Warning, keyCorrection, Arithmetic)
	f.What = "a sample can mix tokens of several policy versions, and all are trained as on-policy"
	f.Why = fmt.Sprintf("under sync.mode %s a rollout goes on when weights change, and correction none neither weighs nor masks what an older version sampled", e.document.Sync.Mode)
	f.Do = "trainer.correction.kind: ppo-clip or tis, which use the rollout's own log-probs, or version_mask: newest"
	f.Figures = Figures{}
}

func (e *examination) groupOfOne() {
	if e.rules.GroupSize != 1 || e.document.Taught() {
		return
	}
	f := e.add(Warning, keyGroupSize, Arithmetic)
	f.What = "groups of one rollout have no advantage: a run learns nothing"
	f.Why = "an advantage is a reward less the mean of its group, and a single reward is its group's mean"
	f.Do = "rollout.group_size of at least 2, or read the figures as those of staleness and speed alone"
	f.Figures = Figures{{"group_size", 1}}
}

func (e *examination) minibatchesUneven() {
	n, g := e.document.Trainer.Minibatches, e.rules.BatchGroups
	if n <= 1 || n > g || g%n == 0 {
		return
	}
	f := e.add(Warning, keyMinibatch, Arithmetic)
	f.What = fmt.Sprintf("%d groups do not divide into %d minibatches: some have %d groups, others %d", g, n, g/n, g/n+1)
	f.Why = "each minibatch is one optimizer step at the same learning rate, so that a group in a small one counts more"
	f.Do = "a number of minibatches that divides the groups of a batch"
	f.Figures = Figures{{"batch_groups", float64(g)}, {"minibatches", float64(n)}}
}
