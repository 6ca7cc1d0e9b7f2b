package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

// Shares of completed groups that a queue's rule may throw away before that is
// a warning, and an error.
const (
	wasteWarning = 0.1
	wasteError   = 0.9
)

var wasteChecks = []check{
	{Kind{
		Code: "waste", Severities: []Severity{Error, Warning}, Keys: []string{keyConcurrency, keyBudget},
		When:  "more than 10 % of all groups are generated to be evicted or discarded; above 90 % an error",
		Known: "simulation. Where nothing but the full queue drops groups, the closed form 1 − t_step/(ρ·T) stands beside it, within 0.02, and alone where a simulation would be too long",
	}, (*examination).waste},
	{Kind{
		Code: "filter-starves", Severities: []Severity{Warning}, Keys: []string{"modelled.filter.acceptance"},
		When:  "filtered groups turn a run that would feed the trainer into one that starves it",
		Known: "closed form: ρ_eff = acceptance·ρ, and T = t_step·max(1, 1/ρ_eff)",
	}, (*examination).filterStarves},
	{Kind{
		Code: "zero-advantage", Severities: []Severity{Warning, Info}, Keys: []string{"filter.zero_advantage"},
		When:  "groups whose rewards are all equal are filtered: as the policy learns, or before it does, hardly any group is left; a warning without a curriculum to move on",
		Known: "arithmetic: at solve rate p a share p^S + (1−p)^S of groups of S independent rewards is filtered",
	}, (*examination).zeroAdvantage},
}

func (e *examination) waste() {
	p := e.probe()
	predicted, closed := e.predictedWaste()
	share, evicted, basis := predicted, predicted, ClosedForm
	switch {
	case p != nil && p.groups > 0:
		share, evicted, basis = p.lost(), float64(p.ended[loop.EndEvicted])/float64(p.groups), Simulated
	case !closed:
		return
	}
	if share <= wasteWarning {
		return
	}
	severity := Warning
	if share > wasteError {
		severity = Error
	}
	key, why := keyConcurrency, fmt.Sprintf("%d rollouts in flight finish faster than batches of %d are trained, and the full queue gives up the oldest", e.rules.Concurrency(), e.batch())
	if evicted < share/2 {
		key, why = keyBudget, fmt.Sprintf("%d rollouts in flight make groups that are older than the budget of %d when their turn comes", e.rules.Concurrency(), e.rules.MaxStaleness)
	}
	f := e.add(severity, key, basis)
	f.What = fmt.Sprintf("%s of all groups are generated to be thrown away", percent(share))
	f.Why = why
	enough := float64(e.rules.Concurrency()) * (1 - share)
	f.Do = fmt.Sprintf("about %.0f rollouts in flight would feed the trainer as well; or policy block or bounded, which wait instead", max(enough, float64(e.stride())))
	if key == keyBudget {
		without := ""
		if mean := e.staleness(); mean != "" {
			without = " (mean staleness without it is about " + mean + ")"
		}
		f.Do = "raise " + keyBudget + without + ", or lower rollout.concurrency"
	}
	f.Figures = Figures{{"lost_share", share}, {"evicted_share", evicted}, {"enough_rollouts", enough}}
	if closed {
		f.Figures = append(f.Figures, Figure{"predicted_lost_share", predicted})
	}
}

// staleness prints what queue-drop's mean staleness would be, "" where no closed form knows.
func (e *examination) staleness() string {
	if p, ok := e.predict(); ok && e.alikePrompts() {
		if mean, known := p.Corrected.Mean.Value(); known {
			return short(mean)
		}
	}
	return ""
}

// predictedWaste is the closed form of what a full queue drops: arrivals
// ρ_eff/t_step for a time T, less the one batch that is trained. It covers policy
// drop with engines that never stand still.
func (e *examination) predictedWaste() (share float64, ok bool) {
	if e.rules.Policy != loop.PolicyDrop || e.rules.Hold > 0 || !e.plain() || e.document.Modelled.Sync.TimeS > 0 && e.rules.Sync != loop.SyncInFlight {
		return 0, false
	}
	p, ok := e.predict()
	if !ok {
		return 0, false
	}
	// In units of the effective step, which a blocked trainer lengthens along with ρ.
	period, known := p.Corrected.Period.RelativeToStep.Value()
	if !known || e.syncS() > 0 && e.setting.SyncTrainer == theory.TrainerBlocked {
		return 0, false
	}
	return max(1-1/(p.Utilization*period), 0), true
}

func (e *examination) filterStarves() {
	effective, ok := e.load()
	acceptance := e.document.Modelled.Filter.Acceptance
	if !ok || acceptance >= 1 {
		return
	}
	plain := effective / acceptance
	if effective >= 1 || plain < 1 {
		return
	}
	f := e.add(Warning, "modelled.filter.acceptance", ClosedForm)
	f.What = fmt.Sprintf("with %s of groups filtered the trainer starves: effective ρ is %s where all groups would give %s", percent(1-acceptance), short(effective), short(plain))
	f.Why = fmt.Sprintf("only accepted groups feed the trainer, and its period becomes %s of its step", percent(1/effective))
	f.Do = fmt.Sprintf("about %.0f rollouts in flight (speed per slot held), or prompts of which more are accepted", float64(e.rules.Concurrency())/effective)
	f.Figures = Figures{{"acceptance", acceptance}, {"effective_utilization", effective}, {"utilization", plain}, {"period_relative_to_step", 1 / effective}}
}

func (e *examination) zeroAdvantage() {
	if !e.rules.FilterZeroAdvantage {
		return
	}
	severity, do := Warning, "filter.curriculum, so that prompts stay hard enough; or leave the filter off towards the end"
	if e.rules.Levels > 0 {
		severity, do = Info, ""
	}
	f := e.add(severity, "filter.zero_advantage", Arithmetic)
	f.What = fmt.Sprintf("the zero-advantage filter takes %s of groups at a solve rate of 0.9 and %s at 0.99: the trainer starves as the policy learns", percent(e.allEqual(0.9)), percent(e.allEqual(0.99)))
	f.Why = "a group whose rewards are all equal teaches nothing and never reaches the queue, and its rollouts are spent"
	f.Do = do
	f.Figures = Figures{{"filtered_share_at_0.5", e.allEqual(0.5)}, {"filtered_share_at_0.9", e.allEqual(0.9)}, {"filtered_share_at_0.99", e.allEqual(0.99)}}
}

// allEqual is the share of groups of independent rewards, 1 with probability rate
// and 0 else, that are all equal.
func (e *examination) allEqual(rate float64) float64 {
	s := e.rules.GroupSize
	return e.fixedShare(rate, 0, 0) + e.fixedShare(rate, s, s)
}
