package study

import (
	"maps"
	"math"
	"slices"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// planned is how settings do in the stationary state of one level of a drift, under one goal.
type planned struct {
	Settings settings `json:"settings"`
	// Held is the share of steps over whose window the goal held, and RolloutsPerS what is trained.
	Held         float64 `json:"held"`
	RolloutsPerS float64 `json:"rollouts_per_s"`
}

// heldLeast is the share of steps in which a plan is to hold its goal.
const heldLeast = 0.95

// keeps reports whether the goal is held.
func (p planned) keeps() bool { return p.Held >= heldLeast }

// better reports whether a plan is to be preferred: one that keeps the goal over one that does not, of those
// that do the faster, of the others the one that holds it more often.
func (p planned) better(o planned) bool {
	switch {
	case p.keeps() != o.keeps():
		return p.keeps()
	case p.keeps():
		return p.RolloutsPerS > o.RolloutsPerS
	}
	return p.Held > o.Held
}

// search finds the settings that are best, by trying some of all kinds, and some more to start from, and then what
// lies around the best of them and around the latter. Of the best, as much more in live groups as still holds is taken.
// try says how settings do, and check how they do in simulations that the search has not seen: of many that seem
// to hold a goal, the fastest are likely to have been lucky.
func search(try, check func(settings) planned, starts ...settings) planned {
	tried := map[settings]planned{}
	ask := func(s settings) planned {
		p, known := tried[s]
		if !known {
			p = try(s)
			tried[s] = p
		}
		return p
	}
	var found []planned
	for _, s := range searchStarts() {
		found = append(found, ask(s))
	}
	for _, from := range ranked(found)[:searchClimbs] {
		climb(from, ask)
	}
	for _, s := range starts {
		climb(ask(s), ask)
	}
	found = ranked(slices.Collect(maps.Values(tried)))
	best := check(found[0].Settings)
	failed, checks := found[0].RolloutsPerS, 1
	for _, p := range found[1:] {
		if best.keeps() || !p.keeps() || checks == searchChecks {
			break
		}
		if p.RolloutsPerS > failed*(1-searchApart*float64(checks)) {
			continue
		}
		failed = p.RolloutsPerS
		checks++
		if c := check(p.Settings); c.better(best) {
			best = c
		}
	}
	return widened(best, check)
}

// widened takes finest steps up in live groups as long as they are better.
func widened(best planned, check func(settings) planned) planned {
	finest := searchSteps[loop.SettingLive][len(searchSteps[loop.SettingLive])-1]
	for range searchWider {
		next := best.Settings
		next[loop.SettingLive] = rounded(loop.SettingLive, min(next[loop.SettingLive]+finest, controlLive))
		p := check(next)
		if !p.better(best) {
			break
		}
		best = p
	}
	return best
}

// ranked puts the best first; of equals, the one with the smaller settings.
func ranked(list []planned) []planned {
	slices.SortFunc(list, func(a, b planned) int {
		switch {
		case a.better(b):
			return -1
		case b.better(a):
			return 1
		}
		return slices.Compare(a.Settings[:], b.Settings[:])
	})
	return list
}

// searchClimbs is how many of the settings tried first are improved on, searchChecks how many of the best
// are checked until one holds its goal there, too, and searchApart times their number how much
// slower the next one is than the one that failed.
// searchWider is how many steps up in live groups are checked of the one that does.
const (
	searchClimbs = 2
	searchChecks = 12
	searchApart  = 0.0025
	searchWider  = 8
)

// searchStarts are settings of every kind: groups capped, slots capped, and neither.
func searchStarts() (list []settings) {
	add := func(set loop.Setting, values ...float64) {
		for _, queue := range []float64{controlGroups, controlQueue} {
			for _, v := range values {
				s := full()
				s[loop.SettingQueue], s[set] = queue, v
				list = append(list, s)
			}
		}
	}
	add(loop.SettingLive, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, controlLive)
	add(loop.SettingSlots, 16, 32, 48, 64, 80, 96, 112)
	slices.SortFunc(list, func(a, b settings) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(list)
}

// searchSteps are what a setting is changed by around the best found, larger ones first: at the end an eighth of a
// group, in live groups as in slots, finer than which the controller does not move them either.
var searchSteps = map[loop.Setting][]float64{
	loop.SettingSlots: {16, 4, 1},
	loop.SettingLive:  {4, 0.5, 0.125},
	loop.SettingHold:  {0.1, 0.05, 0},
	loop.SettingQueue: {4, 2, 1},
}

// rounded is a value of a setting on the finest grid that is searched and played.
func rounded(m loop.Setting, v float64) float64 {
	switch m {
	case loop.SettingHold:
		return math.Round(100*v) / 100
	case loop.SettingLive:
		return math.Round(8*v) / 8
	}
	return math.Round(v)
}

// change moves one setting, or two that make up for one another, by one step up or down.
type change map[loop.Setting]float64

// changes are what climb tries: every setting by itself, more in flight under a longer hold and the
// reverse, and a cap of slots for one of groups.
var changes = []change{
	{loop.SettingSlots: 1}, {loop.SettingSlots: -1}, {loop.SettingLive: 1}, {loop.SettingLive: -1},
	{loop.SettingHold: 1}, {loop.SettingHold: -1}, {loop.SettingQueue: 1}, {loop.SettingQueue: -1},
	{loop.SettingHold: 1, loop.SettingSlots: 1}, {loop.SettingHold: -1, loop.SettingSlots: -1},
	{loop.SettingHold: 1, loop.SettingLive: 1}, {loop.SettingHold: -1, loop.SettingLive: -1},
	{loop.SettingSlots: 1, loop.SettingLive: -1}, {loop.SettingSlots: -1, loop.SettingLive: 1},
}

// climb goes from settings to better ones as long as there are some.
func climb(at planned, ask func(settings) planned) planned {
	ranges := controlRanges().Ranges
	for fine := range searchSteps[loop.SettingLive] {
		for improved := true; improved; {
			improved = false
			for _, c := range changes {
				next := at.Settings
				for _, m := range moved {
					to := next[m] + c[m]*searchSteps[m][fine]
					next[m] = rounded(m, min(max(to, ranges[m].Least), ranges[m].Most))
				}
				if p := ask(next); p.better(at) {
					at, improved = p, true
				}
			}
		}
	}
	return at
}

// fixedArm keeps settings throughout.
func fixedArm(s settings) arm {
	return arm{rules: ranged, steer: func(seen sim.Seen) []sim.Request {
		if seen.Made > 0 {
			return nil
		}
		return s.requests()
	}}
}

// plannedLevel is a level of a drift with the best settings there.
type plannedLevel struct {
	Level float64 `json:"level"`
	planned
}

// oracleArm knows the drift, and plays what is planned for its level.
func oracleArm(plan []plannedLevel, d ControlDrift, c course) arm {
	var last settings
	return arm{rules: ranged, steer: func(seen sim.Seen) []sim.Request {
		now := between(plan, d.levelAt(c, int(seen.Made)))
		if now == last {
			return nil
		}
		last = now
		return now.requests()
	}}
}

// alike is how much larger than the other one of two settings may be for what lies between them to be played.
const alike = 1.5

// between are the settings for a level: between those of its neighbours in the plan, where these are of one kind, else
// those of the nearer.
func between(plan []plannedLevel, level float64) settings {
	i := slices.IndexFunc(plan, func(p plannedLevel) bool { return p.Level >= level })
	if i <= 0 {
		return plan[max(i, 0)].Settings
	}
	low, high := plan[i-1], plan[i]
	share := (level - low.Level) / (high.Level - low.Level)
	at := low.Settings
	for _, m := range moved {
		a, b := low.Settings[m], high.Settings[m]
		if m != loop.SettingHold && max(a, b) > alike*min(a, b) {
			if share >= 0.5 {
				return high.Settings
			}
			return low.Settings
		}
		at[m] = rounded(m, a+share*(b-a))
	}
	return at
}
