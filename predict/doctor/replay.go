package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
)

const keyUses = "queue.max_uses"

var replayChecks = []check{
	{Kind{
		Code: "replay-buffer-small", Severities: []Severity{Warning}, Keys: []string{keyCapacity},
		When:  "a replay buffer below two batches leaves next to nothing to draw from",
		Known: "arithmetic: a draw of G groups from fewer than 2G takes most of the buffer, whatever its weights",
	}, (*examination).replaySmall},
	{Kind{
		Code: "replay-staleness", Severities: []Severity{Info}, Keys: []string{keyUses},
		When:  "policy `replay`: how often a group is trained on, and how much staler that makes the run",
		Known: "simulation, of the groups that have left the buffer; a group that engines make is used at most min(max_uses, 1/ρ) times on average, since the trainer takes no more than it can",
	}, (*examination).replayStaleness},
}

func (e *examination) replaySmall() {
	if e.rules.Policy != loop.PolicyReplay || e.rules.QueueGroups >= 2*e.rules.BatchGroups {
		return
	}
	f := e.add(Warning, keyCapacity, Arithmetic)
	f.What = fmt.Sprintf("the replay buffer of %d groups is hardly more than the batch of %d it is drawn for", e.rules.QueueGroups, e.rules.BatchGroups)
	f.Why = "a batch is drawn without replacement: it takes most of the buffer, so that gamma and balance decide little"
	f.Do = fmt.Sprintf("queue.capacity of at least %d rollouts, or policy drop", 4*e.batch())
	f.Figures = Figures{{"buffer_groups", float64(e.rules.QueueGroups)}, {"batch_groups", float64(e.rules.BatchGroups)}}
}

func (e *examination) replayStaleness() {
	if e.rules.Policy != loop.PolicyReplay {
		return
	}
	p := e.probe()
	if p == nil || p.stalled != nil || p.groups == 0 {
		return
	}
	uses := float64(p.uses) / float64(p.groups)
	unused := float64(p.unused) / float64(p.groups)
	f := e.add(Info, keyUses, Simulated)
	mean := p.result.Summary.Staleness.Mean
	f.What = fmt.Sprintf("a group is trained on %s times on average (%s of groups never), and the mean staleness is %s versions", short(uses), percent(unused), short(mean))
	f.Figures = Figures{{"uses_per_group", uses}, {"unused_share", unused}, {"staleness_mean_versions", mean}, {"staleness_max_versions", float64(p.stalest)}}
	if rho, ok := e.load(); ok {
		most := min(float64(e.rules.MaxUses), 1/rho)
		f.Why = fmt.Sprintf("at an effective ρ of %s the trainer can take what engines make %s times, and max_uses is %d", short(rho), short(1/rho), e.rules.MaxUses)
		f.Figures = append(f.Figures, Figure{"uses_per_group_max", most})
		closed, _ := e.predict()
		if plain, known := closed.Corrected.Mean.Value(); known && e.alikePrompts() {
			f.What += fmt.Sprintf(", where policy drop would have %s", short(plain))
			f.Figures = append(f.Figures, Figure{"staleness_mean_under_drop_versions", plain})
		}
	}
	f.Do = "a smaller queue.capacity or queue.gamma for fresher groups, queue.max_staleness for a bound"
}
