package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// inCollective runs a test in a bubble, with an engine that serves version 0 by a broadcast.
func inCollective(t *testing.T, test func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, s, e := newDistributed(t)
		serveVersion(t, e, 0)
		test(t, f, s, e)
	})
}

// newDistributed returns an engine that takes its weights from a sender, and has asked for none yet.
func newDistributed(t *testing.T) (*fakeServer, *fakeSender, *Engine) {
	f, s := newFakeServer(t), newFakeSender()
	f.sender, f.caps.UpdateDistributed, f.caps.UpdateDisk, f.caps.Ranks, f.caps.Score = s, true, false, 2, true
	return f, s, newBareEngine(t, f, func(o *Options) {
		o.Dialect, o.Delivery, o.Sender, o.Views = fakeJoiner{fakeDialect{f}}, DeliveryDistributed, s, nil
	})
}

// at checks what the engine serves, that the server serves the same and does not stand paused.
func at(t *testing.T, f *fakeServer, e *Engine, version loop.Version) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := e.Status().Version; got != version || f.paused || version != loop.NoVersion && f.weights != version {
		t.Errorf("the engine counts as serving %d, the server serves %d (paused %v), want %d", got, f.weights, f.paused, version)
	}
}

func (f *fakeServer) count(word string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.log {
		if line == word {
			n++
		}
	}
	return n
}

// Responses go on through switches by broadcast as through others, over one group for all of them.
func TestBroadcastsInFlight(t *testing.T) {
	for _, pause := range []bool{true, false} {
		t.Run(fmt.Sprintf("pause_%v", pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s, e := newDistributed(t)
				f.caps.Pause = pause
				serveVersion(t, e, 0)
				testInFlight(t, f, e, 6)
				at(t, f, e, 6)
				if joins := f.count("join"); joins != 1 || s.met != 1 {
					t.Errorf("%d joins, %d meetings for 7 switches, want one of each", joins, s.met)
				}
			})
		})
	}
}

// A server that was started again is in no group: it meets the sender anew.
func TestBroadcastAfterARestartOfTheServer(t *testing.T) {
	inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
		f.kill()
		if _, err := e.Generate(t.Context(), request(0, 4)); err == nil {
			t.Fatal("a server that is gone has answered")
		}
		f.restart(40)
		serveVersion(t, e, 1)
		at(t, f, e, 1)
		if f.count("part") != 0 {
			t.Error("a server that has never been in the group is told to leave it")
		}
		if s.met != 2 || len(s.groups) != 1 || len(f.groups) != 1 {
			t.Errorf("%d meetings, the sender is in %d groups and the server in %d: want 2, 1, 1", s.met, len(s.groups), len(f.groups))
		}
	})
}

// Whichever side fails, the other does not wait for it, the server is resumed, its weights count as
// unknown, nobody stays in the group, and the next load meets anew.
func TestABroadcastThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(f *fakeServer, s *fakeSender)
		mend func(f *fakeServer, s *fakeSender)
		says string
	}{
		"the sender fails": {
			func(_ *fakeServer, s *fakeSender) { s.fails = errors.New("out of memory") },
			func(_ *fakeServer, s *fakeSender) { s.fails = nil }, "the sender: out of memory"},
		"the server refuses": {
			func(f *fakeServer, _ *fakeSender) { f.failing["/update"] = 1 }, nil, "500"},
		"the server is in no group": {
			func(f *fakeServer, _ *fakeSender) { f.groups = nil }, nil, "it is in no such group"},
		"the sender never sends": {
			func(_ *fakeServer, s *fakeSender) { s.mute = true },
			func(_ *fakeServer, s *fakeSender) { s.mute = false }, "it took longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
				if err := e.Load(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				f.set(func() { c.fail(f, s) })
				err := e.Switch(t.Context(), 1, false)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the switch says %v, want something of %q", err, c.says)
				}
				at(t, f, e, loop.NoVersion)
				if len(s.groups) != 0 || len(f.groups) != 0 {
					t.Errorf("the sender is left in %d groups, the server in %d", len(s.groups), len(f.groups))
				}
				if c.mend != nil {
					c.mend(f, s)
				}
				serveVersion(t, e, 2)
				at(t, f, e, 2)
			})
		})
	}
}

// A sender that began anew between load and switch is met again before anything pauses; where it cannot be,
// the version before is served on.
func TestASenderThatBeganAnew(t *testing.T) {
	inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.lost = errors.New("it has not got it")
		pauses := f.count("pause")
		if err := e.Switch(t.Context(), 1, false); err == nil || f.count("pause") != pauses {
			t.Errorf("the switch says %v after %d pauses, want an error and none", err, f.count("pause")-pauses)
		}
		at(t, f, e, 0)
		s.lost = nil
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		s.restart()
		if err := e.Switch(t.Context(), 2, false); err != nil {
			t.Error(err)
		}
		at(t, f, e, 2)
	})
}

// A sender and a server that never come together end a load.
func TestAMeetingThatHangs(t *testing.T) {
	inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
		s.restart()
		f.set(func() { f.stuck, f.asked = "/join", make(chan struct{}) })
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			if until := e.Status().Until; until.Sub(began) < UpdateDefault || until.Sub(began) > UpdateDefault+time.Minute {
				t.Errorf("it says that the meeting is given up after %v, want about %v", until.Sub(began), UpdateDefault)
			}
		})
		err := e.Load(t.Context(), 1)
		if until := e.Status().Until; !until.IsZero() {
			t.Errorf("after the load it is still to be given up at %v", until)
		}
		if err == nil || !strings.Contains(err.Error(), "have not met within") || time.Since(began) > prepareTries*(UpdateDefault+time.Minute) {
			t.Errorf("after %v loading says %v", time.Since(began), err)
		}
		at(t, f, e, 0)
	})
}

// A sender that is lost while it joins is met again, twice; a server that is gone is not waited for.
func TestMeetingsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		absences, met int
		kill          bool
		says          string
	}{
		"once":             {absences: 1, met: 2},
		"twice":            {absences: 2, met: 3},
		"always":           {absences: 9, met: 3, says: "the sender was lost"},
		"the server's end": {kill: true, met: 1, says: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
				s.restart()
				s.absences, s.met = c.absences, 0
				if c.kill {
					f.kill()
				}
				err := e.Load(t.Context(), 1)
				if c.says == "" && err != nil || c.says != "" && err == nil || s.met != c.met || errors.Is(err, port.ErrEngineDown) != c.kill {
					t.Errorf("after %d meetings loading says %v, want %d and something of %q", s.met, err, c.met, c.says)
				}
				if joined := len(f.groups); !c.kill && (joined == 1) != (err == nil) {
					t.Errorf("the server is left in %d groups", joined)
				}
			})
		})
	}
}

// What cannot be held or does not fit is refused before anything pauses: the version before is served on.
func TestAVersionThatIsNotHeld(t *testing.T) {
	one := Tensor{Name: "w", DType: "float32", Shape: []int64{2}}
	for name, c := range map[string]struct {
		change func(s *fakeSender)
		says   string
	}{
		"it has not got it": {func(s *fakeSender) { s.lost = errors.New("version 1 has been pruned") }, "pruned"},
		"another shape":     {func(s *fakeSender) { s.tensors[1] = []Tensor{{Name: "w", DType: "float32", Shape: []int64{3}}} }, `"w"`},
		"a tensor more":     {func(s *fakeSender) { s.tensors[1] = []Tensor{one, {Name: "x", Shape: []int64{1}}} }, `"x" is new`},
		"one twice":         {func(s *fakeSender) { s.tensors[1] = []Tensor{one, one} }, "2 tensors of 1 names"},
		"none":              {func(s *fakeSender) { s.tensors[1] = []Tensor{} }, "0 tensors"},
	} {
		t.Run(name, func(t *testing.T) {
			inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
				c.change(s)
				pauses := f.count("pause")
				if err := e.Load(t.Context(), 1); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("loading says %v, want something of %q", err, c.says)
				}
				at(t, f, e, 0)
				if f.count("pause") != pauses {
					t.Error("the server was paused")
				}
				if g, err := e.Generate(t.Context(), request(0, 4)); err != nil || g.Versions[3] != 0 {
					t.Errorf("it answers %+v, %v", g, err)
				}
			})
		})
	}
}

// An update after which the log-probs are the old ones has not taken place, unless the weights are the same.
func TestABroadcastThatChangesNothing(t *testing.T) {
	inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
		f.set(func() { f.lazy = true })
		s.digests[1] = "0"
		serveVersion(t, e, 1)
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 2, false); !errors.Is(err, ErrLied) {
			t.Errorf("an update that changed nothing says %v", err)
		}
		f.set(func() { f.lazy = false })
		serveVersion(t, e, 3)
		at(t, f, e, 3)
	})
}

// Without a sender a load waits, and what is served is served on; closing ends the wait and leaves the group.
func TestNoSender(t *testing.T) {
	inCollective(t, func(t *testing.T, f *fakeServer, s *fakeSender, e *Engine) {
		s.away = true
		loading := make(chan error, 1)
		go func() { loading <- e.Load(t.Context(), 1) }()
		time.Sleep(time.Hour)
		if g, err := e.Generate(t.Context(), request(0, 4)); err != nil || g.Versions[3] != 0 {
			t.Errorf("meanwhile it answers %+v, %v", g, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := <-loading; !errors.Is(err, context.Canceled) {
			t.Errorf("the load says %v", err)
		}
		if len(f.groups) != 0 || len(s.groups) != 0 {
			t.Errorf("after closing the server is in %d groups and the sender in %d", len(f.groups), len(s.groups))
		}
	})
}

// A server that joins nothing is refused with what it lacks; a dialect that cannot, and no sender, at once.
func TestNoCollective(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, e := newDistributed(t)
		f.caps.UpdateDistributed = false
		f.caps.Missing = []Missing{{What: "it joins no group", Flag: "another program"}}
		if err := e.Load(t.Context(), 0); !errors.Is(err, ErrLacking) || !strings.Contains(err.Error(), "distributed") || !strings.Contains(err.Error(), "another program") {
			t.Errorf("loading says %v", err)
		}
		for name, o := range map[string]Options{
			"no dialect": {Dialect: fakeDialect{f}, Sender: s},
			"no sender":  {Dialect: fakeJoiner{fakeDialect{f}}},
		} {
			o.Name, o.Slots, o.Delivery, o.Server = "e", 1, DeliveryDistributed, e.opt.Server
			if err := o.Validate(); err == nil {
				t.Errorf("%s: it can be", name)
			}
		}
	})
}
