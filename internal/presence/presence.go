// Package presence counts the time in which this process could answer: by it claims, leases, drains and the watchdog
// age. A caller that was not answered loses nothing by it.
package presence

import (
	"sync"
	"time"
)

const (
	// Every is how often a clock is to be ticked.
	Every = 250 * time.Millisecond
	// Gap is the longest time between two ticks that counts. A longer one is of a process that was stopped,
	// suspended or starved: that much of it is counted, and no more.
	Gap = 4 * Every
	// GraceLeast is the shortest time for which a clock stands still after an absence. A caller who was refused is told to
	// come again after 2 s.
	GraceLeast = 3 * time.Second
	// GraceMost bounds the time for which a clock stands still after an absence. It is as long as the absence was:
	// callers who were not answered come first.
	GraceMost = 10 * time.Second
)

// Clock is the time in which a process could answer, in nanoseconds. It goes on with the ticks that it is given, never
// falls, and is safe for concurrent use. It knows no other clock: every instant is the caller's, by one that never
// falls, such as the monotonic clock.
type Clock struct {
	mu      sync.Mutex
	counted int64 // up to the last tick
	last    int64 // the instant of it
	able    bool  // what it said
	away    int64 // how long the process has been absent
	grace   int64 // for how long the clock stands still yet
}

// New returns a clock at 0, of a process that can answer at an instant.
func New(at int64) *Clock { return &Clock{last: at, able: true} }

// Tick says whether the process can answer at an instant.
func (c *Clock) Tick(at int64, able bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = max(at, c.last)
	passed := at - c.last
	c.counted = c.now(at)
	if c.able && passed <= int64(Gap) {
		c.grace = max(c.grace-passed, 0)
	} else {
		c.away += passed
	}
	if able && c.away > 0 {
		c.grace = max(c.grace, min(max(c.away, int64(GraceLeast)), int64(GraceMost)))
		c.away = 0
	}
	c.last, c.able = at, able
}

// Now is the clock's time at an instant.
func (c *Clock) Now(at int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(at)
}

// now goes on from the last tick, for as long as the next may take. It is called with mu held.
func (c *Clock) now(at int64) int64 {
	if !c.able {
		return c.counted
	}
	return c.counted + max(min(at-c.last, int64(Gap))-c.grace, 0)
}
