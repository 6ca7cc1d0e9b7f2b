package cell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// TestFollowTakesEachEntryOnce: an entry is executed once and in its place, and one that the cell cannot take is not
// executed at all.
func TestFollowTakesEachEntryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{Followed: 7})
		start := &Entry{Seq: 8, Event: loop.Event{Kind: loop.RunStarted}, Actions: []loop.Action{attempt(loop.StartRollout, 0, 1)}}
		for _, test := range []struct {
			entry *Entry
			want  string // of the error, empty for none
			plays int
		}{
			{&Entry{Seq: 7, Actions: start.Actions}, "", 0},
			{&Entry{Seq: 9, Event: start.Event, Actions: start.Actions}, "goes on with event 9, and the cell has followed it to event 7", 0},
			{&Entry{Seq: 8, Event: loop.Event{Kind: 99}, Actions: start.Actions}, "event 8 of the log is of the kind unknown-99", 0},
			{&Entry{Seq: 8, Event: start.Event, Actions: []loop.Action{start.Actions[0], {Kind: 99}}}, "event 8 of the log has an action of the kind unknown-99", 0},
			{start, "", 1},
			{start, "", 1},
		} {
			err := x.Follow(test.entry)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("event %d: %v, want %q", test.entry.Seq, err, test.want)
			}
			if got := len(x.groups[4]); got != test.plays {
				t.Errorf("event %d: %d attempts, want %d", test.entry.Seq, got, test.plays)
			}
		}
		if got := kinds(x.next(2)); !slices.Equal(got, []loop.EventKind{loop.FirstToken, loop.RolloutScored}) {
			t.Errorf("posted %v", got)
		}
	})
}

// TestFollowLosesEngines: what plays on an engine is aborted once the log says that the engine is lost, by name or because
// a load or a switch is not tried again, and by nothing else.
func TestFollowLosesEngines(t *testing.T) {
	load := func(attempt int32) loop.Action {
		return loop.Action{Kind: loop.LoadWeights, Version: 2, Attempt: attempt}
	}
	failed := func(attempt int32) loop.Event {
		return loop.Event{Kind: loop.SyncFailed, Version: 2, Attempt: attempt}
	}
	lost := loop.Event{Kind: loop.EngineLost}
	gone := func(number int32, why loop.Reason) loop.Event {
		a := attempt(loop.StartRollout, 0, number)
		return loop.Event{Kind: loop.RolloutFailed, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Reason: why}
	}
	for name, test := range map[string]struct {
		rules loop.Config
		do    func(x *told)
		lost  bool
	}{
		"by name":                 {do: func(x *told) { x.on(lost) }, lost: true},
		"by name, and they go on": {rules: loop.Config{ResumeLost: true}, do: func(x *told) { x.on(lost) }},
		"another":                 {do: func(x *told) { x.on(loop.Event{Kind: loop.EngineLost, Engine: 1}) }},
		"none":                    {do: func(x *told) { x.on(loop.Event{Kind: loop.EngineLost, Engine: -1}) }},
		"a load given up":         {do: func(x *told) { x.do(load(1)); x.on(failed(1)) }, lost: true},
		"a load tried again":      {do: func(x *told) { x.do(load(1)); x.on(failed(1), load(2)) }},
		"a load before":           {do: func(x *told) { x.do(load(1)); x.do(load(2)); x.on(failed(1)) }},
		"started before":          {do: func(x *told) { x.do(); x.on(lost) }, lost: true},
		"failed with its cell":    {do: func(x *told) { x.on(gone(1, loop.ReasonRestart)) }, lost: true},
		"another failed with it":  {do: func(x *told) { x.on(gone(2, loop.ReasonRestart)) }},
		"failed in another slot":  {do: func(x *told) { x.on(gone(1, loop.ReasonEngine)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTold(t, Options{Rules: test.rules})
				x.do(attempt(loop.StartRollout, 0, 1))
				test.do(x)
				got := slices.DeleteFunc(kinds(x.next(0)), func(k loop.EventKind) bool { return k == loop.WeightsLoaded })
				if want := test.lost; want != slices.Equal(got, []loop.EventKind{loop.RolloutAborted}) || !want && len(got) > 0 {
					t.Errorf("posted %v, lost: %v", got, want)
				}
			})
		})
	}
}

// TestFollowFromItsHello: as a process of a cell comes, the engines of the one before are lost one after the other. What the loop
// has go on at an engine that it loses next is not begun, and not said to have failed.
func TestFollowFromItsHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{Name: "b", Incarnation: 2, Rules: loop.Config{ResumeLost: true, ResumeRestart: true}, Followed: 7})
		for i, e := range []struct {
			kind    loop.EventKind
			engine  int32
			action  loop.ActionKind
			number  int32
			begins  bool
			because string
		}{
			{loop.EngineLost, 1, loop.ResumeRollout, 1, false, "it is lost by the next entry"},
			{loop.EngineLost, 1, loop.StartRollout, 1, false, "it is lost by the next entry"},
			{loop.EngineLost, 0, loop.GroupQueued, 1, false, "nothing is to begin"},
			{loop.EngineJoined, 0, loop.StartRollout, 1, true, "it is there"},
			{loop.EngineLost, 1, loop.StartRollout, 2, true, "it is there, and another cell's is lost"},
		} {
			a := attempt(e.action, 0, e.number)
			err := x.Follow(&Entry{Seq: int64(8 + i), Event: loop.Event{Kind: e.kind, Engine: e.engine}, Origin: trace.Origin{Cell: "b", Incarnation: 2}, Actions: []loop.Action{a}})
			if err != nil {
				t.Fatal(err)
			}
			if said := kinds(x.next(2)); e.begins != slices.Contains(said, loop.RolloutScored) || slices.Contains(said, loop.RolloutFailed) {
				t.Errorf("entry %d: the cell says %v, though %s", i, said, e.because)
			}
		}
	})
}

// shadow is a cell of some engines that follows the log of a run, whose rollouts end when the log says so, and a model of
// what it is to do.
type shadow struct {
	cell  *Cell
	owns  func(engine int32) bool
	end   context.CancelFunc
	mu    sync.Mutex
	ends  map[port.RolloutID]chan error
	got   []string
	want  []string
	model map[port.RolloutID]*shadowed // the attempt of an ID is 0
	// posted are ends that the log does not have, groups those that have not ended.
	posted map[port.RolloutID]bool
	groups map[loop.GroupID]bool
}

// shadowed is the last attempt at a rollout in a shadow.
type shadowed struct {
	id     port.RolloutID
	engine int32
	parked bool
	ended  bool // its end is posted
}

// shadowEngine is an engine of a shadow.
type shadowEngine struct {
	port.Engine
	index int
	*shadow
}

func (s *shadow) saw(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, fmt.Sprintf(format, args...))
}

func (s *shadow) wants(format string, args ...any) {
	s.want = append(s.want, fmt.Sprintf(format, args...))
}

func (e *shadowEngine) Load(_ context.Context, v loop.Version) error {
	e.saw("load %d v%d", e.index, v)
	return nil
}

func (e *shadowEngine) Switch(_ context.Context, v loop.Version, _ bool) error {
	e.saw("switch %d v%d", e.index, v)
	return nil
}

func (s *shadow) Starting(t port.RolloutRequest) { s.saw("start %v prompt %d", t.ID, t.Prompt) }

func (s *shadow) Play(ctx context.Context, t port.RolloutRequest, _ port.Sampler) (port.Sample, error) {
	s.mu.Lock()
	end := make(chan error, 1)
	s.ends[t.ID] = end
	s.mu.Unlock()
	out := port.Sample{ID: t.ID, Tokens: []int32{1}, LossMask: []uint8{1}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}
	select {
	case err := <-end:
		return out, err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

func (s *shadow) Logged(id port.RolloutID, counted bool) { s.saw("logged %v %v", id, counted) }
func (s *shadow) PutSample(port.Sample) error            { return nil }
func (s *shadow) Discard(id port.RolloutID) error        { s.saw("discard %v", id); return nil }
func (s *shadow) Forget(group loop.GroupID) error        { s.saw("forget %d", group); return nil }

func newShadow(t *testing.T, cfg loop.Config, followed int64, owns func(int32) bool) *shadow {
	s := &shadow{owns: owns, ends: map[port.RolloutID]chan error{}, model: map[port.RolloutID]*shadowed{},
		posted: map[port.RolloutID]bool{}, groups: map[loop.GroupID]bool{}}
	var engines []port.Engine
	for i := range cfg.EngineSlots {
		if engines = append(engines, nil); owns(int32(i)) {
			engines[i] = &shadowEngine{index: i, shadow: s}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	clock := func() int64 { return 0 }
	var err error
	s.end = end
	s.cell, err = New(ctx, Options{Engines: engines, Rules: cfg, Followed: followed, Environment: s, Payloads: s, Clock: clock, Space: &Space{Clock: clock}, Logf: t.Logf,
		Post: func(ev *Event) {
			if ev.Kind != loop.WeightsLoaded && ev.Kind != loop.WeightsSwitched {
				s.saw("%v %v slot %d", ev.Kind, port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}, ev.Slot)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// last is the model's last attempt at what an action or an event names, nil if it is another one.
func (s *shadow) last(group loop.GroupID, sample, attempt int32) *shadowed {
	if m := s.model[port.RolloutID{Group: group, Sample: sample}]; m != nil && m.id.Attempt == attempt {
		return m
	}
	return nil
}

// plays reports whether an attempt of the model holds a slot.
func (m *shadowed) plays() bool { return m != nil && !m.parked && !m.ended }

func (s *shadow) aborts(m *shadowed) {
	if m.plays() {
		s.wants("rollout-aborted %v", m.id)
		s.posted[m.id] = true
	}
	if m.parked {
		s.wants("logged %v false", m.id)
	}
	m.parked, m.ended = false, true
}

// expect has the model take an entry. lost says which engines the loop has lost by it.
func (s *shadow) expect(e *Entry, lost []int32, resumesLost, replay bool) {
	ev := &e.Event
	m := s.last(ev.Group, ev.Sample, ev.Attempt)
	counted := ev.Mark != loop.MarkPruned && !e.Discarded
	switch {
	case !m.plays():
	case ev.Kind == loop.RolloutInterrupted: // by its engine
		s.wants("%v %v", ev.Kind, m.id)
		m.parked = true
		s.cell.groups[ev.Group][ev.Sample].interrupt()
	case ev.Kind == loop.RolloutScored || ev.Kind == loop.RolloutFailed:
		s.mu.Lock()
		end := s.ends[m.id]
		s.mu.Unlock()
		m.ended, s.posted[m.id] = true, true
		s.wants("%v %v", ev.Kind, m.id)
		if ev.Kind == loop.RolloutFailed {
			end <- errors.New("it fails")
			break
		}
		end <- nil
		s.wants("%v %v", loop.FirstToken, m.id) // no engine has told one
		if !counted {
			s.wants("discard %v", m.id)
		}
	}
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		id := port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
		if s.posted[id] && !s.groups[id.Group] { // its abort came when it had ended
			s.wants("forget %d", id.Group)
		}
		if s.posted[id] {
			s.wants("logged %v %v", id, ev.Kind == loop.RolloutScored && counted)
		}
		delete(s.posted, id)
	}
	for i := range e.Actions {
		s.expectAction(&e.Actions[i], replay)
	}
	for _, m := range s.model {
		if slices.Contains(lost, m.engine) && m.plays() && !resumesLost {
			s.aborts(m)
		}
	}
}

func (s *shadow) expectAction(a *loop.Action, replay bool) {
	key := port.RolloutID{Group: a.Group, Sample: a.Sample}
	m := s.last(a.Group, a.Sample, a.Attempt)
	switch a.Kind {
	case loop.StartRollout:
		if old := s.model[key]; old != nil {
			s.aborts(old)
			delete(s.model, key)
		}
		if s.owns(a.Engine) {
			s.model[key] = &shadowed{id: port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}, engine: a.Engine}
			s.groups[a.Group] = true
			s.wants("start %v prompt %d", s.model[key].id, a.Prompt)
		}
	case loop.ResumeRollout:
		switch {
		case !s.owns(a.Engine) && m != nil:
			s.aborts(m)
			delete(s.model, key)
		case s.owns(a.Engine) && m != nil && m.parked:
			m.parked, m.engine = false, a.Engine
		case s.owns(a.Engine):
			if m != nil {
				s.aborts(m)
			}
			s.wants("rollout-failed %v", port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt})
		}
	case loop.InterruptRollout:
		if m.plays() {
			m.parked = true
			s.wants("rollout-interrupted %v", m.id)
		}
	case loop.AbortRollout:
		if m != nil {
			s.aborts(m)
		}
	case loop.LoadWeights:
		if s.owns(a.Engine) {
			s.wants("load %d v%d", a.Engine, a.Version)
		}
	case loop.SwitchWeights:
		if s.owns(a.Engine) {
			s.wants("switch %d v%d", a.Engine, a.Version)
		}
	case loop.GroupTrained, loop.GroupEnded:
		if a.Kind == loop.GroupTrained && replay {
			return
		}
		for key, m := range s.model {
			if key.Group == a.Group {
				s.aborts(m)
				delete(s.model, key)
			}
		}
		delete(s.groups, a.Group)
		s.wants("forget %d", a.Group)
	}
}

// follow has cell and model take an entry, and compares what came of it.
func (s *shadow) follow(e *Entry, lost []int32, cfg loop.Config) error {
	s.want = s.want[:0]
	s.expect(e, lost, cfg.ResumeLost, cfg.Policy == loop.PolicyReplay)
	synctest.Wait() // until ends are posted
	for range 2 {   // the second time executes nothing
		if err := s.cell.Follow(e); err != nil {
			return err
		}
		synctest.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], " slot")
	}
	slices.Sort(got)
	slices.Sort(s.want)
	if !slices.Equal(got, s.want) {
		return fmt.Errorf("did %q, want %q", got, s.want)
	}
	for key, m := range s.model {
		if p := s.cell.groups[key.Group][key.Sample]; p == nil || p.task.ID != m.id || p.at != m.engine {
			return fmt.Errorf("%v is to be on engine %d, and %+v is there", m.id, m.engine, p)
		}
	}
	return nil
}

// gaveBack reports whether the loop has lost an engine because it has given it back, empty.
func gaveBack(ev loop.Event, actions []loop.Action, engine int32) bool {
	fails := (ev.Kind == loop.EngineLost || ev.Kind == loop.SyncFailed) && ev.Engine == engine
	return !fails && slices.ContainsFunc(actions, func(a loop.Action) bool { return a.Kind == loop.ReleaseEngine && a.Engine == engine })
}

// TestCellsFollowAnyRun: a cell that follows the log of a run does what the log says of its engines, once, and nothing of
// others. All runs are drawn, and so is which engines are the cell's.
func TestCellsFollowAnyRun(t *testing.T) {
	seeds, events := uint64(100), 400
	if testing.Short() {
		seeds = 30
	}
	did := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			plan := looptest.Draw(seed)
			w, err := looptest.NewWorld(plan)
			if err != nil {
				t.Fatal(err)
			}
			w.Keep = true
			if err := w.Run(events); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			l, err := loop.New(plan.Config)
			if err != nil {
				t.Fatal(err)
			}
			cfg, r := l.Config(), rand.New(rand.NewPCG(seed, 0))
			mine := r.Uint64()
			owners := []func(int32) bool{
				func(int32) bool { return true },
				func(engine int32) bool { return mine>>engine&1 == 0 },
				func(engine int32) bool { return mine>>engine&1 == 1 },
			}
			cells, seq := make([]*shadow, len(owners)), int64(0)
			renew := func() {
				for i := range cells {
					if cells[i] != nil {
						cells[i].end()
						cells[i].cell.Wait()
					}
					cells[i] = newShadow(t, cfg, seq, owners[i])
				}
			}
			renew()
			for _, rec := range w.Log {
				var lost []int32
				for i := range cfg.EngineSlots {
					if !l.Lost(i) {
						lost = append(lost, int32(i))
					}
				}
				actions, _ := l.Step(rec.Event)
				lost = slices.DeleteFunc(lost, func(e int32) bool { return !l.Lost(int(e)) || gaveBack(rec.Event, actions, e) })
				if !rec.Event.Kind.Known() {
					if cells[0].cell.Follow(&Entry{Seq: seq + 1, Event: rec.Event}) == nil {
						t.Fatalf("seed %d: %v was executed", seed, rec.Event)
					}
					continue
				}
				if rec.Event.Kind == loop.Recovered { // a process takes the place of the one before
					renew()
				}
				seq++
				e := &Entry{Seq: seq, Event: rec.Event, Discarded: rec.Event.Kind == loop.RolloutScored && r.IntN(4) == 0, Actions: actions}
				for i, s := range cells {
					if err := s.follow(e, lost, cfg); err != nil {
						t.Fatalf("seed %d, cell %d, event %d, %v, %v: %v", seed, i, seq, e.Event, e.Actions, err)
					}
					for _, word := range s.want {
						kind, _, _ := strings.Cut(word, " ")
						did[kind]++
					}
				}
			}
			for _, s := range cells {
				s.end()
				s.cell.Wait()
			}
		})
	}
	t.Logf("%v", did)
	for _, kind := range []string{"start", "load", "switch", "rollout-interrupted", "rollout-aborted", "rollout-failed", "rollout-scored", "logged", "discard", "forget"} {
		if did[kind] < 100 {
			t.Errorf("%d times %s: the test needs more", did[kind], kind)
		}
	}
}

// TestDiscardsWhatAnotherProcessPut: the cell in the writer's process drops the payload of another cell's score that does not
// count, and no other cell does.
func TestDiscardsWhatAnotherProcessPut(t *testing.T) {
	for name, discards := range map[string]bool{"": true, "c": false} {
		kept := &keeper{}
		clock := func() int64 { return 0 }
		c, err := New(t.Context(), Options{Name: name, Incarnation: 1, Payloads: kept, Environment: &shadow{}, Clock: clock, Space: &Space{Clock: clock}, Post: func(*Event) {}, Logf: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		scored := func(seq int64, attempt int32, discarded bool) {
			e := Entry{Seq: seq, Event: loop.Event{Kind: loop.RolloutScored, Group: 4, Attempt: attempt}, Origin: trace.Origin{Cell: "b", Incarnation: 1, Sequence: seq}, Discarded: discarded}
			if err := c.Follow(&e); err != nil {
				t.Fatal(err)
			}
		}
		if name != "" {
			e := Entry{Event: loop.Event{Kind: loop.EngineJoined}, Origin: trace.Origin{Cell: name, Incarnation: 1, Sequence: 1}}
			if err := c.Follow(&e); err != nil {
				t.Fatal(err)
			}
		}
		scored(1, 1, true)
		scored(2, 2, false)
		var want []port.RolloutID
		if discards {
			want = []port.RolloutID{{Group: 4, Attempt: 1}}
		}
		if !slices.Equal(kept.discarded, want) {
			t.Errorf("the cell %q has discarded %v, want %v", name, kept.discarded, want)
		}
	}
}
