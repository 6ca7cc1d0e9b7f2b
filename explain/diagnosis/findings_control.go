package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// What a target has to fall short of to be worth a finding.
const (
	// heldHealthy is the share of train steps that hold a target which is kept, heldMore what a change of the window
	// must at least add to it.
	heldHealthy, heldMore = 0.9, 0.05
	// unreachableTold is the share of train steps from which on a target counts as out of reach.
	unreachableTold = 0.1
	// swingLeast is how far back and forth a setting goes that swings, as a part of its value, turnsLeast how often
	// it turns at least: twice there and back.
	swingLeast, turnsLeast = 0.1, 4
	// nearestRoom is what a target is taken above what was reached, as a part of it.
	nearestRoom = 0.05
)

// goal is what a controller did in the window; nil without a target.
func (f *facts) goal() *metrics.Control {
	if f.own == nil {
		return nil
	}
	if c := f.own.summary.Control; c != nil && (c.TargetMean > 0 || c.TargetShare > 0) {
		return c
	}
	return nil
}

// heldShare is the share of judged train steps that held a target; known is false before there are as many as its window.
func heldShare(c *metrics.Control) (share float64, known bool) {
	if c.Steps < int64(max(c.Window, 1)) {
		return 0, false
	}
	return float64(c.HeldSteps) / float64(c.Steps), true
}

// goalSays are the target, what it was measured to be and how often it was held, as evidence.
func goalSays(c *metrics.Control) []string {
	var list []string
	if c.TargetMean > 0 {
		list = append(list, fmt.Sprintf("mean staleness at most %.4g is asked for%s", c.TargetMean, lastly(c.MeasuredMean, c.Window, fig)))
	}
	if c.TargetShare > 0 {
		list = append(list, fmt.Sprintf("at least %.4g %% of %s within %d versions are asked for%s", 100*c.TargetShare, c.Of, c.Within, lastly(c.MeasuredShare, c.Window, report.Share)))
	}
	if c.Steps > 0 {
		list = append(list, fmt.Sprintf("held in %s of %s train steps", report.Share(float64(c.HeldSteps)/float64(c.Steps)), report.Count(c.Steps)))
	}
	return list
}

func lastly(v float64, window int, print func(float64) string) string {
	if v < 0 {
		return ""
	}
	return fmt.Sprintf("; over the last %d train steps it is %s", window, print(v))
}

// targetUnreachable: no setting that may move would hold the target.
func (f *facts) targetUnreachable() *Finding {
	c := f.goal()
	if c == nil || !f.outOfReach() {
		return nil
	}
	evidence := goalSays(c)
	if c.Nearest > 0 && c.Binding != "" {
		print := fig
		if c.TargetMean == 0 || c.TargetShare > 0 && c.Nearest < 1 && c.MeasuredMean <= c.TargetMean {
			print = report.Share
		}
		evidence = append(evidence, fmt.Sprintf("%s at best: %s", print(c.Nearest), f.bindingSays(c)))
	}
	found := &Finding{Title: "The target is out of reach within control.limits.", Severity: severityWarning, Evidence: evidence, CostVersions: excessVersions(c),
		Fails: "where the limits are there for another reason: then it is the target that has to give"}
	o, ok := f.reaching(c)
	if !ok {
		found.Evidence = append(found.Evidence, f.unpriced(c))
		return found
	}
	found.Change = &o.Change
	return found
}

// outOfReach reports whether the target could not be held for much of the window, or cannot be at its end.
func (f *facts) outOfReach() bool {
	c := f.goal()
	return c.State == loop.ControlUnreachable.String() || c.Steps > 0 && float64(c.UnreachableSteps) > unreachableTold*float64(c.Steps)
}

// excessVersions is by how much the mean is above its target.
func excessVersions(c *metrics.Control) float64 {
	if c.TargetMean == 0 {
		return 0
	}
	return math.Max(c.MeasuredMean-c.TargetMean, 0)
}

// bindingSays names the setting that binds, with the end of its range and its key.
func (f *facts) bindingSays(c *metrics.Control) string {
	for _, s := range c.Settings {
		if s.Name != c.Binding {
			continue
		}
		set, err := loop.ParseSetting(s.Name)
		if err != nil {
			break
		}
		return fmt.Sprintf("%s stands at %.4g of %.4g to %.4g (%s)", s.Name, s.Value, s.Least, s.Most, f.limitsOf(set))
	}
	return "no setting may move that would lower it (control.limits)"
}

// limitsOf says whether the range of a setting is the document's or follows from other keys.
func (f *facts) limitsOf(set loop.Setting) string {
	if _, ok := f.widest(set); ok {
		return limitsKey(set) + " narrows it"
	}
	return "as far as " + limitsKey(set) + " goes"
}

// targetMissed: the target can be held as far as is known, and is not.
func (f *facts) targetMissed() *Finding {
	c := f.goal()
	if c == nil || f.outOfReach() {
		return nil
	}
	held, known := heldShare(c)
	if !known || held >= heldHealthy {
		return nil
	}
	longest, last := f.missed()
	evidence := append(goalSays(c), fmt.Sprintf("missed for %s train steps in a row at the longest; %s moves", report.Count(longest), report.Count(c.Moves)))
	if last {
		evidence = append(evidence, "it is being corrected as the run ends")
	}
	for _, d := range f.drift {
		if d.Sure && d.What != driftStaleness && d.What != driftReward {
			evidence = append(evidence, fmt.Sprintf("the %s moved meanwhile from %s to %s", driftWords[d.What].name, driftFig(d.What, d.First), driftFig(d.What, d.Last)))
		}
	}
	found := &Finding{Title: fmt.Sprintf("The target is missed in %s of the train steps.", report.Share(1-held)), Severity: severityWarning, Evidence: evidence, CostVersions: excessVersions(c),
		Fails: "at the beginning of a run, or after a change of what it does: a window has to go by first"}
	change, tried := f.otherWindow(c, held)
	found.Change, found.Evidence = change, append(found.Evidence, tried...)
	return found
}

// missed is the longest stretch of judged train steps that did not hold the target, and whether the last one is such.
func (f *facts) missed() (longest int64, last bool) {
	row := int64(0)
	for i := range f.own.steps {
		p := &f.own.steps[i].Control
		if !p.Judged {
			continue
		}
		row++
		if p.Held {
			row = 0
		}
		longest, last = max(longest, row), row > 0
	}
	return longest, last
}

// targetSwings: a setting goes back and forth while nothing of the workload changes.
func (f *facts) targetSwings() []Finding {
	c := f.goal()
	if c == nil || !f.atRest() {
		return nil
	}
	var list []Finding
	for _, s := range c.Settings {
		set, err := loop.ParseSetting(s.Name)
		if err != nil {
			continue
		}
		turns, low, high := swings(f.own.steps, set)
		if turns < turnsLeast {
			continue
		}
		found := Finding{Title: fmt.Sprintf("The controller moves %s back and forth.", s.Name), Severity: severityWarning,
			Evidence: []string{fmt.Sprintf("%s turns of more than %s in %s train steps, between %s and %s, while the workload stood still", report.Count(turns), report.Share(swingLeast), report.Count(int64(len(f.own.steps))), fig(low), fig(high)),
				fmt.Sprintf("%s moves; the target is held in %s of %s train steps", report.Count(s.Moves), report.Share(float64(c.HeldSteps)/math.Max(float64(c.Steps), 1)), report.Count(c.Steps))},
			Fails: "where something that is not recorded changed as often: engines, other users of the machine"}
		change, tried := f.calmer(c, set, turns)
		found.Change, found.Evidence = change, append(found.Evidence, tried...)
		list = append(list, found)
	}
	return list
}

// atRest reports whether nothing of the workload moves over the window, as far as is known.
func (f *facts) atRest() bool {
	for _, d := range f.drift {
		if d.Sure && d.What != driftStaleness && d.What != driftReward {
			return false
		}
	}
	return f.own.tally.fleet.losses == 0
}

// swings counts how often a setting turned after it had gone more than swingLeast of its value one way, with
// the least and the most it was.
func swings(steps []metrics.Step, set loop.Setting) (turns int64, low, high float64) {
	if len(steps) == 0 {
		return 0, 0, 0
	}
	at := func(i int) float64 { return steps[i].Control.Settings[set] }
	low, high = at(0), at(0)
	// from is the outermost value since the last turn, in the direction the setting goes; bottom and top are for the
	// first one, while there is none.
	direction, from, bottom, top := 0, at(0), at(0), at(0)
	for i := range steps {
		v := at(i)
		low, high = math.Min(low, v), math.Max(high, v)
		switch {
		case direction == 0:
			bottom, top = math.Min(bottom, v), math.Max(top, v)
			if v-bottom > swingOf(bottom, set) {
				direction, from = 1, v
			} else if top-v > swingOf(top, set) {
				direction, from = -1, v
			}
		case float64(direction)*(v-from) >= 0:
			from = v
		case math.Abs(v-from) > swingOf(from, set):
			turns++
			direction, from = -direction, v
		}
	}
	return turns, low, high
}

// swingOf is how far a setting goes that swings. One that counts can do no less than one.
func swingOf(v float64, set loop.Setting) float64 {
	switch set {
	case loop.SettingHold:
		return swingLeast // a share of the period, which may be 0
	case loop.SettingLive, loop.SettingSlots:
		return math.Max(swingLeast*v, 1)
	}
	return math.Max(swingLeast*v, 0.5)
}

// targetBinds: the target is kept by groups that do not start, and the trainer waits for them. What a laxer target would
// buy is a change where it is sure, and said where it is not.
func (f *facts) targetBinds() *Finding {
	c := f.goal()
	if c == nil || f.attribution == nil || f.outOfReach() {
		return nil
	}
	idle, paused := f.attribution.Trainer.Starved, f.attribution.Engines.Paused
	held, known := heldShare(c)
	if !known || held < heldHealthy || idle < starvedTold || paused < starvedTold {
		return nil
	}
	found := &Finding{Title: "The target holds rollouts back, and the trainer waits for them.", Severity: severityWarning,
		Evidence: append(goalSays(c), fmt.Sprintf("the trainer waits %s of the time for groups, and %s of the slots stand empty because none may start", report.Share(idle), report.Share(paused))),
		Fails:    "where the target is what the training needs: then this is its price"}
	steered := f.heldBack(c)
	if steered != "" {
		found.Evidence = append(found.Evidence, steered)
	}
	switch o, ok := f.price(laxer(c)); {
	case ok && o.speeds():
		found.Severity, found.Change, found.CostRatio = severityCost, &o.Change, 1-o.PeriodRatio
	case steered == "" || ok && !o.mightSpeed():
		return nil
	case ok:
		found.Evidence = append(found.Evidence, fmt.Sprintf("%s might shorten the period by %s to %s: a longer run would tell", o.Set,
			report.Share(math.Max(1-o.PeriodRatio-o.periodHalf, 0)), report.Share(math.Min(1-o.PeriodRatio+o.periodHalf, 1))))
	default:
		found.Evidence = append(found.Evidence, "not resimulated: what a laxer target would buy is not known")
	}
	if batch, ok := f.price(f.batchIdea(2)); ok && batch.after != nil && batch.after.held >= heldHealthy && batch.PeriodRatio < 2 {
		found.Evidence = append(found.Evidence, fmt.Sprintf("or --set %s: %s times the rollouts a second under the same target, by resimulation", strings.Join(batch.Overrides, " --set "), fig(2/batch.PeriodRatio)))
	}
	return found
}

// heldBack says which settings the controller holds starts back by, "" where it is none of them.
func (f *facts) heldBack(c *metrics.Control) string {
	var stand []string
	for _, s := range c.Settings {
		switch set, err := loop.ParseSetting(s.Name); {
		case err != nil:
		case (set == loop.SettingLive || set == loop.SettingSlots) && s.Value < s.Most, set == loop.SettingHold && s.Value > s.Least:
			stand = append(stand, fmt.Sprintf("%s stands at %s of %s to %s", s.Name, fig(s.Value), fig(s.Least), fig(s.Most)))
		}
	}
	if len(stand) == 0 {
		return ""
	}
	whose := "the controller's doing"
	if rules := f.own.header.Loop; f.unbounded() || rules.Policy == loop.PolicyBlock || rules.PauseGroups > 0 {
		whose += ", or that of the queue's own rule"
	}
	return fmt.Sprintf("that engines pause is %s: %s", whose, strings.Join(stand, ", "))
}

// starvedTold is the share of time from which on waiting for the target is worth a finding.
const starvedTold = 0.05

// targetSilent: nothing could be measured of the target.
func (f *facts) targetSilent() *Finding {
	c := f.goal()
	if c == nil || f.own.silences == 0 {
		return nil
	}
	longest, step := int64(0), loop.Version(0)
	for i := range f.own.recorder.Steps {
		if p := &f.own.recorder.Steps[i]; p.PeriodNS > longest {
			longest, step = p.PeriodNS, p.Step
		}
	}
	evidence := []string{fmt.Sprintf("%s in the run no train step ended for 8 train periods: settings stayed where they were", times(f.own.silences))}
	if longest > 0 {
		evidence = append(evidence, fmt.Sprintf("the longest wait was before step %s: %s s, where a period takes %s s", report.Count(int64(step)), fig(float64(longest)/1e9), fig(f.period.or(0))))
	}
	if a := f.attribution; a != nil {
		if words := waitedFor(a.Trainer); words != "" {
			evidence = append(evidence, words)
		}
	}
	if c.State == loop.ControlSilent.String() {
		evidence = append(evidence, "it is so as the run ends: headway status says what is missing")
	}
	return &Finding{Title: "For some time nothing was measured of the target.", Severity: severityWarning, Evidence: evidence,
		Fails: "where the trainer was stopped on purpose"}
}

// times says how often.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return report.Count(n) + " times"
}

// waitedFor says what a trainer waited for most, "" where it hardly did.
func waitedFor(i attribution.Idle) string {
	most, what := 0.0, ""
	for _, w := range []struct {
		share float64
		what  string
	}{{i.Starved, "groups"}, {i.Syncing, "weight syncs"}, {i.Validating, "validation"}, {i.Paused, "being let go on"}, {i.Blocked, "other work of its own"}} {
		if w.share > most {
			most, what = w.share, w.what
		}
	}
	if most < 0.01 {
		return ""
	}
	return fmt.Sprintf("over the judged steps the trainer waited %s of the time, most for %s", report.Share(i.Total), what)
}
