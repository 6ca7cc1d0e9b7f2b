package live

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Rates count rollouts that entered and left the queue over the last train periods. They are the queue health of the
// moment; Summary has that of the whole measured window. All is 0 before the first train step.
type Rates struct {
	// Steps is over how many train periods, WindowNS how long they took.
	Steps    int
	WindowNS int64
	// Production counts rollouts that were scored; Effective leaves out those of groups that were filtered. Both are
	// per second. ConsumptionBusy counts trained ones per second of train step, ConsumptionWall per second of wall
	// time. Dropped counts rollouts of groups that were evicted or discarded.
	Production, Effective, Dropped   float64
	ConsumptionBusy, ConsumptionWall float64
	// PeriodS is the mean train period, StepS that of the train step alone, in seconds. TokensPerS counts tokens of
	// scored responses. Trend is the number of groups a step by which the queue grew.
	PeriodS, StepS, TokensPerS, Trend float64
}

// tally counts what has gone past since the run began.
type tally struct {
	atNS, trainNS                      int64
	scored, trained, filtered, dropped int64 // rollouts
	tokens, queueGroups                int64
}

// rates keeps a tally of each of the last train steps.
type rates struct {
	now  tally
	ring [recentSteps + 1]tally
	// steps were counted since the process began, the last of which made version.
	steps   int
	version int64
}

// observe counts one event with what followed from it.
func (r *rates) observe(ev *loop.Event, actions []loop.Action) {
	if ev.Kind == loop.RolloutScored {
		r.now.scored++
		r.now.tokens += int64(ev.Tokens)
	}
	for i := range actions {
		switch a := &actions[i]; {
		case a.Kind == loop.GroupEnded && a.End == loop.EndFiltered:
			r.now.filtered += int64(a.Count)
		case a.Kind == loop.GroupEnded && (a.End == loop.EndEvicted || a.End == loop.EndDiscarded):
			r.now.dropped += int64(a.Count)
		case a.Kind == loop.GroupTrained:
			r.now.trained += int64(a.Count)
		}
	}
}

// step ends a train period.
func (r *rates) step(at metrics.Step) {
	r.now.atNS = at.TimeNS
	r.now.trainNS += at.TrainNS
	r.now.queueGroups = int64(at.QueueGroups)
	r.ring[r.steps%len(r.ring)] = r.now
	r.steps, r.version = r.steps+1, int64(at.Step)
}

// recent returns the rates over the last periods that were seen from beginning to end.
func (r *rates) recent() Rates {
	n := min(r.steps, len(r.ring)) - 1
	if n < 1 {
		return Rates{}
	}
	last, first := r.ring[(r.steps-1)%len(r.ring)], r.ring[(r.steps-1-n)%len(r.ring)]
	window := last.atNS - first.atNS
	if window <= 0 {
		return Rates{}
	}
	perS := func(count int64) float64 { return float64(count) / (float64(window) / 1e9) }
	out := Rates{
		Steps: n, WindowNS: window,
		Production: perS(last.scored - first.scored), Effective: perS(last.scored - first.scored - last.filtered + first.filtered), ConsumptionWall: perS(last.trained - first.trained),
		Dropped: perS(last.dropped - first.dropped), TokensPerS: perS(last.tokens - first.tokens), PeriodS: float64(window) / 1e9 / float64(n), StepS: float64(last.trainNS-first.trainNS) / 1e9 / float64(n),
		Trend: float64(last.queueGroups-first.queueGroups) / float64(n),
	}
	if busy := last.trainNS - first.trainNS; busy > 0 {
		out.ConsumptionBusy = float64(last.trained-first.trained) / (float64(busy) / 1e9)
	}
	return out
}
