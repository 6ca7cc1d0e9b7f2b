package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// meetWaitS is how long an engine's place at a meeting waits before it is taken again.
const meetWaitS = 60

var _ upstream.Sender = (*Coordinator)(nil)

// holdPatience is how long a version is waited for that the sender has not got, from its word on.
const holdPatience = 90 * time.Second

// Hold implements [upstream.Sender]. It waits for a sender, and for the next one where one is lost, as
// long as its context lets it. A sender that lacks the version, such as a trainer that has just been
// started again, is waited for too. The wait lasts until it has that version or a newer one.
func (c *Coordinator) Hold(ctx context.Context, engine string, version loop.Version) (upstream.Held, error) {
	defer c.found(engine)
	for {
		o := c.give(protocol.SenderCommand{Kind: protocol.SenderHold, Engine: engine, Version: version})
		err := c.await(ctx, o)
		if err == nil {
			held := upstream.Held{Digest: o.done.Digest, Tensors: make([]upstream.Tensor, len(o.done.Tensors))}
			for i, t := range o.done.Tensors {
				held.Tensors[i] = upstream.Tensor(t)
			}
			return held, nil
		}
		if o.done.Error == "" || !c.awaitVersion(ctx, engine, version, err) {
			return upstream.Held{}, err
		}
	}
}

// awaitVersion waits, after a sender has said that it cannot hold a version, until it is worth asking
// again: another process is the sender, or it has the version now. False where there is no
// use: it had the version, has a newer one, or still lacks it after holdPatience.
func (c *Coordinator) awaitVersion(ctx context.Context, engine string, version loop.Version, why error) bool {
	limit := time.NewTimer(holdPatience)
	defer limit.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	first, had := c.sender, c.has(version)
	c.opt.Logf("engine %s goes on with what it serves until a sender has version %d, or a newer one: %v", engine, version, why)
	for c.sender == first && c.has(version) == had {
		if had || c.sender != nil && len(c.sender.holds) > 0 && slices.Max(c.sender.holds) > version {
			return false
		}
		moved := c.moved
		c.mu.Unlock()
		over := false
		select {
		case <-moved:
		case <-limit.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		c.mu.Lock()
		if over {
			return false
		}
	}
	return true
}

// has reports whether the sender has said that it holds a version. c.mu must be held.
func (c *Coordinator) has(version loop.Version) bool {
	return c.sender != nil && slices.Contains(c.sender.holds, version)
}

// Meet implements [upstream.Sender]: join is called once both sides are told where, while the sender joins.
func (c *Coordinator) Meet(ctx context.Context, engine string, ranks int, join func(context.Context, upstream.Group) error) (upstream.Group, error) {
	backend, err := c.awaitSender(ctx, engine)
	if err != nil {
		return upstream.Group{}, err
	}
	o := c.give(protocol.SenderCommand{Kind: protocol.SenderJoin, Engine: engine, Version: loop.NoVersion})
	defer c.opt.Meetings.Forget(o.Rendezvous)
	late := time.AfterFunc(lateAfter, func() { c.late(o) })
	defer late.Stop()
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := make(chan error, 1)
	go func() {
		err := c.await(both, o)
		if err != nil {
			cancel(err)
		}
		sent <- err
	}()
	g, err := c.meet(both, o, ranks, backend)
	if err == nil {
		c.seated(o, net.JoinHostPort(g.Address, strconv.Itoa(g.Port)))
		late.Reset(lateAfter)
		err = join(both, g)
	}
	if err != nil {
		cancel(err)
	}
	errSender := <-sent
	switch {
	case err != nil || errSender != nil:
		err = context.Cause(both) // which of the two failed first
	case !c.joined(o):
		err = errors.New("the sender was lost right after it had joined")
	default:
		return g, nil
	}
	c.Part(engine, upstream.Group{Name: o.Group})
	return upstream.Group{}, err
}

// meet takes an engine's place in the round until the sender is there too. Who is told that others
// are missing asks again.
func (c *Coordinator) meet(ctx context.Context, o *order, ranks int, backend string) (upstream.Group, error) {
	req := protocol.RendezvousRequest{Member: nameable(o.Engine), Role: "engine", Ranks: ranks, Backend: backend, WaitS: meetWaitS}
	for {
		reply, err := c.opt.Meetings.Join(ctx, o.Rendezvous, req)
		if err == nil {
			return upstream.Group{Name: o.Group, Address: reply.MasterAddress, Port: reply.MasterPort, RankOffset: reply.RankOffset, WorldSize: reply.WorldSize,
				Backend: reply.Backend}, nil
		}
		refusal, ok := errors.AsType[*protocol.Refusal](err)
		if !ok || refusal.Code != protocol.CodeUnavailable || refusal.Detail["missing"] == nil {
			return upstream.Group{}, err
		}
	}
}

// Send implements [upstream.Sender].
func (c *Coordinator) Send(ctx context.Context, engine string, g upstream.Group, version loop.Version) error {
	err := c.await(ctx, c.give(protocol.SenderCommand{Kind: protocol.SenderSend, Engine: engine, Version: version, Group: g.Name}))
	c.count(version, err)
	if err != nil {
		c.Part(engine, g)
	}
	return err
}

// count notes how a send ended.
func (c *Coordinator) count(version loop.Version, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sends++; err != nil {
		c.failedSends++
		return
	}
	c.sent = max(c.sent, version)
}

// give makes a command of the sender's. One of the same engine that is still there is in its way: its
// caller has given it up.
func (c *Coordinator) give(command protocol.SenderCommand) *order {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.orders {
		if other.Engine == command.Engine {
			c.end(other, fmt.Errorf("another command of engine %s has taken its place", command.Engine))
		}
	}
	o := &order{SenderCommand: command}
	if o.Kind == protocol.SenderSend && c.standing(o.Engine, o.Group) == nil {
		o.over, o.err = true, fmt.Errorf("the group %q does not stand any more: the sender that was in it has ended", o.Group)
		return o
	}
	c.number(o)
	if o.Kind == protocol.SenderJoin {
		// A name of its own for each try: nobody who still waits at an earlier one is met.
		name := ownPrefix + nameable(o.Engine) + "-" + strconv.FormatInt(o.Seq, 36)
		o.Rendezvous, o.Group = name, name
		c.groups[o.Engine] = &group{name: name, since: c.opt.Clock()}
	}
	c.change()
	return o
}

// nameable is an engine's name as members and meetings may be called.
func nameable(engine string) string {
	fit := strings.Map(func(r rune) rune {
		if r < 128 && protocol.CheckName(string(r)) == nil {
			return r
		}
		return '_'
	}, engine)
	return fit[:min(len(fit), 64)]
}

// await waits until an order is over. Where its context ends first, it is taken back.
func (c *Coordinator) await(ctx context.Context, o *order) error {
	look := time.NewTicker(c.opt.Silence / 10)
	defer look.Stop()
	for {
		c.mu.Lock()
		if !o.over && !c.there() {
			c.bereave(o)
		}
		over, moved := o.over, c.moved
		c.mu.Unlock()
		if over {
			return o.err
		}
		select {
		case <-moved:
		case <-look.C:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.end(o, context.Cause(ctx))
			return o.err
		}
	}
}

// bereave does what an order without a sender comes to: what is to be held can be held by the next one,
// and what is done in a group cannot be done any more. c.mu must be held.
func (c *Coordinator) bereave(o *order) {
	if o.Kind == protocol.SenderHold {
		c.lack(o.Engine)
		return
	}
	why := errors.New("the sender is gone")
	if s := c.sender; s != nil {
		why = fmt.Errorf("sender %s was last heard of %.0f s ago", s.name, c.since(s).Seconds())
	}
	c.end(o, why)
}

// awaitSender waits until a sender is there, and returns the backend of its collectives.
func (c *Coordinator) awaitSender(ctx context.Context, engine string) (backend string, err error) {
	defer c.found(engine)
	for {
		c.mu.Lock()
		here := c.there()
		if here {
			backend = c.sender.backend
		} else {
			c.lack(engine)
		}
		moved := c.moved
		c.mu.Unlock()
		if here {
			return backend, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// lack notes that an engine waits for a sender, and says so once. c.mu must be held.
func (c *Coordinator) lack(engine string) {
	if c.waiting[engine] {
		return
	}
	c.waiting[engine] = true
	if s := c.sender; s != nil {
		c.opt.Logf("engine %s waits for the sender: %s was last heard of %.0f s ago; start its process again", engine, s.name, c.since(s).Seconds())
		return
	}
	c.opt.Logf("engine %s waits for a sender: its weights are distributed, and no process is there that has the trainer's; start one with a Sender (headway.torch), and a token of role trainer", engine)
}

// found notes that an engine does not wait for a sender any more.
func (c *Coordinator) found(engine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, engine)
}
