package looptest

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// startRollout puts what becomes of a rollout on the agenda: its first token, and
// its end or that the engine had to put it aside.
func (w *World) startRollout(ev loop.Event, level int32) {
	d := w.ms(w.plan.RolloutTicks)
	if w.hit(w.faults.Straggles) {
		d *= 100
	}
	token := ev
	token.Kind, token.Version = loop.FirstToken, loop.NoVersion // known when it comes
	token.Time += w.rng.Int64N(d/millisecond+1) * millisecond
	w.schedule(token)
	if w.hit(w.faults.Preempts) {
		w.interrupt(ev, w.plan.RolloutTicks)
		return
	}
	ev.Kind, ev.Time = loop.RolloutScored, ev.Time+d
	ev.Tokens, ev.Reward = int32(d/millisecond), float32(w.rng.IntN(2))
	switch {
	case w.hit(w.faults.RolloutFails):
		ev.Kind, ev.Reason = loop.RolloutFailed, loop.ReasonEnvironment
		switch x := w.rng.IntN(8); {
		case x%4 == 0:
			ev.Kind, ev.Reason = loop.RolloutAborted, loop.ReasonNone // though nobody asked
		case x%4 == 1:
			ev.Reason = loop.ReasonData
		}
	case w.hit(w.faults.NoNumber):
		ev.Reward = float32(math.NaN())
	case w.hit(w.faults.Rejects):
		ev.Mark = loop.MarkReject
	case w.hit(w.faults.Prunes):
		ev.Mark = loop.MarkPruned
	case w.rng.Float64() < w.plan.Solves*(1-float64(level)/8):
		ev.Mark = loop.MarkSolved
	}
	w.schedule(ev)
}

// interrupt puts the end of a rollout that keeps its tokens, if it has any, on the agenda.
func (w *World) interrupt(ev loop.Event, ticks int) {
	ev.Kind, ev.Tokens = loop.RolloutInterrupted, int32(w.rng.IntN(4))
	ev.Time += w.ms(ticks)
	w.schedule(ev)
}

// measure has a train step that ends at an instant report the drift of some of its groups before.
func (w *World) measure(end int64) {
	for _, id := range w.Checker.lease.groups {
		if w.hit(w.plan.Measures) {
			w.schedule(loop.Event{Time: end, Kind: loop.GroupMeasured, Group: id, Drift: w.rng.Float32() * 0.3})
		}
	}
}
