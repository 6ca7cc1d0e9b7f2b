package looptest

import (
	"iter"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// Restarted is a run with engines in several cells, through faults and restarts of its process, beside the loop's own word
// of it. Observers of a run are held to that word.
type Restarted struct {
	Config loop.Config
	Log    []Record
	// Status is what the loop says after each step.
	Status []loop.Status
}

// Restarts yields such runs, of as many seeds. Each has engines of the driver's process and of others, and no engine that
// is a pool's.
func Restarts(t testing.TB, seeds uint64, events int) iter.Seq[*Restarted] {
	return func(yield func(*Restarted) bool) {
		for seed, found := uint64(1), uint64(0); found < seeds; seed++ {
			p := Draw(seed).WithCells()
			c := p.Config
			if !slices.Contains(c.EngineCells, 0) || slices.Max(c.EngineCells) == 0 || c.EnginesStart > 0 || c.Control != nil {
				continue
			}
			found++
			p.Faults.Garbage, p.Faults.Reversed, p.Faults.Snapshots = 0, 0, 0
			if r := restarted(t, p, events); !yield(r) {
				return
			}
			if t.Failed() {
				t.Logf("seed %d: %+v", seed, c)
				return
			}
		}
	}
}

func restarted(t testing.TB, p Plan, events int) *Restarted {
	t.Helper()
	w, err := NewWorld(p)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(events); err != nil {
		t.Fatal(err)
	}
	r := &Restarted{Config: p.Config, Log: w.Log}
	l, err := loop.New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Log {
		l.Step(w.Log[i].Event)
		r.Status = append(r.Status, l.Status())
	}
	return r
}

// Sum adds up the time between steps, in ns. Each stretch counts as often as of says of the loop's word then.
func (r *Restarted) Sum(of func(loop.Status) int) (ns int64) {
	for i := 1; i < len(r.Log); i++ {
		ns += int64(of(r.Status[i-1])) * (r.Log[i].Event.Time - r.Log[i-1].Event.Time)
	}
	return ns
}

// Taken counts slots that are taken.
func Taken(st loop.Status) (n int) {
	for _, e := range st.Engines {
		n += e.Active
	}
	return n
}

// Syncing counts engines that load weights or switch to them.
func Syncing(st loop.Status) (n int) {
	for _, e := range st.Engines {
		if e.State == "loading" || e.State == "switching" || e.State == "joining" {
			n++
		}
	}
	return n
}
