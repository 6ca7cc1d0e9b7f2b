package loop

import (
	"fmt"
	"math"
	"slices"
)

// windowMax is the largest Control.Window.
const windowMax = 1 << 10

// validateControl reports a goal and ranges that a loop cannot go by.
func (c Config) validateControl(bad *refusals) {
	ctl := c.Control
	if ctl == nil {
		if c.EnginesStart != 0 {
			bad.add("EnginesStart is %d without Control, want 0: nobody would ever ask for the other engines", c.EnginesStart)
		}
		return
	}
	if c.EnginesStart < 0 || c.EnginesStart > len(c.EngineSlots) || c.EnginesStart > 0 && !ctl.Ranges[SettingEngines].Moves() {
		bad.add("EnginesStart is %d, want 0 (all) to %d, and a range of Control.Ranges[%s] to move in", c.EnginesStart, len(c.EngineSlots), SettingEngines)
	}
	c.validateGoal(bad)
	moves := false
	for set := range settingCount {
		r := ctl.Ranges[set]
		if r == (Range{}) {
			continue
		}
		if !(r.Least <= r.Most) || math.IsInf(r.Least, 0) || math.IsInf(r.Most, 0) {
			bad.add("Control.Ranges[%s] is %g to %g, want two finite numbers, the lower one first", set, r.Least, r.Most)
			continue
		}
		if r.Moves() {
			moves = true
			c.validateRange(set, r, bad)
		}
	}
	if !moves {
		bad.add("Control has no range that leaves anything to choose: give one setting of Control.Ranges a Least below its Most")
	}
}

// validateGoal reports goals that contradict themselves or the policy.
func (c Config) validateGoal(bad *refusals) {
	ctl := c.Control
	if !(ctl.Mean >= 0 && ctl.Mean <= stalenessMax) {
		bad.add("Control.Mean is %g, want a staleness above 0 and up to %d versions, or 0 for no such goal", ctl.Mean, stalenessMax)
	}
	if !(ctl.Share >= 0 && ctl.Share < 1) {
		bad.add("Control.Share is %g, want a share above 0 and below 1, or 0 for no such goal; for all of it use PolicyMax", ctl.Share)
	}
	switch {
	case ctl.Share == 0 && (ctl.Within != 0 || ctl.Tokens):
		bad.add("Control.Within (%d) or Tokens is set without Share: say which share is to be that fresh", ctl.Within)
	case ctl.Within < 0 || ctl.Within > stalenessMax:
		bad.add("Control.Within is %d, want 0 to %d versions", ctl.Within, stalenessMax)
	case ctl.Share > 0 && ctl.Within > ages-2:
		bad.add("Control.Within is %d, want at most %d versions: older is not told apart; a goal for Mean has no such limit", ctl.Within, ages-2)
	}
	if ctl.Window < 0 || ctl.Window > windowMax {
		bad.add("Control.Window is %d, want 1 to %d train steps, or 0 for 32", ctl.Window, windowMax)
	}
	if !ctl.goal() {
		return
	}
	every := float64(max(c.SyncEvery, 1))
	if r := ctl.Ranges[SettingSyncEvery]; r.Moves() {
		every = max(every, r.Most)
	}
	if ctl.Window > 0 && float64(ctl.Window) < every {
		bad.add("Control.Window is %d train steps with up to %g of them a sync, want at least as many: staleness rises from sync to sync", ctl.Window, every)
	}
	switch {
	case c.Policy == PolicySynchronous:
		bad.add("Control has a goal under PolicySynchronous, whose staleness is 0: there is nothing to keep; leave Control out or choose another policy")
	case c.Policy == PolicyMax && ctl.Mean >= float64(c.MaxStaleness) && ctl.Mean > 0:
		bad.add("Control.Mean is %g under PolicyMax with MaxStaleness %d, which keeps every group within that already: lower Mean below it, or use PolicyDrop", ctl.Mean, c.MaxStaleness)
	case c.Policy == PolicyMax && ctl.Share > 0 && ctl.Within >= c.MaxStaleness:
		bad.add("Control.Within is %d under PolicyMax with MaxStaleness %d, which keeps everything within that already: lower Within below it, or use PolicyDrop", ctl.Within, c.MaxStaleness)
	}
}

// validateRange reports a range outside what the rest of the config permits.
func (c Config) validateRange(set Setting, r Range, bad *refusals) {
	if set.whole() && (r.Least != math.Trunc(r.Least) || r.Most != math.Trunc(r.Most)) {
		bad.add("Control.Ranges[%s] is %g to %g, want whole numbers", set, r.Least, r.Most)
	}
	least, most, why := c.limitsOf(set)
	if why != "" {
		bad.add("Control.Ranges[%s] is %g to %g, want equal ends: %s", set, r.Least, r.Most, why)
		return
	}
	if r.Least < least || r.Most > most {
		bad.add("Control.Ranges[%s] is %g to %g, want a range within %g and %g", set, r.Least, r.Most, least, most)
	}
}

// limitsOf returns what a setting may be moved within at all, or why it may not be moved.
func (c Config) limitsOf(set Setting) (least, most float64, why string) {
	most = math.MaxInt32
	switch set {
	case SettingSlots:
		least, most = 1, float64(c.Concurrency())
		if c.Start == StartGang {
			least = float64(c.stride())
		}
	case SettingLive:
		most = queueGroupsMax + concurrencyMax
		if c.Policy == PolicyReplay {
			why = "a replay buffer keeps groups after they were trained, and they are no staleness to come"
		}
	case SettingHold:
		most = 0.99
	case SettingQueue:
		least, most = float64(c.BatchGroups), float64(c.QueueGroups)
		if c.Policy == PolicyBounded || c.Policy == PolicyThreshold {
			why = "a smaller queue would drop what the policy never drops"
		}
	case SettingRedundancy:
		most = float64(c.Redundancy)
	case SettingSyncEvery:
		least, most, why = c.limitsOfSync()
	case SettingEngines:
		least, most = float64(c.leastEngines()), float64(len(c.EngineSlots))
	}
	if c.Policy == PolicySynchronous {
		why = "PolicySynchronous has nothing to move"
	}
	return least, most, why
}

// limitsOfSync are those of SettingSyncEvery.
func (c Config) limitsOfSync() (least, most float64, why string) {
	least, most = 1, 1<<16
	switch {
	case c.TrainerAsks:
		why = "a trainer that asks for its batches publishes weights by its own count"
	case c.Policy == PolicyThreshold:
		why = "the threshold counts groups from sync to sync"
	case c.Policy == PolicyBounded:
		most = math.Floor(c.Eta + 1)
	case c.Policy == PolicyMax || c.Policy == PolicyReplay && c.MaxStaleness > 0:
		most = float64(c.MaxStaleness + 1)
	}
	return least, most, why
}

// leastEngines is the number of engines, of the first ones, that a group needs to start.
func (c Config) leastEngines() int {
	if c.Start != StartGang {
		return 1
	}
	slots := 0
	for i, n := range c.EngineSlots {
		if slots += n; slots >= c.stride() {
			return i + 1
		}
	}
	return len(c.EngineSlots)
}

// negative reports whether a count is below 0.
func (f figures) negative() bool {
	return min(f.Groups, f.Staleness, f.Weight, f.Within, f.PeriodNS, f.StepNS, f.BusyNS, f.Ready, f.Accepted, f.Dropped) < 0 || !(f.Live >= 0)
}

// plausibleControl checks what a snapshot says of the controller, before anything goes by it.
func (l *Loop) plausibleControl() error {
	s, ctl := &l.s, l.cfg.Control
	c := s.Control
	if (c == nil) != (ctl == nil) {
		return fmt.Errorf("a controller without a goal, or a goal without its controller")
	}
	for i := range s.Engines {
		if a := s.Engines[i].Away; a > engineStarting || a != engineOurs && c == nil {
			return fmt.Errorf("engine %d is away in state %d", i, a)
		}
	}
	if c == nil {
		return nil
	}
	for set := range settingCount {
		if v := c.At[set]; v != ctl.Ranges[set].fit(set, v) && ctl.Ranges[set].Moves() || c.Why[set] >= reasonCount {
			return fmt.Errorf("%s is %g of %v", set, v, ctl.Ranges[set])
		}
	}
	switch {
	case len(c.Steps) != windowsKept*ctl.Window || len(c.Began) != len(s.Slots) || c.State >= controlStateCount || c.Binding >= settingCount:
		return fmt.Errorf("a controller of %d steps and %d slots does not fit the config", len(c.Steps), len(c.Began))
	case (ctl.Share > 0) != (len(c.Ages) == windowsKept*ages*ctl.Window) || ctl.Share == 0 && len(c.Ages) > 0:
		return fmt.Errorf("%d counts of staleness do not fit the goal", len(c.Ages))
	case ctl.Tokens != (c.Tokens != nil), ctl.Tokens && len(c.Tokens) < ages*len(s.Groups):
		return fmt.Errorf("%d counts of tokens do not fit the goal", len(c.Tokens))
	case !(c.Noise >= 0 && c.Noise <= 1) || c.Count < 0 || c.Since < 0 || c.Since > c.Count || c.Capacity < 0 || c.QuietAt < 0 || c.QuietAt > s.Now || c.Refused < NoVersion || c.OthersAt < 0:
		return fmt.Errorf("%d steps measured, since the %dth", c.Count, c.Since)
	}
	negative := func(n int64) bool { return n < 0 }
	if slices.ContainsFunc(c.Steps, figures.negative) || c.Now.negative() || slices.ContainsFunc(c.Ages, negative) || slices.ContainsFunc(c.Tokens, negative) || c.Moves < 0 || c.Held < 0 || c.Judged < max(c.Held, c.HeldBatches) {
		return fmt.Errorf("something was measured to be less than nothing")
	}
	if slices.ContainsFunc(s.Extras, func(x extra) bool { return x.Size < 0 || int(x.Size) > l.stride }) {
		return fmt.Errorf("a group is larger than groups may be")
	}
	return nil
}
