package port_test

import (
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// TestPacerKeepsASchedule gives a pacer steps by a clock of its own: late timers are made
// up for, a step that is too long is made up for by the next ones, and what is a whole
// step behind is lost.
func TestPacerKeepsASchedule(t *testing.T) {
	const least, ms = 10 * time.Millisecond, time.Millisecond
	var p port.Pacer
	at := time.Unix(0, 0)
	// work does a step's work, waits as long as it is told and a little longer, and returns when the step ended.
	step := func(work, timer time.Duration) time.Duration {
		began := at
		at = at.Add(work)
		if left := p.Step(began, at, least); left > 0 {
			at = at.Add(left + timer)
		}
		return at.Sub(time.Unix(0, 0))
	}
	for i, want := range []time.Duration{12, 22, 32} {
		if got := step(3*ms, 2*ms); got != want*ms {
			t.Fatalf("step %d of 3 ms under timers that are 2 ms late ended at %v, want %v", i, got, want*ms)
		}
	}
	// Due at 40 ms, it ends at 47 ms; the one after has 3 ms of its 10 left.
	if got := step(15*ms, 0); got != 47*ms {
		t.Fatalf("a step of 15 ms ended at %v, want 47ms", got)
	}
	if got := step(1*ms, 0); got != 50*ms {
		t.Fatalf("the step after it ended at %v, want 50ms", got)
	}
	if got := p.Take(); got != (port.Pace{Steps: 5, Late: 1, PacedNS: int64(5 * least)}) {
		t.Errorf("paced %+v, want 5 steps, one of them late, and nothing lost", got)
	}
	if got := step(31*ms, 0); got != 81*ms {
		t.Fatalf("a step of 31 ms ended at %v, want 81ms", got)
	}
	if got := step(1*ms, 0); got != 91*ms {
		t.Fatalf("a step after one that cannot be made up for ended at %v, want 91ms", got)
	}
	got := p.Take()
	if got != (port.Pace{Steps: 2, Late: 1, PacedNS: int64(2 * least), LostNS: int64(21 * ms)}) {
		t.Errorf("paced %+v, want 21 ms lost", got)
	}
	if got.LateShare() != 0.5 || got.Slowdown() != 1.05 {
		t.Errorf("late %g, slowdown %g, want 0.5 and 1.05", got.LateShare(), got.Slowdown())
	}
}

// TestPacerAfterARest begins a new schedule: standing still is no credit, and what was late before it is lost.
func TestPacerAfterARest(t *testing.T) {
	const least = 10 * time.Millisecond
	var p port.Pacer
	zero := time.Unix(0, 0)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	if left := p.Step(at(0), at(14), least); left != -4*time.Millisecond {
		t.Errorf("a step that took 14 of 10 ms has %v left, want -4ms", left)
	}
	p.Rest()
	if left := p.Step(at(100), at(101), least); left != 9*time.Millisecond {
		t.Errorf("the first step after a rest has %v left, want 9ms", left)
	}
	if got := p.Take(); got != (port.Pace{Steps: 2, Late: 1, PacedNS: int64(2 * least), LostNS: 4e6}) {
		t.Errorf("paced %+v, want the 4 ms before the rest lost", got)
	}
	var all port.Pace
	if all.Add(port.Pace{Steps: 1}); all.LateShare() != 0 || (port.Pace{}).Slowdown() != 0 || (port.Pace{}).LateShare() != 0 {
		t.Error("no steps are late or slow")
	}
}
