package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// world is a runtime on fake ports, inside a synctest bubble.
type world struct {
	cfg     loop.Config
	engines []*fakeEngine
	env     fakeEnvironment
	trainer *fakeTrainer
	weights *fakeWeights
	store   *memoryStore
	logged  []string
	change  func(*live.Options)
	begin   time.Time
	offset  int64
}

func newWorld(cfg loop.Config) *world {
	w := &world{cfg: cfg, weights: &fakeWeights{}, store: &memoryStore{}}
	job := work{stepNS: 101_000_001}
	w.trainer = &fakeTrainer{work: job, weights: w.weights}
	made := &progress{}
	for i, n := range cfg.EngineSlots {
		w.engines = append(w.engines, &fakeEngine{name: fmt.Sprint("engine-", i), slots: n, work: job, progress: made})
	}
	return w
}

// work has engines and trainer take other times.
func (w *world) work(job work) {
	w.trainer.work = job
	for _, e := range w.engines {
		e.work = job
	}
}

// stopAfter stops a run in order after so many train steps.
func (w *world) stopAfter(t *testing.T, r *live.Runtime, steps int) {
	t.Helper()
	timer := time.AfterFunc(time.Duration(steps)*120*time.Millisecond, r.Stop)
	t.Cleanup(func() { timer.Stop() })
}

func (w *world) runtime(t *testing.T, resume *live.Resume) *live.Runtime {
	t.Helper()
	w.begin = time.Now()
	opt := live.Options{
		Header: trace.Header{Loop: w.cfg, Program: "test"}, Environment: w.env, Trainer: w.trainer, Weights: w.weights,
		Store: w.store, Clock: clockFrom(w.offset, w.begin), Resume: resume,
		Logf: func(format string, args ...any) { w.logged = append(w.logged, fmt.Sprintf(format, args...)) },
	}
	for _, e := range w.engines {
		opt.Engines = append(opt.Engines, e)
	}
	if w.change != nil {
		w.change(&opt)
	}
	r, err := live.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// records reads the world's trace back, checksums and all.
func (w *world) records(t *testing.T) []trace.Record {
	t.Helper()
	r, err := trace.NewReader(bytes.NewReader(w.store.log.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var out []trace.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
}

// actions renders the decisions of a trace, those about weights and starts of the
// run left out: their order within one instant is the driver's.
func actions(records []trace.Record) []string {
	var out []string
	for _, rec := range records {
		if rec.Action != nil {
			out = append(out, rec.Action.String())
		}
	}
	return out
}

func asyncConfig() loop.Config {
	return loop.Config{GroupSize: 2, BatchGroups: 2, EngineSlots: []int{5}, QueueGroups: 4, TrainSteps: 40}
}

// TestLiveAgreesWithSimulation drives the same work through the live runtime on a
// fake clock and through the simulator, and compares every decision.
func TestLiveAgreesWithSimulation(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"drop":               func(c *loop.Config) {},
		"newest":             func(c *loop.Config) { c.Select = loop.SelectNewest },
		"max abort":          func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 2, true },
		"block":              func(c *loop.Config) { c.Policy = loop.PolicyBlock },
		"gang":               func(c *loop.Config) { c.Start = loop.StartGang },
		"synchronous":        func(c *loop.Config) { c.Policy, c.QueueGroups = loop.PolicySynchronous, 2 },
		"two engines":        func(c *loop.Config) { c.EngineSlots = []int{3, 2} },
		"pause":              func(c *loop.Config) { c.Sync = loop.SyncPause },
		"drain":              func(c *loop.Config) { c.Sync = loop.SyncDrain },
		"restart":            func(c *loop.Config) { c.Sync = loop.SyncRestart },
		"restart few spans":  func(c *loop.Config) { c.Sync, c.MaxSpans = loop.SyncRestart, 2 },
		"interrupt at batch": func(c *loop.Config) { c.InterruptAtBatch = true },
		"interrupt and restart": func(c *loop.Config) {
			c.InterruptAtBatch, c.Sync, c.EngineSlots = true, loop.SyncRestart, []int{7}
		},
		"surplus": func(c *loop.Config) { c.Policy, c.QueueGroups, c.ExtraGroups = loop.PolicySynchronous, 3, 1 },
		"surplus kept": func(c *loop.Config) {
			c.Policy, c.QueueGroups, c.ExtraGroups, c.InterruptAtBatch = loop.PolicySynchronous, 3, 1, true
		},
		"redundancy": func(c *loop.Config) { c.Redundancy = 1 },
		"bounded":    func(c *loop.Config) { c.Policy, c.Eta, c.QueueGroups = loop.PolicyBounded, 1, 4 },
		"threshold": func(c *loop.Config) {
			c.Policy, c.StalenessThreshold, c.QueueGroups = loop.PolicyThreshold, 0.5, 3
		},
		"replay": func(c *loop.Config) {
			c.Policy, c.MaxUses, c.Gamma, c.QueueGroups = loop.PolicyReplay, 3, 0.9, 6
		},
		"asks":         func(c *loop.Config) { c.TrainerAsks = true },
		"asks max":     func(c *loop.Config) { c.TrainerAsks, c.Policy, c.MaxStaleness, c.Abort = true, loop.PolicyMax, 2, true },
		"asks restart": func(c *loop.Config) { c.TrainerAsks, c.Sync = true, loop.SyncRestart },
		"asks synchronous": func(c *loop.Config) {
			c.TrainerAsks, c.Policy, c.QueueGroups = true, loop.PolicySynchronous, 2
		},
		"hold": func(c *loop.Config) { c.Hold, c.Select = 0.25, loop.SelectNewest },
		// With tools, no two at once: those in tools would answer before those that generate.
		"tools":                    func(c *loop.Config) {},
		"tools restart":            func(c *loop.Config) { c.Sync, c.EngineSlots = loop.SyncRestart, []int{1} },
		"tools interrupt at batch": func(c *loop.Config) { c.InterruptAtBatch, c.EngineSlots = true, []int{2} },
		"tools interrupt, few spans": func(c *loop.Config) {
			c.InterruptAtBatch, c.MaxSpans, c.EngineSlots = true, 1, []int{2}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := asyncConfig()
			change(&cfg)
			job := work{stepNS: 101_000_001}
			if strings.HasPrefix(name, "tools") {
				job = work{stepNS: 301_000_001, tools: true}
			}
			const loadNS = 3_000_001 // rollouts start in between, in both
			const askNS = 7_000_013
			var lived []string
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(cfg)
				w.work(job)
				if job.tools {
					w.env.toolNS = func(id port.RolloutID) int64 {
						return job.Rollout(sim.Rollout{Group: id.Group, Sample: id.Sample, Attempt: id.Attempt}).EnvironmentNS
					}
				}
				for _, e := range w.engines {
					e.loadNS = loadNS
				}
				r := w.runtime(t, nil)
				w.trainer.asks(r, loadNS, askNS)
				if _, err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				lived = actions(w.records(t))
			})
			var simulated []string
			_, err := sim.Run(sim.Config{Loop: cfg, Work: job, NSPerToken: 1, LoadNS: loadNS, AskNS: askNS, Measured: int(cfg.TrainSteps),
				Observe: func(_ loop.Event, _, _ int64, actions []loop.Action) {
					for _, a := range actions {
						simulated = append(simulated, a.String())
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range min(len(lived), len(simulated)) {
				if lived[i] != simulated[i] {
					t.Fatalf("action %d: live %q, simulated %q", i, lived[i], simulated[i])
				}
			}
			if len(lived) != len(simulated) {
				t.Fatalf("%d live actions, %d simulated", len(lived), len(simulated))
			}
			interrupts := cfg.Sync == loop.SyncRestart || cfg.InterruptAtBatch
			if interrupts != slices.ContainsFunc(lived, func(a string) bool { return strings.HasPrefix(a, "interrupt-rollout") }) {
				t.Errorf("rollouts were interrupted: %v, want %v", !interrupts, interrupts)
			}
		})
	}
}

// TestTraceReplays checks that the recorded events give the recorded actions.
func TestTraceReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if res.Reason != loop.ReasonSteps || res.Status.Version != 40 || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v at version %d, ledger %+v", res.Reason, res.Status.Version, res.Status.Ledger)
		}
		l, last := replay(t, w)
		if last.Note != trace.NoteEnd {
			t.Errorf("the trace ends with %+v, want the end note", last)
		}
		if got := l.Ledger(); got != res.Status.Ledger {
			t.Errorf("replayed ledger %+v, live %+v", got, res.Status.Ledger)
		}
		if len(w.logged) > 0 {
			t.Errorf("logged: %v", w.logged)
		}
		if n := len(w.store.samples); n > 10 {
			t.Errorf("payloads of %d groups are kept, want those in flight, queued and leased alone", n)
		}
	})
}

// replay steps a fresh loop through the world's trace and compares all recorded
// actions; those right before a recovery may be missing.
func replay(t *testing.T, w *world) (*loop.Loop, trace.Record) {
	t.Helper()
	l, err := loop.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	var due []string
	var last trace.Record
	for _, rec := range w.records(t) {
		last = rec
		switch {
		case rec.Event != nil:
			if rec.Event.Kind == loop.Recovered {
				due = due[:0]
			}
			actions, _ := l.Step(rec.Event.Event)
			for _, a := range actions {
				due = append(due, a.String())
			}
		case rec.Action != nil:
			if len(due) == 0 || due[0] != rec.Action.String() {
				t.Fatalf("line %d: recorded %q, replayed %v", rec.Line, rec.Action, due)
			}
			due = due[1:]
		}
	}
	return l, last
}

// TestStopAndResume stops gracefully at several moments, and checks that a resumed
// run goes on with versions, queue and ledger intact.
func TestStopAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		var resume *live.Resume
		stops := 0
		for round := range 20 {
			r := w.runtime(t, resume)
			timer := time.AfterFunc(time.Duration(137_000_000*(round+1)), r.Stop)
			res, err := r.Run(t.Context())
			timer.Stop()
			if err != nil {
				t.Fatal(err)
			}
			if res.Reason == loop.ReasonSteps {
				if stops < 3 {
					t.Errorf("stopped %d times, want several", stops)
				}
				l, _ := replay(t, w)
				if l.Version() != 40 || !l.Ledger().Balanced() {
					t.Errorf("version %d, ledger %+v", l.Version(), l.Ledger())
				}
				checkCommits(t, w)
				return
			}
			if res.Reason != loop.ReasonStopped {
				t.Fatalf("stopped by %v", res.Reason)
			}
			stops++
			resume = w.resume(t)
		}
		t.Error("the run never finished")
	})
}

// checkCommits checks that each version was produced by one batch and no group was trained twice.
func checkCommits(t *testing.T, w *world) {
	t.Helper()
	seen := map[loop.GroupID]loop.LeaseID{}
	for _, b := range w.trainer.batches {
		if got := w.weights.leases[b.Version+1]; got != b.Lease {
			t.Errorf("version %d was produced by lease %d and %d", b.Version+1, got, b.Lease)
		}
		for _, g := range b.Groups {
			if old, ok := seen[g.ID]; ok && old != b.Lease && w.cfg.Policy != loop.PolicyReplay {
				t.Errorf("group %d was trained by leases %d and %d", g.ID, old, b.Lease)
			}
			seen[g.ID] = b.Lease
		}
	}
}

// resume recovers the run from its store.
func (w *world) resume(t *testing.T) *live.Resume {
	t.Helper()
	resume, err := live.Recover(w.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range resume.PassedOver {
		t.Error(why)
	}
	w.offset = resume.Loop.Status().TimeNS
	w.trainer.at = resume.Loop.Version()
	return resume
}

// hardRules are settings under which a run that is stopped hard leaves different
// things behind: rollouts in flight; rollouts that stand interrupted, and payloads of
// those that were cut as superfluous; groups that will be trained on again.
var hardRules = map[string]func(*loop.Config){
	"drop": func(c *loop.Config) {},
	"partial": func(c *loop.Config) {
		c.Sync, c.InterruptAtBatch, c.Redundancy, c.MaxSpans, c.OnFailure = loop.SyncRestart, true, 1, 3, loop.ShrinkGroup
	},
	"replay": func(c *loop.Config) { c.Policy, c.MaxUses, c.QueueGroups = loop.PolicyReplay, 3, 6 },
}

// TestHardStopAndResume ends the process' context at many moments: what was under
// way is issued again, and nothing is trained twice that may not be.
func TestHardStopAndResume(t *testing.T) {
	for name, change := range hardRules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				change(&cfg)
				checkHardStops(t, newWorld(cfg))
			})
		})
	}
}

func checkHardStops(t *testing.T, w *world) {
	var resume *live.Resume
	for round := range 200 {
		r := w.runtime(t, resume)
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(53_000_000+13_700_003*round), cancel)
		res, err := r.Run(ctx)
		timer.Stop()
		cancel()
		if err == nil {
			if res.Reason != loop.ReasonSteps || round < 5 {
				t.Fatalf("round %d ended by %v", round, res.Reason)
			}
			l, _ := replay(t, w)
			if !l.Ledger().Balanced() || l.Ledger().Failed == 0 {
				t.Errorf("ledger %+v: want it balanced, with attempts that the restarts ended", l.Ledger())
			}
			checkCommits(t, w)
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		resume = w.resume(t)
	}
	t.Error("the run never finished")
}

// TestScoredMembersAlone: what a machine or a task fails is in no batch, and no group has fewer than its minimum.
func TestScoredMembersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.GroupSize, cfg.OnFailure, cfg.GroupMin, cfg.MaxAttempts = 4, loop.ShrinkGroup, 2, 2
		w := newWorld(cfg)
		dead := func(id port.RolloutID) bool { // for good
			return id.Sample == 1 && id.Group%3 == 0 || id.Sample == 2 && id.Group%5 == 0
		}
		w.env.reward = func(id port.RolloutID) float32 { return 1 + float32(id.Sample) }
		w.env.errOf = func(id port.RolloutID) error {
			switch {
			case id.Sample == 0 && id.Attempt > 1:
				t.Errorf("%v: a task that cannot be scored is played again", id)
			case id.Sample == 0:
				return fmt.Errorf("%w: no answer", port.ErrData)
			case dead(id) || id.Sample == 3 && id.Attempt == 1:
				return errors.New("no route to the machine")
			}
			return nil
		}
		if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes := map[int]int{}
		for _, b := range w.trainer.batches {
			for _, g := range b.Groups {
				sizes[len(g.Samples)]++
				for _, s := range g.Samples {
					if s.ID.Sample == 0 || dead(s.ID) || s.Reward != 1+float32(s.ID.Sample) {
						t.Errorf("trained on %v with the reward %g", s.ID, s.Reward)
					}
				}
			}
		}
		if len(sizes) != 2 || sizes[2] == 0 || sizes[3] == 0 { // a group of which both are dead has one left, and ends
			t.Errorf("groups by their members: %v", sizes)
		}
		replay(t, w)
	})
}

// TestFailures injects faults at every port and expects the run to go on.
func TestFailures(t *testing.T) {
	for name, change := range hardRules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots = []int{3, 2}
				change(&cfg)
				checkFailures(t, newWorld(cfg))
			})
		})
	}
}

func checkFailures(t *testing.T, w *world) {
	w.engines[0].fail = func(id port.RolloutID) error {
		if id.Group%5 == 0 && id.Attempt == 1 {
			return errors.New("out of memory")
		}
		return nil
	}
	loads := 0
	w.engines[1].broken = func(v loop.Version) error {
		if loads++; loads%4 == 3 {
			return errors.New("connection reset")
		}
		return nil
	}
	steps := 0
	w.trainer.fail = func(port.Batch) error {
		if steps++; steps%9 == 4 {
			return errors.New("cuda error")
		}
		return nil
	}
	res, err := w.runtime(t, nil).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || res.Status.Ledger.Failed == 0 {
		t.Errorf("ended by %v, ledger %+v", res.Reason, res.Status.Ledger)
	}
	if len(w.logged) < 3 {
		t.Errorf("logged %q, want every failure", w.logged)
	}
	replay(t, w)
}

// TestBadSamples: what an environment returns is refused when it cannot be trained on.
func TestBadSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.TrainSteps = 5
		w.env.reward = func(id port.RolloutID) float32 {
			if id.Sample == 1 && id.Attempt == 1 {
				return float32(math.NaN())
			}
			return 1
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if res.Status.Ledger.Failed == 0 || !strings.Contains(strings.Join(w.logged, "\n"), "reward NaN") {
			t.Errorf("ledger %+v, logged %q: want failed attempts that name the reward", res.Status.Ledger, w.logged)
		}
	})
}

// TestStalls: a run that can no longer make progress ends with an error that says so.
func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.FilterZeroAdvantage = true // every reward is 1
		if _, err := w.runtime(t, nil).Run(t.Context()); !errors.Is(err, live.ErrStalled) {
			t.Errorf("got %v, want ErrStalled", err)
		}
	})
}

// TestBrokenLog: the run ends with the store's error and starts nothing that is not in the log.
func TestBrokenLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.store.failAppend = 30
		_, err := w.runtime(t, nil).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Fatalf("got %v", err)
		}
		w.store.failAppend = 0
		res, err := w.runtime(t, w.resume(t)).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("resumed: %v, %v\n%s", res.Reason, err, w.store.log.Bytes()[max(0, w.store.log.Len()-3000):])
		}
		checkCommits(t, w)
	})
}

// TestTrainerGivesUp: a step that fails every attempt ends the run with the
// trainer's words, and a trace that replays and can be gone on with.
func TestTrainerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.trainer.fail = func(b port.Batch) error {
			if b.Version == 3 {
				return errors.New("cuda error")
			}
			return nil
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if !errors.Is(err, live.ErrTrainer) || !strings.Contains(err.Error(), "cuda error") || res.Reason != loop.ReasonTrainer {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
		if _, last := replay(t, w); last.Note != trace.NoteEnd {
			t.Errorf("the trace ends with %+v", last)
		}
		w.trainer.fail = nil
		if res, err := w.runtime(t, w.resume(t)).Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("resumed: %v, %v", res.Reason, err)
		}
		checkCommits(t, w)
	})
}

// TestLongStep: however many rollouts end during a train step, it is no stall.
func TestLongStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.TrainSteps = 2
		w.trainer.work.stepNS = 120e9
		if res, err := w.runtime(t, nil).Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
	})
}

// TestBundle: a broken invariant stops the run in order and leaves a bundle.
func TestBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		var bundle []byte
		w.change = func(o *live.Options) {
			o.OnBroken = func(text []byte) { bundle = text }
			o.OnStep = func(d live.StepDone) {
				if d.Point.Step == 5 {
					panic(&loop.InvariantError{What: "the ledger does not balance"})
				}
			}
		}
		_, err := w.runtime(t, nil).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "does not balance") {
			t.Fatalf("got %v", err)
		}
		for _, want := range []string{"does not balance", "train-step-ended", `"Ledger"`} {
			if !strings.Contains(string(bundle), want) {
				t.Errorf("the bundle lacks %q", want)
			}
		}
	})
}
