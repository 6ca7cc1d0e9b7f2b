package upstream

import (
	"context"
	"fmt"
	"time"
)

// resume ends the pause that is owed, whatever becomes of ctx: it tries a few times with pauses,
// and then leaves it to a goroutine that does not give up before the engine is closed.
func (e *Engine) resume(ctx context.Context, caps *Capabilities) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for i := range resumeTries {
		if err = e.tryResume(ctx, caps); err == nil || e.life.Err() != nil {
			return err
		}
		select {
		case <-time.After(pauseFirst << i):
		case <-e.life.Done():
		}
	}
	e.opt.Logf("engine %s: it could not be resumed, and is tried again until it is: %v", e.opt.Name, err)
	if e.resuming.CompareAndSwap(false, true) {
		e.spawn(func() { e.keepResuming(caps) })
	}
	return fmt.Errorf("resuming: %w", err)
}

// keepResuming tries to end the pause that is owed until it is ended.
func (e *Engine) keepResuming(caps *Capabilities) {
	defer e.resuming.Store(false)
	for e.owed.Load() {
		select {
		case <-time.After(resumePause):
			e.resumeLate(caps)
		case <-e.life.Done():
			return
		}
	}
}

// resumeLate tries to end a pause that is still owed, unless a switch is under way, which will.
func (e *Engine) resumeLate(caps *Capabilities) {
	select {
	case e.switching <- struct{}{}:
		defer e.turnOver()
		if e.owed.Load() {
			_ = e.tryResume(e.life, caps)
		}
	default:
	}
}

func (e *Engine) tryResume(ctx context.Context, caps *Capabilities) error {
	ctx, cancel := context.WithTimeout(ctx, resumeLimit)
	defer cancel()
	err := e.opt.Dialect.Resume(ctx, e.opt.Server, caps)
	if err == nil {
		e.owed.Store(false)
	}
	return err
}
