package workload

// Stream separates independent uses of one seed, so that the length of a
// rollout says nothing about its environment time.
type Stream uint32

// The streams a run draws from. Their numbers are part of what makes the same
// seed give the same run: append, never renumber. 4 and 5 are free.
const (
	StreamLength      Stream = 1  // response lengths
	StreamEnvironment Stream = 2  // environment service times
	StreamAcceptance  Stream = 3  // which groups carry an advantage
	StreamEstimate    Stream = 6  // the seeded estimators of this project's closed forms
	StreamSolve       Stream = 7  // which rollouts are solved, and the prompts' own difficulty
	StreamPromptScale Stream = 8  // the prompts' own length
	StreamDrift       Stream = 9  // how fast a group's log-ratio drifts
	StreamCalls       Stream = 10 // how many tool calls a rollout makes
	StreamTurn        Stream = 11 // how its tokens divide over its turns
	StreamTool        Stream = 12 // the times of its tool calls
	StreamToolFault   Stream = 13 // which of them fail
	StreamSandbox     Stream = 14 // start-up times of sandboxes
	StreamStartFault  Stream = 15 // which start-ups fail
	StreamVerifier    Stream = 16 // verifiers' times
	StreamStep        Stream = 17 // how long a train step takes
	StreamStepFault   Stream = 18 // which train steps fail
	StreamEngine      Stream = 19 // when engines are lost, and for how long
	StreamSandboxLife Stream = 20 // how long sandboxes live
	StreamScorer      Stream = 21 // times of scoring engines
)

// Odd constants of the counter's two halves; any odd numbers with mixed bits do.
const (
	groupStride  = 0x9e3779b97f4a7c15
	memberStride = 0xd1342543de82ef95
)

// Source is a counter-based random source: a keyed hash from (group, sample,
// attempt) to 64 uniform bits. It is a small value without state; copy it
// freely and use it from any goroutine. The zero Source is a valid but unseeded
// source; use [NewSource].
//
// For a fixed group the map from (sample, attempt) to bits is a bijection, so
// no two members of a group share a draw.
type Source struct{ key uint64 }

// NewSource returns the source of one stream of one seed.
func NewSource(seed uint64, stream Stream) Source {
	return Source{key: mix(mix(seed+groupStride) + uint64(stream)*memberStride)}
}

// Bits returns 64 uniform bits, always the same for the same arguments.
func (s Source) Bits(group uint64, sample, attempt uint32) uint64 {
	return s.Group(group).Bits(sample, attempt)
}

// Members are the draws of one group: their shared part is worked out once.
type Members struct{ key uint64 }

// Group returns the draws of a group: Group(g).Bits(k, a) is Bits(g, k, a).
func (s Source) Group(group uint64) Members { return Members{mix(s.key + group*groupStride)} }

// Bits returns 64 uniform bits, always the same for the same arguments.
func (m Members) Bits(sample, attempt uint32) uint64 {
	return mix(m.key ^ (uint64(attempt)<<32|uint64(sample))*memberStride)
}

// groupBits returns 64 uniform bits that all members of a group share. Sample
// and attempt are set to a pair that no rollout has.
func (s Source) groupBits(group uint64) uint64 {
	return s.Bits(group, ^uint32(0), ^uint32(0))
}

// Float64 returns a uniform number strictly between 0 and 1, so that it can go
// through an inverse distribution function without a special case.
func (s Source) Float64(group uint64, sample, attempt uint32) float64 {
	return unit(s.Bits(group, sample, attempt))
}

// unit maps bits to the centres of 2^52 equal cells of (0,1).
func unit(bits uint64) float64 {
	return (float64(bits>>12) + 0.5) * (1.0 / (1 << 52))
}

// mix is a 64-bit finaliser: an invertible map in which every input bit moves
// every output bit with probability close to one half (tested).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
