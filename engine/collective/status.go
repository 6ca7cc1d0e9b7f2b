package collective

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// States of the sender.
const (
	// StateServing: it is there.
	StateServing = "serving"
	// StateLost: it has not been heard of for longer than Options.Silence.
	StateLost = "lost"
	// StateAbsent: none has come, or the last one has ended in order.
	StateAbsent = "absent"
)

// Status names the sender and the versions that it has.
func (c *Coordinator) Status() protocol.Sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := protocol.Sender{State: StateAbsent, Waiting: slices.Sorted(maps.Keys(c.waiting)), Sends: c.sends, FailedSends: c.failedSends, SentVersion: c.sent}
	s := c.sender
	if s == nil {
		return out
	}
	out.Name, out.Backend, out.Holds, out.SilentS = s.name, s.backend, slices.Clone(s.holds), c.since(s).Seconds()
	if c.silent(s) { // nothing can be sent in its groups, unless it comes back
		out.State = StateLost
		return out
	}
	out.State, out.Groups, out.Joining = StateServing, c.groupNames(true), c.joining()
	return out
}

// Confirm returns nil once the sender of that name has said that it holds a version. It waits for that
// word for as long as a sender may be silent: the word of one that is there is on its way.
func (c *Coordinator) Confirm(ctx context.Context, name string, version loop.Version) error {
	limit := time.NewTimer(c.opt.Silence)
	defer limit.Stop()
	for {
		c.mu.Lock()
		err, final := c.unconfirmed(name, version)
		moved := c.moved
		c.mu.Unlock()
		if err == nil || final {
			return err
		}
		select {
		case <-moved:
		case <-limit.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unconfirmed is why a version is not confirmed, nil if it is; final where waiting does not help. c.mu must be held.
func (c *Coordinator) unconfirmed(name string, version loop.Version) (err error, final bool) {
	s := c.sender
	switch {
	case !c.there():
		return protocol.Refuse(protocol.CodeConflict, "rendezvous %.80q: no sender is there, so no engine could take version %d: start it, or publish files", name, version), false
	case s.name != name:
		return protocol.Refuse(protocol.CodeConflict, "rendezvous %.80q is not this run's sender, which is %s: name that one, or publish files", name, s.name).With("sender", s.name), true
	case !slices.Contains(s.holds, version):
		return protocol.Refuse(protocol.CodeConflict, "rendezvous %s: the sender has not said that it holds version %d: have it hold the version before it is published", name, version), false
	}
	return nil, false
}
