package checker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// reference names the body of a group.
type reference struct {
	Group  int64  `json:"group"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// readLease reads an answer to a lease. By reference it has no tensors.
func readLease(raw []byte, form string) (*body, []reference, error) {
	if form != "references" {
		b, err := readBody(raw)
		return b, nil, err
	}
	b := &body{}
	said := struct {
		*leaseWord
		References []reference `json:"references"`
	}{leaseWord: &b.lease}
	err := json.Unmarshal(raw, &said)
	return b, append([]reference{}, said.References...), err
}

// groupSaid is a reference to a group that was announced, or that of a body that came.
type groupSaid struct {
	line int
	reference
}

// group keeps the body of a group by its hash, or the references to groups that are announced.
func (t *testimony) group(at call, x *history.Exchange, parts []string) {
	switch {
	case len(parts) != 1 || !at.whole || at.status != 200:
	case parts[0] == "ready":
		var reply struct {
			Groups []reference `json:"groups"`
		}
		if t.read(at, x.Response, &reply) {
			for _, r := range reply.Groups {
				t.announced = append(t.announced, groupSaid{at.line, r})
			}
		}
	case x.Method == "GET":
		if t.bodies == nil {
			t.bodies = map[string][]byte{}
		}
		sum := sha256.Sum256(x.Response)
		hash := hex.EncodeToString(sum[:])
		t.bodies[hash] = x.Response
		if g, err := strconv.ParseInt(parts[0], 10, 64); err == nil {
			t.came = append(t.came, groupSaid{at.line, reference{g, int64(len(x.Response)), hash}})
		}
	}
}

// gather makes the shares that were leased by reference of the bodies that came. A share of which one never came is none:
// its rank cannot have trained on it. A lease names a group by one hash all the time.
func (t *testimony) gather() {
	named := map[int64]string{}
	t.batches = slices.DeleteFunc(t.batches, func(b batch) bool {
		if b.references == nil {
			return false
		}
		whole := &body{lease: b.body.lease, offsets: []int64{0}}
		for i, r := range b.references {
			if was := named[r.Group]; was != "" && was != r.SHA256 {
				t.c.fail(RuleLeaseContent, b.line, "lease %d names group %d by the hash %.12s, and a lease before by %.12s", b.body.lease.Lease, r.Group, r.SHA256, was)
			}
			named[r.Group] = r.SHA256
			if i >= len(whole.lease.Stamps) || whole.lease.Stamps[i].Group != r.Group {
				t.c.fail(RuleLeaseContent, b.line, "reference %d of lease %d is to group %d, and its stamps are %v", i, b.body.lease.Lease, r.Group, whole.lease.Stamps)
			}
			raw, came := t.bodies[r.SHA256]
			if !came {
				return true
			}
			g, err := readBody(raw)
			if err != nil || int64(len(raw)) != r.Bytes {
				t.c.fail(RuleBatch, b.line, "the body of group %d has %d bytes, of %d, and cannot be read: %v", r.Group, len(raw), r.Bytes, err)
				return true
			}
			whole.join(g)
		}
		*b.body = *whole
		return false
	})
	t.leased = named
}

// checkGroups reports bodies that came under a hash that no reference to their group has, and groups that were announced by
// another hash than they were leased by. A plane may announce a group before the log has it: another one makes it again.
func (c *check) checkGroups() {
	t := c.said
	all := map[groupHash]bool{}
	for g, hash := range t.leased {
		all[groupHash{g, hash}] = true
	}
	for _, a := range t.announced {
		all[groupHash{a.Group, a.SHA256}] = true
		if was := t.leased[a.Group]; was != "" && was != a.SHA256 && len(c.log.recovered) == 0 {
			c.fail(RuleLeaseContent, a.line, "group %d is announced by the hash %.12s, and leased by %.12s", a.Group, a.SHA256, was)
		}
	}
	for _, b := range t.came {
		if !all[groupHash{b.Group, b.SHA256}] {
			c.fail(RuleBatch, b.line, "the body of group %d has the hash %.12s, and no reference to it says so", b.Group, b.SHA256)
		}
	}
}

// groupHash is a group and the hash of its body.
type groupHash struct {
	group int64
	hash  string
}

// join appends the rollouts of a group.
func (b *body) join(g *body) {
	begin := int64(len(b.tokens))
	for _, at := range g.offsets[1:] {
		b.offsets = append(b.offsets, begin+at)
	}
	first := int32(0)
	if n := len(b.rollouts); n > 0 {
		first = b.rollouts[n-1] + 1
	}
	for i := range g.groups {
		rollout := int32(i)
		if g.rollouts != nil {
			rollout = g.rollouts[i]
		}
		b.rollouts = append(b.rollouts, first+rollout)
	}
	b.tokens, b.versions, b.mask = append(b.tokens, g.tokens...), append(b.versions, g.versions...), append(b.mask, g.mask...)
	b.logprobs, b.groups = append(b.logprobs, g.logprobs...), append(b.groups, g.groups...)
	b.advantages, b.rewards = append(b.advantages, g.advantages...), append(b.rewards, g.rewards...)
	b.samples, b.data = append(b.samples, g.samples...), append(b.data, g.data...)
}
