package checker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// rows are those of a channel of a batch, as its trainer was given them.
type rows struct {
	call
	name           string
	lease, attempt int64
	rank, world    int
	// parts are sequence, first row and number of rows, of which bytes has all.
	parts [][3]int64
	bytes []byte
}

// channel reads the rows of a channel.
func (t *testimony) channel(at call, x *history.Exchange, lease int64, name string) {
	var request struct {
		Attempt int64 `json:"attempt"`
		Rank    int   `json:"rank"`
		World   int   `json:"world_size"`
	}
	if !at.whole || at.status != 200 || json.Unmarshal(x.Request, &request) != nil {
		return
	}
	r := rows{call: at, name: name, lease: lease, attempt: request.Attempt, rank: request.Rank, world: max(request.World, 1)}
	if err := r.read(x.Response); err != nil {
		t.c.fail(RuleRows, at.line, "the rows of lease %d cannot be read: %v", lease, err)
		return
	}
	t.rows = append(t.rows, r)
}

// read reads a file of safetensors with the parts and their rows.
func (r *rows) read(raw []byte) error {
	if len(raw) < 8 || binary.LittleEndian.Uint64(raw) > uint64(len(raw)-8) {
		return fmt.Errorf("%d bytes", len(raw))
	}
	data := raw[8+binary.LittleEndian.Uint64(raw):]
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:len(raw)-len(data)], &header); err != nil {
		return err
	}
	tensor := func(name string) []byte {
		at := header[name].Offsets
		if at[0] < 0 || at[1] < at[0] || at[1] > len(data) {
			return nil
		}
		return data[at[0]:at[1]]
	}
	numbers := numbers[int64](tensor("parts"))
	for ; len(numbers) >= 3; numbers = numbers[3:] {
		r.parts = append(r.parts, [3]int64(numbers))
	}
	if r.bytes = tensor("rows"); len(numbers) > 0 {
		return errors.New("the parts are no rows of three numbers")
	}
	return nil
}

// checkRows computes the rows of batches again.
func (c *check) checkRows() {
	names := c.newNames()
	for i := range c.said.rows {
		r := &c.said.rows[i]
		for j := range c.said.batches {
			b := &c.said.batches[j]
			if b.body.lease.Lease == r.lease && b.rank == r.rank && max(b.world, 1) == r.world {
				c.rowsOf(&names, r, b)
				break
			}
		}
	}
}

// rowsOf checks the rows of one batch. The row of a pass is of the weights that sampled the token behind it. Behind it may
// stand a token that the policy has not sampled, and then any version may have read it.
func (c *check) rowsOf(n *names, r *rows, b *batch) {
	left, seen := r.bytes, map[int64]bool{}
	for _, part := range r.parts {
		if part[0] < 0 || int(part[0]) >= len(b.body.groups) {
			c.fail(RuleRows, r.line, "lease %d has rows of sequence %d, and has %d sequences", r.lease, part[0], len(b.body.groups))
			return
		}
		from, to := b.body.offsets[part[0]], b.body.offsets[part[0]+1]
		for at := part[1]; at < part[1]+part[2]; at++ {
			next := from + at + 1
			if at < 0 || next >= to || len(left) < expertsBytes || seen[next] {
				c.fail(RuleRows, r.line, "lease %d has a row %d of sequence %d, which has %d tokens: behind the last, twice, or without its bytes", r.lease, at, part[0], to-from)
				return
			}
			row := left[:expertsBytes]
			left, seen[next] = left[expertsBytes:], true
			h := before(0)
			for _, token := range b.body.tokens[from:next] {
				h = h.and(token)
			}
			if v := b.body.versions[next]; b.body.mask[next] == 1 && !n.chose(row, h, v, v) || b.body.mask[next] == 0 && !n.chose(row, h, 0, int32(b.body.lease.Version)) {
				c.fail(RuleRows, r.line, "row %d of sequence %d of lease %d is %v, and the weights of version %d choose others", at, part[0], r.lease, row, v)
				return
			}
		}
	}
	if len(left) > 0 {
		c.fail(RuleRows, r.line, "lease %d has %d bytes of rows that are of no part", r.lease, len(left))
	}
	c.missing(r, b.body, seen)
}

// missing reports a turn without a row, and rows that are fewer than their lease says, where nothing took them.
func (c *check) missing(r *rows, b *body, seen map[int64]bool) {
	wants := c.wantsRows(b)
	for i, wanted := range wants {
		s := sequence{mask: b.mask[b.offsets[i]:b.offsets[i+1]]}
		for from, to := range s.turns() {
			none := wanted
			for at := from; at < to; at++ {
				none = none && !seen[b.offsets[i]+int64(at)]
			}
			if none {
				c.fail(RuleRows, r.line, "lease %d has no row of the turn at token %d of sequence %d, and nothing has taken them", r.lease, from, i)
				return
			}
		}
	}
	for _, w := range b.lease.Channels {
		if w.Name == r.name && (len(seen) > w.Rows || len(seen) < w.Rows && slices.Contains(wants, true)) {
			c.fail(RuleRows, r.line, "lease %d says %d rows of %s, and has %d", r.lease, w.Rows, w.Name, len(seen))
		}
	}
}

// counted checks what a share says of its side channels: each of its tokens but the first of a sequence has a row, or lacks it.
func (c *check) counted(b *batch) {
	for _, w := range b.body.lease.Channels {
		if passes := len(b.body.tokens) - len(b.body.groups); w.Rows < 0 || w.Absent < 0 || w.Rows+w.Absent != passes {
			c.fail(RuleRows, b.line, "lease %d says %d rows of %s and %d absent ones, and has %d tokens in %d sequences", b.body.lease.Lease, w.Rows, w.Name, w.Absent, len(b.body.tokens), len(b.body.groups))
		}
	}
}

// wantsRows are the sequences of a share that have rows: where there is room, and no fault takes what was put. A twin of a cell
// has another disk, without the rows of turns that the process before it has kept.
func (c *check) wantsRows(b *body) []bool {
	wants := make([]bool, len(b.groups))
	if !c.sampler.Rows || slices.ContainsFunc(c.outages, func(o outage) bool { return o.kind == "full" || o.kind == "power" && o.keeps() }) {
		return wants
	}
	for i := range wants {
		a := c.log.newest[attemptID{b.groups[i], b.samples[i], 0}]
		otherDisk := a != nil && c.twin(c.log.cells.names[c.log.rules.cellOf(a.engine)])
		wants[i] = !otherDisk && slices.Contains(b.mask[b.offsets[i]:b.offsets[i+1]], 1)
	}
	return wants
}

// chose says whether the weights of one of some versions choose a row.
func (n *names) chose(row []byte, h before, first, last int32) bool {
	for v := first; v <= last; v++ {
		for name := range n.all(v) {
			if bytes.Equal(row, experts(name, h)) {
				return true
			}
		}
	}
	return false
}

// expertsBytes is the size of a row: two of eight experts in each of two layers.
const expertsBytes = 4

// experts is the row of a pass over some tokens, under weights whose name has a hash.
func experts(weights uint64, h before) []byte {
	x := (uint64(h) ^ weights ^ 0xE4) * 0x9E3779B97F4A7C15
	row := make([]byte, 0, expertsBytes)
	for _, shift := range []int{0, 12} {
		first := (x >> (20 + shift)) % 8
		row = append(row, byte(first), byte((first+1+(x>>(26+shift))%7)%8))
	}
	return row
}
