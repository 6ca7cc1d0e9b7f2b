package serving

// cache is the prefix cache of one replica, or of its host: a tree of runs of blocks.
//
// Calls that go on from one another share the runs from the root. A run that some call uses is
// active. Any other stays findable, in the order of last use, until its blocks are needed: a call that
// ends gives back its last blocks first, so that the first in that order never has a successor.
type cache struct {
	capacity, active, idle int32
	nodes                  []node
	unused                 []int32
	// byFirst finds a run by the name of its first block, which stands for all blocks before it, too.
	byFirst map[uint64]int32
	// oldest and newest are the ends of the idle runs by last use.
	oldest, newest int32
	// evicted counts blocks that were findable and are not any more.
	evicted int64
}

// node is a run of blocks that have the same users.
type node struct {
	chain        chain
	from, to     int32
	parent       int32
	older, newer int32
	users        int32
	children     int32
	// lost says that no call may find it: its blocks are of old weights, or a record has one name for two contexts.
	lost bool
}

// none is no node.
const none = int32(-1)

func newCache(blocks int32) *cache {
	return &cache{capacity: blocks, byFirst: map[uint64]int32{}, oldest: none, newest: none}
}

// room is how many blocks can be had.
func (c *cache) room() int32 { return c.capacity - c.active }

// find counts the blocks of a context that are there, at most so many, and how many of those are idle.
func (c *cache) find(of *chain, most int32) (found, idle int32) {
	for last := none; found < most; {
		at, ok := c.byFirst[of.at(found)]
		if !ok || c.nodes[at].parent != last { // a record may have one name for two contexts
			break
		}
		n := &c.nodes[at]
		end := min(n.to, most)
		last = at
		same := n.chain.same(of, found, end)
		if n.users == 0 {
			idle += same
		}
		found += same
		if found < n.to {
			break
		}
	}
	return found, idle
}

// acquire makes a call a user of so many blocks, which find has found, and returns the last run.
func (c *cache) acquire(of *chain, blocks int32) int32 {
	leaf := none
	for at := int32(0); at < blocks; {
		leaf = c.byFirst[of.at(at)]
		if c.nodes[leaf].to > blocks {
			leaf = c.split(leaf, blocks)
		}
		c.use(leaf)
		at = c.nodes[leaf].to
	}
	return leaf
}

// split cuts a run in two and returns the first part. The second keeps its place, so that users' runs stay what they are.
func (c *cache) split(at, where int32) int32 {
	upper := c.make(c.nodes[at])
	n, u := &c.nodes[at], &c.nodes[upper]
	u.to, u.children = where, 1
	n.from, n.parent = where, upper
	c.byFirst[u.chain.at(u.from)] = upper
	c.byFirst[n.chain.at(where)] = at
	if n.users == 0 {
		u.older, u.newer = at, n.newer
		if n.newer == none {
			c.newest = upper
		} else {
			c.nodes[n.newer].older = upper
		}
		n.newer = upper
	}
	return upper
}

// make stores a run.
func (c *cache) make(n node) int32 {
	if last := len(c.unused) - 1; last >= 0 {
		at := c.unused[last]
		c.unused = c.unused[:last]
		c.nodes[at] = n
		return at
	}
	c.nodes = append(c.nodes, n)
	return int32(len(c.nodes) - 1)
}

// take makes so many blocks active, which must have room, at the cost of those that were not used for longest.
func (c *cache) take(blocks int32) {
	c.active += blocks
	for over := c.active + c.idle - c.capacity; over > 0; {
		n := &c.nodes[c.oldest]
		cut := min(over, n.to-n.from)
		n.to -= cut
		over -= cut
		c.idle -= cut
		c.evicted += int64(cut)
		if n.to == n.from {
			at := c.oldest
			if first := n.chain.at(n.from); c.byFirst[first] == at { // a record may use one name twice
				delete(c.byFirst, first)
			}
			c.unlink(at)
			c.remove(at)
		}
	}
}

// give returns active blocks that no run has.
func (c *cache) give(blocks int32) { c.active -= blocks }

// extend makes a call's own blocks from one on, before another, findable behind its last run, and returns the then last run.
// Where another call has computed the same blocks meanwhile, the call uses those, and its own are free.
func (c *cache) extend(leaf int32, of *chain, from, to int32) int32 {
	for from < to {
		if leaf != none && c.nodes[leaf].users == 1 && c.nodes[leaf].children == 0 {
			c.nodes[leaf].chain, c.nodes[leaf].to = *of, to
			return leaf
		}
		at, there := c.byFirst[of.at(from)]
		if lost := leaf != none && c.nodes[leaf].lost; lost || !there || c.nodes[at].parent != leaf {
			return c.branch(leaf, of, from, to, there || lost)
		}
		end := min(c.nodes[at].to, to)
		if end = from + c.nodes[at].chain.same(of, from, end); end < c.nodes[at].to {
			at = c.split(at, end)
		}
		c.use(at)
		c.give(end - from)
		leaf, from = at, end
	}
	return leaf
}

// branch makes a run behind another.
func (c *cache) branch(leaf int32, of *chain, from, to int32, lost bool) int32 {
	at := c.make(node{chain: *of, from: from, to: to, parent: leaf, older: none, newer: none, users: 1, lost: lost})
	if leaf != none {
		c.nodes[leaf].children++
	}
	if !lost {
		c.byFirst[of.at(from)] = at
	}
	return at
}

// use makes a call a user of a run.
func (c *cache) use(at int32) {
	n := &c.nodes[at]
	if n.users == 0 {
		c.unlink(at)
		c.idle -= n.to - n.from
		c.active += n.to - n.from
	}
	n.users++
}

// release ends a call's use of a run and of all before it.
func (c *cache) release(leaf int32) {
	for at := leaf; at != none; {
		n := &c.nodes[at]
		parent := n.parent
		if n.users--; n.users == 0 {
			c.active -= n.to - n.from
			if n.lost {
				c.remove(at)
			} else {
				c.idle += n.to - n.from
				c.append(at)
			}
		}
		at = parent
	}
}

// forget makes all that is there unfindable: the weights have changed.
func (c *cache) forget() {
	clear(c.byFirst)
	for c.oldest != none {
		at := c.oldest
		c.evicted += int64(c.nodes[at].to - c.nodes[at].from)
		c.unlink(at)
		c.remove(at)
	}
	c.idle = 0
	for i := range c.nodes {
		c.nodes[i].lost = true
	}
}

// append puts a run at the end of the order of last use.
func (c *cache) append(at int32) {
	n := &c.nodes[at]
	n.older, n.newer = c.newest, none
	if c.newest == none {
		c.oldest = at
	} else {
		c.nodes[c.newest].newer = at
	}
	c.newest = at
}

// unlink takes a run out of that order.
func (c *cache) unlink(at int32) {
	n := &c.nodes[at]
	if n.older == none {
		c.oldest = n.newer
	} else {
		c.nodes[n.older].newer = n.newer
	}
	if n.newer == none {
		c.newest = n.older
	} else {
		c.nodes[n.newer].older = n.older
	}
}

// remove drops a run that has no user and no successor.
func (c *cache) remove(at int32) {
	if parent := c.nodes[at].parent; parent != none {
		c.nodes[parent].children--
	}
	c.nodes[at] = node{}
	c.unused = append(c.unused, at)
}

// store makes a context's first blocks findable without a user: how a host keeps what a replica computed.
func (c *cache) store(of *chain, blocks int32) {
	blocks = min(blocks, c.capacity)
	found, _ := c.find(of, blocks)
	leaf := c.acquire(of, found)
	if rest := min(blocks-found, c.room()); rest > 0 {
		c.take(rest)
		leaf = c.extend(leaf, of, found, found+rest)
	}
	c.release(leaf)
}
