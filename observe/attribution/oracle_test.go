package attribution_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// happening is one line in the history of a group.
type happening struct {
	what        string // began, lost, token, scored
	at          int64
	version     loop.Version // the trainer's
	due         loop.Version
	environment int64
}

// oracle recomputes splits and idle time from a record, in the most direct way that comes to mind and
// with nothing of the observer's: it writes down all that happens to every group, asks the loop for its
// state, and looks a group's increments up one by one when it is trained.
type oracle struct {
	cfg      loop.Config
	l        *loop.Loop
	history  map[loop.GroupID][]happening
	running  map[loop.GroupID]map[[2]int32]int32 // the last slot of attempts that have not ended, parked ones too
	slots    map[int32]looptestAttempt
	made     []loop.LeaseID // the lease that made version i+1
	madeAt   []int64
	restored loop.Version
	due      loop.Version
	ready    map[loop.GroupID]loop.Action
	readyBy  map[loop.GroupID]loop.LeaseID
	queuedAt map[loop.GroupID]loop.Version
	lease    loop.LeaseID
	now      int64
	trainer  map[string]float64
	engines  map[string]float64
	there    float64 // slots by time, of engines that are not the pool's
	splits   map[loop.GroupID][]attribution.Split
}

type looptestAttempt struct {
	group           loop.GroupID
	sample, attempt int32
	dead            bool
}

func newOracle(t *testing.T, cfg loop.Config) *oracle {
	t.Helper()
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &oracle{cfg: l.Config(), l: l, history: map[loop.GroupID][]happening{}, running: map[loop.GroupID]map[[2]int32]int32{},
		slots: map[int32]looptestAttempt{}, ready: map[loop.GroupID]loop.Action{}, readyBy: map[loop.GroupID]loop.LeaseID{},
		queuedAt: map[loop.GroupID]loop.Version{}, trainer: map[string]float64{}, engines: map[string]float64{}, splits: map[loop.GroupID][]attribution.Split{}}
}

func (o *oracle) observe(rec looptest.Record, environment int64) {
	st := o.l.Status()
	o.wait(st, float64(max(rec.Event.Time, o.now)-o.now))
	o.now = max(o.now, rec.Event.Time)
	lost := make([]bool, len(st.Engines))
	for i := range lost {
		lost[i] = o.l.Lost(i)
	}
	o.l.Step(rec.Event)
	for version := loop.Version(len(o.made)); version < o.l.Version(); version++ { // at most one
		by := rec.Event.Lease
		if rec.Event.Kind == loop.TrainerRestored {
			by, o.restored = 0, version+1
		}
		o.made, o.madeAt = append(o.made, by), append(o.madeAt, o.now)
		o.due = o.nextDue(version + 1)
	}
	ev := rec.Event
	if ev.Kind == loop.Recovered {
		if len(o.cfg.EngineCells) == 0 {
			o.due = o.newest(o.l.Version())
		}
		ends := func(slot int32) bool { return len(o.cfg.EngineCells) == 0 || o.cfg.EngineCells[o.engineOf(slot)] == 0 }
		for g, attempts := range o.running {
			for a, slot := range attempts {
				if ends(slot) && o.cfg.ResumeRestart && o.slots[slot] == (looptestAttempt{group: g, sample: a[0], attempt: a[1]}) {
					o.write(g, "seen", 0)
				} else if ends(slot) && !o.cfg.ResumeRestart {
					o.lose(g, a)
				}
			}
		}
		maps.DeleteFunc(o.slots, func(slot int32, _ looptestAttempt) bool { return ends(slot) })
	}
	if ev.Kind == loop.EngineLost && ev.Reason == loop.ReasonRestart && o.cfg.ResumeRestart && len(o.cfg.EngineCells) > 0 && uint(ev.Engine) < uint(len(lost)) && !lost[ev.Engine] && o.cfg.EngineCells[ev.Engine] > 0 {
		o.replaced(int(ev.Engine))
		lost = nil
	}
	for i := range lost {
		if !lost[i] && o.l.Lost(i) && !o.cfg.ResumeLost {
			for slot, a := range o.slots {
				if o.engineOf(slot) == i {
					o.end(slot, a)
				}
			}
		}
	}
	if o.cfg.StaysInCell {
		o.cellsOver(lost)
	}
	o.completion(ev, environment)
	for _, a := range rec.Actions {
		o.action(a)
	}
}

// replaced has attempts go on that another process takes up with an engine, or with all of its cell at its end.
func (o *oracle) replaced(engine int) {
	cell, over := o.cfg.EngineCells[engine], true
	for e, c := range o.cfg.EngineCells {
		over = over && (c != cell || o.l.Lost(e))
	}
	maps.DeleteFunc(o.slots, func(slot int32, a looptestAttempt) bool {
		e := o.engineOf(slot)
		goes := e == engine || over && o.cfg.EngineCells[e] == cell
		if goes && !a.dead {
			o.write(a.group, "seen", 0)
		}
		return goes
	})
}

// cellsOver ends the attempts of cells that have lost the last of their engines, which were lost before or not.
func (o *oracle) cellsOver(before []bool) {
	over := map[int]bool{}
	for e, was := range before {
		over[o.cfg.EngineCells[e]] = over[o.cfg.EngineCells[e]] || !was && o.l.Lost(e) && o.cfg.EngineCells[e] > 0
	}
	for e, cell := range o.cfg.EngineCells {
		over[cell] = over[cell] && o.l.Lost(e)
	}
	for g, attempts := range o.running {
		for a, slot := range attempts {
			if over[o.cfg.EngineCells[o.engineOf(slot)]] {
				o.lose(g, a)
			}
		}
	}
	maps.DeleteFunc(o.slots, func(slot int32, _ looptestAttempt) bool { return over[o.cfg.EngineCells[o.engineOf(slot)]] })
}

func (o *oracle) newest(v loop.Version) loop.Version {
	if !o.cfg.TrainerAsks {
		return v
	}
	return max(v/loop.Version(o.cfg.SyncEvery)*loop.Version(o.cfg.SyncEvery), o.restored)
}

func (o *oracle) nextDue(v loop.Version) loop.Version {
	if o.cfg.TrainerAsks || v >= o.due+loop.Version(o.cfg.SyncEvery) {
		return o.newest(v)
	}
	return o.due
}

func (o *oracle) engineOf(slot int32) int {
	for e, n := range o.cfg.EngineSlots {
		if slot < int32(n) {
			return e
		}
		slot -= int32(n)
	}
	panic("no such slot")
}

func (o *oracle) write(g loop.GroupID, what string, environment int64) {
	o.history[g] = append(o.history[g], happening{what, o.now, o.l.Version(), o.due, environment})
}

// lose ends one attempt of a group without a score.
func (o *oracle) lose(g loop.GroupID, a [2]int32) {
	delete(o.running[g], a)
	if len(o.running[g]) == 0 {
		o.write(g, "lost", 0)
	}
}

// end takes a dead engine's attempt out of its slot.
func (o *oracle) end(slot int32, a looptestAttempt) {
	delete(o.slots, slot)
	if !a.dead {
		o.lose(a.group, [2]int32{a.sample, a.attempt})
	}
}

func (o *oracle) completion(ev loop.Event, environment int64) {
	a, there := o.slots[ev.Slot]
	if !there || a.group != ev.Group || a.sample != ev.Sample || a.attempt != ev.Attempt {
		return
	}
	switch ev.Kind {
	case loop.FirstToken:
		if !a.dead {
			o.write(a.group, "token", 0)
		}
	case loop.RolloutInterrupted:
		delete(o.slots, ev.Slot)
	case loop.RolloutFailed, loop.RolloutAborted:
		o.end(ev.Slot, a)
	case loop.RolloutScored:
		if !a.dead && ev.Mark != loop.MarkPruned && !math.IsNaN(float64(ev.Reward)) && !math.IsInf(float64(ev.Reward), 0) {
			delete(o.slots, ev.Slot)
			delete(o.running[a.group], [2]int32{a.sample, a.attempt})
			o.write(a.group, "scored", environment)
			return
		}
		o.end(ev.Slot, a)
	}
}

func (o *oracle) action(a loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		o.slots[a.Slot] = looptestAttempt{group: a.Group, sample: a.Sample, attempt: a.Attempt}
		if o.running[a.Group] == nil {
			o.running[a.Group] = map[[2]int32]int32{}
		}
		o.running[a.Group][[2]int32{a.Sample, a.Attempt}] = a.Slot
		o.write(a.Group, "began", 0)
	case loop.AbortRollout:
		if s, there := o.slots[a.Slot]; there && s.group == a.Group && s.sample == a.Sample {
			s.dead = true
			o.slots[a.Slot] = s
		}
		if a.Reason != loop.ReasonNone {
			o.lose(a.Group, [2]int32{a.Sample, a.Attempt})
		}
	case loop.GroupQueued, loop.GroupHeld:
		if _, before := o.ready[a.Group]; !before {
			o.ready[a.Group], o.readyBy[a.Group] = a, o.lease
			o.queuedAt[a.Group] = loop.NoVersion
		}
		if a.Kind == loop.GroupQueued && o.queuedAt[a.Group] == loop.NoVersion {
			o.queuedAt[a.Group] = o.l.Version()
		}
	case loop.StartTrainStep:
		o.lease = a.Lease
	case loop.SettingChanged:
		switch a.Setting {
		case loop.SettingSyncEvery:
			o.cfg.SyncEvery = int(a.Value)
		case loop.SettingRedundancy:
			o.cfg.Redundancy = int(a.Value)
		}
	case loop.GroupTrained:
		o.splits[a.Group] = append(o.splits[a.Group], o.split(a))
	}
}

// split looks up what a group was doing whenever a version was made.
func (o *oracle) split(a loop.Action) (s attribution.Split) {
	var begun *happening
	var scored []happening
	token := false
	for _, h := range o.history[a.Group] {
		switch {
		case h.what == "lost" && len(scored) == 0:
			begun, token = nil, false
		case h.what == "began" && begun == nil, h.what == "token" && !token && len(scored) == 0:
			begun, token = &h, h.what == "token"
		case h.what == "seen":
			token = true
		case h.what == "scored":
			scored = append(scored, h)
		}
	}
	mean, environment, made, last := 0.0, 0.0, int64(0), int64(0)
	for _, h := range scored {
		took := h.at - begun.at
		mean += float64(took)
		environment += float64(min(h.environment, took))
		made, last = max(made, took-min(h.environment, took)), took
	}
	mean, environment = math.Floor(mean/float64(len(scored))), math.Floor(environment/float64(len(scored)))
	generating, after := 0.0, 0.0
	for v := a.StartVersion + 1; v <= a.ReadyVersion; v++ {
		switch at := float64(o.madeAt[v-1] - begun.at); {
		case v <= begun.version && v <= begun.due:
			s[attribution.Sync]++
		case v <= begun.version:
			s[attribution.Inner]++
		case at <= mean:
			generating++
		default:
			after++
		}
	}
	inEnvironment := 0.0
	if mean > 0 {
		inEnvironment = generating * min(environment/mean, 1)
	}
	s[attribution.Concurrency] = generating - inEnvironment
	beyond, whole := inEnvironment+after, float64(last)-mean+environment
	saved, waited := float64(last-made), float64(last)-mean
	if saved >= waited && saved > 0 { // the group would have been ready soonest without environments
		s[attribution.Environment] = beyond * min(saved/whole, 1)
		s[attribution.Tail] = beyond - s[attribution.Environment]
	} else if waited > 0 {
		s[attribution.Tail] = beyond * min(waited/whole, 1)
		s[attribution.Environment] = beyond - s[attribution.Tail]
	} else {
		s[attribution.Environment] = beyond
	}
	behind := []loop.Version{}
	for v := a.ReadyVersion + 1; v <= a.Version; v++ {
		if o.made[v-1] <= o.readyBy[a.Group] {
			s[attribution.Fill]++
		} else {
			behind = append(behind, v)
		}
	}
	// Of the others, as many as were made since it was queued belong to the queue, less those of Fill.
	queued := 0.0
	for v := o.queuedAt[a.Group] + 1; v <= a.Version; v++ {
		queued++
	}
	s[attribution.Queue] = min(max(queued-s[attribution.Fill], 0), float64(len(behind)))
	s[attribution.Concurrency] += float64(len(behind)) - s[attribution.Queue]
	return s
}

// wait counts a stretch of time by the state that the loop was in.
func (o *oracle) wait(st loop.Status, dt float64) {
	gone, stopped, active := 0, 0, 0
	syncs := st.SyncTarget != loop.NoVersion
	for i, e := range st.Engines {
		active += e.Active
		switch e.State {
		case "lost", "joining", "away", "starting":
			gone++
		}
		if o.stands(e.State) {
			stopped++
		}
		_ = i
	}
	free := o.cfg.Concurrency() - active
	for _, e := range st.Engines {
		if e.State == "away" || e.State == "starting" {
			continue
		}
		o.there += dt * float64(e.Slots)
		why := "paused"
		switch {
		case e.State == "lost", e.State == "joining":
			why = "blocked"
		case o.stands(e.State), syncs && (o.cfg.Policy == loop.PolicySynchronous || o.cfg.Policy == loop.PolicyThreshold):
			why = "syncing"
		case o.cfg.Start == loop.StartGang && free < o.cfg.GroupSize+o.cfg.Redundancy:
			why = "starved"
		}
		o.engines[why] += dt * float64(e.Slots-e.Active)
	}
	if st.Lease != 0 || o.cfg.TrainerAsks && !st.Asked {
		return
	}
	why := "starved"
	serving := len(st.Engines) - gone
	switch full := st.QueueGroups >= o.cfg.BatchGroups; {
	case full && syncs && o.cfg.TrainerBlocked:
		why = "syncing"
	case full, st.Stopping, st.Finished != loop.ReasonNone:
		why = "paused"
	case serving == 0:
		why = "blocked"
	case stopped == serving, syncs && active == 0:
		why = "syncing"
	case active == 0:
		why = "paused"
	}
	o.trainer[why] += dt
}

func (o *oracle) stands(state string) bool {
	switch o.cfg.Sync {
	case loop.SyncPause:
		return state == "switching"
	case loop.SyncDrain:
		return slices.Contains([]string{"loading", "loaded", "emptying", "switching"}, state)
	case loop.SyncRestart:
		return state == "emptying" || state == "switching"
	}
	return false
}

// TestAgainstRecomputation drives loops of all kinds through faults, stalls and restarts and compares
// every group's parts, and every part of the idle time, with the oracle's.
func TestAgainstRecomputation(t *testing.T) {
	seen := map[string]float64{}
	for seed := range uint64(200) {
		cfg, log := world(t, seed, 500)
		observer, o := attribution.New(cfg), newOracle(t, cfg)
		got := map[loop.GroupID][]attribution.Split{}
		observer.OnGroup = func(g attribution.Group) { got[g.ID] = append(got[g.ID], g.Split) }
		for i, r := range log {
			environment := int64(i%5) * 20e6
			o.observe(r, environment)
			observer.Observe(&r.Event, &metrics.Measured{QueueGroups: o.l.QueueGroups(), EnvironmentNS: environment}, r.Actions)
		}
		for g, splits := range o.splits {
			for i, want := range splits {
				for s := range want {
					if len(got[g]) != len(splits) || math.Abs(got[g][i][s]-want[s]) > 1e-5 {
						t.Fatalf("seed %d: group %d has parts %v, recomputed %v\n%+v", seed, g, got[g], splits, cfg)
					}
					seen[attribution.Source(s).String()] += want[s]
				}
			}
		}
		seen["away"] += float64(o.now)*float64(cfg.Concurrency()) - o.there
		a := observer.Summary()
		for side, pair := range map[string]struct {
			got   attribution.Idle
			want  map[string]float64
			whole float64
		}{"trainer": {a.Trainer, o.trainer, float64(o.now)}, "engines": {a.Engines, o.engines, o.there}} {
			for _, reason := range pair.got.Reasons() {
				if want := pair.want[reason.Name] / pair.whole; math.Abs(reason.Share-want) > 1e-9 {
					t.Errorf("seed %d: the %s %s %.9f of the time, recomputed %.9f\n%+v", seed, side, reason.Name, reason.Share, want, cfg)
				}
				seen[side+" "+reason.Name] += reason.Share
			}
		}
		if t.Failed() {
			return
		}
	}
	for what, sum := range seen {
		if sum == 0 && what != "trainer validating" && what != "engines validating" {
			t.Errorf("%s is 0 in every run: nothing was compared", what)
		}
	}
}
