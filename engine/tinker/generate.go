package tinker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/internal/pause"
	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop/port"
)

// errInterrupted ends what a generation waits for when its Interrupt is closed.
var errInterrupted = errors.New("it was interrupted")

// Generate implements [port.Engine]. An error that wraps [port.ErrEngineDown] says that the service cannot be reached,
// or has forgotten the version. One that wraps [ErrLied] says that its answer is impossible. Beside an error stands
// what was sampled so far.
func (e *Engine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	r, err := e.newResponse(req)
	if err != nil {
		return port.Generation{}, err
	}
	if err := e.claim(req.Rollout); err != nil {
		return port.Generation{}, err
	}
	defer e.release()
	inner, end := e.alive(ctx)
	defer end(nil)
	if req.Interrupt != nil {
		go func() {
			select {
			case <-req.Interrupt:
				end(errInterrupted)
			case <-inner.Done():
			}
		}()
	}
	err = e.sample(inner, r)
	if err != nil && inner.Err() != nil { // it has ended because of that, whatever it says
		err = context.Cause(inner)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, errInterrupted):
		r.interrupted, err = true, nil
	case errors.Is(err, ErrClosed):
		err = e.fail("%w", ErrClosed)
	default:
		err = e.fail("rollout %v, turn %d: %w", req.Rollout, req.Turn, err)
	}
	return r.generation(), err
}

// claim takes a slot; release gives it back.
func (e *Engine) claim(id port.RolloutID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.fail("%w", ErrClosed)
	}
	if e.claimed == e.opt.Slots {
		return e.fail("rollout %v asks for a slot while all %d are in use", id, e.opt.Slots)
	}
	e.claimed++
	e.under.Add(1)
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	e.claimed--
	e.mu.Unlock()
	e.under.Done()
}

// sample samples pieces until the response is complete.
func (e *Engine) sample(ctx context.Context, r *response) error {
	for !r.complete() {
		select {
		case <-r.req.Interrupt: // perhaps ctx does not know yet
			return errInterrupted
		default:
		}
		w, err := e.enter(ctx)
		if err != nil {
			return err
		}
		q := r.request(e.opt.Piece)
		s, err := e.askAgain(ctx, w, q)
		e.leave()
		if err != nil {
			if ctx.Err() != nil {
				e.counts.abandoned.Add(1)
			}
			return err
		}
		e.counts.pieces.Add(1)
		if err := e.take(r, w, q, s); err != nil {
			return fmt.Errorf("%w: %w", ErrLied, err)
		}
	}
	return nil
}

// take judges a piece and records it.
func (e *Engine) take(r *response, w *weights, q service.SampleRequest, s service.Sequence) error {
	used, err := r.judge(q, s)
	if err != nil {
		return err
	}
	if behind := len(s.Tokens) - used; behind > 0 {
		e.behind.Do(func() {
			e.opt.Logf("engine %s: the service samples on behind tokens that end a response: what it brings there (%d tokens now) is sampled for nothing, and dropped",
				e.opt.Name, behind)
		})
	}
	n := r.take(s, used, w.version)
	e.counts.tokens.Add(int64(n))
	e.counts.unused.Add(int64(len(s.Tokens) - n))
	return nil
}

// enter waits until the weights are known and no switch holds pieces back, and counts one that begins.
func (e *Engine) enter(ctx context.Context) (*weights, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if e.served != nil && !e.held {
			e.running++
			return e.served, nil
		}
		if err := e.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// leave counts a piece that has ended.
func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if e.held {
		e.notify()
	}
}

// The pauses before a sample that the service has failed is asked for again.
const (
	againFirst = time.Second
	againMost  = 4
)

// askAgain asks for a piece, and some times more where the service has failed it: a sample changes nothing, and what samples
// behind a service (a vLLM that is being started again) fails in the same words as a request that is wrong.
func (e *Engine) askAgain(ctx context.Context, w *weights, q service.SampleRequest) (service.Sequence, error) {
	for try, wait := 0, againFirst; ; try, wait = try+1, 2*wait {
		s, err := e.ask(ctx, w, q)
		if err == nil || try == againMost || !answered(err) || errors.Is(err, port.ErrEngineDown) || ctx.Err() != nil {
			return s, err
		}
		e.counts.retries.Add(1)
		if pause.For(ctx, wait) != nil {
			return s, context.Cause(ctx)
		}
	}
}

// ask asks for a piece. Where the service has forgotten the sampler it is asked once more, of another
// by the same path. Where it has forgotten that too, it cannot serve the version any more: the response goes on elsewhere,
// or here after the next Load.
func (e *Engine) ask(ctx context.Context, w *weights, q service.SampleRequest) (service.Sequence, error) {
	sampler := w.sampler.Load()
	s, err := (*sampler).Sample(ctx, q)
	if errors.Is(err, service.ErrGone) {
		e.counts.retries.Add(1)
		if sampler, err = e.remake(ctx, w, sampler, err); err == nil {
			s, err = (*sampler).Sample(ctx, q)
		}
		if errors.Is(err, service.ErrGone) {
			return s, fmt.Errorf("%w: version %d is not at %s any more: %w", port.ErrEngineDown, w.version, w.path, err)
		}
	}
	return s, e.reached(err)
}

// remake makes a version's sampler anew, unless another piece has done so meanwhile.
func (e *Engine) remake(ctx context.Context, w *weights, old *Sampler, why error) (*Sampler, error) {
	select {
	case w.making <- struct{}{}:
		defer func() { <-w.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if now := w.sampler.Load(); now != old {
		return now, nil
	}
	e.opt.Logf("engine %s: the service does not know the sampler of version %d any more; it is asked for another by %s: %v", e.opt.Name, w.version, w.path, why)
	sampler, err := e.opt.Service.NewSampler(ctx, w.path)
	if err != nil {
		return nil, err
	}
	w.sampler.Store(&sampler)
	return &sampler, nil
}
