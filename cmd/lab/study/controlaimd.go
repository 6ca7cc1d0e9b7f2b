package study

import (
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// The constants of prime-rl's concurrency controller, as of its commit 559b447.
const (
	aimdGrowth        = 1.25 // of the cap, each time as many rollouts have ended as are in flight
	aimdBinding       = 0.9  // the cap binds where this share of it is in flight
	aimdGrowBelow     = 0.6  // cache usage below which the cap may grow
	aimdTrimAbove     = 0.8  // and above which it is trimmed,
	aimdTarget        = 0.7  // to what this usage amounts to,
	aimdTrimEvery     = 6    // at most once in so many polls
	aimdCut           = 0.8  // of what is in flight remains after a preemption,
	aimdCutAgain      = 0.5  // and after another within
	aimdGrace         = 6    // polls of having drained
	aimdPollNS        = 5e9
	aimdMaxLen        = capBase + capPerPoint*controlTailness // tokens that a rollout may come to have, for the first cap
	aimdFloor         = controlGroupSize
	aimdCeiling       = controlSlots
	aimdUsageAtOutset = aimdTarget // of the cache, with every slot in use before anything drifts
)

// aimd is prime-rl's rule for the number of rollouts in flight: it grows by a factor with what completes while the
// engines are clear, and falls by one under pressure. Staleness is no signal of it.
//
// The signals are an engine's cache usage, its waiting requests and its preemptions. Ours has as many slots as it may
// have rollouts, so that none waits; the cache is a number of tokens per engine, of which the slots use
// aimdUsageAtOutset before anything drifts, and more than all of it stands for a preemption. Rollouts
// in excess of a cap that falls are not cancelled, but end.
type aimd struct {
	cap   float64
	limit int
	grows bool
	// cooldown and grace count polls; draining: a cut has not come about yet, escalated: the next is harsher.
	cooldown, grace     int
	draining, escalated bool
}

// newAIMD starts where every rollout could come to its longest, in a cache of so many tokens.
func newAIMD(cacheTokens float64) *aimd {
	a := &aimd{}
	a.resize(cacheTokens / aimdMaxLen)
	return a
}

// resize sets the cap.
func (a *aimd) resize(to float64) {
	a.cap = min(max(to, aimdFloor), aimdCeiling)
	a.limit = int(a.cap)
}

// completed takes the end of a rollout, with so many in flight, itself included.
func (a *aimd) completed(inFlight int) {
	if a.grows && float64(inFlight) >= aimdBinding*float64(a.limit) {
		a.resize(a.cap * math.Pow(aimdGrowth, 1/float64(inFlight)))
	}
}

// poll takes the largest cache usage of an engine.
func (a *aimd) poll(usage float64, inFlight int) {
	preempted := usage > 1
	if a.draining && inFlight <= a.limit && !preempted {
		a.draining, a.grace = false, aimdGrace
	}
	if !a.draining && a.escalated {
		if a.grace--; a.grace <= 0 {
			a.escalated = false
		}
	}
	a.cooldown = max(a.cooldown-1, 0)
	a.grows = usage <= aimdGrowBelow && !preempted && !a.draining
	switch {
	case a.draining:
	case preempted:
		share := aimdCut
		if a.escalated {
			share = aimdCutAgain
		}
		a.lower(float64(inFlight) * share)
		a.draining, a.escalated = true, true
	case usage > aimdTrimAbove && inFlight > 0 && a.cooldown == 0:
		a.lower(float64(inFlight) * aimdTarget / usage)
		a.cooldown = aimdTrimEvery
	}
}

// lower sets the cap to a whole number that is no higher than it is.
func (a *aimd) lower(to float64) {
	a.resize(math.Floor(min(max(to, aimdFloor), aimdCeiling, float64(a.limit))))
}

// aimdArm steers by it. Completions are counted at polls.
func aimdArm(residentTokens float64) arm {
	cache := residentTokens * controlEngineSlots / aimdUsageAtOutset // of an engine
	a := newAIMD(cache * controlEngines)
	scored, inFlight := int64(0), 0
	return arm{rules: ranged, pollNS: aimdPollNS, steer: func(seen sim.Seen) []sim.Request {
		switch {
		case seen.Engines != nil:
			for range seen.Scored - scored {
				a.completed(max(inFlight, 1))
			}
			usage := 0.0
			inFlight, scored = 0, seen.Scored
			for _, e := range seen.Engines {
				inFlight += e.Running
				usage = max(usage, float64(e.Tokens)/cache)
			}
			a.poll(usage, inFlight)
		case seen.Made > 0:
			return nil
		}
		s := full()
		s[loop.SettingSlots] = float64(a.limit)
		if seen.Made == 0 && seen.Engines == nil {
			return s.requests()
		}
		return []sim.Request{{Setting: loop.SettingSlots, Value: s[loop.SettingSlots]}}
	}}
}

// ranged gives the loop ranges and no goal: nobody but requests moves settings.
func ranged(c *loop.Config) {
	control := controlRanges()
	c.Control = &control
}
