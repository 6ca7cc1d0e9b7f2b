package tinker

import (
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
		h = mix(h*0xd1342543de82ef95 + part + 1)
	}
	return int64(h%(1<<seedBits-1)) + 1
}

// mix is the finalizer of splitmix64: every bit in reaches every bit out.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
