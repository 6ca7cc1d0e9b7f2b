// Package control says in words how a run keeps a target of staleness, and which
// settings a controller moved for it.
package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// The states of a controller, as the loop names them.
const (
	// Settling until enough train steps are measured.
	Settling = "settling"
	// Keeping while the target holds.
	Keeping = "keeping"
	// Correcting while settings move towards the target.
	Correcting = "correcting"
	// Unreachable where no setting within the limits holds the target.
	Unreachable = "unreachable"
	// Silent while no measurement comes.
	Silent = "silent"
)

// Goal is what a controller keeps. The zero value is no goal.
type Goal struct {
	// Mean is the largest mean staleness that is wanted, in versions; 0 for no such goal.
	Mean float64
	// Share is the least share of rollouts or tokens within Within versions; 0 for no such goal.
	Share float64
	// Within is the staleness that Share counts up to, in versions.
	Within loop.Version
	// Of is rollouts or tokens, whichever Share counts.
	Of string
	// Window is over how many train steps the goal is meant.
	Window int
}

// Has reports whether a run kept a target. A controller without one only does what it is asked to.
func Has(c *metrics.Control) bool { return c != nil && (c.TargetMean > 0 || c.TargetShare > 0) }

// GoalOf is the goal of a recorded run.
func GoalOf(c *metrics.Control) Goal {
	return Goal{Mean: c.TargetMean, Share: c.TargetShare, Within: c.Within, Of: c.Of, Window: c.Window}
}

// StatusOf is how a recorded run kept its goal at the end.
func StatusOf(c *metrics.Control) *loop.ControlStatus {
	return &loop.ControlStatus{State: c.State, MeasuredMean: c.MeasuredMean, MeasuredShare: c.MeasuredShare, Nearest: c.Nearest, Binding: c.Binding}
}

// String says what is to be kept.
func (g Goal) String() string {
	var parts []string
	if g.Mean > 0 {
		parts = append(parts, fmt.Sprintf("mean staleness at most %g", g.Mean))
	}
	if g.Share > 0 {
		parts = append(parts, fmt.Sprintf("at least %s of %s within %d versions", Percent(g.Share), g.Of, g.Within))
	}
	return strings.Join(parts, ", and ")
}

// Percent prints a share with as many digits as it takes.
func Percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

// measured says what the goal was measured to be, of those kinds that it has.
func (g Goal) measured(c *loop.ControlStatus) string {
	var parts []string
	if g.Mean > 0 && c.MeasuredMean >= 0 {
		parts = append(parts, fmt.Sprintf("mean %.2f", c.MeasuredMean))
	}
	if g.Share > 0 && c.MeasuredShare >= 0 {
		parts = append(parts, fmt.Sprintf("%s within %d", report.Share(c.MeasuredShare), g.Within))
	}
	return strings.Join(parts, ", ")
}

// nearest says what can be reached at best.
func (g Goal) nearest(c *loop.ControlStatus) string {
	switch {
	case c.Nearest == 0:
		return "not reached with any setting within its limits"
	case g.Mean > 0 && g.Share > 0 && c.Nearest < 1 && c.MeasuredMean >= 0 && c.MeasuredMean <= g.Mean, g.Mean == 0:
		return fmt.Sprintf("%s at best", report.Share(c.Nearest))
	}
	return fmt.Sprintf("%.2f at best", c.Nearest)
}

// Sentence says how a goal is kept, and what to do where it is not.
func (g Goal) Sentence(c *loop.ControlStatus) string {
	measured := g.measured(c)
	measured = cmp.Or(measured, "nothing measured yet")
	switch c.State {
	case Settling:
		return fmt.Sprintf("settling: %s; judged over %d train steps", measured, g.Window)
	case Keeping:
		return "held: " + measured
	case Correcting:
		return "not held: " + measured + "; settings move towards the goal"
	case Unreachable:
		return fmt.Sprintf("out of reach: %s; %s%s. %s", measured, g.nearest(c), bindingLimit(c.Binding), unreachableAdvice(c.Binding))
	case Silent:
		return "no measurement: no train step has ended for so long that there is nothing to go by, and settings stay where they are. Look at what the trainer waits for"
	}
	return measured
}

// bindingLimit names the setting that binds.
func bindingLimit(setting string) string {
	if setting == "" {
		return ""
	}
	return ": " + report.Plain(setting) + " is at the end of its limits"
}

// limitKeys are the keys of the limits of settings, by the settings' names in the loop.
var limitKeys = map[string]string{"concurrency": "concurrency", "live_groups": "live_groups", "hold": "hold", "queue_groups": "queue_factor",
	"redundancy": "redundancy", "sync_every": "sync_every", "engines": "engines"}

func unreachableAdvice(binding string) string {
	if key := limitKeys[binding]; key != "" {
		return "Ask for a target that can be reached, or widen control.limits." + key
	}
	return "Ask for a target that can be reached, or widen control.limits"
}

// Held says how many train steps held the goal, and how many batches by themselves.
func Held(held, batches, steps int64) string {
	if steps == 0 {
		return "no train step judged yet"
	}
	return fmt.Sprintf("held in %s of %s train steps (%s); single batches in %s", report.Count(held), report.Count(steps),
		report.Share(float64(held)/float64(steps)), report.Share(float64(batches)/float64(steps)))
}

// settingText say where a setting stands, within what.
func settingText(name string, value, least, most float64) string {
	return fmt.Sprintf("%s %.4g (%.4g to %.4g)", report.Plain(name), value, least, most)
}

// Settings says where all settings stand.
func Settings(c *loop.ControlStatus) string {
	words := make([]string, len(c.Settings))
	for i, s := range c.Settings {
		words[i] = settingText(s.Name, s.Value, s.Least, s.Most)
	}
	if len(words) == 0 {
		return "none may move: control.limits leaves them where they are"
	}
	return strings.Join(words, " · ")
}

// State is a controller's state in words.
func State(state string) string {
	switch state {
	case Keeping:
		return "held"
	case Correcting:
		return "not held"
	case Unreachable:
		return "out of reach"
	case Silent:
		return "not measured"
	}
	return report.Plain(state)
}

// Brief is a controller in a few words, for a line of progress.
func (g Goal) Brief(c *loop.ControlStatus) string {
	measured := g.measured(c)
	text := "target " + State(c.State)
	if c.State == Unreachable || c.State == Silent {
		text = "target " + strings.ToUpper(State(c.State))
	}
	if measured != "" {
		text += ": " + measured
	}
	if c.State == Unreachable && c.Binding != "" {
		text += ", " + report.Plain(c.Binding) + " binds"
	}
	for _, s := range c.Settings {
		text += fmt.Sprintf(" %s=%.4g", report.Plain(s.Name), s.Value)
	}
	return text
}

// reasonWords say why settings were moved, by the loop's words for it.
var reasonWords = map[string]string{"start": "where the run begins", "above-target": "the goal did not hold", "room": "the goal held with room",
	"expected": "the closed form asks for it", "free": "what it saves would have been dropped", "capacity": "engines came or went", "requested": "it was asked for"}

// Why says why a setting was moved.
func Why(reason string) string {
	if words := reasonWords[reason]; words != "" {
		return words
	}
	return report.Plain(reason)
}

// Move says one move of a setting.
func Move(m metrics.Move) string {
	return fmt.Sprintf("step %d: %s %.4g to %.4g, %s", m.Step, report.Plain(m.Setting), m.From, m.To, Why(m.Reason))
}

// Title is above what a controller did.
const Title = "The target, and what was moved for it"

// Rows say what a controller did, for the end of a run or a simulation; none without one.
func Rows(c *metrics.Control) []report.Row {
	if !Has(c) {
		return nil
	}
	goal := GoalOf(c)
	rows := []report.Row{
		{Name: "target", Value: goal.String(), Note: fmt.Sprintf("over %d train steps", c.Window)},
		keptRow(c),
		{Name: "at the end", Value: State(c.State), Note: strings.TrimPrefix(goal.Sentence(StatusOf(c)), State(c.State)+": ")},
	}
	if c.UnreachableSteps > 0 {
		rows = append(rows, report.Row{Name: "out of reach", Value: report.Count(c.UnreachableSteps) + " train steps", Note: "no setting within control.limits would have held it"})
	}
	if c.Silences > 0 {
		rows = append(rows, report.Row{Name: "not measured", Value: report.Count(c.Silences) + " times", Note: "settings stayed where they were"})
	}
	return append(rows, settingRows(c)...)
}

// Forecast says what a simulation expects of a target, "" without one.
func Forecast(c *metrics.Control) string {
	rows := Rows(c)
	if len(rows) == 0 {
		return ""
	}
	text := fmt.Sprintf("the target, %s, is %s", rows[0].Value, Held(c.HeldSteps, c.HeldBatches, c.Steps))
	if c.State == Unreachable {
		text += "; " + rows[2].Note
	}
	for _, s := range c.Settings {
		if s.Moves > 0 {
			text += fmt.Sprintf("; %s comes to %.4g", s.Name, s.Value)
		}
	}
	return text
}

// keptRow says in how many train steps the goal was held.
func keptRow(c *metrics.Control) report.Row {
	if c.Steps == 0 {
		return report.Row{Name: "held", Value: "–", Note: Held(0, 0, 0)}
	}
	return report.Row{Name: "held", Value: report.Share(float64(c.HeldSteps)/float64(c.Steps)) + " of train steps",
		Note: fmt.Sprintf("%s of %s; single batches in %s", report.Count(c.HeldSteps), report.Count(c.Steps), report.Share(float64(c.HeldBatches)/float64(c.Steps)))}
}

// settingRows say where settings began and ended, and why they moved.
func settingRows(c *metrics.Control) []report.Row {
	rows := []report.Row{{Name: "moves", Value: report.Count(c.Moves), Note: reasonCounts(c.Reasons)}}
	for _, s := range c.Settings {
		note := "not moved"
		if s.Moves > 0 {
			note = fmt.Sprintf("from %.4g in %s moves; the last: %s", s.Start, report.Count(s.Moves), Why(s.Why))
		}
		rows = append(rows, report.Row{Name: s.Name, Value: fmt.Sprintf("%.4g of %.4g to %.4g", s.Value, s.Least, s.Most), Note: note})
	}
	return rows
}

// reasonCounts list why settings moved, the most frequent first.
func reasonCounts(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = fmt.Sprintf("%s: %s", Why(name), report.Count(counts[name]))
	}
	return strings.Join(words, "; ")
}
