package embedded

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// source draws for one generation. A draw is a function of the run's seed, the
// rollout's name, its turn and the token's position alone.
type source uint64

func newSource(seed uint64, id port.RolloutID, turn int) source {
	h := loop.Mix(seed + 0x9e3779b97f4a7c15)
	for _, part := range [...]uint64{uint64(id.Group), uint64(uint32(id.Sample)), uint64(uint32(id.Attempt)), uint64(turn)} {
		// A multiplication between the parts, so that none can stand in for another.
		h = loop.Mix(h*0xd1342543de82ef95 + part + 1)
	}
	return source(h)
}

// uniform is the draw of the token at a position of the response, in [0, 1).
func (s source) uniform(position int) float64 {
	return float64(loop.Mix(uint64(s)+uint64(position+1)*0x9e3779b97f4a7c15)>>11) / (1 << 53)
}
