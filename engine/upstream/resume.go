package upstream

import (
	"context"
	"fmt"
	"time"
)

// resume ends the pause that is owed, whatever becomes of ctx: it tries a few times with pauses, and
// then leaves it to a goroutine that does not give up before the engine is closed. A server that cannot be
// reached is waited for shorter, as one that is being started again, and then counts as lost. One that
// refused a connection meanwhile was gone: its weights are no longer those that were put there.
func (e *Engine) resume(ctx context.Context, caps *Capabilities) error {
	ctx = context.WithoutCancel(ctx)
	var err, gone error
	for tries := 1; ; tries++ {
		if err = e.tryResume(ctx, caps); err == nil || e.life.Err() != nil {
			break
		}
		if refused(err) {
			gone = err
		}
		if tries == resumeTries || tries >= awayTries && unreached(err) {
			return e.resumeBeside(err, caps)
		}
		select {
		case <-time.After(pauseFirst << (tries - 1)):
		case <-e.life.Done():
		}
	}
	if err == nil && gone != nil {
		return fmt.Errorf("%w: it was not there to be resumed: %w", errRestarted, gone)
	}
	return err
}

// resumeBeside leaves a resume that has failed to a goroutine, and says what that makes of the server. One that
// cannot be reached may still be there, behind what is between, and paused.
func (e *Engine) resumeBeside(err error, caps *Capabilities) error {
	e.opt.Logf("engine %s: it could not be resumed, and is tried again until it is: %v", e.opt.Name, err)
	if e.resuming.CompareAndSwap(false, true) {
		e.spawn(func() { e.keepResuming(caps) })
	}
	err = fmt.Errorf("resuming: %w", err)
	if unreached(err) {
		return e.lose(err)
	}
	return err
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
