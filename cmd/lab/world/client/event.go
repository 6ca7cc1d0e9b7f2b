package client

import (
	"context"
	"sync"
	"time"
)

// event is set once, and then stays set.
type event struct {
	once sync.Once
	done chan struct{}
}

func newEvent() *event { return &event{done: make(chan struct{})} }

func (e *event) set() { e.once.Do(func() { close(e.done) }) }

func (e *event) isSet() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// wait returns after d, or earlier when the event is set or the context ends. It reports whether it was set. The end
// of the context counts as set, so that no loop goes on.
func (e *event) wait(ctx context.Context, d time.Duration) bool {
	if e.isSet() || ctx.Err() != nil {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return e.isSet()
	case <-e.done:
		return true
	case <-ctx.Done():
		return true
	}
}
