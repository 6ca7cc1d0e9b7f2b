package theory

import (
	"math"
	"testing"
)

// A pool passes at most what its servers and the slots allow, by Little's law, and comes close to either bound far from
// where they meet. One rollout never waits, and of two behind one server the textbook has the wait.
func TestPoolKeepsItsBounds(t *testing.T) {
	for _, p := range []Pool{{1, 1, 60, 2}, {24, 4, 60, 12}, {128, 3, 28, 2}, {128, 60, 28, 2}, {200_000, 9, 30, 1}, {64, 64, 5, 40}, {50_000, 3000, 60, 6}} {
		f := p.Figures()
		free, most := float64(p.Slots)/(p.AwayS+p.ServiceS), float64(p.Servers)/p.ServiceS
		if f.RolloutsPerS > math.Min(free, most)*(1+1e-9) || f.MostPerS != most || !(f.WaitS >= 0) || math.Abs(f.Busy-f.RolloutsPerS*p.ServiceS) > 1e-9*f.Busy {
			t.Errorf("%+v: %+v, more than %g and %g", p, f, free, most)
		}
		if little := float64(p.Slots) / f.RolloutsPerS; math.Abs(little/(p.AwayS+p.ServiceS+f.WaitS)-1) > 1e-9 {
			t.Errorf("%+v: a rollout takes %g s by Little's law, its parts %+v", p, little, f)
		}
		if bound := math.Min(free, most); math.Abs(free/most-1) > 2 && f.RolloutsPerS < 0.999*bound {
			t.Errorf("%+v: %g rollouts a second of %g", p, f.RolloutsPerS, bound)
		}
	}
	if f := (Pool{1, 1, 60, 2}).Figures(); f.WaitS != 0 {
		t.Errorf("a lone rollout waits %g s", f.WaitS)
	}
	// Two rollouts, one server, both times 1: states weigh 1, 2, 2, so that it works 4/5 of the time.
	if f := (Pool{2, 1, 1, 1}).Figures(); math.Abs(f.RolloutsPerS-0.8) > 1e-12 || math.Abs(f.WaitS-0.5) > 1e-12 {
		t.Errorf("%+v, want 0.8 a second and a wait of 0.5 s", f)
	}
	if f := (Pool{8, 1, 4, 0}).Figures(); f != (PoolFigures{RolloutsPerS: 2}) {
		t.Errorf("a pool that takes no time: %+v", f)
	}
}

// The fewest servers are enough, and one fewer are not.
func TestPoolServersAreTheFewest(t *testing.T) {
	for _, p := range []Pool{{Slots: 128, AwayS: 60, ServiceS: 2}, {Slots: 2048, AwayS: 60, ServiceS: 6}, {Slots: 16, AwayS: 1, ServiceS: 50}} {
		p.Servers = PoolServers(p, 0.01)
		if p.Slowed() > 0.01 {
			t.Errorf("%+v cost %.3g", p, p.Slowed())
		}
		if p.Servers--; p.Servers > 0 && p.Slowed() <= 0.01 {
			t.Errorf("%d servers are enough: %+v cost %.3g", p.Servers, p, p.Slowed())
		}
	}
	if n := PoolServers(Pool{Slots: 9, AwayS: 60}, 0.01); n != 1 {
		t.Errorf("%d servers for what takes no time", n)
	}
}
