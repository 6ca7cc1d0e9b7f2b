// Package presencetest gives tests a process that can be made absent.
package presencetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/presence"
)

// Process is one whose presence a test decides. In a bubble of testing/synctest its time is the bubble's.
type Process struct {
	clock  *presence.Clock
	began  time.Time
	unable atomic.Bool
	asleep atomic.Bool
}

// Start begins a process that can answer, until the test ends.
func Start(t testing.TB) *Process {
	p := &Process{clock: presence.New(0), began: time.Now()}
	go func() {
		ticker := time.NewTicker(presence.Every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-t.Context().Done():
				return
			}
			if !p.asleep.Load() {
				p.clock.Tick(p.since(), !p.unable.Load())
			}
		}
	}()
	return p
}

func (p *Process) since() int64 { return int64(time.Since(p.began)) }

// Clock is the time in which the process could answer, in nanoseconds.
func (p *Process) Clock() int64 { return p.clock.Now(p.since()) }

// Away has the process unable to answer for a time.
func (p *Process) Away(d time.Duration) {
	p.unable.Store(true)
	time.Sleep(d)
	p.unable.Store(false)
}

// Sleep has the process stopped, as by a suspend: nothing ticks for a time.
func (p *Process) Sleep(d time.Duration) {
	p.asleep.Store(true)
	time.Sleep(d)
	p.asleep.Store(false)
}
