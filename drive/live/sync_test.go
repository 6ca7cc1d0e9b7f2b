package live_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
)

// TestSyncPhases: every completed sync is told of, with how long each phase took, and
// what failed on the way.
func TestSyncPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots = []int{3, 2}
		w := newWorld(cfg)
		w.engines[0].loadNS, w.engines[1].loadNS = 3_000_000, 11_000_000
		failed := false
		w.engines[1].broken = func(v loop.Version) error {
			if v == 5 && !failed {
				failed = true
				return errors.New("connection reset")
			}
			return nil
		}
		var done []live.SyncDone
		w.change = func(o *live.Options) { o.OnSync = func(d live.SyncDone) { done = append(done, d) } }
		if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, d := range done {
			load, fails := int64(11_000_000), 0
			if d.Version == 5 {
				load, fails = 22_000_000, 1
			}
			if d.Version != loop.Version(i+1) || len(d.Engines) != 2 || d.Failed != fails {
				t.Fatalf("sync %d is %+v", i, d)
			}
			slow := d.Engines[1]
			if d.LoadNS != load || d.WaitNS != 0 || d.SwitchNS != 0 || d.TotalNS != load || slow.LoadNS != load || slow.Failed != fails || d.Engines[0].LoadNS != 3_000_000 {
				t.Errorf("sync %d is %+v", i, d)
			}
		}
		if len(done) != 39 { // the last version ends the run
			t.Errorf("%d syncs were told of, want 39", len(done))
		}
	})
}

// TestSyncSinceARestart: the age of a version that was published before a restart is not
// known, that of later ones is.
func TestSyncSinceARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.engines[0].loadNS = 3_000_000
		r := w.runtime(t, nil)
		w.stopAfter(t, r, 10)
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		resume := w.resume(t)
		at := resume.Loop.Version()
		var done []live.SyncDone
		w.change = func(o *live.Options) { o.OnSync = func(d live.SyncDone) { done = append(done, d) } }
		if _, err := w.runtime(t, resume).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, d := range done {
			if want := d.Version > at; (d.TotalNS == 3_000_000) != want || !want && d.TotalNS != 0 {
				t.Errorf("resumed at version %d: %+v", at, d)
			}
		}
		if len(done) < 20 {
			t.Errorf("only %d syncs", len(done))
		}
	})
}

// TestEngineReportedAsGone: what somebody outside says of an engine is taken once, and
// the engine comes back.
func TestEngineReportedAsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots, cfg.TrainSteps = []int{3, 2}, 80
		w := newWorld(cfg)
		w.change = func(o *live.Options) { o.RejoinAfter = time.Second }
		r := w.runtime(t, nil)
		time.AfterFunc(time.Second, func() {
			for range 3 {
				r.EngineLost("engine-0")
				r.EngineLost("nobody")
			}
		})
		state := func() string { return r.View().Status.Engines[0].State }
		lost, back := lookAt(1500*time.Millisecond, state), lookAt(2500*time.Millisecond, state)
		res, err := r.Run(t.Context())
		if err != nil || !res.Status.Ledger.Balanced() {
			t.Fatal(err)
		}
		if lost, back := <-lost, <-back; lost != "lost" || back == "lost" {
			t.Errorf("the engine was %s, and then %s", lost, back)
		}
		if said := strings.Join(w.logged, "\n"); strings.Count(said, "is lost") != 1 || !strings.Contains(said, "reported as gone") {
			t.Errorf("the log says:\n%s", said)
		}
		replay(t, w)
	})
}
