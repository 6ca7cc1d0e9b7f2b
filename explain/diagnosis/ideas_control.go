package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// limitsKey is the key of a setting's range.
func limitsKey(set loop.Setting) string { return config.ControlKey(set) }

// widest is the override that gives a setting the low end of its range that it would have if the document left it
// alone; ok is false where that is no lower.
func (f *facts) widest(set loop.Setting) (override string, ok bool) {
	if !f.settable() {
		return "", false
	}
	raw, err := config.ParseRecorded("the run's document", []byte(f.own.header.Config))
	if err != nil {
		return "", false
	}
	key := limitsKey(set) + ".least"
	free, err := raw.Set(key + "=null")
	if err == nil {
		free, err = free.Resolve()
	}
	if err != nil {
		return "", false
	}
	now, least := rangeOf(f.own.document, set), rangeOf(free, set)
	if least.Least >= now.Least {
		return "", false
	}
	return setWhole(key, least.Least), true
}

// setWhole is an override of a whole number.
func setWhole(key string, v float64) string { return set(key, int(v)) }

// rangeOf is the range of a setting under a resolved document.
func rangeOf(d config.Config, set loop.Setting) loop.Range {
	for _, r := range d.ControlRanges() {
		if r.Setting == set {
			return r.Range
		}
	}
	return loop.Range{}
}

// reaching prices the first change that holds a target which is out of reach: wider limits of what staleness is
// proportional to, fewer train steps a sync, and last a target that can be reached.
func (f *facts) reaching(c *metrics.Control) (outcome, bool) {
	for _, i := range f.reachIdeas(c) {
		o, ok := f.price(i)
		if !ok || o.after == nil || o.after.held < heldHealthy {
			continue
		}
		o.Price += fmt.Sprintf("; the target is held in %s of the train steps then", report.Share(o.after.held))
		return o, true
	}
	return outcome{}, false
}

// unpriced says what to try where nothing could be resimulated, or nothing held the target that was.
func (f *facts) unpriced(c *metrics.Control) string {
	if ideas := f.reachIdeas(c); len(ideas) > 0 && f.again == nil {
		return "not resimulated; try --set " + strings.Join(ideas[0].overrides, " --set ")
	}
	return "no setting is known that would hold it: ask for what can be reached"
}

// reachIdeas are the changes that may hold a target which is out of reach, in the order in which they are taken.
func (f *facts) reachIdeas(c *metrics.Control) []idea {
	if !f.settable() {
		return nil
	}
	const holds = "all else that the document says"
	var ideas []idea
	for _, set := range []loop.Setting{loop.SettingLive, loop.SettingSlots} {
		if override, ok := f.widest(set); ok {
			ideas = append(ideas, idea{overrides: []string{override}, holds: holds, price: "fewer rollouts in flight: the trainer waits for them"})
		}
	}
	if f.own.document.Sync.Every > 1 { // within a range up to it live groups could go no lower
		ideas = append(ideas, idea{overrides: []string{"sync.every=1"}, holds: holds, price: "a weight sync after every train step; it changes what is learned"})
	}
	return append(ideas, f.reachable(c, holds)...)
}

// laxer is the idea of a target twice as lax.
func laxer(c *metrics.Control) idea {
	i := idea{holds: "all else that the document says", price: "staler groups"}
	if c.TargetMean > 0 {
		i.overrides = append(i.overrides, set("control.target.staleness_mean", 2*c.TargetMean))
	}
	if c.TargetShare > 0 {
		i.overrides = append(i.overrides, set("control.target.within", int(2*c.Within+1)))
	}
	return i
}

// digits is a figure to two digits, as somebody would write it.
func digits(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

// reachable is the idea of a target a little beyond what the run reached; none where that is not known.
func (f *facts) reachable(c *metrics.Control, holds string) []idea {
	var overrides []string
	if c.TargetMean > 0 && c.MeasuredMean > c.TargetMean {
		overrides = append(overrides, set("control.target.staleness_mean", digits(c.MeasuredMean*(1+nearestRoom))))
	}
	if c.TargetShare > 0 && c.MeasuredShare >= 0 && c.MeasuredShare < c.TargetShare {
		overrides = append(overrides, set("control.target.share", digits(c.MeasuredShare*(1-nearestRoom))))
	}
	if len(overrides) == 0 {
		return nil
	}
	return []idea{{overrides: overrides, holds: holds, price: "staleness stays what it is"}}
}

// otherWindow prices a shorter and a longer window of a target that is missed, and returns the better one; nil where
// neither holds it clearly more often. What was tried is evidence.
func (f *facts) otherWindow(c *metrics.Control, held float64) (best *Change, evidence []string) {
	if f.again != nil && f.again.base.held > 0 { // what the same steps hold when they are resimulated
		held = f.again.base.held
	}
	most := held + heldMore
	for _, window := range []int{c.Window / 2, c.Window * 2} {
		o, ok := f.windowed(window)
		if !ok {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("resimulated with control.window=%d it is held in %s, with its own in %s", window, report.Share(o.after.held), report.Share(held)))
		if o.after.held >= most {
			best, most = &o.Change, o.after.held
		}
	}
	return best, evidence
}

// windowed prices another window of the target.
func (f *facts) windowed(window int) (outcome, bool) {
	if !f.settable() || window < 1 || window > windowMost {
		return outcome{}, false
	}
	price := "a shorter window scatters more, and the margin that is left with it"
	if window > f.goal().Window {
		price = "drift is followed later"
	}
	o, ok := f.price(idea{overrides: []string{set("control.window", window)}, holds: "the target and its limits", price: price})
	return o, ok && o.after != nil
}

// windowMost is the longest window a target may have, in train steps.
const windowMost = 1024

// calmer prices longer windows for a setting that swings, and then a limit at its mean, and returns the first that
// halves its turns; nil where none does. What was tried is evidence.
func (f *facts) calmer(c *metrics.Control, moved loop.Setting, turns int64) (change *Change, evidence []string) {
	for _, i := range f.calmIdeas(c, moved) {
		o, ok := f.price(i)
		if !ok || o.after == nil {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("resimulated with %s it turns %s times, and the target is held in %s", o.Set, report.Count(o.after.turns[moved]), report.Share(o.after.held)))
		if 2*o.after.turns[moved] <= turns && o.after.held >= f.again.base.held-heldMore {
			return &o.Change, evidence
		}
	}
	return nil, evidence
}

// calmIdeas are the changes that may calm a setting.
func (f *facts) calmIdeas(c *metrics.Control, moved loop.Setting) []idea {
	if !f.settable() {
		return nil
	}
	var ideas []idea
	for _, window := range []int{2 * c.Window, 4 * c.Window} {
		if window <= windowMost {
			ideas = append(ideas, idea{overrides: []string{set("control.window", window)}, holds: "the target and its limits", price: "drift is followed later"})
		}
	}
	if moved != loop.SettingLive && moved != loop.SettingSlots {
		return ideas
	}
	sum := 0.0
	for i := range f.own.steps {
		sum += f.own.steps[i].Control.Settings[moved]
	}
	mean := math.Floor(sum / float64(len(f.own.steps)))
	if now := rangeOf(f.own.document, moved); mean > now.Least && mean < now.Most {
		ideas = append(ideas, idea{overrides: []string{setWhole(limitsKey(moved)+".most", mean)}, holds: "the target and its window", price: "no more than that where the target would let it"})
	}
	return ideas
}
