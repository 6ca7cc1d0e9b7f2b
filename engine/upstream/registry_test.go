package upstream

import (
	"slices"
	"testing"
	"testing/synctest"
)

// fakeRegistry is a CollectiveRegistry of one engine.
type fakeRegistry struct{ names []string }

func (b *fakeRegistry) Joining(_, group string) { b.names = append(b.names, group) }

func (b *fakeRegistry) Left(_, group string) {
	b.names = slices.DeleteFunc(b.names, func(name string) bool { return name == group })
}

func (b *fakeRegistry) Remembered(string) []string { return slices.Clone(b.names) }

// withRegistry runs a test with an engine whose server is in a group of a process before, which is remembered with
// one more that the server is not in.
func withRegistry(t *testing.T, test func(t *testing.T, f *fakeServer, s *fakeSender, b *fakeRegistry, e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, s, e := newDistributed(t)
		b := &fakeRegistry{names: []string{"not there", "before"}}
		e.opt.Groups, f.groups = b, map[string]bool{"before": true}
		test(t, f, s, b, e)
	})
}

// remembers fails unless the registry has these groups, and the server was told so often to leave one.
func (b *fakeRegistry) remembers(t *testing.T, f *fakeServer, parts int, names ...string) {
	t.Helper()
	if got := f.count("part"); !slices.Equal(b.names, names) || got != parts {
		t.Errorf("%d times told to leave, remembered are %q; want %d and %q", got, b.names, parts, names)
	}
}

// A server leaves the groups of a process before this one when it joins the next; what it is in is remembered
// until it has left.
func TestGroupsOfAProcessBefore(t *testing.T) {
	withRegistry(t, func(t *testing.T, f *fakeServer, s *fakeSender, b *fakeRegistry, e *Engine) {
		serveVersion(t, e, 0)
		b.remembers(t, f, 2, "e-1")
		if len(f.groups) != 1 || !f.groups["e-1"] {
			t.Errorf("the server is in the groups %v", f.groups)
		}
		serveVersion(t, e, 1)
		s.restart()
		serveVersion(t, e, 2)
		b.remembers(t, f, 3, "e-2")
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		b.remembers(t, f, 4)
	})
}

// A server that says nothing to that joins all the same, and is told again before the next group; so is
// one that was out of reach when its group was given up.
func TestAServerThatDoesNotLeave(t *testing.T) {
	withRegistry(t, func(t *testing.T, f *fakeServer, s *fakeSender, b *fakeRegistry, e *Engine) {
		f.set(func() { f.stuck, f.asked = "/part", make(chan struct{}) })
		serveVersion(t, e, 0)
		b.remembers(t, f, 1, "not there", "before", "e-1")
		f.set(func() { f.stuck = "" })
		s.restart()
		e.counts.losses.Add(1)
		serveVersion(t, e, 1)
		b.remembers(t, f, 4, "e-2")
		if len(f.groups) != 1 {
			t.Errorf("the server is in the groups %v", f.groups)
		}
		f.set(func() { f.stuck, f.asked = "/part", make(chan struct{}) })
		s.restart()
		serveVersion(t, e, 2)
		b.remembers(t, f, 5, "e-2", "e-3") // of a group that was given up just now it is asked once
	})
}
