package replay

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/trace"
)

// A sync that goes on through a restart, in other cells, is as slow as its slowest load and switch, from its beginning on.
func TestSyncThroughRestart(t *testing.T) {
	syncs, through := 0, 0
	for run := range looptest.Restarts(t, 40, 600) {
		m := newMeasurer(trace.Header{}, run.Config)
		var want recordedSync
		since, restarts := map[int32]int64{}, false
		for i, r := range run.Log {
			m.event(&trace.Event{Event: r.Event}, int64(i), r.Actions)
			switch ev := r.Event; {
			case ev.Kind == loop.Recovered:
				if restarts = run.Status[i-1].SyncTarget != loop.NoVersion; !restarts {
					want = recordedSync{}
				}
			case !answers(run, i):
			case ev.Kind == loop.WeightsLoaded:
				want.loadNS = max(want.loadNS, ev.Time-since[ev.Engine])
			default:
				want.switchNS = max(want.switchNS, ev.Time-since[ev.Engine])
			}
			for _, a := range r.Actions {
				switch a.Kind {
				case loop.LoadWeights, loop.SwitchWeights:
					since[a.Engine] = r.Event.Time
				case loop.SyncCompleted:
					if got := m.rec.syncs[a.Version]; got != want {
						t.Errorf("step %d: the sync to v%d took %+v, want %+v", i, a.Version, got, want)
					}
					if syncs++; restarts && want.loadNS > 0 {
						through++
					}
					want, restarts = recordedSync{}, false
				}
			}
		}
	}
	if syncs < 300 || through < 100 {
		t.Errorf("%d syncs, %d of them through a restart: too few to say anything", syncs, through)
	}
}

// An attempt that goes on elsewhere has left its slot when it was interrupted, also where a process that is gone could not say
// so: what its engine does from then on, or while it starts anew, is no work of it.
func TestStaysEndWithTheirProcess(t *testing.T) {
	type key struct {
		group          loop.GroupID
		sample, number int32
	}
	restarts := 0
	for run := range looptest.Restarts(t, 40, 600) {
		m := newMeasurer(trace.Header{}, run.Config)
		came, left := map[key]span{}, map[key]int64{}
		for i, r := range run.Log {
			ev, ran := r.Event, slices.Clone(m.run.Slots)
			m.event(&trace.Event{Event: ev}, int64(i), r.Actions)
			for slot, at := range ran {
				if ev.Kind == loop.Recovered && at.Runs && run.Config.Owns(at.Engine) && m.stays[slot].lasts {
					t.Fatalf("step %d: %+v stays in slot %d through a restart", i, at, slot)
				}
			}
			for at, s := range came {
				_, gone := left[at]
				owns := run.Config.Owns(s.engine)
				switch {
				case gone:
				case ev.Kind == loop.RolloutInterrupted && at == key{ev.Group, ev.Sample, ev.Attempt}:
					left[at] = ev.Time
				case ev.Kind == loop.Recovered && owns, ev.Kind == loop.EngineLost && ev.Reason == loop.ReasonRestart && !owns && ev.Engine == s.engine:
					left[at] = ev.Time
				}
			}
			for _, a := range r.Actions {
				at := key{a.Group, a.Sample, a.Attempt}
				if a.Kind == loop.ResumeRollout {
					s := came[at]
					if s.to = left[at]; !slices.ContainsFunc(m.rec.spans, func(got span) bool {
						return key{got.group, got.sample, got.number} == at && got.engine == s.engine && got.took == s.took && got.to == s.to
					}) {
						t.Fatalf("step %d: no stay of %+v at engine %d from %d to %d", i, at, s.engine, s.took, s.to)
					}
				}
				if a.Kind == loop.ResumeRollout || a.Kind == loop.StartRollout {
					came[at] = span{engine: a.Engine, took: ev.Time}
					delete(left, at)
				}
			}
			if ev.Kind == loop.Recovered && run.Config.ResumeRestart {
				restarts++
			}
		}
	}
	if restarts < 100 {
		t.Errorf("%d restarts with rollouts that go on, too few to say anything", restarts)
	}
}

// answers reports whether a step ends the load or the switch of an engine by the loop's word: it is in another state
// afterwards, or told to do the next.
func answers(run *looptest.Restarted, i int) bool {
	ev := &run.Log[i].Event
	if ev.Kind != loop.WeightsLoaded && ev.Kind != loop.WeightsSwitched {
		return false
	}
	return run.Status[i-1].Engines[ev.Engine].State != run.Status[i].Engines[ev.Engine].State ||
		slices.ContainsFunc(run.Log[i].Actions, func(a loop.Action) bool {
			return (a.Kind == loop.LoadWeights || a.Kind == loop.SwitchWeights) && a.Engine == ev.Engine
		})
}
