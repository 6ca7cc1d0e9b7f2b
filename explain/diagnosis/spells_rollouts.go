package diagnosis

import (
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// How a standstill ended, which says what it waited for.
type ending uint8

const (
	endedGenerating ending = iota // with a rollout that had generated meanwhile
	endedOutside                  // with one that had been outside its engine
	endedFirst                    // with a first token
	endedLimit                    // with one that failed at a limit on time
)

// standstill follows for how long nothing is heard of any rollout though slots hold some: none starts, makes its first
// token or ends.
type standstill struct {
	from begin
	// over is that slots hold rollouts since then; floorNS is what a further spell has to exceed to be kept.
	over    bool
	floorNS int64
	kept    spells
}

// observe takes an event with what followed from it; running is how many slots hold a rollout after it.
func (s *standstill) observe(ev *trace.Event, actions []loop.Action, running int, count func() counts) {
	heard := ev.Kind >= loop.FirstToken || ev.Kind == loop.EngineLost || ev.Kind == loop.Recovered
	for i := range actions {
		heard = heard || actions[i].Kind == loop.StartRollout || actions[i].Kind == loop.ResumeRollout
	}
	if !heard {
		return
	}
	if s.over && ev.Kind != loop.Recovered && ev.Time-s.from.ns > s.floorNS { // while the run was down nothing could be heard
		p := s.from.since(ev.Time, count())
		p.ending = endingOf(ev, p.lengthNS())
		s.floorNS = s.kept.add(p)
	}
	s.from, s.over = begin{ev.Time, count()}, running > 0
}

// endingOf says how an event ended a standstill of such a length.
func endingOf(ev *trace.Event, lengthNS int64) ending {
	switch {
	case ev.Kind == loop.FirstToken:
		return endedFirst
	case ev.Kind == loop.RolloutFailed && ev.Reason == loop.ReasonTimeout:
		return endedLimit
	case ev.EnvironmentNS > lengthNS/2, ev.Kind == loop.RolloutFailed && ev.Reason == loop.ReasonEnvironment:
		return endedOutside
	}
	return endedGenerating
}

// standstills are the long ones, with that which lasts, but for those in which engines waited for weights.
func (o *observer) standstills() (list spells) {
	s, least := &o.standstill, longNS(o.recorder.Steps)
	if least == 0 {
		return nil
	}
	all := slices.Clone(s.kept)
	if s.over {
		all = append(all, s.from.since(o.tally.fleet.at, o.counts()))
	}
	var late spells
	for i := range o.deliveries.engines {
		late = append(late, o.late(i)...)
	}
	return slices.DeleteFunc(all.least(least), func(p spell) bool { return late.covers(p) })
}
