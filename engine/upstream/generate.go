package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// Calls that bring nothing are made again a few times, after pauses that grow.
const (
	fruitlessMax = 3
	pauseFirst   = 250 * time.Millisecond
	pauseMost    = 5 * time.Second
)

// Generate implements [port.Engine]. A response that breaks off goes on at the same server with the
// tokens so far, as long as that answers and makes progress. Else the partial response stands
// beside an error that wraps [port.ErrEngineDown]. Through a switch it waits, or goes on under the
// new weights. A response that the server lies about is an error that wraps [ErrLied]. One that it
// will not answer is one that wraps [ErrRefused]. Neither is tried again. MaxTokens are cut to what
// the server's context leaves.
func (e *Engine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	r, err := e.newResponse(req)
	if err != nil {
		return port.Generation{}, err
	}
	if err := e.claim(req.Rollout); err != nil {
		return port.Generation{}, err
	}
	defer e.release()
	if e.opt.Traceparent != nil {
		ctx = context.WithValue(ctx, traceparentKey{}, e.opt.Traceparent(req.Rollout))
	}
	if err = e.sample(ctx, r); err == nil {
		e.readWhole(ctx, r)
	}
	if errors.Is(err, haltInterrupt) {
		r.interrupted, err = true, nil
	}
	return r.generation(), err
}

// sample makes calls until the response is complete, or nothing helps.
func (e *Engine) sample(ctx context.Context, r *response) error {
	var t trouble
	for {
		if r.full() { // the prefix reaches the end of the context
			return nil
		}
		before := len(r.tokens)
		err := e.attempt(ctx, r)
		var b *broken
		switch {
		case err == nil:
			return nil
		case len(r.tokens) > before && e.ends(r) && cutOff(err):
			return nil
		case errors.Is(err, haltCut), errors.Is(err, haltUnknown):
			e.counts.cuts.Add(1)
			continue
		case errors.Is(err, haltDown):
			continue // entering again says why
		case errors.Is(err, haltSpoilt):
			return e.named(r, fmt.Errorf("%w: %w", ErrLied, err))
		case errors.Is(err, haltClosed):
			return e.fail("%w", ErrClosed)
		case errors.As(err, &b):
			if len(r.tokens) > before {
				t = trouble{}
			}
			if err := e.recover(ctx, r, b, &t); err != nil {
				return err
			}
			e.counts.retries.Add(1)
		case errors.Is(err, haltInterrupt), errors.Is(err, ctx.Err()):
			return err
		default:
			return e.named(r, err)
		}
	}
}

// ends reports whether a response's last token ends it, so that nothing may be sampled behind it.
func (e *Engine) ends(r *response) bool {
	last := r.tokens[len(r.tokens)-1]
	return slices.Contains(e.opt.Ends, last) || slices.Contains(r.sampling.StopTokens, last)
}

// cutOff reports whether a call ended before the server had said that the response is complete,
// and what it brought is to be believed.
func cutOff(err error) bool {
	_, breaks := errors.AsType[*broken](err)
	_, halts := errors.AsType[*halt](err)
	return breaks || halts && !errors.Is(err, haltSpoilt) && !errors.Is(err, haltClosed)
}

// named says whose response an error is about, once.
func (e *Engine) named(r *response, err error) error {
	if errors.Is(err, port.ErrEngineDown) || errors.Is(err, ErrClosed) {
		return err
	}
	return e.fail("rollout %v, turn %d: %w", r.req.Rollout, r.req.Turn, err)
}

// trouble is what a response has gone through since it made progress last.
type trouble struct {
	calls     int   // that brought nothing
	fruitless int   // those of them that count against the server: a silent one twice, of a busy one none for a while
	since     int64 // the first of them, on the engine's clock
}

// recover decides whether a broken response is tried again at this server, and waits before it is.
func (e *Engine) recover(ctx context.Context, r *response, b *broken, t *trouble) error {
	if e.breaks(b.transport) { // a server that takes new weights may well break off: the switch judges it
		return nil
	}
	if t.calls == 0 {
		t.since = e.now()
	}
	t.calls++
	after, busy := busyFor(b)
	if !busy || time.Duration(e.now()-t.since) >= e.opt.Silent { // being busy for ever is silence, too
		t.fruitless++
	}
	if b.silent {
		t.fruitless++
	}
	if err := e.checkUp(ctx, r.req.Interrupt, b); err != nil {
		return err
	}
	if t.fruitless > fruitlessMax {
		err := fmt.Errorf("calls in a row brought nothing, the last: %w", b)
		if e.recordedAt.Load() > t.since { // others go on: it is about this response
			return e.named(r, err)
		}
		return e.lose(err)
	}
	pause := max(after, min(pauseFirst<<min(t.calls-1, 8), pauseMost))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.req.Interrupt:
		return haltInterrupt
	case <-ctx.Done():
		return ctx.Err()
	case <-e.life.Done():
		return e.fail("%w", ErrClosed)
	}
}
