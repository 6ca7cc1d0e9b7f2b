package pool

import "time"

// breaker refuses starts for a while once so many in a row have failed, and then lets one be tried
// alone: if that fails too, it refuses again.
type breaker struct {
	after int
	pause time.Duration

	failed  int // starts in a row
	until   time.Time
	probing bool
	last    error
}

// broken reports whether the last starts have failed so often that the backend is held to be sick.
func (b *breaker) broken() bool { return b.failed >= b.after }

// refuses reports whether no start may be tried now, nor is one awaited.
func (b *breaker) refuses(now time.Time) bool { return b.broken() && now.Before(b.until) && !b.probing }

// allows reports whether another start may be tried now.
func (b *breaker) allows(now time.Time) bool {
	return !b.broken() || !now.Before(b.until) && !b.probing
}

// begins notes a start, and reports whether it is the one that is tried alone.
func (b *breaker) begins() (probe bool) {
	if !b.broken() {
		return false
	}
	b.probing = true
	return true
}

// ended notes how a start ended, and reports whether that opened the breaker.
func (b *breaker) ended(now time.Time, probe bool, err error) (opened bool) {
	if probe {
		b.probing = false
	}
	if err == nil {
		b.failed = 0
		return false
	}
	b.failed, b.last = b.failed+1, err
	if opened = probe || b.failed == b.after; opened {
		b.until = now.Add(b.pause)
	}
	return opened
}
