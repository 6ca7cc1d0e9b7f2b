package pool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/sandbox"
)

// As many boxes stand ready as are asked for while one starts, and go when nobody asks.
func TestWarmBoxesFollowDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.create = func(int) (time.Duration, error) { return 500 * time.Millisecond, nil }
		p := opened(t, d, Options{WarmMin: 1, WarmMax: 50, Starting: 20})
		time.Sleep(time.Minute)
		if s := p.Status(); s.Warm != 1 || s.WarmWanted != 1 {
			t.Fatalf("nobody asks, and %d of %d are warm; want the least, 1", s.Warm, s.WarmWanted)
		}
		draw := rand.New(rand.NewPCG(7, 7))
		before := p.Status()
		for range 2000 { // 10 a second, at random: 5 while one starts
			time.Sleep(time.Duration(draw.ExpFloat64() * float64(100*time.Millisecond)))
			l := lease(t, p, "a")
			go func() {
				if err := l.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				_ = l.Close(t.Context())
			}()
		}
		s := p.Status()
		if s.WarmWanted < 7 || s.WarmWanted > 14 {
			t.Errorf("10 boxes a second that start in 0.5 s: %d are to stand ready, want 5 and twice its root", s.WarmWanted)
		}
		if share := float64(s.Hits-before.Hits) / 2000; share < 0.9 {
			t.Errorf("%.1f %% of the leases found a box that stood ready", 100*share)
		}
		time.Sleep(10 * time.Minute)
		if s := p.Status(); s.Warm != 1 {
			t.Errorf("10 minutes after the last lease %d boxes stand ready, want 1", s.Warm)
		}
		ended(t, p, d)
	})
}

// A box that died while it stood ready is never handed out.
func TestDeadBoxesAreNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMin: 3})
		time.Sleep(time.Second + time.Millisecond)
		ids, _ := d.List(t.Context(), "run")
		for _, id := range ids {
			d.kill(id)
		}
		l := lease(t, p, "a")
		if _, err := l.Run(t.Context(), program); err != nil || slices.Contains(ids, l.ID()) {
			t.Errorf("got %s of the dead %v: %v", l.ID(), ids, err)
		}
		s := p.Status()
		if s.Failures[string(sandbox.Lost)] < 1 || s.Hits != 0 {
			t.Errorf("status %+v", s)
		}
		ended(t, p, d)
	})
}

// A box that died while it stood ready is replaced before anybody asks.
func TestDeadBoxesAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMin: 3})
		time.Sleep(time.Second + time.Millisecond)
		ids, _ := d.List(t.Context(), "run")
		d.kill(ids[1])
		time.Sleep(checkEvery + 2*tendEvery)
		if s := p.Status(); s.Failures[string(sandbox.Lost)] != 1 || s.Warm != 3 || d.there() != 3 {
			t.Errorf("%d boxes, %+v", d.there(), s)
		}
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil || l.Started() != time.Millisecond {
			t.Errorf("a box that stood ready took %v: %v", l.Started(), err)
		}
		if s := p.Status(); s.Hits != 1 {
			t.Errorf("status %+v", s)
		}
		ended(t, p, d)
	})
}

// A pool that closes while it checks a box ends that, too, and holds it for no failure.
func TestClosingWhileABoxIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMin: 1})
		time.Sleep(checkEvery + tendEvery + 500*time.Microsecond)
		if s := p.Status(); s.Warm != 1 || p.checking != 1 {
			t.Fatalf("no box is being checked: %+v", s)
		}
		ended(t, p, d)
		if s := p.Status(); len(s.Failures) != 0 {
			t.Errorf("failures of a pool that was closed: %v", s.Failures)
		}
	})
}

// A warm pool on a sick backend tries no more than the breaker lets it, and recovers by itself.
func TestWarmBoxesOfASickBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		var well atomic.Bool
		d.create = func(int) (time.Duration, error) {
			if !well.Load() {
				return 0, errStart
			}
			return 10 * time.Millisecond, nil
		}
		p := opened(t, d, Options{WarmMin: 4, Starting: 4, BreakAfter: 4, BreakFor: 10 * time.Second})
		time.Sleep(101 * time.Second)
		if n := d.begun(); n > 4+11 || n < 4+8 {
			t.Errorf("%d starts in 100 s of a sick backend, want 4 and one every 10 s", n)
		}
		well.Store(true)
		time.Sleep(15 * time.Second)
		if s := p.Status(); s.Warm != 4 || s.Broken {
			t.Errorf("a backend that is well again has %+v", s)
		}
		ended(t, p, d)
	})
}

// The rate is measured right from the first second on, and forgets.
func TestDemandIsMeasured(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	draw := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []float64{0.5, 3, 40} {
		d := demand{began: began, at: began}
		now := began
		for now.Sub(began) < 5*time.Minute {
			now = now.Add(time.Duration(draw.ExpFloat64() / rate * float64(time.Second)))
			d.asked(now)
		}
		if got := d.rate(now); math.Abs(got-rate) > 4*math.Sqrt(rate/10)+1.0/5 { // a faded sum over 5 s has the variance of one over 10 s
			t.Errorf("%v a second are measured as %v", rate, got)
		}
		if got := d.rate(now.Add(10 * time.Minute)); got > rate/1e6 {
			t.Errorf("ten minutes after %v a second it is %v", rate, got)
		}
	}
	d := demand{began: began, at: began}
	for i := range 20 {
		d.asked(began.Add(time.Duration(i+1) * 100 * time.Millisecond))
	}
	if got := d.rate(began.Add(2 * time.Second)); math.Abs(got-10) > 0.3 {
		t.Errorf("20 in the first 2 s are %v a second", got)
	}
}

func TestQuantiles(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for _, scale := range []float64{1e-5, 0.01, 3} {
		var h times
		var all []float64
		for range 5000 {
			s := scale * math.Exp(draw.NormFloat64())
			all = append(all, s)
			h.add(time.Duration(s * float64(time.Second)))
		}
		slices.Sort(all)
		for _, q := range []float64{0.5, 0.9, 0.99} {
			want, got := all[int(math.Ceil(q*5000))-1], h.quantile(q)
			if math.Abs(got/want-1) > 0.03 {
				t.Errorf("scale %v: the %v quantile is %v, want %v", scale, q, got, want)
			}
		}
		below := h.cumulative(bounds)
		for _, bound := range bounds {
			n, _ := slices.BinarySearch(all, bound)
			m, _ := slices.BinarySearch(all, bound/growth)
			if got := int(below[bound]); got > n || got < m {
				t.Errorf("scale %v: %d are at most %v, want %d to %d", scale, got, bound, m, n)
			}
		}
	}
	var none times
	if none.quantiles() != (protocol.Quantiles{}) {
		t.Error("quantiles of nothing are not 0")
	}
	none.add(0)
	none.add(10 * time.Hour)
	if q := fmt.Sprint(none.count, none.quantile(0.5) < 1e-5, none.quantile(1) > 3000); q != "2 true true" {
		t.Error("times beyond the bins:", q)
	}
}
