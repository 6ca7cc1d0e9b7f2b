package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Sender has the tensors of versions and broadcasts them, in a collective with one engine. Calls for
// one engine come one after the other. Every call waits for a sender that is not there, for as long
// as its context lets it.
type Sender interface {
	// Hold has a version's tensors made ready, so that Send has only to send them.
	Hold(ctx context.Context, engine string, version loop.Version) (Held, error)
	// Meet makes a group of the sender, rank 0, and an engine's ranks. It calls join, which has the server
	// join, at most once, while the sender joins, as both wait for each other. Meet returns after it.
	Meet(ctx context.Context, engine string, ranks int, join func(context.Context, Group) error) (Group, error)
	// Stands reports whether a group can still be sent in, as far as is known.
	Stands(engine string, g Group) bool
	// Send broadcasts a version that is held. After an error the group does not stand any more.
	Send(ctx context.Context, engine string, g Group, version loop.Version) error
	// Part gives a group up.
	Part(engine string, g Group)
}

// Group is a collective of a sender and the ranks of one engine.
type Group struct {
	// Name is unique; empty for no group.
	Name string
	// Address and Port are where its members meet.
	Address string
	Port    int
	// RankOffset is the engine's first rank, WorldSize how many there are with the sender's.
	RankOffset, WorldSize int
	// Backend is nccl or gloo.
	Backend string
}

// Held is a version that a sender has ready.
type Held struct {
	// Tensors in the order in which they are sent.
	Tensors []Tensor
	// Digest of their content: equal for equal weights.
	Digest string
}

// Tensor is one tensor of a version, its type in torch's words.
type Tensor struct {
	Name, DType string
	Shape       []int64
}

// meeting is the group that a server is in, what the server could and how often it had been lost by
// then: one that was started again is in none.
type meeting struct {
	group  Group
	caps   *Capabilities
	losses int64
}

// partLimit bounds having a server leave a group.
const partLimit = 20 * time.Second

// prepareTries is how often a sender may be lost, or a group not come about, before a load fails.
const prepareTries = 3

// prepare has the sender hold a version and the server be in a group with it. A sender that is started
// again in the middle is waited for.
func (e *Engine) prepare(ctx context.Context, version loop.Version, caps *Capabilities) error {
	for try := 1; ; try++ {
		held, err := e.tensorsOf(ctx, version)
		if err != nil {
			return err
		}
		if e.together() {
			e.loaded = loaded{version: version, held: held}
			return nil
		}
		if try > prepareTries {
			return errors.New("the group with the sender broke each time that it was made")
		}
		// Who joins may be another process than the one that has just said what it holds: it is asked again.
		if err = e.meet(ctx, caps); err == nil {
			continue
		}
		if try == prepareTries || ctx.Err() != nil || errors.Is(e.gone(err), port.ErrEngineDown) {
			return err
		}
		e.opt.Logf("engine %s: %v; once more", e.opt.Name, err)
	}
}

// together reports whether the server is in a group with the sender, as far as is known.
func (e *Engine) together() bool {
	m := e.met
	return m.group.Name != "" && m.losses == e.counts.losses.Load() && e.opt.Sender.Stands(e.opt.Name, m.group)
}

// tensorsOf has the sender hold a version, and refuses one that does not fit.
func (e *Engine) tensorsOf(ctx context.Context, version loop.Version) (Held, error) {
	held, err := e.opt.Sender.Hold(ctx, e.opt.Name, version)
	if err != nil {
		return Held{}, err
	}
	shapes := make(map[string]string, len(held.Tensors))
	for _, t := range held.Tensors {
		shapes[t.Name] = fmt.Sprint(t.Shape)
	}
	if held.Digest == "" {
		return Held{}, errors.New("the sender names no digest of the tensors: whether an update has changed anything could not be told")
	}
	if len(shapes) != len(held.Tensors) || len(shapes) == 0 {
		return Held{}, fmt.Errorf("the sender has %d tensors of %d names: want one at least, and a name of its own for each", len(held.Tensors), len(shapes))
	}
	if e.shapes == nil {
		e.shapes = shapes
	}
	return held, sameShapes(e.shapes, shapes)
}

// meet makes a group of the server and the sender, in the place of the one before.
func (e *Engine) meet(ctx context.Context, caps *Capabilities) error {
	joiner := e.opt.Dialect.(Joiner) // Validate has seen to it
	losses := e.counts.losses.Load()
	e.partRemembered(ctx, caps, e.part(ctx, partLimit))
	ctx, cancel := e.limited(ctx, "sender and server have not met within")
	defer cancel()
	g, err := e.opt.Sender.Meet(ctx, e.opt.Name, max(caps.Ranks, 1), func(ctx context.Context, g Group) error {
		e.met = meeting{g, caps, losses} // also if it fails: it may be in it by half
		e.opt.Groups.Joining(e.opt.Name, g.Name)
		return joiner.Join(ctx, e.opt.Server, g, caps)
	})
	if err != nil {
		e.part(ctx, partLimit)
		return fmt.Errorf("joining a group with the sender: %w", withCause(ctx, err))
	}
	e.met = meeting{g, caps, losses}
	return nil
}

// withCause adds why a context ended to an error that only says that it did.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// part gives up the group that the server is in, if any. The server is told if it is still the one
// that joined; one that does not listen is told again before it joins another. asked is of which group it was
// told, empty for none.
func (e *Engine) part(ctx context.Context, limit time.Duration) (asked string) {
	m := e.met
	e.met = meeting{}
	if m.group.Name == "" {
		return ""
	}
	e.opt.Sender.Part(e.opt.Name, m.group)
	if m.losses != e.counts.losses.Load() {
		return ""
	}
	e.leaveGroup(ctx, limit, m.group, m.caps)
	return m.group.Name
}

// receive has the loaded version broadcast and the server take it. One that fails ends the other, and
// the group with them.
func (e *Engine) receive(ctx context.Context, u Update, caps *Capabilities) error {
	if !e.together() {
		return errors.New("the group with the sender broke in this moment: it is made anew with the next load")
	}
	u.Group, u.Tensors = e.met.group, e.loaded.held.Tensors
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := make(chan error, 1)
	go func() {
		err := e.opt.Sender.Send(both, e.opt.Name, u.Group, u.Version)
		if err != nil {
			err = fmt.Errorf("the sender: %w", err)
			cancel(err)
		}
		sent <- err
	}()
	err := e.opt.Dialect.Update(both, e.opt.Server, u, caps)
	if err != nil {
		cancel(err)
	}
	errSent := <-sent
	if err == nil && errSent == nil {
		return nil
	}
	cause := context.Cause(both) // which of the two was heard of first
	e.part(ctx, partLimit)
	return withOther(cause, err, errSent)
}

// withOther adds to what was heard of first what the other side says: of a sender that breaks off and
// a server that notices, either may be heard of first. A side that was only told to stop adds nothing, and
// what is added says nothing of whether the server is gone: a server may well fail because the sender has.
func withOther(first, server, sender error) error {
	for _, other := range []error{server, sender} {
		if other == nil || errors.Is(first, other) || errors.Is(other, first) || errors.Is(other, context.Canceled) || errors.Is(other, context.DeadlineExceeded) {
			continue
		}
		return fmt.Errorf("%w; %v", first, other)
	}
	return first
}
