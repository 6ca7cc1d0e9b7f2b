package upstream

import (
	"context"
	"io"
	"time"
)

// watch ends a call when it is to end, or when it brings nothing for too long, and cleans up after
// it. The reader is waked by the end of the call's context; by its id the call is aborted wherever
// the stream did not end by itself, for servers that do not notice that nobody listens any more.
func (c *call) watch(ctx context.Context, cancel context.CancelFunc) {
	defer c.e.leave(c.s)
	defer cancel()
	if c.await(ctx) {
		c.drain(cancel)
		return
	}
	polite := c.polite()
	if !polite {
		cancel()
	}
	if c.connected.Load() && !c.refused.Load() {
		c.abort(polite)
	}
	if polite {
		c.grace()
		cancel()
	}
	<-c.s.gone
	if c.body != nil {
		_ = c.body.Close()
	}
}

// await returns true when the reader has left at the regular end, false when the call has broken
// off or is to be ended.
func (c *call) await(ctx context.Context) bool {
	silent := c.e.opt.Silent
	timer := time.NewTimer(silent)
	defer timer.Stop()
	for {
		select {
		case <-c.s.gone:
			return c.regular
		case <-c.s.halting:
			return false
		case <-ctx.Done():
			return false
		case <-c.r.req.Interrupt:
			c.s.stop(haltInterrupt)
			return false
		case <-timer.C:
			idle := time.Duration(c.e.now() - max(c.s.lastAt.Load(), c.e.openedAt.Load()))
			if c.e.holding() {
				idle = 0
			}
			if idle >= silent {
				c.s.stop(haltSilent)
				return false
			}
			timer.Reset(silent - idle)
		}
	}
}

// polite reports whether the call is worth waiting for after an abort by its id: the server says at
// its end which versions sampled its tokens.
func (c *call) polite() bool {
	if !c.s.caps.VersionSpans || c.e.deaf.Load() {
		return false
	}
	switch c.s.halted.Load() {
	case haltInterrupt, haltPruned, haltCut:
		return true
	}
	return false
}

// abort aborts the call by its id, as far as the server can.
func (c *call) abort(polite bool) {
	limit := abortLimit
	if polite { // somebody waits for the call's end
		limit = graceLimit
	}
	ctx, cancel := context.WithTimeout(c.e.life, limit)
	defer cancel()
	_ = c.e.opt.Dialect.Abort(ctx, c.e.opt.Server, c.request.ID, c.s.caps)
}

// grace waits a little for the end of a call that was aborted. A server that does not end one in
// time is not waited for again.
func (c *call) grace() {
	timer := time.NewTimer(graceLimit)
	defer timer.Stop()
	select {
	case <-c.s.gone:
	case <-timer.C:
		if !c.e.deaf.Swap(true) {
			c.e.opt.Logf("engine %s: a response that was aborted by its id did not end within %v: such are not waited for any more", c.e.opt.Name, graceLimit)
		}
	}
}

// drain reads what follows the end mark, so that the connection can be used again.
func (c *call) drain(cancel context.CancelFunc) {
	timer := time.AfterFunc(drainLimit, cancel)
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(c.body, errorBytesMax))
	_ = c.body.Close()
}
