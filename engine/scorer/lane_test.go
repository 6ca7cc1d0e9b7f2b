package scorer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// home is an address where nobody is.
func home(t *testing.T) *upstream.Server {
	t.Helper()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: "http://nobody.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// An ill server has one call at a time while another is well, and all its slots again once it answers.
func TestOneCallOfTheIll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lane{}
		l.add(Server{Name: "ill", Slots: 3, Home: home(t)})
		l.add(Server{Name: "well", Slots: 1, Home: home(t)})
		ill, well := l.members[0], l.members[1]
		take := func() *member {
			m, err := l.acquire(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			return m
		}
		if m := take(); m != ill {
			t.Fatalf("%s is taken first", m.Name)
		}
		l.release(ill, time.Second, errors.New("hangs"), false)
		if m := take(); m != well {
			t.Errorf("%s is taken, and there is one that is well", m.Name)
		}
		if m := take(); m != ill {
			t.Errorf("%s is taken, and is full", m.Name)
		}
		got := make(chan *member, 3)
		for range 3 {
			go func() { got <- take() }()
		}
		synctest.Wait()
		if len(l.waiting) != 3 || ill.stats.Running != 1 {
			t.Fatalf("%d wait, and the ill server has %d calls", len(l.waiting), ill.stats.Running)
		}
		l.release(ill, time.Second, nil, false)
		synctest.Wait()
		if len(got) != 3 || ill.stats.Running != 3 || len(l.waiting) != 0 {
			t.Errorf("%d were served after it has answered: it has %d calls, and %d wait", len(got), ill.stats.Running, len(l.waiting))
		}
	})
}

// Where no server is well, each has its slots: what waits for a single call that hangs would never fail.
func TestAllAreIll(t *testing.T) {
	l := &lane{}
	l.add(Server{Name: "ill", Slots: 2, Home: home(t)})
	l.members[0].failing = 1
	for range 2 {
		if m, err := l.acquire(t.Context(), nil); m == nil || err != nil {
			t.Fatal(err)
		}
	}
}
