package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// controlStates are the states of a controller, in the loop's words.
const (
	controlSettling    = "settling"
	controlKeeping     = "keeping"
	controlCorrecting  = "correcting"
	controlUnreachable = "unreachable"
	controlSilent      = "silent"
)

// controlOf is a run's controller as a status has it, of the loop's state and what was recorded of its
// moves; nil without a goal.
func controlOf(rules *loop.Control, status *loop.ControlStatus, recorded *metrics.Control) *protocol.Control {
	if rules == nil || status == nil || rules.Mean == 0 && rules.Share == 0 {
		return nil
	}
	c := &protocol.Control{TargetMean: rules.Mean, TargetShare: rules.Share, Within: rules.Within, Window: rules.Window, ControlStatus: *status, LastMoves: []protocol.Move{}}
	if rules.Share > 0 {
		c.Of = shareOf(rules.Tokens)
	}
	if recorded != nil {
		for _, m := range recorded.Last {
			c.LastMoves = append(c.LastMoves, protocol.Move(m))
		}
	}
	c.Says = controlSentence(c)
	return c
}

func shareOf(tokens bool) string {
	if tokens {
		return "tokens"
	}
	return "rollouts"
}

// goalWords say what is to be kept.
func goalWords(mean, share float64, within loop.Version, of string) string {
	var parts []string
	if mean > 0 {
		parts = append(parts, fmt.Sprintf("mean staleness at most %g", mean))
	}
	if share > 0 {
		parts = append(parts, fmt.Sprintf("at least %s of %s within %d versions", percent(share), of, within))
	}
	return strings.Join(parts, ", and ")
}

// percent prints a share with as many digits as it takes.
func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

// measuredWords say what the goal was measured to be, of those kinds that it has.
func measuredWords(c *protocol.Control) string {
	var parts []string
	if c.TargetMean > 0 && c.MeasuredMean >= 0 {
		parts = append(parts, fmt.Sprintf("mean %.2f", c.MeasuredMean))
	}
	if c.TargetShare > 0 && c.MeasuredShare >= 0 {
		parts = append(parts, fmt.Sprintf("%s within %d", report.Share(c.MeasuredShare), c.Within))
	}
	return strings.Join(parts, ", ")
}

// nearestWords say what can be reached at best.
func nearestWords(c *protocol.Control) string {
	switch {
	case c.Nearest == 0:
		return "not reached with any setting within its limits"
	case c.TargetMean > 0 && c.TargetShare > 0 && c.Nearest < 1 && c.MeasuredMean >= 0 && c.MeasuredMean <= c.TargetMean, c.TargetMean == 0:
		return fmt.Sprintf("%s at best", report.Share(c.Nearest))
	}
	return fmt.Sprintf("%.2f at best", c.Nearest)
}

// controlSentence says how a goal is kept, and what to do where it is not.
func controlSentence(c *protocol.Control) string {
	measured := measuredWords(c)
	if measured == "" {
		measured = "nothing measured yet"
	}
	switch c.State {
	case controlSettling:
		return fmt.Sprintf("settling: %s; judged over %d train steps", measured, c.Window)
	case controlKeeping:
		return "held: " + measured
	case controlCorrecting:
		return "not held: " + measured + "; settings move towards the goal"
	case controlUnreachable:
		return fmt.Sprintf("out of reach: %s; %s%s. %s", measured, nearestWords(c), bindingLimit(c.Binding), unreachableAdvice(c.Binding))
	case controlSilent:
		return "no measurement: no train step has ended for so long that there is nothing to go by, and settings stay where they are. Look at what the trainer waits for"
	}
	return measured
}

// bindingLimit names the setting that binds.
func bindingLimit(setting string) string {
	if setting == "" {
		return ""
	}
	return ": " + plainText(setting) + " is at the end of its limits"
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

// heldWords say how many train steps held the goal, and how many batches by themselves.
func heldWords(held, batches, steps int64) string {
	if steps == 0 {
		return "no train step judged yet"
	}
	return fmt.Sprintf("held in %s of %s train steps (%s); single batches in %s", report.Count(held), report.Count(steps),
		report.Share(float64(held)/float64(steps)), report.Share(float64(batches)/float64(steps)))
}

// settingWords say where a setting stands, within what.
func settingWords(name string, value, least, most float64) string {
	return fmt.Sprintf("%s %.4g (%.4g to %.4g)", plainText(name), value, least, most)
}

// settingsLine says where all settings stand.
func settingsLine(c *protocol.Control) string {
	words := make([]string, len(c.Settings))
	for i, s := range c.Settings {
		words[i] = settingWords(s.Name, s.Value, s.Least, s.Most)
	}
	if len(words) == 0 {
		return "none may move: control.limits leaves them where they are"
	}
	return strings.Join(words, " · ")
}

// stateWords are a controller's state for people.
func stateWords(state string) string {
	switch state {
	case controlKeeping:
		return "held"
	case controlCorrecting:
		return "not held"
	case controlUnreachable:
		return "out of reach"
	case controlSilent:
		return "not measured"
	}
	return plainText(state)
}

// controlBrief is a controller in a few words, for a line of progress.
func controlBrief(c *protocol.Control) string {
	measured := measuredWords(c)
	text := "target " + stateWords(c.State)
	if c.State == controlUnreachable || c.State == controlSilent {
		text = "target " + strings.ToUpper(stateWords(c.State))
	}
	if measured != "" {
		text += ": " + measured
	}
	if c.State == controlUnreachable && c.Binding != "" {
		text += ", " + plainText(c.Binding) + " binds"
	}
	for _, s := range c.Settings {
		text += fmt.Sprintf(" %s=%.4g", plainText(s.Name), s.Value)
	}
	return text
}

// reasonWords say why settings were moved, by the loop's words for it.
var reasonWords = map[string]string{"start": "where the run begins", "above-target": "the goal did not hold", "room": "the goal held with room",
	"expected": "the closed form asks for it", "free": "what it saves would have been dropped", "capacity": "engines came or went", "requested": "it was asked for"}

// whyWords say why a setting was moved.
func whyWords(reason string) string {
	if words := reasonWords[reason]; words != "" {
		return words
	}
	return plainText(reason)
}

// moveWords say one move.
func moveWords(m protocol.Move) string {
	return fmt.Sprintf("step %d: %s %.4g to %.4g, %s", m.Step, plainText(m.Setting), m.From, m.To, whyWords(m.Reason))
}

// controlTitle is above what a controller did.
const controlTitle = "The target, and what was moved for it"

// controlRows say what a controller did, for the end of a run or a simulation; none without one.
func controlRows(c *metrics.Control) []report.Row {
	if c == nil || c.TargetMean == 0 && c.TargetShare == 0 {
		return nil
	}
	shown := controlOf(&loop.Control{Mean: c.TargetMean, Share: c.TargetShare, Within: c.Within, Tokens: c.Of == "tokens", Window: c.Window},
		&loop.ControlStatus{State: c.State, MeasuredMean: c.MeasuredMean, MeasuredShare: c.MeasuredShare, Nearest: c.Nearest, Binding: c.Binding}, c)
	rows := []report.Row{
		{Name: "target", Value: goalWords(c.TargetMean, c.TargetShare, c.Within, c.Of), Note: fmt.Sprintf("over %d train steps", c.Window)},
		keptRow(c),
		{Name: "at the end", Value: stateWords(c.State), Note: strings.TrimPrefix(shown.Says, stateWords(c.State)+": ")},
	}
	if c.UnreachableSteps > 0 {
		rows = append(rows, report.Row{Name: "out of reach", Value: report.Count(c.UnreachableSteps) + " train steps", Note: "no setting within control.limits would have held it"})
	}
	if c.Silences > 0 {
		rows = append(rows, report.Row{Name: "not measured", Value: report.Count(c.Silences) + " times", Note: "settings stayed where they were"})
	}
	return append(rows, controlSettingRows(c)...)
}

// controlForecast says what a simulation expects of a target, "" without one.
func controlForecast(c *metrics.Control) string {
	rows := controlRows(c)
	if len(rows) == 0 {
		return ""
	}
	text := fmt.Sprintf("the target, %s, is %s", rows[0].Value, heldWords(c.HeldSteps, c.HeldBatches, c.Steps))
	if c.State == controlUnreachable {
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
		return report.Row{Name: "held", Value: "–", Note: heldWords(0, 0, 0)}
	}
	return report.Row{Name: "held", Value: report.Share(float64(c.HeldSteps)/float64(c.Steps)) + " of train steps",
		Note: fmt.Sprintf("%s of %s; single batches in %s", report.Count(c.HeldSteps), report.Count(c.Steps), report.Share(float64(c.HeldBatches)/float64(c.Steps)))}
}

// controlSettingRows say where settings began and ended, and why they moved.
func controlSettingRows(c *metrics.Control) []report.Row {
	rows := []report.Row{{Name: "moves", Value: report.Count(c.Moves), Note: reasonCounts(c.Reasons)}}
	for _, s := range c.Settings {
		note := "not moved"
		if s.Moves > 0 {
			note = fmt.Sprintf("from %.4g in %s moves; the last: %s", s.Start, report.Count(s.Moves), whyWords(s.Why))
		}
		rows = append(rows, report.Row{Name: s.Name, Value: fmt.Sprintf("%.4g of %.4g to %.4g", s.Value, s.Least, s.Most), Note: note})
	}
	return rows
}

// reasonCounts list why settings moved, the most frequent first.
func reasonCounts(counts map[string]int64) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = fmt.Sprintf("%s: %s", whyWords(name), report.Count(counts[name]))
	}
	return strings.Join(words, "; ")
}
