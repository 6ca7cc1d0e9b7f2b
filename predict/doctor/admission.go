package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
)

var admissionChecks = []check{
	{Kind{
		Code: "capacity-below-admission", Severities: []Severity{Error}, Keys: []string{keyCapacity, keyFactor},
		When:  "policy `bounded` or `threshold` admits more groups than the queue holds: what the policy promises never to drop would have no place",
		Known: "arithmetic: ⌊(η+1)·G⌋, or ⌊(1+θ)·K·G⌋, against the queue's capacity",
	}, (*examination).capacityBelowAdmission},
	{Kind{
		Code: "slots-idle", Severities: []Severity{Warning}, Keys: []string{keyConcurrency},
		When:  "more slots than admission ever fills: those beyond stand empty for good",
		Known: "arithmetic: live groups at most (⌊(η+1)·G⌋, ⌊(1+θ)·K·G⌋, or the batch under `schedule: synchronous`) times `group_size` + `redundancy`, against `concurrency`",
	}, (*examination).slotsIdle},
	{Kind{
		Code: "on-policy", Severities: []Severity{Info}, Keys: []string{keyThreshold},
		When:  "policy `threshold` at 0 with a sync after every step: verl's on-policy mode",
		Known: "arithmetic: a batch starts after one sync and is trained before the next, so that its staleness is 0. In verl the same keys were one step off (its issue 4449) and did not match its synchronous trainer (6780)",
	}, (*examination).onPolicy},
	{Kind{
		Code: "no-staleness-bound", Severities: []Severity{Info}, Keys: []string{keyPolicy},
		When:  "nothing bounds the staleness of a single group, and the stalest of a simulation is twice the mean and two versions more",
		Known: "simulation, under policies without a budget (`drop`, `block`, `replay`, and `bounded` and `threshold`, which bound the mean)",
	}, (*examination).noStalenessBound},
}

func (e *examination) capacityBelowAdmission() {
	if e.rules.Policy != loop.PolicyBounded && e.rules.Policy != loop.PolicyThreshold {
		return
	}
	admitted, holds := e.rules.LiveGroupsMax(), e.document.QueueGroups()
	key := keyFactor
	if e.document.Queue.Capacity > 0 {
		key = keyCapacity
	}
	if holds >= admitted {
		return
	}
	f := e.add(Error, key, Arithmetic)
	f.What = fmt.Sprintf("the queue holds %d groups, and %d are admitted", holds, admitted)
	f.Why = fmt.Sprintf("policy %s drops no group: all that it admits can be ready at once, and must have a place", e.document.Queue.Policy)
	f.Do = fmt.Sprintf("leave %s out: it is then what is admitted", key)
	f.Figures = Figures{{"queue_groups", float64(holds)}, {"admitted_groups", float64(admitted)}}
}

// liveRollouts is how many rollouts admission lets run at most; 0 for no limit.
func (e *examination) liveRollouts() int {
	switch e.rules.Policy {
	case loop.PolicyBounded, loop.PolicyThreshold:
		return e.rules.LiveGroupsMax() * e.stride()
	case loop.PolicySynchronous:
		return (e.rules.BatchGroups + e.rules.ExtraGroups) * e.stride()
	}
	return 0
}

func (e *examination) slotsIdle() {
	most, slots := e.liveRollouts(), e.rules.Concurrency()
	if most == 0 || slots <= most || e.rules.InterruptAtBatch {
		return
	}
	f := e.add(Warning, keyConcurrency, Arithmetic)
	f.What = fmt.Sprintf("%d of %d slots are never used: no more than %d rollouts are admitted", slots-most, slots, most)
	f.Why = "admission counts groups, and slots beyond what they hold have nothing to generate"
	f.Do = fmt.Sprintf("rollout.concurrency of at most %d, or a bound that admits more", most)
	f.Figures = Figures{{"slots", float64(slots)}, {"rollouts_admitted", float64(most)}}
}

func (e *examination) onPolicy() {
	if e.rules.Policy != loop.PolicyThreshold || e.rules.StalenessThreshold != 0 || e.rules.SyncEvery != 1 {
		return
	}
	f := e.add(Info, keyThreshold, Arithmetic)
	f.What = "the run is on-policy: the staleness of every group is 0"
	f.Why = "a batch of groups starts after one sync, and all of it is trained before the next; engines wait for the trainer, and it for them"
	f.Do = "a threshold above 0 or a larger sync.every, if throughput matters more"
	f.Figures = Figures{{"staleness_mean_versions", 0}}
}

func (e *examination) noStalenessBound() {
	bounded := e.rules.Policy == loop.PolicyMax || e.rules.Policy == loop.PolicySynchronous || e.rules.Policy == loop.PolicyReplay && e.rules.MaxStaleness > 0
	p := e.probe()
	if bounded || p == nil || p.stalled != nil {
		return
	}
	s := p.result.Summary.Staleness
	if float64(p.stalest) < 2*s.Mean+2 {
		return
	}
	f := e.add(Info, keyPolicy, Simulated)
	f.What = fmt.Sprintf("nothing bounds the staleness of a single group: the mean is %s, and the stalest of %d groups has %d versions", short(s.Mean), p.groups, p.stalest)
	f.Why = "a group's staleness grows with every update it lives through, and only its longest rollout ends that"
	f.Do = fmt.Sprintf("queue.policy: max with a budget (%d would have discarded %s of the groups), a length cap, or a correction that takes stale tokens", 2*int(s.Mean+1), percent(p.shareAbove(2*int(s.Mean+1))))
	f.Figures = Figures{{"staleness_mean_versions", s.Mean}, {"staleness_max_simulated_versions", float64(p.stalest)}}
}
