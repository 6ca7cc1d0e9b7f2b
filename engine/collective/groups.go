package collective

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
)

// lateAfter is how long an engine may take to join a group before that is said: where it can reach the
// sender it takes a few seconds, and where it cannot, torch tries in silence for minutes.
const lateAfter = 15 * time.Second

// group is a collective of the sender with an engine.
type group struct {
	name string
	// stands: both are in it. Until then it is being made.
	stands bool
	// address is where the sender said that the engine reaches it, empty until it has come to the meeting;
	// since is from when on it is waited for the sender, and then for the engine.
	address string
	since   time.Duration
}

// standing is the group of an engine by that name, nil where it is being made, or is there no more. c.mu
// must be held.
func (c *Coordinator) standing(engine, name string) *group {
	if g := c.groups[engine]; g != nil && g.stands && g.name == name {
		return g
	}
	return nil
}

// making is the group of an engine by that name that is being made, nil for none. c.mu must be held.
func (c *Coordinator) making(engine, name string) *group {
	if g := c.groups[engine]; g != nil && !g.stands && g.name == name {
		return g
	}
	return nil
}

// Stands implements [upstream.Sender].
func (c *Coordinator) Stands(engine string, g upstream.Group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standing(engine, g.Name) != nil && c.there()
}

// Part implements [upstream.Sender]: the sender is told of the group no more.
func (c *Coordinator) Part(engine string, g upstream.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.groups[engine]; known != nil && known.name == g.Name {
		delete(c.groups, engine)
		c.change()
	}
}

// seated notes where a group's engine is to reach the sender, which has come: the engine joins from now on.
func (c *Coordinator) seated(o *order, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.making(o.Engine, o.Group); g != nil {
		g.address, g.since = address, c.opt.Clock()
	}
}

// joined notes that both sides are in a group, and reports whether it is there still.
func (c *Coordinator) joined(o *order) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.making(o.Engine, o.Group)
	if g == nil || !c.there() {
		return false
	}
	g.stands = true
	return true
}

// late says, once for each side, who keeps a group from being made and what to look at.
func (c *Coordinator) late(o *order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.making(o.Engine, o.Group)
	switch {
	case g == nil || c.sender == nil:
	case g.address == "":
		c.opt.Logf("engine %s waits for a group with sender %s, which was told to meet it %.0f s ago and has not come: look at the log of the sender's process",
			o.Engine, c.sender.name, lateAfter.Seconds())
	default:
		c.opt.Logf("engine %s has not joined its group with sender %s for %.0f s: it is to reach the sender at %s, the address that the sender gave. See that it does from the engine's host: whether that is the right address (host= of the Sender, and %s_SOCKET_IFNAME of both processes), and that no firewall keeps ports of the sender's host from it",
			o.Engine, c.sender.name, lateAfter.Seconds(), g.address, strings.ToUpper(c.sender.backend))
	}
}

// joining are the groups that are being made, by the names of their engines. c.mu must be held.
func (c *Coordinator) joining() []protocol.SenderJoining {
	var out []protocol.SenderJoining
	for _, engine := range slices.Sorted(maps.Keys(c.groups)) {
		if g := c.groups[engine]; !g.stands {
			took := c.opt.Clock() - g.since
			out = append(out, protocol.SenderJoining{Engine: engine, Address: g.address, ForS: took.Seconds(), Late: took >= lateAfter})
		}
	}
	return out
}

// groupNames are the groups that there are, in order; standing alone leaves out those that are being made.
// c.mu must be held.
func (c *Coordinator) groupNames(standing bool) []string {
	names := []string{}
	for _, g := range c.groups {
		if g.stands || !standing {
			names = append(names, g.name)
		}
	}
	slices.Sort(names)
	return names
}
