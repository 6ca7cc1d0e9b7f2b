package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// outcomeKind is a way in which a claim ends.
type outcomeKind uint8

const (
	outcomeFinished outcomeKind = iota
	outcomeExpired
	outcomeUnwanted
	outcomeBroken
	outcomeUnlogged
	outcomeStopped
	outcomeOverflow
	outcomeUnkept
)

func (k outcomeKind) String() string {
	return [...]string{"finished", "expired", "unwanted", "engine failed", "not logged", "stopped", "too large", "not kept"}[k]
}

// answer is what a worker finished a rollout with, as far as two of them are compared.
type answer struct {
	reward float32
	exact  bool
	failed string
	// sampled is a hash of the sequence that came along, zero without one.
	sampled [sha256.Size]byte
}

// outcome is what became of a claim.
type outcome struct {
	kind    outcomeKind
	worker  string
	counted bool
	answer  answer
	reason  string
}

// refusal says what happened to somebody who comes too late.
func (e *Dispatcher) refusal(o *outcome, id string) error {
	var r *protocol.Refusal
	switch o.kind {
	case outcomeFinished:
		return protocol.Refuse(protocol.CodeConflict, "rollout %s is finished: claim another", id).With("outcome", o.kind.String()).With("counted", o.counted)
	case outcomeExpired:
		r = protocol.Refuse(protocol.CodeExpired, "the claim of %s has expired, because %s; it is tried again, and this work counts for nothing. Claim another, and call touch while tools work", id, o.reason)
	case outcomeUnwanted:
		r = protocol.Refuse(protocol.CodeExpired, "rollout %s is no longer wanted: %s; its work counts for nothing: claim another", id, o.reason)
	case outcomeOverflow:
		r = protocol.Refuse(protocol.CodeTooLarge, "rollout %s was ended as failed: %s. Claim another", id, o.reason)
	case outcomeUnlogged:
		return protocol.Refuse(protocol.CodeUnavailable, "the control plane stopped before the end of %s was logged: finish it again when the run goes on, or claim another then", id)
	case outcomeStopped:
		r = protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping, and %s is played again when the run goes on; call again later, or claim another then", id)
	case outcomeUnkept:
		r = protocol.Refuse(protocol.CodeExpired, "rollout %s was not kept over a restart: %s; it is tried again as another attempt: claim another", id, o.reason)
	default:
		r = protocol.Refuse(protocol.CodeExpired, "rollout %s has ended, because its engine failed: %s; it is tried again as another attempt: claim another", id, o.reason)
	}
	return r.With("outcome", o.kind.String())
}

// stops reports whether a claim ended because this process does, so that the next may take it up. e.mu must be held.
func (e *Dispatcher) stops(o *outcome) bool {
	return (o.kind == outcomeStopped || o.kind == outcomeUnlogged) && !e.runEnded()
}

// runEnded reports whether there will be no rollouts any more. e.mu must be held.
func (e *Dispatcher) runEnded() bool { return errors.Is(e.claimErr, protocol.ErrRunEnded) }

// Lasting returns the error of a call that names a rollout. Where that is for good, the rollout's end must be in the log, and no
// other process may be in the place of this one. Else the run may go on with the rollout, and the call is refused for now. Lasting
// may wait.
func (e *Dispatcher) Lasting(ctx context.Context, id string, err error) error {
	if refusal, refused := errors.AsType[*protocol.Refusal](err); refused && refusal.Code.Lasting() {
		return cmp.Or(e.goesOn(ctx, id), err)
	}
	return err
}

// askPatience is how long a call waits for the word that the run does not go on with a rollout.
const askPatience = 5 * time.Second

// goesOn refuses a call for now where the run may go on with a rollout that has ended here. e.mu must not be held.
func (e *Dispatcher) goesOn(ctx context.Context, id string) error {
	e.mu.Lock()
	ended, logged := e.runEnded(), e.unlogged[id]
	e.mu.Unlock()
	if ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if e.awaitLogged(ctx, logged) != nil {
		return protocol.Refuse(protocol.CodeUnavailable, "rollout %.60q has ended here, and the log does not have that yet: call again", id).With("outcome", outcomeUnlogged.String())
	}
	if e.opt.Replaced == nil {
		return nil
	}
	if why := e.opt.Replaced(ctx); why != nil {
		return protocol.Refuse(protocol.CodeUnavailable, "rollout %.60q may go on at another process: %v", id, why).With("outcome", outcomeStopped.String())
	}
	return nil
}

// awaitLogged waits until the log has a failure (unlogged), or the run is over. e.mu must not be held.
func (e *Dispatcher) awaitLogged(ctx context.Context, logged <-chan struct{}) error {
	if logged == nil {
		return nil
	}
	select {
	case <-logged:
	case <-e.over:
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.runEnded() {
			return e.overErr
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// past remembers the outcomes of the last Kept claims.
type past struct {
	outcomes map[string]*outcome
	order    []string
	next     int
}

func newPast() past { return past{outcomes: make(map[string]*outcome)} }

func (p *past) add(id string, o outcome) {
	if _, known := p.outcomes[id]; known { // an attempt is played once; keep the order sound if one is not
		p.outcomes[id] = &o
		return
	}
	if len(p.order) < Kept {
		p.order = append(p.order, id)
	} else {
		delete(p.outcomes, p.order[p.next])
		p.order[p.next] = id
		p.next = (p.next + 1) % Kept
	}
	p.outcomes[id] = &o
}

func (p *past) find(id string) *outcome { return p.outcomes[id] }
