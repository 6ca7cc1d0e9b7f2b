package port

import (
	"sync"
	"time"
)

// Pace says how a device kept to the least time of its steps. A machine that needs longer than that
// for many of them does not behave like a device of that pace.
type Pace struct {
	// Steps were made under a least time, Late of them took longer than was left of it.
	Steps int64 `json:"steps"`
	Late  int64 `json:"late"`
	// PacedNS is what the steps take at their pace, LostNS how much longer they took
	// than could be made up for; in nanoseconds.
	PacedNS int64 `json:"paced_ns"`
	LostNS  int64 `json:"lost_ns"`
}

// Add adds what another device, or the same one later, has done.
func (p *Pace) Add(q Pace) {
	p.Steps += q.Steps
	p.Late += q.Late
	p.PacedNS += q.PacedNS
	p.LostNS += q.LostNS
}

// LateShare is the share of steps that took longer than their pace; 0 without any.
func (p Pace) LateShare() float64 {
	if p.Steps == 0 {
		return 0
	}
	return float64(p.Late) / float64(p.Steps)
}

// Slowdown is how much longer all steps together took than at their pace, as a share of it;
// 0 without any.
func (p Pace) Slowdown() float64 {
	if p.PacedNS == 0 {
		return 0
	}
	return float64(p.LostNS) / float64(p.PacedNS)
}

// Paced is a device whose steps have a least time.
type Paced interface {
	// TakePace returns how it kept to it since the last call.
	TakePace() Pace
}

// Pacer holds one device to a least time of its steps. Steps that follow one another keep to a
// schedule: the next step makes up for the delay of one. So their mean is the least time though
// timers are late. A delay of a whole step or more is lost. The zero Pacer is ready. Its methods
// are of one goroutine, but for Take.
type Pacer struct {
	due  time.Time     // when the last step was to end; zero where none came before
	late time.Duration // by how much it ended later, still to be made up for
	mu   sync.Mutex
	pace Pace
}

// Rest says that the device stands still: its next step follows none.
func (p *Pacer) Rest() {
	p.lose(p.late)
	p.due, p.late = time.Time{}, 0
}

// Step is called when the work of a step is done that began at a time and is to take
// at least so long. It returns how long to wait, not above 0 for a step that is late.
func (p *Pacer) Step(began, now time.Time, least time.Duration) time.Duration {
	if !p.due.IsZero() {
		began = p.due
	}
	p.due = began.Add(least)
	p.late = max(now.Sub(p.due), 0)
	p.mu.Lock()
	p.pace.Steps++
	p.pace.PacedNS += least.Nanoseconds()
	if p.late > 0 {
		p.pace.Late++
	}
	p.mu.Unlock()
	left := p.due.Sub(now)
	if p.late >= least {
		p.lose(p.late)
		p.due, p.late = now, 0
	}
	return left
}

// lose counts time that is not made up for.
func (p *Pacer) lose(d time.Duration) {
	if d <= 0 {
		return
	}
	p.mu.Lock()
	p.pace.LostNS += d.Nanoseconds()
	p.mu.Unlock()
}

// Take implements [Paced] for the device.
func (p *Pacer) Take() Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.pace
	p.pace = Pace{}
	return taken
}
