package channel_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
)

func routed() channel.Channel {
	return channel.Channel{Header: channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{4, 2}, Align: channel.Passes}}
}

func mask(text string) []uint8 {
	m := make([]uint8, len(text))
	for i := range text {
		m[i] = text[i] - '0'
	}
	return m
}

// rows spells where each row of a channel comes from: the blob's letter, "." where it is absent.
func rows(c channel.Channel, mask []uint8) string {
	out := slices.Repeat([]byte{'.'}, c.Align.Rows(mask))
	for _, p := range c.Parts {
		for i := p.Start; i < p.End(); i++ {
			if out[i] != '.' {
				return "twice"
			}
			out[i] = byte('a' + p.Blob)
		}
	}
	return string(out)
}

// answer is a call that sampled the tokens from first on and brought the rows from start to end.
type answer struct{ first, start, end int32 }

func TestRulesOfPasses(t *testing.T) {
	for _, c := range []struct {
		name    string
		mask    string
		answers []answer
		want    string
	}{
		{"one answer: the last token has no pass", "000111", []answer{{3, 0, 5}}, "aaaaa"},
		{"the next turn fills the boundary row", "000111001", []answer{{3, 0, 5}, {8, 5, 8}}, "aaaaabbb"},
		{"a server that ignores the start: the first recorded wins", "000111001", []answer{{3, 0, 5}, {8, 0, 8}}, "aaaaabbb"},
		{"a resume: rows of the call before stay", "000111", []answer{{3, 0, 4}, {5, 0, 5}}, "aaaab"},
		{"an abort without rows: sampled tokens have a hole, the prompt none", "000111", []answer{{5, 0, 5}}, "aa..a"},
		{"an abort with no token and no field", "000111", []answer{{3, 0, 5}}, "aaaaa"},
		{"environment tokens at the end have no pass yet", "00011000", []answer{{3, 0, 4}}, "aaaa..."},
		{"rows beyond the sequence are dropped", "000111", []answer{{3, 0, 9}}, "aaaaa"},
		{"rows lost at a partial resume come from no later call", "0011110011", []answer{{2, 0, 3}, {4, 4, 5}, {8, 0, 9}}, "aaa.bcccc"},
		{"a hole in what is asked for", "00011", []answer{{3, 3, 4}}, "...a"},
	} {
		ch := routed()
		m := mask(c.mask)
		for i, a := range c.answers {
			if err := ch.Add(channel.Part{Start: a.start, Rows: a.end - a.start, Blob: int32(i)}, int(a.first), m); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if got := rows(ch, m); got != c.want {
			t.Errorf("%s: rows %s, want %s", c.name, got, c.want)
		}
		if err := ch.Check(m); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRulesOfSampled(t *testing.T) {
	ch := channel.Channel{Header: channel.Header{Name: channel.SamplingMask, DType: channel.I32, Ragged: true, Align: channel.Sampled}}
	turn := func(blob, start, n int32) *channel.Channel {
		return &channel.Channel{Header: ch.Header, Parts: []channel.Part{{Start: start, Rows: n, Blob: blob}}}
	}
	m := mask("00111011")
	if err := ch.Append(turn(0, 0, 3), 2, m[:5]); err != nil {
		t.Fatal(err)
	}
	if err := ch.Append(turn(1, 1, 1), 6, m); err != nil { // the first call of the turn brought none
		t.Fatal(err)
	}
	if got := rows(ch, m); got != "aaa.b" {
		t.Errorf("rows %s", got)
	}
	if err := ch.Append(turn(2, 0, 2), 6, m); err == nil {
		t.Error("an overlap was taken")
	}
	if err := ch.Append(turn(2, 2, 1), 6, m); err == nil {
		t.Error("a row without its token was taken")
	}
	other := turn(2, 0, 1)
	other.DType = channel.U16
	if err := ch.Append(other, 6, m); err == nil {
		t.Error("rows of another type were taken")
	}
	ch.Truncate(m[:4])
	if got := rows(ch, m[:4]); got != "aa" {
		t.Errorf("cut: rows %s", got)
	}
}

func TestForkTakesThePrefixByReference(t *testing.T) {
	ch, m := routed(), mask("000111001")
	for i, a := range []answer{{3, 0, 5}, {8, 5, 8}} {
		_ = ch.Add(channel.Part{Start: a.start, Rows: a.end - a.start, Blob: int32(i)}, int(a.first), m)
	}
	fork := ch.Fork(7)
	if got := rows(fork, make([]uint8, 7)); got != "aaaaab" {
		t.Errorf("rows %s", got)
	}
	if m := make([]uint8, 7); fork.Wanted(0, m) != 6 || fork.Wanted(3, m) != 6 || fork.Wanted(9, m) != 9 {
		t.Errorf("wanted from 0: %d, from 3: %d, from 9: %d", fork.Wanted(0, m), fork.Wanted(3, m), fork.Wanted(9, m))
	}
	if before := rows(ch, m); before != "aaaaabbb" {
		t.Errorf("the fork changed what it came from: %s", before)
	}
	if n := len(ch.Parts); n != 2 || ch.Present() != 8 {
		t.Errorf("%d parts, %d rows", n, ch.Present())
	}
}

// row is what the dumb second implementation keeps of a row.
type row struct{ blob, at int32 }

// dumb keeps one entry a row, and applies the rules row by row.
type dumb struct{ rows []row }

func (d *dumb) add(p channel.Part, first int, mask []uint8) {
	for len(d.rows) < len(mask)-1 {
		d.rows = append(d.rows, row{-1, 0})
	}
	for i := range int(p.Rows) {
		at := int(p.Start) + i
		if at > len(mask)-2 || d.rows[at].blob >= 0 {
			continue
		}
		own := at+1 >= first
		if sampled := mask[at+1] == 1; own || !sampled {
			d.rows[at] = row{p.Blob, p.Skip + int32(i)}
		}
	}
}

// wanted is the first row that is absent and that another call may say.
func (d *dumb) wanted(mask []uint8) int {
	for i, row := range d.rows {
		if row.blob < 0 && mask[i+1] == 0 {
			return i
		}
	}
	return len(mask) - 1
}

// FuzzPasses grows a sequence by random turns, resumes, lost rows, servers that say too much, and cuts, in the rules and
// in the dumb implementation.
func FuzzPasses(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		ch, d := routed(), &dumb{}
		m := make([]uint8, 1+r.IntN(5))
		for blob := range int32(1 + r.IntN(12)) {
			if r.IntN(4) == 0 { // cut what a rule or an agent took back
				m = m[:1+r.IntN(len(m))]
				ch.Truncate(m)
				d.rows = d.rows[:min(len(d.rows), len(m)-1)]
			}
			if r.IntN(2) == 0 { // an environment speaks
				m = append(m, make([]uint8, r.IntN(4))...)
			}
			first := len(m)
			m = append(m, slices.Repeat([]uint8{1}, r.IntN(5))...)
			p := channel.Part{Start: int32(r.IntN(len(m) + 1)), Blob: blob, Skip: int32(r.IntN(3))}
			if r.IntN(2) == 0 {
				p.Start = int32(ch.Wanted(0, m))
			}
			p.Rows = max(int32(len(m)-1)-p.Start-int32(r.IntN(2)), 0)
			if err := ch.Add(p, first, m); err != nil {
				t.Fatal(err)
			}
			d.add(p, first, m)
			if got, want := ch.Wanted(0, m), d.wanted(m); got != want {
				t.Fatalf("wanted %d, want %d: rows %v, mask %v", got, want, d.rows, m)
			}
		}
		if err := ch.Check(m); err != nil {
			t.Fatal(err)
		}
		got := slices.Repeat([]row{{-1, 0}}, len(m)-1)
		for _, p := range ch.Parts {
			for i := range p.Rows {
				got[p.Start+i] = row{p.Blob, p.Skip + i}
			}
		}
		for len(d.rows) < len(m)-1 {
			d.rows = append(d.rows, row{-1, 0})
		}
		if !slices.Equal(got, d.rows) {
			t.Fatalf("rows %v\nwant %v", got, d.rows)
		}
	})
}

func TestHeadersThatNoChannelHas(t *testing.T) {
	good := routed().Header
	for _, spoil := range []func(*channel.Header){
		func(h *channel.Header) { h.Name = "" },
		func(h *channel.Header) { h.Name = "a/b" },
		func(h *channel.Header) { h.DType = "u32" },
		func(h *channel.Header) { h.Align = "turns" },
		func(h *channel.Header) { h.Ragged = true },
		func(h *channel.Header) { h.Row = []int{4, 0} },
		func(h *channel.Header) { h.Row = []int{1 << 19, 4} },
	} {
		h := good
		h.Row = slices.Clone(good.Row)
		spoil(&h)
		if err := h.Check(); err == nil {
			t.Errorf("%+v is taken", h)
		}
	}
	if err := good.Check(); err != nil || good.RowBytes() != 8 {
		t.Errorf("%v, %d bytes", err, good.RowBytes())
	}
}
