package channel

import (
	"fmt"
	"slices"
)

// Part is a stretch of rows that lie in one blob.
type Part struct {
	// Start is the first row that it covers, Rows their number, at least 1.
	Start int32 `json:"start"`
	Rows  int32 `json:"rows"`
	// Blob is the number of the blob among those of the rollout's attempt. Skip is how many of its rows come before.
	Blob int32 `json:"blob"`
	Skip int32 `json:"skip"`
}

// End is the row after the last one.
func (p Part) End() int32 { return p.Start + p.Rows }

// cut is the rows of p from start on and before end; both lie inside.
func (p Part) cut(start, end int32) Part {
	return Part{Start: start, Rows: end - start, Blob: p.Blob, Skip: p.Skip + start - p.Start}
}

// Channel is what there is of a channel of one sequence. Rows that no part covers are absent.
type Channel struct {
	Header
	// Sequence is the place of the sequence among those of its rollout: 0 for the first.
	Sequence int32 `json:"sequence,omitempty"`
	// Parts are in order and do not overlap.
	Parts []Part `json:"parts"`
}

// Rows is how many rows a sequence has whose tokens the policy sampled where mask is 1.
func (a Align) Rows(mask []uint8) int {
	switch a {
	case Passes:
		return max(len(mask)-1, 0)
	case Sampled:
		return count(mask)
	}
	return len(mask)
}

// count is how many tokens were sampled.
func count(mask []uint8) int {
	n := 0
	for _, m := range mask {
		n += int(m)
	}
	return n
}

// Present is how many rows there are.
func (c *Channel) Present() int {
	n := 0
	for _, p := range c.Parts {
		n += int(p.Rows)
	}
	return n
}

// Wanted is the first row of passes from a row on that is absent and that a later answer may say. An engine needs to say
// none before it. It is the sequence's last token where all are there: the pass of that token is yet to come.
func (c *Channel) Wanted(from int, mask []uint8) int {
	next := 0 // of Parts
	for i := from; i < len(mask)-1; i++ {
		for next < len(c.Parts) && int(c.Parts[next].End()) <= i {
			next++
		}
		if next < len(c.Parts) && int(c.Parts[next].Start) <= i {
			i = int(c.Parts[next].End()) - 1
			continue
		}
		if mask[i+1] == 0 {
			return i
		}
	}
	return max(len(mask)-1, from, 0)
}

// Add records the part of an answer, in rows of the sequence. The answer sampled the tokens from first on; mask is 1
// where a token of the sequence was sampled, the answer's own included.
//
// A row of a pass belongs to the call that sampled the token after it. The pass may be computed again later, for a
// cache that is filled anew, and then by other weights. So a row that is there stays. A row before a sampled token is
// taken from no call but the one that sampled the token. A row before any other token is taken from the first answer
// that has it. Rows beyond the sequence are dropped.
//
// A row of another alignment is said once. A second one, or one beyond the sequence, is an error, and nothing is added.
func (c *Channel) Add(p Part, first int, mask []uint8) error {
	rows := int32(c.Align.Rows(mask))
	if p.Start < 0 || p.Rows < 0 || p.Skip < 0 {
		return fmt.Errorf("channel %s: an answer has %d rows from %d on", c.Name, p.Rows, p.Start)
	}
	if c.Align != Passes {
		if p.End() > rows {
			return fmt.Errorf("channel %s: an answer has the rows from %d to %d of a sequence of %d", c.Name, p.Start, p.End(), rows)
		}
		for _, old := range c.Parts {
			if old.Start < p.End() && p.Start < old.End() {
				return fmt.Errorf("channel %s: an answer has the rows from %d to %d, and those from %d to %d are there already", c.Name, p.Start, p.End(), old.Start, old.End())
			}
		}
		c.insert(p)
		return nil
	}
	c.addPasses(p, min(p.End(), rows), first, mask)
	return nil
}

// addPasses records the rows of p before end that are absent and that the answer may say.
func (c *Channel) addPasses(p Part, end int32, first int, mask []uint8) {
	added := make([]Part, 0, 1)
	old, from := 0, int32(-1) // from is the first row of a stretch that is taken, -1 for none
	for i := p.Start; i < end; i++ {
		for old < len(c.Parts) && c.Parts[old].End() <= i {
			old++
		}
		covered := old < len(c.Parts) && c.Parts[old].Start <= i
		takes := !covered && (int(i)+1 >= first || mask[i+1] == 0)
		switch {
		case takes && from < 0:
			from = i
		case !takes && from >= 0:
			added, from = append(added, p.cut(from, i)), -1
		}
	}
	if from >= 0 {
		added = append(added, p.cut(from, end))
	}
	for _, a := range added {
		c.insert(a)
	}
}

// insert puts a part in its place; it overlaps none.
func (c *Channel) insert(p Part) {
	if p.Rows == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(c.Parts, p.Start, func(q Part, start int32) int { return int(q.Start - start) })
	if at > 0 && follows(c.Parts[at-1], p) {
		c.Parts[at-1].Rows += p.Rows
		return
	}
	c.Parts = slices.Insert(c.Parts, at, p)
}

// follows reports whether the rows of p come right after those of before, in sequence and blob.
func follows(before, p Part) bool {
	return before.Blob == p.Blob && before.End() == p.Start && before.Skip+before.Rows == p.Skip
}

// Append records a whole turn: the response to a prompt that the sequence's tokens begin. Rows of passes in turn count
// from the sequence's beginning, others from the response's, which is the token first of the sequence.
func (c *Channel) Append(turn *Channel, first int, mask []uint8) error {
	if !c.Same(turn.Header) {
		return fmt.Errorf("channel %s has rows of %s %v, and an answer has some of %s %v", c.Name, c.DType, c.Row, turn.DType, turn.Row)
	}
	shift := 0
	switch c.Align {
	case Sampled:
		shift = count(mask[:first])
	case Tokens:
		shift = first
	}
	for _, p := range turn.Parts {
		p.Start += int32(shift)
		if err := c.Add(p, first, mask); err != nil {
			return err
		}
	}
	return nil
}

// Truncate keeps what is of the first tokens, whose mask is given.
func (c *Channel) Truncate(mask []uint8) {
	rows := int32(c.Align.Rows(mask))
	kept := c.Parts[:0:0] // what is forked may share the parts
	for _, p := range c.Parts {
		if p.Start < rows {
			kept = append(kept, p.cut(p.Start, min(p.End(), rows)))
		}
	}
	c.Parts = kept
}

// Fork is the channel of another sequence that begins with the first tokens of this one, in which they were not
// sampled. It has their rows of passes, by reference. Channels of other alignments begin empty.
func (c *Channel) Fork(shared int) Channel {
	out := Channel{Header: c.Header}
	if c.Align == Passes {
		out.Parts = c.Parts
		out.Truncate(make([]uint8, shared))
	}
	return out
}

// Check refuses a channel whose parts do not lie in a sequence of that mask, in order.
func (c *Channel) Check(mask []uint8) error {
	if err := c.Header.Check(); err != nil {
		return err
	}
	end, rows := int32(0), int32(c.Align.Rows(mask))
	for _, p := range c.Parts {
		if p.Start < end || p.Rows < 1 || p.Rows > rows-p.Start || p.Blob < 0 || p.Skip < 0 {
			return fmt.Errorf("channel %s has a part of %d rows from %d on, after %d, of %d: want parts in order, inside and apart", c.Name, p.Rows, p.Start, end, rows)
		}
		end = p.End()
	}
	return nil
}
