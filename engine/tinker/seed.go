package tinker

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// seedBits are those of a seed: services put them into 32 with a sign.
const seedBits = 31

// seed is that of a piece: a function of the attempt, the turn and the place in the response at which the piece begins.
// Siblings draw otherwise, and no piece repeats the draws of one before it. It is not 0, which leaves the choice to the service.
func seed(id port.RolloutID, turn, position int) int64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, part := range [...]uint64{uint64(id.Group), uint64(uint32(id.Sample)), uint64(uint32(id.Attempt)), uint64(turn), uint64(position)} {
		// A multiplication between the parts, so that none can stand in for another.
		h = loop.Mix(h*0xd1342543de82ef95 + part + 1)
	}
	return int64(h%(1<<seedBits-1)) + 1
}
