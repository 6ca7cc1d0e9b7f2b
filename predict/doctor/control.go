package doctor

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

const (
	keyTarget       = "control.target"
	keyTargetMean   = "control.target.staleness_mean"
	keyTargetWithin = "control.target.within"
	keyLimits       = "control.limits"
	keyLimitHold    = "control.limits.hold"
)

var controlChecks = []check{
	{Kind{
		Code: "nothing-to-move", Severities: []Severity{Error}, Keys: []string{keyLimits},
		When:  "`control.limits` leaves every setting where it is: the controller could only watch",
		Known: "arithmetic: the least of every setting is its most",
	}, (*examination).nothingToMove},
	{Kind{
		Code: "target-over-budget", Severities: []Severity{Error, Warning}, Keys: []string{keyTargetMean, keyTargetWithin, keyTarget},
		When:  "a rule of the queue keeps staleness below the target by itself: `queue.max_staleness`, or the bound of `queue.eta`. The target always holds, and the rule pays for it",
		Known: "arithmetic: policy `max` trains on nothing over its budget; under policy `bounded` the mean is at most (L−G)/G, as `single-group-over-eta` says",
	}, (*examination).targetOverBudget},
	{Kind{
		Code: "target-always-holds", Severities: []Severity{Info}, Keys: []string{keyTarget},
		When:  "without a controller the document keeps the target too, over nearly every window of train steps: the controller would do nothing until the workload changes",
		Known: "simulation without the controller, of a few windows of train steps",
	}, (*examination).targetAlwaysHolds},
	{Kind{
		Code: "target-unreachable", Severities: []Severity{Warning}, Keys: []string{keyTarget},
		When:  "no setting within its limits keeps the target: the nearest that can be reached, and the setting that binds",
		Known: "simulation with the controller, and once more with a target of nearly 0 (or of nearly all), which sends every setting to its end: what that reaches is the nearest there is",
	}, (*examination).targetUnreachable},
	{Kind{
		Code: "target-price", Severities: []Severity{Info}, Keys: []string{keyTarget},
		When:  "the controller keeps the target: in how many train steps, where its settings come to, and what that costs in rollouts trained per second",
		Known: "simulation with the controller against one without, on the same draws",
	}, (*examination).targetPrice},
	{Kind{
		Code: "controlled-start", Severities: []Severity{Info}, Keys: []string{keyHold, keySyncEvery},
		When:  "a setting that the document gives is also one that the controller moves: what is given is where it starts",
		Known: "arithmetic: `control.limits` and its defaults",
	}, (*examination).controlledStart},
}

const keySyncEvery = "sync.every"

// heldNearly is the share of train steps from which on a target is kept, and lost the one below which it
// is not.
const (
	heldNearly = 0.95
	heldLost   = 0.5
)

// targetOverBudget finds a rule that keeps the target by itself.
func (e *examination) targetOverBudget() {
	goal := e.rules.Control
	if goal == nil {
		return
	}
	budget := e.rules.MaxStaleness
	switch {
	case e.rules.Policy == loop.PolicyMax && goal.Mean > 0 && goal.Mean >= float64(budget):
		e.overBudget(Error, keyTargetMean, keyBudget, float64(budget), "trains on nothing staler")
	case e.rules.Policy == loop.PolicyMax && goal.Share > 0 && goal.Within >= budget:
		e.overBudget(Error, keyTargetWithin, keyBudget, float64(budget), "trains on nothing staler")
	case e.rules.Policy == loop.PolicyBounded && goal.Mean > 0 && goal.Share == 0:
		left, of := e.slack()
		if bound := float64(left) / float64(of); bound <= goal.Mean {
			e.overBudget(Warning, keyTarget, keyEta, bound, "keeps the mean within it")
		}
	}
}

func (e *examination) overBudget(severity Severity, about, key string, bound float64, rule string) {
	f := e.add(severity, about, Arithmetic)
	f.What = fmt.Sprintf("the target can never be missed: %s bounds staleness at %s", key, short(bound))
	f.Why = fmt.Sprintf("policy %s %s, whatever the controller does; it has nothing to hold, and the rule's own price is paid", e.document.Queue.Policy, rule)
	f.Do = fmt.Sprintf("%s above the target, as a guard, or policy drop; or a target below %s", key, short(bound))
	f.Figures = Figures{{"bound_versions", bound}}
}

// controlled is what short simulations of a document with a goal showed.
type controlled struct {
	with, without *sim.Result
	groups        int64
}

// Windows of train steps that are simulated for a goal: to settle, and to be judged.
const (
	controlSettling = 4
	controlJudged   = 8
)

// goalSteps are the train steps that are simulated for a goal; ok is false where there is no simulation, or
// none that is short.
func (e *examination) goalSteps() (warmup, measured int, ok bool) {
	window := e.goalWindow()
	warmup, measured = controlSettling*window, controlJudged*window
	perStep := float64(e.rules.BatchGroups * e.stride())
	if most := int(probeRolloutsMax / 3 / perStep); warmup+measured > most {
		warmup, measured = most/3, most-most/3
	}
	return warmup, measured, e.simulate != nil && measured >= 2*window && e.rules.Concurrency() <= probeSlotsMax
}

// goalUnexamined reports whether the document has a goal of which nothing is simulated.
func (e *examination) goalUnexamined() bool {
	if !e.controlled() {
		return false
	}
	_, _, ok := e.goalSteps()
	return !ok
}

// simulateGoal simulates the document with another goal, or with none; nil where that says nothing.
func (e *examination) simulateGoal(goal *loop.Control) *sim.Result {
	warmup, measured, ok := e.goalSteps()
	if !ok {
		return nil
	}
	cfg := *e.simulate
	cfg.Loop.Control, cfg.Warmup, cfg.Measured = goal, warmup, measured
	result, err := sim.Run(cfg)
	switch {
	case errors.Is(err, sim.ErrStalled): // which is a finding of its own
		return nil
	case err != nil:
		e.err = err
		return nil
	}
	return &result
}

// goalWindow is the number of train steps a goal is measured over.
func (e *examination) goalWindow() int {
	if w := e.rules.Control.Window; w > 0 {
		return w
	}
	return 32
}

// goalProbe simulates the document with its controller and without; nil where the case gives no speeds,
// has no goal or is too large.
func (e *examination) goalProbe() *controlled {
	if e.simulate == nil || e.rules.Control == nil || e.err != nil {
		return nil
	}
	if e.goal == nil {
		e.goal = &controlled{with: e.simulateGoal(e.rules.Control)}
		if e.goal.with != nil {
			e.goal.without = e.simulateGoal(nil)
			e.goal.groups = e.goal.with.Summary.Steps * int64(e.rules.BatchGroups)
		}
	}
	if e.goal.with == nil || e.goal.without == nil {
		return nil
	}
	return e.goal
}

// heldWithout is the share of windows of train steps in which a run without a controller meets the goal; known is
// false where its series does not say, as of tokens.
func (e *examination) heldWithout(r *sim.Result) (held float64, known bool) {
	goal, window := e.rules.Control, e.goalWindow()
	if goal.Share > 0 {
		within, all := int64(0), int64(0)
		for k, n := range r.Summary.Staleness.Histogram {
			if all += n; k <= int(goal.Within) {
				within += n
			}
		}
		if goal.Tokens || goal.Mean > 0 || all == 0 {
			return 0, false
		}
		if float64(within)/float64(all) >= goal.Share {
			return 1, true
		}
		return 0, true
	}
	steps := r.Series[max(0, len(r.Series)-int(r.Summary.Steps)):]
	sum, good := 0.0, 0
	for i, p := range steps {
		sum += p.Staleness
		if i >= window {
			sum -= steps[i-window].Staleness
		}
		if i >= window-1 && sum/float64(window) <= goal.Mean {
			good++
		}
	}
	if len(steps) < window {
		return 0, false
	}
	return float64(good) / float64(len(steps)-window+1), true
}

func (e *examination) targetAlwaysHolds() {
	p := e.goalProbe()
	if p == nil || e.has("target-over-budget") {
		return
	}
	held, known := e.heldWithout(p.without)
	if !known || held < 0.99 {
		return
	}
	f := e.add(Info, keyTarget, Simulated)
	f.Groups = p.groups
	mean := p.without.Summary.Staleness.Mean
	f.What = fmt.Sprintf("the target holds without a controller: mean staleness is %s", short(mean))
	f.Why = "at the settings of the document and the workload as modelled there is nothing to correct; the controller acts when lengths, tools or engines change"
	f.Do = "nothing, if it is a guard; a lower target, if it is to be fresher"
	f.Figures = Figures{{"staleness_mean_versions", mean}, {"held_share", held}}
}

// has reports whether the examination has found something of a kind.
func (e *examination) has(code string) bool {
	return slices.ContainsFunc(e.findings, func(f Finding) bool { return f.Code == code })
}

// keptOf is the share of judged train steps in which a simulation held its goal.
func keptOf(c *metrics.Control) float64 {
	if c == nil || c.Steps == 0 {
		return 0
	}
	return float64(c.HeldSteps) / float64(c.Steps)
}

// nothingToMove finds limits that leave every setting where it is.
func (e *examination) nothingToMove() {
	goal := e.rules.Control
	if !e.controlled() {
		return
	}
	for _, r := range goal.Ranges {
		if r.Moves() {
			return
		}
	}
	f := e.add(Error, keyLimits, Arithmetic)
	f.What = "the controller has no setting to move"
	f.Why = "every setting's least is its most, so that nothing it measures could change anything"
	f.Do = "a range for live_groups, which bounds the mean staleness by itself; or no control section"
}

func (e *examination) targetUnreachable() {
	p := e.goalProbe()
	if p == nil {
		return
	}
	said := p.with.Summary.Control
	if said == nil || said.Steps == 0 || keptOf(said) >= heldLost {
		return
	}
	extreme := *e.rules.Control
	if extreme.Mean > 0 {
		extreme.Mean = 1e-3
	}
	if extreme.Share > 0 {
		extreme.Share = 1 - 1e-6
	}
	nearest := e.simulateGoal(&extreme)
	if nearest == nil || nearest.Summary.Control == nil {
		return
	}
	f := e.add(Warning, keyTarget, Simulated)
	f.Groups = 2 * p.groups
	e.nearestText(f, nearest.Summary.Control, nearest.Summary.Staleness.Mean)
	f.Figures = append(f.Figures, Figure{"held_share", keptOf(said)})
	f.Why += fmt.Sprintf("; in a simulation of %d train steps the target is held in %s of them", said.Steps, percent(keptOf(said)))
}

// nearestText say what is reached with every setting at its end, and what binds.
func (e *examination) nearestText(f *Finding, reached *metrics.Control, mean float64) {
	goal := e.rules.Control
	f.Figures = Figures{{"staleness_mean_nearest_versions", mean}}
	switch {
	case goal.Mean > 0 && mean > goal.Mean:
		f.What = fmt.Sprintf("no setting within its limits keeps the mean at %s: the nearest is %s", short(goal.Mean), short(mean))
		f.Do = fmt.Sprintf("a target of at least %s, or %s", short(math.Ceil(20*mean)/20), e.widerText(reached))
	case goal.Share > 0 && reached.MeasuredShare >= 0 && reached.MeasuredShare < goal.Share:
		f.What = fmt.Sprintf("no setting within its limits has %s within %d versions: the nearest is %s", percent(goal.Share), goal.Within, percent(reached.MeasuredShare))
		f.Do = fmt.Sprintf("a share of at most %s, more versions, or %s", percent(reached.MeasuredShare), e.widerText(reached))
		f.Figures = append(f.Figures, Figure{"share_nearest", reached.MeasuredShare})
	default:
		f.What = "the target is missed in most train steps, though the ends of the limits would keep it"
		f.Do = "a wider window, or narrower control.limits around what keeps it"
	}
	f.Why = e.bindingText(reached)
}

// bindingText name what stands at the end of its limits.
func (e *examination) bindingText(c *metrics.Control) string {
	if c.Binding == "" {
		return "every setting that would help is at the end of its limits"
	}
	for _, s := range c.Settings {
		if s.Name == c.Binding {
			return fmt.Sprintf("%s stands at %s, the end of its limits (%s to %s)", s.Name, short(s.Value), short(s.Least), short(s.Most))
		}
	}
	return c.Binding + " stands at the end of its limits"
}

// widerText say which limit to widen.
func (e *examination) widerText(c *metrics.Control) string {
	if setting, err := loop.ParseSetting(c.Binding); err == nil {
		return "wider limits: " + config.ControlKey(setting)
	}
	return "wider control.limits, such as those of hold"
}

func (e *examination) targetPrice() {
	p := e.goalProbe()
	if p == nil || e.has("target-unreachable") || e.has("target-always-holds") || e.has("target-over-budget") {
		return
	}
	said := p.with.Summary.Control
	if said == nil || said.Steps == 0 {
		return
	}
	with, without := p.with.Summary.Throughput.ConsumptionRolloutsPerWallS, p.without.Summary.Throughput.ConsumptionRolloutsPerWallS
	if said.Moves == 0 && keptOf(said) == 1 && with >= 0.99*without {
		return // nothing was moved, and nothing paid
	}
	f := e.add(Info, keyTarget, Simulated)
	f.Groups = p.groups
	f.What = fmt.Sprintf("the controller keeps the target in %s of train steps, at %s of the throughput without it", percent(keptOf(said)), percent(with/without))
	f.Why = fmt.Sprintf("without it mean staleness is %s, with it %s; %s", short(p.without.Summary.Staleness.Mean), short(p.with.Summary.Staleness.Mean), settingsReached(said))
	f.Figures = Figures{{"held_share", keptOf(said)}, {"throughput_share", with / without}, {"staleness_mean_versions", p.with.Summary.Staleness.Mean},
		{"staleness_mean_without_versions", p.without.Summary.Staleness.Mean}}
	if with < heldNearly*without {
		f.Do = "a higher target, if the throughput is worth more; a larger batch or a length cap, which need fewer groups in flight for each version; or queue.select fresh with a hold, which buys freshness for less"
	}
}

// settingsReached says where the settings that moved stand in the end.
func settingsReached(c *metrics.Control) string {
	text := ""
	for _, s := range c.Settings {
		if s.Moves == 0 && (s.Name != loop.SettingLive.String() || s.Value == s.Most) { // that starts where the goal asks for it
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s of %s to %s", s.Name, short(s.Value), short(s.Least), short(s.Most))
	}
	if text == "" {
		return "no setting moved"
	}
	return "it ends with " + text
}

func (e *examination) controlledStart() {
	goal := e.rules.Control
	if goal == nil {
		return
	}
	hold, every := goal.Ranges[loop.SettingHold], goal.Ranges[loop.SettingSyncEvery]
	if value := e.document.Queue.Hold; value > 0 && hold.Moves() {
		e.startText(keyHold, value, hold, keyLimitHold)
	}
	if value := e.document.Sync.Every; value > 1 && every.Moves() {
		e.startText(keySyncEvery, float64(value), every, "control.limits.sync_every")
	}
}

func (e *examination) startText(key string, value float64, r loop.Range, limits string) {
	f := e.add(Info, key, Arithmetic)
	f.What = fmt.Sprintf("%s %s is where the controller starts: it moves it from %s to %s", key, short(value), short(r.Least), short(r.Most))
	f.Why = "the document gives it, and control.limits leaves it free"
	f.Do = fmt.Sprintf("%s: {least: %s, most: %s}, if it is to stay", limits, short(value), short(value))
	f.Figures = Figures{{"least", r.Least}, {"most", r.Most}}
}
