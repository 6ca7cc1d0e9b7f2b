package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestInterrupts runs to the end under every rule that interrupts, mostly with tools,
// with two engines. Nothing may generate through a switch under restart, every resumed
// sample must say where and under what it went on, and the trace must replay.
func TestInterrupts(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"restart":         func(c *loop.Config) { c.Sync = loop.SyncRestart },
		"restart rolling": func(c *loop.Config) { c.Sync, c.RollingSwitch = loop.SyncRestart, true },
		"spans":           func(c *loop.Config) { c.Sync, c.MaxSpans = loop.SyncRestart, 2 },
		"batch":           func(c *loop.Config) { c.InterruptAtBatch = true },
		"batch, restart, redundancy": func(c *loop.Config) {
			c.InterruptAtBatch, c.Sync, c.Redundancy = true, loop.SyncRestart, 1
		},
		"synchronous": func(c *loop.Config) {
			c.Policy, c.QueueGroups, c.ExtraGroups, c.InterruptAtBatch = loop.PolicySynchronous, 4, 2, true
		},
		"abort": func(c *loop.Config) {
			c.Policy, c.MaxStaleness, c.Abort, c.Sync, c.InterruptAtBatch = loop.PolicyMax, 1, true, loop.SyncRestart, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkInterrupts(t, change) })
		})
	}
}

func checkInterrupts(t *testing.T, change func(*loop.Config)) {
	cfg := asyncConfig()
	cfg.EngineSlots = []int{4, 3}
	change(&cfg)
	w := newWorld(cfg)
	if cfg.MaxSpans > 0 {
		w.work(work{stepNS: 31_000_001}) // weights change several times within a rollout
	} else {
		w.env.toolNS = func(id port.RolloutID) int64 { return int64(id.Group*7+loop.GroupID(id.Sample)*3)%5*9_000_001 + 1 }
	}
	w.env.plays = &plays{}
	resumed, spans := 0, 0
	w.change = func(o *live.Options) {
		o.OnBatch = func(b port.Batch) {
			for _, g := range b.Groups {
				for i := range g.Samples {
					s := &g.Samples[i]
					spans = max(spans, len(s.Spans()))
					if s.Resumed() {
						resumed++
						checkResumed(t, s)
					}
				}
			}
		}
	}
	res, err := w.runtime(t, nil).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || len(w.logged) > 0 {
		t.Errorf("ended by %v, ledger %+v, logged %q", res.Reason, res.Status.Ledger, w.logged)
	}
	if resumed == 0 || spans < 2 {
		t.Errorf("%d resumed samples were trained on, of up to %d spans: the test needs some", resumed, spans)
	}
	if cfg.MaxSpans > 0 && res.Status.Ledger.Cancelled < 20 {
		t.Errorf("ledger %+v: want attempts that were interrupted too often", res.Status.Ledger)
	}
	// In a slot, interrupted, or just aborted: one that was given up must not wait for ever.
	if c := cfg.Concurrency(); w.env.plays.most > 2*c || w.env.plays.now != 0 {
		t.Errorf("up to %d rollouts were played at once in %d slots, %d to the end", w.env.plays.most, c, w.env.plays.now)
	}
	for _, e := range w.engines {
		if cfg.Sync == loop.SyncRestart && e.busySwitches > 0 {
			t.Errorf("%d generations ran through a switch of %s", e.busySwitches, e.name)
		}
	}
	replay(t, w)
	checkCommits(t, w)
}

// checkResumed compares what a sample says of its resumes with its tokens.
func checkResumed(t *testing.T, s *port.Sample) {
	t.Helper()
	low, high := s.StateVersions()
	last := s.Resumes[len(s.Resumes)-1]
	if low < 0 || low > high || s.StateLag() != last.Version-low {
		t.Errorf("%v: state of versions %d to %d, lag %d, resumed at %+v", s.ID, low, high, s.StateLag(), s.Resumes)
	}
	for _, p := range s.Spans() {
		if p.Resumed && s.Versions[p.First] != p.Version || p.First < 1 || p.End <= p.First {
			t.Errorf("%v: span %+v of versions %v", s.ID, p, s.Versions)
		}
	}
	if int(last.At) < len(s.Tokens) && s.Versions[last.At] < last.Version {
		t.Errorf("%v: resumed under version %d, went on with %d", s.ID, last.Version, s.Versions[last.At])
	}
}

// TestTicksHaveTheirInstant: a Tick that comes late, here because no timer ever
// fires, is delivered before what happened after its instant, and names it.
func TestTicksHaveTheirInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.Hold = 0.25
		w := newWorld(cfg)
		w.work(work{stepNS: 101_000_001, slow: true}) // nothing is left to happen before the hold is over
		timers := 0
		w.change = func(o *live.Options) {
			o.Timer = func(d time.Duration) (<-chan time.Time, func() bool) {
				timers++
				return nil, func() bool { return true }
			}
		}
		if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := loop.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		wanted, last, late := loop.NoTick, int64(0), 0
		for _, rec := range w.records(t) {
			if rec.Event == nil {
				continue
			}
			if ev := rec.Event.Event; ev.Kind == loop.Tick && ev.Time != wanted {
				t.Errorf("line %d: a tick at %d, wanted at %d", rec.Line, ev.Time, wanted)
			} else if ev.Kind == loop.Tick && ev.Time > last { // no other event had brought time that far
				late++
			}
			last = rec.Event.Time
			_, wanted = l.Step(rec.Event.Event)
		}
		if late == 0 {
			t.Errorf("%d timers and no late tick: the test needs one", timers)
		}
	})
}
