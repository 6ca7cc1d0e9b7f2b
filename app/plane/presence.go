package plane

import (
	"context"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/presence"
)

// beginPresence has the run's clock tick until the context ends: from here on claims, leases, the drain and the
// watchdog age by it.
func (p *Plane) beginPresence(ctx context.Context) {
	p.present = parts.Presence(ctx, p.App.Clock(0), func() bool {
		why := p.absence()
		p.sayAbsence(why)
		return !p.refused.Swap(false) && why == nil
	})
}

// sayAbsence says when the clock stops and when it goes on; not at the start, when nobody holds anything yet. The
// goroutine that ticks calls it.
func (p *Plane) sayAbsence(why error) {
	state := p.currentState()
	switch absent := why != nil && (state == StateRunning || state == StateDraining); {
	case absent && !p.absent:
		p.absent = true
		p.logf("claims, leases and the drain do not run out until this process can write again: %v", why)
	case why == nil && p.absent:
		p.absent = false
		p.logf("this process can write again: claims and leases run on within %s", presence.GraceMost)
	}
}

// absence says why callers get no answer, or why what they send waits; nil while they are answered.
func (p *Plane) absence() error {
	if err := p.readiness(); err != nil {
		return err
	}
	if p.noRoom.Load() {
		return nil // callers are answered, and the watchdog is to name it
	}
	return p.log.Stalled()
}

// later calls f after a time in which this process could answer.
func (p *Plane) later(d time.Duration, f func()) {
	due := p.present() + int64(d)
	var look func()
	look = func() {
		if left := time.Duration(due - p.present()); left > 0 {
			time.AfterFunc(max(left, presence.Every), look)
			return
		}
		f()
	}
	time.AfterFunc(d, look)
}
