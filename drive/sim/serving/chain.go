package serving

import "github.com/headway-rl/headway/loop/workload/session"

// chain names the blocks of a call's context, from its start. A name stands for all tokens up to the block's end.
type chain struct {
	// ids are the names that the record gives.
	ids []uint64
	// shared names the blocks below common: those of a prompt that all rollouts of a group have.
	shared uint64
	common int32
	// own names all later ones.
	own uint64
}

// Bases of names that no record gives. A context has at most 2^24 blocks.
const (
	ownNames    = uint64(1) << 63
	sharedNames = uint64(3) << 62
	nameBits    = 24
)

// at returns the name of a block.
func (c *chain) at(i int32) uint64 {
	switch {
	case int(i) < len(c.ids):
		return c.ids[i]
	case i < c.common:
		return c.shared + uint64(i)
	}
	return c.own + uint64(i)
}

// same counts the blocks from one on, before another, that have the same names in both.
func (c *chain) same(o *chain, from, to int32) int32 {
	i := from
	for ; i < to && (int(i) < len(c.ids) || int(i) < len(o.ids)); i++ {
		if c.at(i) != o.at(i) {
			return i - from
		}
	}
	if i < to && c.shared == o.shared && c.common == o.common {
		i = min(to, max(i, c.common))
	}
	for ; i < to && (i < c.common || i < o.common); i++ {
		if c.at(i) != o.at(i) {
			return i - from
		}
	}
	if c.own == o.own {
		i = to
	}
	return i - from
}

// namer gives the calls of one session their chains, in order.
type namer struct {
	session *session.Session
	// base is the first name of the blocks that only this session has; serial counts such bases.
	base, shared uint64
	common       int32
	context      int
}

// grouped reports whether any session is one of several rollouts of a prompt.
func grouped(sessions []session.Session) bool {
	for i := range sessions {
		if sessions[i].Sample > 0 {
			return true
		}
	}
	return false
}

// chain names the blocks of the next call's input and output. Every call takes a new serial.
func (n *namer) chain(at int, block int, serial uint64) chain {
	call := &n.session.Calls[at]
	if call.Blocks != nil {
		c := chain{ids: call.Blocks, own: ownNames | serial<<nameBits}
		if at+1 < len(n.session.Calls) {
			c.ids = named(call, &n.session.Calls[at+1], block)
		}
		return c
	}
	if n.base == 0 || call.InputTokens < n.context {
		n.base = ownNames | serial<<nameBits
	}
	n.context = call.InputTokens + call.OutputTokens
	return chain{shared: n.shared, common: n.common, own: n.base}
}

// named extends the names of a call's input by those of its output, which the next call gives where it goes on from there.
func named(call, next *session.Call, block int) []uint64 {
	whole := min((call.InputTokens+call.OutputTokens)/block, len(next.Blocks))
	if whole <= len(call.Blocks) {
		return call.Blocks
	}
	for i, id := range call.Blocks {
		if next.Blocks[i] != id {
			return call.Blocks
		}
	}
	return next.Blocks[:whole]
}
