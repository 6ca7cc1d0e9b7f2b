package doctor

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

const (
	keyEta       = "queue.eta"
	keyThreshold = "queue.staleness_threshold"
	keySyncMode  = "sync.mode"
)

var boundChecks = []check{
	{Kind{
		Code: "single-group-over-eta", Severities: []Severity{Info}, Keys: []string{keyEta},
		When:  "policy `bounded`: what the bound keeps, and which groups exceed it",
		Known: "arithmetic: at most L = ⌊(η+1)·G⌋ groups are live, G of them at the trainer, so after an update at most L−G are left, and each update adds one version to each; a version that engines are behind takes G off L: the mean staleness is at most (L−G)/G. One straggler can be among those left after every update: nothing but its length ends that. The share above η and the stalest group are a simulation's, the largest staleness possible the argument of `budget-cannot-bind`",
	}, (*examination).singleGroup},
	{Kind{
		Code: "eta-admits-nothing", Severities: []Severity{Warning}, Keys: []string{keyEta, keyThreshold},
		When:  "η·G, or θ·K·G, is below one group: not one group starts ahead, and a train step waits for generation as under `schedule: synchronous`",
		Known: "arithmetic: ⌊(η+1)·G⌋ = G, ⌊(1+θ)·K·G⌋ = K·G",
	}, (*examination).admitsNothing},
	{Kind{
		Code: "threshold-mean", Severities: []Severity{Info}, Keys: []string{keyThreshold},
		When:  "policy `threshold`: the mean staleness it gives, in weight syncs, and whether it binds",
		Known: "arithmetic: exactly ⌊(1+θ)KG⌋/(KG) − 1 while admission waits for it, since then as many groups are carried over every sync; if rollouts are interrupted or left running, and the trainer waits for the sync or it takes no time. Drained engines carry less over; a trainer that goes on trains more than KG groups a sync. Whether it binds is a simulation's",
	}, (*examination).thresholdMean},
	{Kind{
		Code: "partial-without-effect", Severities: []Severity{Warning}, Keys: []string{keySyncMode},
		When:  "rollouts are to be interrupted by a sync, and none can be running then: `partial_rollout` at `staleness_threshold: 0`, `mode: restart` under `schedule: synchronous`",
		Known: "arithmetic: ⌊(1+θ)KG⌋ = KG groups start between two syncs, all of which are trained before the next",
	}, (*examination).partialWithoutEffect},
}

// slack is how many groups may be left over at an update, or at a sync of policy
// threshold, and of how many they are left.
func (e *examination) slack() (left, of int) {
	of = e.rules.BatchGroups
	if e.rules.Policy == loop.PolicyThreshold {
		of *= e.rules.SyncEvery
	}
	return e.rules.LiveGroupsMax() - of, of
}

func (e *examination) singleGroup() {
	left, of := e.slack()
	if e.rules.Policy != loop.PolicyBounded || left < 1 {
		return
	}
	mean := float64(left) / float64(of)
	p, known, basis := e.evidence()
	f := e.add(Info, keyEta, basis)
	f.What = fmt.Sprintf("the mean staleness stays within %s; a single group can exceed it", short(mean))
	f.Why = fmt.Sprintf("after an update at most %d of %d live groups are left, each a version older; a straggler can be among them after every update while the others turn over", left, left+of)
	f.Figures = Figures{{"staleness_mean_max_versions", mean}, {"live_groups_max", float64(left + of)}}
	if known {
		over := p.shareAbove(int(math.Floor(e.rules.Eta)))
		f.What += fmt.Sprintf(": %s of %d did, the stalest was %d", percent(over), p.trained, p.stalest)
		f.Figures = append(f.Figures, Figure{"share_over_eta", over}, Figure{"staleness_max_simulated_versions", float64(p.stalest)},
			Figure{"staleness_mean_simulated_versions", p.result.Summary.Staleness.Mean})
	}
	if bound, _ := e.stalest(); bound >= 0 {
		f.Why += fmt.Sprintf(". The longest rollout there can be keeps it within %d", bound)
		f.Figures = append(f.Figures, Figure{"staleness_max_versions", float64(bound)})
	}
	f.Do = "policy max with a budget, if one stale group does harm: it discards, and favours short rollouts"
}

func (e *examination) admitsNothing() {
	left, of := e.slack()
	key, value, name := keyEta, e.rules.Eta, "eta"
	switch e.rules.Policy {
	case loop.PolicyBounded:
	case loop.PolicyThreshold:
		key, value, name = keyThreshold, e.rules.StalenessThreshold, "staleness_threshold"
	default:
		return
	}
	if left > 0 || value == 0 {
		return
	}
	f := e.add(Warning, key, Arithmetic)
	f.What = fmt.Sprintf("%s %s of %d groups is less than one group: none starts ahead", name, short(value), of)
	f.Why = fmt.Sprintf("⌊(1+%s)·%d⌋ is %d, as at 0", short(value), of, of)
	f.Do = fmt.Sprintf("%s of at least %s for one group, or larger batches of groups", name, short(math.Ceil(1e6/float64(of))/1e6))
	f.Figures = Figures{{"groups_ahead", 0}, {"least_value", 1 / float64(of)}}
}

func (e *examination) thresholdMean() {
	if e.rules.Policy != loop.PolicyThreshold {
		return
	}
	left, of := e.slack()
	mean := float64(left) / float64(of)
	p, known, basis := e.evidence()
	f := e.add(Info, keyThreshold, basis)
	f.What = fmt.Sprintf("while the threshold binds, the mean staleness is %s weight syncs", short(mean))
	f.Why = fmt.Sprintf("at most %d groups start from one sync to the next, which trains %d: %d are carried over, one sync older each. It is a share of groups, not a number of versions", left+of, of, left)
	f.Figures = Figures{{"staleness_mean_syncs", mean}, {"groups_per_sync", float64(of)}, {"groups_ahead", float64(left)}}
	exact := true
	switch {
	case left == 0:
	case !e.rules.TrainerBlocked:
		exact = false
		f.What = fmt.Sprintf("the mean staleness is about %s weight syncs, not exactly", short(mean))
		f.Why += "; but the trainer goes on while engines take the version, and trains on what was to be carried over"
	case e.rules.Sync == loop.SyncDrain:
		exact = false
		f.What = fmt.Sprintf("the mean staleness is at most %s weight syncs", short(mean))
		f.Why += "; but rollouts finish before the sync, and less is carried over"
	}
	if !known {
		return
	}
	got := p.result.Summary.Staleness.MeanSyncs
	f.Figures = append(f.Figures, Figure{"staleness_mean_simulated_syncs", got})
	switch {
	case !exact || math.Abs(got-mean) <= 0.02*max(mean, 1):
		f.What += fmt.Sprintf(" (simulated: %s)", short(got))
	default:
		f.What = fmt.Sprintf("the threshold does not bind: the mean staleness is %s weight syncs, and would be %s", short(got), short(mean))
		f.Why += fmt.Sprintf("; %d rollouts in flight do not start as many", e.rules.Concurrency())
	}
}

func (e *examination) partialWithoutEffect() {
	if e.rules.Sync != loop.SyncRestart {
		return
	}
	left, of := e.slack()
	why := ""
	switch e.rules.Policy {
	case loop.PolicyThreshold:
		if left == 0 {
			why = fmt.Sprintf("at staleness_threshold %s the %d groups that start between two syncs are all trained before the next, so that none is running when weights change", short(e.rules.StalenessThreshold), of)
		}
	case loop.PolicySynchronous:
		if !(e.rules.InterruptAtBatch && e.rules.ExtraGroups > 0) {
			why = "under schedule: synchronous a batch is trained and synced before the next is started, so that no rollout is running when weights change"
		}
	}
	if why == "" {
		return
	}
	f := e.add(Warning, keySyncMode, Arithmetic)
	f.What = "interrupting rollouts at a sync has no effect: there are none to interrupt"
	f.Why = why
	f.Do = "staleness_threshold above 0, so that some run ahead; or leave it out"
	if e.rules.Policy == loop.PolicySynchronous {
		f.Do = "sync.mode: in_flight, or an asynchronous schedule"
	}
	f.Figures = Figures{{"groups_ahead", float64(max(left, 0))}}
}

// evidence returns the probe, whether it says anything, and what a finding that
// rests on arithmetic, and on the probe where it does, is known by.
func (e *examination) evidence() (p *probe, known bool, basis Basis) {
	p = e.probe()
	if p != nil && p.stalled == nil {
		return p, true, Simulated
	}
	return p, false, Arithmetic
}
