package client

import (
	"sync"
	"time"
)

const (
	failurePause     = 500 * time.Millisecond
	failurePauseMost = 10 * time.Second
)

// failures has claims wait where as many rollouts in a row have failed as are played at once.
type failures struct {
	concurrency int

	mu    sync.Mutex
	row   int
	until time.Time
}

// add notes that a rollout has failed.
func (f *failures) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.row++
	if rounds := f.row / f.concurrency; rounds > 0 {
		f.until = time.Now().Add(min(failurePause<<min(rounds-1, 10), failurePauseMost))
	}
}

// none notes that a rollout has ended with a result.
func (f *failures) none() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.row, f.until = 0, time.Time{}
}

// left is the time until the next claim.
func (f *failures) left() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(time.Until(f.until), 0)
}
