package rows

import (
	"encoding/binary"

	"github.com/headway-rl/headway/loop/channel"
)

// MaskRows gathers the sampling masks of one call, token by token. Their bytes count among MaskBytes. The zero value has
// none. Release comes at the end.
type MaskRows struct {
	data    []byte // ids, as they are kept
	held    int64  // of maskRoom
	lengths []int32
	problem Reason
}

// Add appends the masks of tokens: the ids of all, one length for a token.
func (m *MaskRows) Add(lengths, ids []int32) {
	m.lengths = append(m.lengths, lengths...)
	if !m.grow(4 * len(ids)) {
		return
	}
	for _, id := range ids {
		m.data = binary.LittleEndian.AppendUint32(m.data, uint32(id))
	}
}

// grow makes room for more bytes, and reports whether there is any. It never waits: others end as late as this one.
func (m *MaskRows) grow(more int) bool {
	need := len(m.data) + more
	if m.problem != "" || int64(need) <= m.held {
		return m.problem == ""
	}
	size := min(max(need+need/4, 4<<10), MaskBytes)
	if need > size || !maskRoom.TryAcquire(int64(size)-m.held) {
		m.problem = NoRoom
		m.Release()
		return false
	}
	longer := append(make([]byte, 0, size), m.data...)
	m.data, m.held = longer, int64(size)
	return true
}

// Of returns the masks of the first tokens, as their channel keeps them, or why there are none. The call has sampled so
// many tokens, and the vocabulary has so many ids, 0 for unknown. Nothing can be added any more.
func (m *MaskRows) Of(tokens []int32, sampled, vocabulary int) (data []byte, why Reason) {
	switch {
	case len(m.lengths) == 0:
		return nil, Missing
	case m.problem != "":
		return nil, m.problem
	case len(m.lengths) != sampled:
		return nil, Count
	}
	at := 0
	for i, token := range tokens {
		mask := m.data[at : at+4*int(m.lengths[i])]
		at += len(mask)
		if why := judgeMask(mask, token, vocabulary); why != "" {
			return nil, why
		}
	}
	head := channel.AppendLengths(make([]byte, 0, 4*(1+len(tokens))), m.lengths[:len(tokens)])
	if !m.grow(len(head)) {
		return nil, m.problem
	}
	m.data = m.data[:at+len(head)] // the lengths come first; a copy beside would take as much memory again
	copy(m.data[len(head):], m.data[:at])
	copy(m.data, head)
	return m.data, ""
}

// judgeMask looks for a token in its own mask, and for ids that cannot be.
func judgeMask(mask []byte, token int32, vocabulary int) Reason {
	own := false
	for ; len(mask) > 0; mask = mask[4:] {
		id := int32(binary.LittleEndian.Uint32(mask))
		switch own = own || id == token; {
		case id < 0:
			return Negative
		case vocabulary > 0 && int(id) >= vocabulary:
			return Beyond
		}
	}
	if !own {
		return Tokenless
	}
	return ""
}

// Release gives the memory back.
func (m *MaskRows) Release() {
	if m.held > 0 {
		maskRoom.Release(m.held)
	}
	m.data, m.held = nil, 0
}
