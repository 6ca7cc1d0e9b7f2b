package study

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// follower recomputes from the events of a simulation what no summary has.
type follower struct {
	warmup  loop.Version
	delayNS int64
	// updates are the times at which versions 1, 2, … were made.
	updates []int64
	open    map[loop.GroupID]*groupTimes
	// generation times of ready groups in the measured window, in nanoseconds.
	generation []int64
	groups     int64
	staleness  int64
}

// groupTimes are when a group was opened and when its last rollout was scored.
type groupTimes struct{ opened, scored int64 }

func newFollower(warmup loop.Version, delayNS int64) follower {
	return follower{warmup: warmup, delayNS: delayNS, open: map[loop.GroupID]*groupTimes{}}
}

func (f *follower) observe(ev loop.Event, actions []loop.Action) {
	switch ev.Kind {
	case loop.TrainStepEnded:
		f.updates = append(f.updates, ev.Time)
	case loop.RolloutScored:
		if g := f.open[ev.Group]; g != nil {
			g.scored = ev.Time
		}
	}
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case loop.StartRollout:
			if f.open[a.Group] == nil {
				f.open[a.Group] = &groupTimes{opened: ev.Time}
			}
		case loop.GroupLeased, loop.GroupEnded:
			f.left(a)
		}
	}
}

// left takes a group that leaves the queue.
func (f *follower) left(a *loop.Action) {
	g := f.open[a.Group]
	if g == nil {
		return
	}
	delete(f.open, a.Group)
	if loop.Version(len(f.updates)) < f.warmup {
		return
	}
	f.generation = append(f.generation, g.scored-g.opened)
	if a.Kind != loop.GroupLeased {
		return
	}
	served := 0
	for k := len(f.updates); k > 0; k-- {
		if f.updates[k-1]+f.delayNS <= g.opened {
			served = k
			break
		}
	}
	f.groups++
	f.staleness += int64(a.Version) - int64(served)
}

// bound is theory.LeastStaleness over the groups that were generated.
func (f *follower) bound(periodNS, stepNS, syncNS float64) float64 {
	sum := 0.0
	for _, d := range f.generation {
		sum += math.Max(0, math.Ceil((float64(d)+syncNS+stepNS-periodNS)/periodNS))
	}
	return sum / float64(max(len(f.generation), 1))
}

func (f *follower) delayed() float64 { return float64(f.staleness) / float64(max(f.groups, 1)) }
