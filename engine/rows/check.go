package rows

import (
	"encoding/binary"
	"math/bits"

	"github.com/headway-rl/headway/loop/channel"
)

// Judge looks at the numbers of rows, which lie back to back. It returns what is wrong, or nothing.
//
// Of experts: each is below their number, none stands twice in a layer, and a layer that has experts is not all zero.
// A layer that is not known to have any may be all zero in every row.
func (f *Form) Judge(data []byte) Reason {
	if f.Name != channel.RoutedExperts || len(data) == 0 {
		return ""
	}
	if len(f.Row) != 2 { // the layers are not known
		if zero(data) {
			return Zeros
		}
		return beyond(data, f.DType, f.Experts)
	}
	layers, topK := f.Row[0], f.Row[1]
	c := checker{experts: f.Experts, topK: topK, zeros: make([]bool, layers), routed: make([]bool, layers)}
	if c.experts == 0 {
		c.experts = 1 << (8 * f.DType.Bytes())
	}
	switch {
	case f.DType == channel.U8 && topK == 8:
		return c.done(f, c.eights(data, layers))
	case f.DType == channel.U8:
		return c.done(f, c.bytes(data, layers))
	}
	return c.done(f, c.words(data, layers))
}

// checker goes over rows, layer by layer.
type checker struct {
	experts, topK int
	// zeros and routed say of each layer whether it was all zero in a row, and whether it was not.
	zeros, routed []bool
	seen          [1 << 10]uint64 // bits by id, of one layer of one row
}

// done judges the layers after all rows.
func (c *checker) done(f *Form, why Reason) Reason {
	some := false
	for layer, routed := range c.routed {
		some = some || routed
		known := layer < len(f.Routed) && f.Routed[layer]
		if why == "" && c.zeros[layer] && (routed || known) && c.topK > 1 { // of one expert, zero is the first
			why = Zeros
		}
	}
	if why == "" && !some && len(c.routed) > 0 && c.topK > 1 {
		return Zeros
	}
	return why
}

// ones has a one in every byte, tops the highest bit of every byte.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// eights goes over rows of eight bytes a layer, a layer at a time.
func (c *checker) eights(data []byte, layers int) Reason {
	zeros, rows := make([]int, layers), len(data)/(8*layers)
	over, again := uint64(0), uint64(0)
	add := uint64(max(1<<7-c.experts, 0)) * ones
	if c.experts > 1<<7 {
		over, again = c.eightsWide(data, zeros)
		data = nil
	}
	for len(data) > 0 {
		for layer := range zeros {
			x := binary.LittleEndian.Uint64(data)
			data = data[8:]
			if x == 0 {
				zeros[layer]++
				continue
			}
			over |= x | (x + add)
			// Each byte is held against the next four, around the end. No difference of seven bits but zero reaches the top.
			again |= tops - (x ^ bits.RotateLeft64(x, 8))
			again |= tops - (x ^ bits.RotateLeft64(x, 16))
			again |= tops - (x ^ bits.RotateLeft64(x, 24))
			again |= tops - (x ^ bits.RotateLeft64(x, 32))
		}
	}
	for layer, n := range zeros {
		c.zeros[layer], c.routed[layer] = n > 0, n < rows
	}
	switch {
	case over&tops != 0:
		return Beyond
	case again&tops != 0:
		return Repeated
	}
	return ""
}

// eightsWide is eights for more than 128 experts, whose bytes have eight bits.
func (c *checker) eightsWide(data []byte, zeros []int) (over, again uint64) {
	add := uint64(1<<8-c.experts) * ones // 0 for 256, of which nothing is beyond
	for len(data) > 0 {
		for layer := range zeros {
			x := binary.LittleEndian.Uint64(data)
			data = data[8:]
			if x == 0 {
				zeros[layer]++
				continue
			}
			if add > 0 {
				over |= (x&^tops + add) & x
			}
			p, q := x^bits.RotateLeft64(x, 8), x^bits.RotateLeft64(x, 16)
			r, s := x^bits.RotateLeft64(x, 24), x^bits.RotateLeft64(x, 32)
			again |= (p-ones)&^p | (q-ones)&^q | (r-ones)&^r | (s-ones)&^s
		}
	}
	return over, again
}

// bytes goes over rows of any number of bytes a layer.
func (c *checker) bytes(data []byte, layers int) Reason {
	for layer := 0; len(data) >= c.topK; layer = (layer + 1) % layers {
		ids := data[:c.topK]
		data = data[c.topK:]
		any, why := byte(0), Reason("")
		for _, id := range ids {
			any |= id
			why = c.note(int(id), why)
		}
		for _, id := range ids {
			c.seen[id>>6] = 0
		}
		if c.judge(layer, any != 0, &why); why != "" {
			return why
		}
	}
	return ""
}

// words goes over rows of two bytes an id.
func (c *checker) words(data []byte, layers int) Reason {
	for layer := 0; len(data) >= 2*c.topK; layer = (layer + 1) % layers {
		ids := data[:2*c.topK]
		data = data[2*c.topK:]
		any, why := uint16(0), Reason("")
		for i := 0; i < len(ids); i += 2 {
			id := binary.LittleEndian.Uint16(ids[i:])
			any |= id
			why = c.note(int(id), why)
		}
		for i := 0; i < len(ids); i += 2 {
			c.seen[binary.LittleEndian.Uint16(ids[i:])>>6] = 0
		}
		if c.judge(layer, any != 0, &why); why != "" {
			return why
		}
	}
	return ""
}

// note notes an id of the layer.
func (c *checker) note(id int, why Reason) Reason {
	bit := uint64(1) << (id & 63)
	switch {
	case id >= c.experts:
		return Beyond
	case why == "" && c.seen[id>>6]&bit != 0:
		why = Repeated
	}
	c.seen[id>>6] |= bit
	return why
}

// judge notes a layer of a row. One that is all zero repeats an id, which is judged after all rows.
func (c *checker) judge(layer int, some bool, why *Reason) {
	if some || c.topK == 1 {
		c.routed[layer] = true
		return
	}
	c.zeros[layer] = true
	*why = ""
}

// beyond reports an id beyond the last expert.
func beyond(data []byte, dtype channel.DType, experts int) Reason {
	width := dtype.Bytes()
	for at := 0; at+width <= len(data) && experts > 0; at += width {
		id := int(data[at])
		if width == 2 {
			id = int(binary.LittleEndian.Uint16(data[at:]))
		}
		if id >= experts {
			return Beyond
		}
	}
	return ""
}
