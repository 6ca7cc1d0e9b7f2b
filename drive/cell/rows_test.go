package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

var routedRows = channel.Header{Name: channel.RoutedExperts, DType: channel.I32, Align: channel.Passes}

// rowsCall is one call to an engine in a conversation: the row from which and up to which it said rows.
type rowsCall struct{ from, to int }

// conversation is a sequence that grows by turns, and by calls inside them, with a model of its rows beside it.
type conversation struct {
	t     *testing.T
	rng   *rand.Rand
	side  sideRows
	blobs map[int32][]byte
	mask  []uint8
	// by is the call that sampled a token, -1 where none did.
	by    []int
	calls []rowsCall
	ch    channel.Channel
	kept  channel.Channel // sampled: one row a token
}

// turn is one response, in one or more calls. An interrupted call may say nothing of its rows, as an aborted one does.
func (c *conversation) turn(known int) {
	first := len(c.mask)
	c.side.begin(first, known)
	for more := true; more; more = c.rng.IntN(3) == 0 {
		var r port.GenerateRequest
		r.Prefix.Tokens = make([]int32, len(c.mask)-first)
		c.side.ask(&r)
		if want := c.wanted(); r.Known != max(want, known) {
			c.t.Fatalf("rows from %d on are asked for, want %d or %d", r.Known, want, known)
		}
		before := len(c.mask)
		for range c.rng.IntN(4) {
			c.mask, c.by = append(c.mask, 1), append(c.by, len(c.calls))
		}
		spare := c.rng.IntN(2) // tokens behind a stop, of which the engine says rows too
		from, to := r.Known, len(c.mask)-1+spare
		switch c.rng.IntN(6) {
		case 0: // a server that ignores the start
			from = 0
		case 1: // an abort says nothing
			to = from
		case 2: // a range with a hole before it
			from = min(from+1, to)
		}
		c.say(r, routedRows, from, to, before)
		c.calls = append(c.calls, rowsCall{from, min(to, len(c.mask)-1)}) // the rest is of tokens that do not stay
		if spare == 0 {
			c.say(r, channel.Header{Name: channel.SamplingMask, DType: channel.I32, Align: channel.Sampled}, before-first, len(c.mask)-first, before)
		}
		c.side.settle(len(c.mask) - first)
	}
	if len(c.mask) == first {
		c.mask, c.by = append(c.mask, 1), append(c.by, len(c.calls)) // a response has a token
		c.calls = append(c.calls, rowsCall{})
	}
	for i := range c.side.channels {
		into := &c.ch
		if c.side.channels[i].Align == channel.Sampled {
			into = &c.kept
		}
		into.Header = c.side.channels[i].Header
		if err := into.Append(&c.side.channels[i], first, c.mask); err != nil {
			c.t.Fatal(err)
		}
	}
}

// wanted is the first row that no call has said whose word would count, and that the next call may say.
func (c *conversation) wanted() int {
	for row := range len(c.mask) - 1 {
		if c.want(row) < 0 && c.by[row+1] < 0 {
			return row
		}
	}
	return len(c.mask) - 1
}

// want is what stands in a row: what the call said that sampled the token after it, or the first that has said it.
func (c *conversation) want(row int) int {
	for n, said := range c.calls {
		if said.from <= row && row < said.to && (c.by[row+1] < 0 || c.by[row+1] == n) {
			return n<<16 | row
		}
	}
	return -1
}

// say hands rows over whose values name the call and the row.
func (c *conversation) say(r port.GenerateRequest, h channel.Header, from, to, first int) {
	if to <= from {
		return
	}
	var data []byte
	for row := from; row < to; row++ {
		data = binary.LittleEndian.AppendUint32(data, uint32(len(c.calls)<<16|row))
	}
	r.Keep(port.Rows{Header: h, Start: from, Count: to - from, First: first, Data: data})
}

// valueOf is what stands in a row of a part.
func (c *conversation) valueOf(p channel.Part, row int32) int {
	return int(binary.LittleEndian.Uint32(c.blobs[p.Blob][4*(p.Skip+row-p.Start):]))
}

// check compares every row with the model.
func (c *conversation) check() {
	got := slices.Repeat([]int{-1}, len(c.mask)-1)
	for _, p := range c.ch.Parts {
		for row := p.Start; row < p.End(); row++ {
			got[row] = c.valueOf(p, row)
		}
	}
	for row := range got {
		if want := c.want(row); got[row] != want {
			c.t.Fatalf("row %d is %#x, want %#x; mask %v, sampled by %v, calls %v", row, got[row], want, c.mask, c.by, c.calls)
		}
	}
	if err := c.ch.Check(c.mask); len(c.ch.Parts) > 0 && err != nil {
		c.t.Fatal(err)
	}
	sampled := 0
	for _, p := range c.kept.Parts {
		sampled += int(p.Rows)
	}
	if all := channel.Sampled.Rows(c.mask); sampled > all {
		c.t.Fatalf("%d rows of %d sampled tokens", sampled, all)
	}
}

// TestRowsOfAnyConversation: every row of ten thousand conversations is what the engine said for the token, or absent
// where it said nothing: over turns, interruptions, servers that say too much and answers without rows.
func TestRowsOfAnyConversation(t *testing.T) {
	for seed := range uint64(10_000) {
		c := &conversation{t: t, rng: rand.New(rand.NewPCG(seed, 5)), blobs: make(map[int32][]byte)}
		c.side.put = func(number int32, data []byte) error {
			if _, twice := c.blobs[number]; twice {
				return fmt.Errorf("blob %d is put twice", number)
			}
			c.blobs[number] = slices.Clone(data)
			return nil
		}
		c.side.refused = func(err error) { t.Fatal(err) }
		for range 1 + c.rng.IntN(5) {
			for range 1 + c.rng.IntN(3) { // the environment speaks
				c.mask, c.by = append(c.mask, 0), append(c.by, -1)
			}
			c.turn(c.ch.Wanted(0, c.mask))
		}
		c.check()
	}
}

// Rows that nobody can place are refused, and the rollout goes on without them; a store that fails is remembered.
func TestRowsThatAreRefused(t *testing.T) {
	good := port.Rows{Header: routedRows, Start: 0, Count: 2, First: 1, Data: make([]byte, 8)}
	for name, spoil := range map[string]func(*port.Rows){
		"too few bytes":      func(r *port.Rows) { r.Data = r.Data[:7] },
		"a row too many":     func(r *port.Rows) { r.Count = 3 },
		"no row":             func(r *port.Rows) { r.Count, r.Data = 0, nil },
		"before the first":   func(r *port.Rows) { r.Start = -1 },
		"of no type":         func(r *port.Rows) { r.DType = "u7" },
		"of another shape":   func(r *port.Rows) { r.Row, r.Count = []int{2}, 1 },
		"of another's shape": func(r *port.Rows) { r.DType, r.Data = channel.U8, r.Data[:2] },
	} {
		refusals, puts := 0, 0
		s := sideRows{put: func(int32, []byte) error { puts++; return nil }, refused: func(error) { refusals++ }}
		s.begin(1, 0)
		s.keep(good)
		bad := good
		spoil(&bad)
		s.keep(bad)
		if refusals != 1 || puts != 1 || s.err != nil {
			t.Errorf("%s: %d refusals, %d blobs, %v", name, refusals, puts, s.err)
		}
	}
	ragged := port.Rows{Header: channel.Header{Name: channel.SamplingMask, DType: channel.I32, Ragged: true, Align: channel.Sampled}, Count: 2, First: 1}
	for _, c := range []struct {
		name string
		data []uint32
		want bool
	}{
		{"two rows", []uint32{2, 1, 2, 7, 8, 9}, true},
		{"empty rows", []uint32{2, 0, 0}, true},
		{"no number of rows", []uint32{1, 2, 7, 8, 9}, false},
		{"lengths beyond the values", []uint32{2, 1, 3, 7, 8, 9}, false},
		{"lengths beyond memory", []uint32{2, 1 << 31, 1 << 31}, false},
		{"fewer lengths than rows", []uint32{2, 0}, false},
		{"nothing", nil, false},
	} {
		puts := 0
		s := sideRows{put: func(int32, []byte) error { puts++; return nil }}
		s.begin(1, 0)
		ragged.Data = nil
		for _, n := range c.data {
			ragged.Data = binary.LittleEndian.AppendUint32(ragged.Data, n)
		}
		if s.keep(ragged); (puts == 1) != c.want {
			t.Errorf("ragged, %s: %d blobs", c.name, puts)
		}
	}
	full := true
	s := sideRows{put: func(int32, []byte) error {
		if full {
			return port.ErrNoSpace
		}
		return nil
	}}
	s.begin(1, 0)
	s.keep(good)
	full = false
	if s.keep(good); s.err != nil || len(s.channels) != 1 || s.channels[0].Present() != 2 || s.blobs != 1 {
		t.Errorf("there is room again: %v, %+v, %d blobs", s.err, s.channels, s.blobs)
	}
	broken := errors.New("broken")
	s = sideRows{put: func(int32, []byte) error { return broken }}
	s.begin(1, 0)
	s.keep(good)
	if !errors.Is(s.err, broken) || len(s.channels[0].Parts) > 0 {
		t.Errorf("a store that fails: %v, %v", s.err, s.channels)
	}
}

// TestRowsGoOn: a rollout goes on behind the blobs that its turns name, and behind others that are there. Rows of turns that are gone
// are left out of its sample, and its operator is told.
func TestRowsGoOn(t *testing.T) {
	sample := func() port.Sample {
		return port.Sample{Channels: []channel.Channel{
			{Header: routedRows, Parts: []channel.Part{{Rows: 2, Blob: 0}, {Start: 2, Rows: 2, Blob: 1}, {Start: 4, Rows: 2, Blob: 5}}},
			{Header: routedRows, Sequence: 1, Parts: []channel.Part{{Rows: 2, Blob: 1}}},
		}}
	}
	said := 0
	side := func() sideRows { return sideRows{refused: func(error) { said++ }} }
	for name, c := range map[string]struct {
		there       []int32
		named, next int32
		parts       []int // of each channel that is left
	}{
		"the same disk":            {[]int32{1, 0}, 2, 2, []int{3, 1}},
		"a turn that was not kept": {[]int32{0, 1, 2, 4}, 2, 5, []int{3, 1}},
		"another disk":             {nil, 2, 2, []int{1}},
		"one is lost":              {[]int32{1}, 2, 2, []int{2, 1}},
	} {
		s, x := side(), sample()
		said = 0
		s.goesOn(c.there, c.named)
		s.lacks(&x)
		var parts []int
		for _, k := range x.Channels {
			parts = append(parts, len(k.Parts))
		}
		if s.blobs != c.next || !slices.Equal(parts, c.parts) || (said > 0) != (len(c.there) < 2) {
			t.Errorf("%s: blobs from %d on, %v parts are left, told %d times", name, s.blobs, parts, said)
		}
	}
	s, x := side(), sample()
	if s.lacks(&x); len(x.Channels) != 2 || len(x.Channels[0].Parts) != 3 {
		t.Errorf("of a rollout that began here %v are left", x.Channels)
	}
}
