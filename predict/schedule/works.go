package schedule

import (
	"cmp"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Work is one train step at the end of a simulated window with what it waited for. Times are seconds since
// the beginning of that stretch, and may be before it.
type Work struct {
	// Version it makes, from the one before. Oldest and Newest are the versions that its groups began with.
	Version        int64
	Oldest, Newest int64
	// BeganS is when the first rollout of its batch began, FirstReadyS when the first of its groups was ready and
	// ReadyS when the last was.
	BeganS, FirstReadyS, ReadyS float64
	// FromS and ToS are the step's.
	FromS, ToS float64
	// LogProbsS is the part of the step, at its beginning, that recomputes old log-probs.
	LogProbsS float64
}

// Synced is one weight sync, which brings a version to the engines.
type Synced struct {
	Version    int64
	FromS, ToS float64
}

// Works are the last batches of a simulation as work that waits for other work.
type Works struct {
	Steps []Work
	Syncs []Synced
	// EndS is how long the stretch is.
	EndS float64
}

// workGroup is what is remembered of a live group.
type workGroup struct {
	began, ready int64
	start        loop.Version
}

// works records them while a simulation is watched.
type works struct {
	groups map[loop.GroupID]*workGroup
	// next is the step whose groups are being named, running the one that runs.
	next, running recordedWork
	sync          recordedSync
	steps         []recordedWork
	syncs         []recordedSync
	begin         int64 // of the drawn stretch
}

type recordedWork struct {
	version, oldest, newest      loop.Version
	began, firstReady, lastReady int64
	from, to                     int64
	groups                       int
}

type recordedSync struct {
	version  loop.Version
	from, to int64
	on       bool
}

// event takes an event of the simulation; drawn says whether what ends now is kept.
func (w *works) event(ev *loop.Event, drawn bool) {
	if ev.Kind == loop.TrainStepEnded && w.running.groups > 0 {
		w.running.to = ev.Time
		if drawn {
			if len(w.steps) == 0 {
				w.begin = min(w.running.from, ev.Time)
			}
			w.steps = append(w.steps, w.running)
		}
		w.running = recordedWork{}
	}
}

// action takes an action that follows at a time.
func (w *works) action(a *loop.Action, now int64, drawn bool) {
	switch a.Kind {
	case loop.StartRollout:
		if w.groups[a.Group] == nil {
			w.groups[a.Group] = &workGroup{began: now, start: a.Version}
		}
	case loop.GroupQueued, loop.GroupHeld:
		if g := w.groups[a.Group]; g != nil && g.ready == 0 {
			g.ready, g.start = now, a.StartVersion
		}
	case loop.GroupLeased:
		w.next.lease(w.groups[a.Group], now)
	case loop.StartTrainStep:
		w.running, w.next = w.next, recordedWork{}
		w.running.from, w.running.version = now, a.Version+1
	case loop.GroupTrained, loop.GroupEnded:
		delete(w.groups, a.Group)
	case loop.LoadWeights, loop.SwitchWeights:
		if !w.sync.on {
			w.sync = recordedSync{version: a.Version, from: now, on: true}
		}
	case loop.SyncCompleted:
		w.sync.to = now
		if w.sync.on && drawn {
			w.syncs = append(w.syncs, w.sync)
		}
		w.sync = recordedSync{}
	}
}

// lease adds a group to the batch; one that was ready in the same instant may be named before it is said to be.
func (r *recordedWork) lease(g *workGroup, now int64) {
	if g == nil {
		return
	}
	ready := cmp.Or(g.ready, now)
	if r.groups == 0 {
		r.began, r.firstReady, r.lastReady, r.oldest, r.newest = g.began, ready, ready, g.start, g.start
	}
	r.began, r.firstReady, r.lastReady = min(r.began, g.began), min(r.firstReady, ready), max(r.lastReady, ready)
	r.oldest, r.newest = min(r.oldest, g.start), max(r.newest, g.start)
	r.groups++
}

// drawn returns what was recorded; logProbs is the share of a step that log-probs take.
func (w *works) drawn(logProbs float64) Works {
	var out Works
	seconds := func(at int64) float64 { return float64(at-w.begin) / 1e9 }
	for _, s := range w.steps {
		one := Work{Version: int64(s.version), Oldest: int64(s.oldest), Newest: int64(s.newest), BeganS: seconds(s.began), FirstReadyS: seconds(s.firstReady),
			ReadyS: seconds(s.lastReady), FromS: seconds(s.from), ToS: seconds(s.to)}
		one.LogProbsS = logProbs * (one.ToS - one.FromS)
		out.Steps = append(out.Steps, one)
		out.EndS = max(out.EndS, one.ToS)
	}
	for _, s := range w.syncs {
		out.Syncs = append(out.Syncs, Synced{int64(s.version), seconds(s.from), seconds(s.to)})
	}
	slices.SortFunc(out.Steps, func(a, b Work) int { return int(a.Version - b.Version) })
	return out
}
