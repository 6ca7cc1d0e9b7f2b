package track_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/track"
)

// phaseNames are loop.EngineStatus's words of the phases.
var phaseNames = [...]string{track.Apart: "serving", track.Loading: "loading", track.Loaded: "loaded", track.Emptying: "emptying", track.Switching: "switching"}

// TestRunAgreesWithLoop drives loops of all kinds through faults, late events and garbage, and compares what is tracked with
// the loop's own word after every step. The run is written and read again now and then.
func TestRunAgreesWithLoop(t *testing.T) {
	steps, parked, lost := 0, 0, 0
	for seed := range uint64(200) {
		plan := looptest.Draw(seed).WithCells()
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep = true
		if err := w.Run(500); err != nil {
			t.Fatal(err)
		}
		l, err := loop.New(plan.Config)
		if err != nil {
			t.Fatal(err)
		}
		run := new(track.Run)
		*run = track.New(plan.Config)
		for i, r := range w.Log {
			actions, _ := l.Step(r.Event)
			run.Event(&r.Event)
			for k := range actions {
				run.Action(&actions[k])
			}
			run.Done(&r.Event)
			if bad := disagreement(run, l); bad != "" {
				got, _ := json.Marshal(run.State)
				t.Fatalf("seed %d, step %d, %v %v: %s\n%s\n%+v", seed, i, r.Event, actions, bad, got, l.Status())
			}
			steps, parked = steps+1, parked+run.Parked.Len()
			for e := range run.Engines {
				if run.Engines[e].Gone {
					lost++
				}
			}
			if i%37 == 0 {
				run = again(t, run, plan.Config)
			}
		}
	}
	if steps < 50000 || parked < 1000 || lost < 1000 {
		t.Errorf("%d steps, %d parked attempts and %d lost engines seen: too few to say anything", steps, parked, lost)
	}
}

// again is the run that goes on from another's state, through JSON.
func again(t *testing.T, run *track.Run, cfg loop.Config) *track.Run {
	t.Helper()
	data, err := json.Marshal(run.State)
	if err != nil {
		t.Fatal(err)
	}
	var s track.State
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	restored := track.New(cfg)
	if !restored.Restore(s) {
		t.Fatalf("a run's own state was refused: %s", data)
	}
	return &restored
}

// disagreement says where a run and its loop differ, empty for nowhere.
func disagreement(run *track.Run, l *loop.Loop) string {
	st := l.Status()
	active := int64(0)
	for i, e := range st.Engines {
		tracked := &run.Engines[i]
		active += int64(e.Active)
		slots, _ := run.On(tracked)
		runs := 0
		for k := range slots {
			if slots[k].Runs {
				runs++
			}
		}
		switch {
		case e.Active != runs || e.Active != int(tracked.Active):
			return "slots taken of an engine"
		case slices.Contains(phaseNames[:], e.State) && (tracked.Gone || phaseNames[tracked.Phase] != e.State):
			return "phase of an engine"
		case e.Version != loop.NoVersion && e.Version != tracked.Served:
			return "version served"
		case (e.Version == loop.NoVersion) != tracked.Gone:
			return "engine gone"
		case (e.State == "away" || e.State == "starting") && !tracked.Away, e.State != "away" && e.State != "starting" && tracked.Away:
			return "engine away"
		}
	}
	switch {
	case st.Version != run.Version:
		return "trainer's version"
	case active != run.Active:
		return "slots taken"
	case st.Backlog != run.Parked.Len():
		return "interrupted attempts"
	case (st.Lease != 0) != run.Lease.Runs || st.Lease != 0 && st.Lease != run.Lease.ID:
		return "batch at the trainer"
	case st.Asked != run.Asked:
		return "asked for a batch"
	case (st.SyncTarget != loop.NoVersion) != run.Sync.Runs:
		return "weight sync"
	}
	return ""
}

// A weight sync keeps a trainer waiting by the rules, by engines that stop for it, or with nothing else under way.
func TestSyncHolds(t *testing.T) {
	for name, c := range map[string]struct {
		mode    loop.SyncMode
		blocked bool
		active  int64
		phases  []track.Phase
		want    bool
	}{
		"engines generate on":             {loop.SyncInFlight, false, 2, []track.Phase{track.Loading, track.Switching}, false},
		"the trainer waits by the rules":  {loop.SyncInFlight, true, 2, []track.Phase{track.Loading, track.Loading}, true},
		"nothing generates":               {loop.SyncInFlight, false, 0, []track.Phase{track.Loading, track.Loading}, true},
		"weights load beside generating":  {loop.SyncPause, false, 2, []track.Phase{track.Loading, track.Loaded}, false},
		"all engines switch":              {loop.SyncPause, false, 2, []track.Phase{track.Switching, track.Switching}, true},
		"half of the engines drain":       {loop.SyncDrain, false, 2, []track.Phase{track.Loading, track.Apart}, true},
		"one of three engines is drained": {loop.SyncDrain, false, 2, []track.Phase{track.Loading, track.Apart, track.Apart}, false},
	} {
		slots := make([]int, len(c.phases))
		for i := range slots {
			slots[i] = 1
		}
		run := track.New(loop.Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 1, EngineSlots: slots, Sync: c.mode, TrainerBlocked: c.blocked})
		if run.Active = c.active; run.SyncHolds() {
			t.Errorf("%s: held without a sync", name)
		}
		run.Sync.Runs = true
		for i, phase := range c.phases {
			run.Engines[i].Phase = phase
		}
		if got := run.SyncHolds(); got != c.want {
			t.Errorf("%s: held %v", name, got)
		}
	}
}
