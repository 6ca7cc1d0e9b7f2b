package loop_test

import (
	"fmt"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// treadmill keeps a loop in its steady state without allocating: rollouts end in
// a fixed pattern, a train step takes as many rollouts as it consumes, weights
// are switched at once.
type treadmill struct {
	loop *loop.Loop
	ev   loop.Event
	// running[slot] is the attempt in the slot; next goes round the slots by a
	// stride, so that groups end out of order.
	running []loop.Event
	next    int
	stride  int
	lease   loop.Action
	// left counts the rollouts until the train step ends.
	left  int
	batch int
	// queue of events at this instant; the loop answers to each at most once per engine.
	todo []loop.Event
}

func newTreadmill(tb testing.TB, cfg loop.Config) *treadmill {
	l, err := loop.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	n := cfg.Concurrency()
	m := &treadmill{loop: l, running: make([]loop.Event, n), stride: 7, batch: cfg.BatchGroups * cfg.GroupSize,
		todo: make([]loop.Event, 0, 16+4*len(cfg.EngineSlots)+n)}
	m.step(loop.Event{Kind: loop.RunStarted})
	return m
}

// step delivers an event and everything that follows from it at this instant.
func (m *treadmill) step(ev loop.Event) {
	m.todo = m.todo[:0]
	m.one(ev)
	for i := 0; i < len(m.todo); i++ {
		m.one(m.todo[i])
	}
}

func (m *treadmill) one(ev loop.Event) {
	actions, tick := m.loop.Step(ev)
	for k := range actions {
		m.answer(&actions[k])
	}
	if tick == m.ev.Time {
		m.todo = append(m.todo, loop.Event{Time: tick, Kind: loop.Tick})
	}
}

func (m *treadmill) answer(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		r := &m.running[a.Slot]
		r.Kind, r.Slot, r.Group, r.Sample, r.Attempt, r.Reward = loop.RolloutScored, a.Slot, a.Group, a.Sample, a.Attempt, float32(a.Sample)
		r.Mark = loop.MarkNone
		if a.Sample%2 == 0 {
			r.Mark = loop.MarkSolved
		}
	case loop.InterruptRollout:
		m.running[a.Slot].Kind = 0
		m.todo = append(m.todo, loop.Event{Time: m.ev.Time, Kind: loop.RolloutInterrupted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Tokens: 1})
	case loop.AbortRollout:
		if a.Slot < 0 {
			return
		}
		m.running[a.Slot].Kind = 0
		m.todo = append(m.todo, loop.Event{Time: m.ev.Time, Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt})
	case loop.StartTrainStep:
		m.lease, m.left = *a, m.batch
	case loop.LoadWeights:
		m.todo = append(m.todo, loop.Event{Time: m.ev.Time, Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt})
	case loop.SwitchWeights:
		m.todo = append(m.todo, loop.Event{Time: m.ev.Time, Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt})
	}
}

// complete ends one rollout, and the train step if it is its time.
func (m *treadmill) complete() {
	m.ev.Time++
	if m.lease.Lease != 0 {
		if m.left--; m.left <= 0 {
			m.finishStep()
		}
	}
	for range len(m.running) {
		if m.next += m.stride; m.next >= len(m.running) {
			m.next -= len(m.running)
		}
		if r := &m.running[m.next]; r.Kind != 0 {
			ev := *r
			ev.Time, r.Kind = m.ev.Time, 0
			m.step(ev)
			return
		}
	}
	m.left = 0 // everything waits for the trainer
	if m.lease.Lease != 0 {
		m.finishStep()
	}
}

func (m *treadmill) finishStep() {
	l := m.lease
	m.lease = loop.Action{}
	m.step(loop.Event{Time: m.ev.Time, Kind: loop.TrainStepEnded, Lease: l.Lease, Attempt: l.Attempt, Version: l.Version + 1})
}

// steady are the settings whose steady state is measured.
func steady(concurrency int) map[string]loop.Config {
	base := loop.Config{GroupSize: 8, BatchGroups: concurrency / 8, QueueGroups: concurrency / 4, EngineSlots: []int{concurrency / 2, concurrency / 2}}
	with := func(change func(*loop.Config)) loop.Config {
		c := base
		change(&c)
		return c
	}
	return map[string]loop.Config{
		"drop":      base,
		"max":       with(func(c *loop.Config) { c.Policy, c.MaxStaleness = loop.PolicyMax, 1 }),
		"max-abort": with(func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 1, true }),
		"block":     with(func(c *loop.Config) { c.Policy = loop.PolicyBlock }),
		"synchronous": with(func(c *loop.Config) {
			c.Policy, c.QueueGroups = loop.PolicySynchronous, c.BatchGroups
		}),
		"gang":           with(func(c *loop.Config) { c.Start = loop.StartGang }),
		"newest":         with(func(c *loop.Config) { c.Select = loop.SelectNewest }),
		"oldest-version": with(func(c *loop.Config) { c.Select = loop.SelectOldestVersion }),
		"drain":          with(func(c *loop.Config) { c.Sync = loop.SyncDrain }),
		"pause-rolling":  with(func(c *loop.Config) { c.Sync, c.RollingSwitch = loop.SyncPause, true }),
		"filter":         with(func(c *loop.Config) { c.FilterZeroAdvantage = true }),
		"bounded": with(func(c *loop.Config) {
			c.Policy, c.Eta, c.QueueGroups, c.Sync = loop.PolicyBounded, 1, 2*c.BatchGroups, loop.SyncRestart
		}),
		"threshold": with(func(c *loop.Config) {
			c.Policy, c.StalenessThreshold, c.SyncEvery = loop.PolicyThreshold, 0.5, 2
			c.QueueGroups = 3 * c.BatchGroups
			c.Sync, c.RollingSwitch = loop.SyncRestart, true
		}),
		"replay": with(func(c *loop.Config) {
			c.Policy, c.MaxUses, c.Gamma, c.Prompts, c.Balance = loop.PolicyReplay, 2, 0.95, 50, true
		}),
		"replay-drift": with(func(c *loop.Config) { c.Policy, c.MaxUses, c.Evict = loop.PolicyReplay, 3, loop.EvictDrift }),
		"interrupt":    with(func(c *loop.Config) { c.InterruptAtBatch, c.MaxSpans = true, 2 }),
		"redundancy":   with(func(c *loop.Config) { c.Redundancy = 2 }),
		"extra": with(func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.QueueGroups = loop.PolicySynchronous, 2, c.BatchGroups+2
		}),
		"curriculum": with(func(c *loop.Config) {
			c.Levels, c.Explore, c.SolveLow, c.SolveHigh, c.FilterSolveRate, c.Requeue, c.Prompts = 5, 0.1, 0.4, 0.6, true, true, 100
		}),
		"hold": with(func(c *loop.Config) { c.Hold = 0.2 }),
		"controlled": with(func(c *loop.Config) {
			c.Redundancy = 1
			c.Control = &loop.Control{Mean: 1.5, Share: 0.9, Within: 2, Tokens: true, Ranges: [...]loop.Range{
				loop.SettingSlots: {Least: 8, Most: float64(concurrency)}, loop.SettingLive: {Least: 0, Most: float64(concurrency)},
				loop.SettingHold: {Most: 0.3}, loop.SettingQueue: {Least: float64(c.BatchGroups), Most: float64(c.QueueGroups)},
				loop.SettingRedundancy: {Most: 1}, loop.SettingSyncEvery: {Least: 1, Most: 2}, loop.SettingEngines: {}}}
		}),
	}
}

// TestStepAllocates requires that no policy allocates in its steady state.
func TestStepAllocates(t *testing.T) {
	for name, cfg := range steady(64) {
		t.Run(name, func(t *testing.T) {
			m := newTreadmill(t, cfg)
			for range 20000 {
				m.complete()
			}
			before := m.loop.Version()
			if n := testing.AllocsPerRun(5000, m.complete); n != 0 {
				t.Errorf("%v allocations per rollout completion, want none", n)
			}
			if m.loop.Version() < before+10 {
				t.Errorf("version went from %d to %d, the treadmill does not run", before, m.loop.Version())
			}
		})
	}
}

// BenchmarkBacklog reports nanoseconds per rollout in a slot and per batch, each of which interrupts all rollouts to
// have them wait for a slot: more of them must not make each dearer.
func BenchmarkBacklog(b *testing.B) {
	for _, concurrency := range []int{1024, 8192, 32768} {
		b.Run(fmt.Sprintf("C=%d", concurrency), func(b *testing.B) {
			cfg := steady(concurrency)["interrupt"]
			cfg.BatchGroups, cfg.QueueGroups, cfg.MaxSpans = 16, 32, 0
			m := newTreadmill(b, cfg)
			const steps = 4
			b.ReportAllocs()
			for b.Loop() {
				for last := m.loop.Version() + steps; m.loop.Version() < last; {
					m.complete()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*steps*concurrency), "ns/rollout")
		})
	}
}

// BenchmarkSnapshot measures a snapshot of as many rollouts: the copy, for which a run waits, and the text, for which it
// does not.
func BenchmarkSnapshot(b *testing.B) {
	for _, concurrency := range []int{8192, 131072} {
		m := newTreadmill(b, steady(concurrency)["drop"])
		for range 2 * concurrency {
			m.complete()
		}
		text := m.loop.Capture()
		b.Run(fmt.Sprintf("C=%d/copy", concurrency), func(b *testing.B) {
			for b.Loop() {
				text = m.loop.Capture()
			}
		})
		b.Run(fmt.Sprintf("C=%d/text", concurrency), func(b *testing.B) {
			for b.Loop() {
				state, err := text()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(state)), "bytes")
			}
		})
	}
}

// BenchmarkStep reports nanoseconds per rollout completion, everything that
// follows from it included: starts, batches, train steps and weight syncs.
func BenchmarkStep(b *testing.B) {
	for _, concurrency := range []int{128, 1024} {
		configs := steady(concurrency)
		for _, name := range []string{"drop", "max", "max-abort", "block", "synchronous", "gang", "oldest-version", "drain",
			"bounded", "threshold", "replay", "interrupt", "redundancy", "curriculum", "hold"} {
			b.Run(fmt.Sprintf("C=%d/%s", concurrency, name), func(b *testing.B) {
				m := newTreadmill(b, configs[name])
				for range 10 * concurrency {
					m.complete()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					m.complete()
				}
			})
		}
	}
}
