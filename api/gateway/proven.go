package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/headway-rl/headway/api/calls"
)

// prefix is kept of a rendering, so that a later one is seen to begin with it: its length and hash. The
// rendering itself would be most of what a rollout in flight takes.
type prefix struct {
	tokens int
	sum    [sha256.Size]byte
}

func prefixOf(tokens []int32) prefix {
	hash := sha256.New()
	var piece [4096]byte
	for part := range slices.Chunk(tokens, len(piece)/4) {
		for i, token := range part {
			binary.LittleEndian.PutUint32(piece[4*i:], uint32(token))
		}
		hash.Write(piece[:4*len(part)])
	}
	p := prefix{tokens: len(tokens)}
	hash.Sum(p.sum[:0])
	return p
}

// of reports whether tokens begin with it.
func (p prefix) of(tokens []int32) bool {
	return p.tokens > 0 && len(tokens) >= p.tokens && prefixOf(tokens[:p.tokens]) == p
}

// proven returns what follows a turn's tokens in the rendering of a whole chat. The rendering is the proof: it
// begins with the one that the turn's prompt was made of, and goes on with the response to its end, token by
// token. So the template has changed nothing up to there, and no other rendering has to be asked for. It
// returns false where the rendering proves nothing: that of a template that changes what was said before or
// spells the response otherwise, and of any where the response was cut off.
func proven(dialect *calls.Dialect, closing []int32, from *turn, whole []int32) ([]int32, bool) {
	last := len(from.response) - 1
	if last < 0 || !from.rendered.of(whole) {
		return nil, false
	}
	said := whole[from.rendered.tokens:]
	if len(said) <= last || !slices.Equal(said[:last], from.response[:last]) {
		return nil, false
	}
	switch end := from.response[last]; {
	case said[last] == end && len(closing) > 0 && end == closing[0]:
	case dialect.Ends(end) && dialect.Ends(said[last]): // a template may write another end once the chat goes on
	default:
		return nil, false
	}
	return slices.Clone(said[last+1:]), true
}
