package metrics

import "github.com/headway-rl/headway/loop"

// liveGroup is what the recorder remembers of a group until it ends.
//
// What every rollout touches comes first, within a cache line.
type liveGroup struct {
	tokens        int64
	versionTokens int64
	longest       int64 // ns
	reward        float64
	tokensMax     int32
	scored        int32
	solved        int32
	// newest is the newest version under which a rollout of it ended, atNewest how many did.
	newest   int32
	atNewest int32
	ready    bool
	// spanning counts rollouts made under more than one version, spanMax the most versions
	// between a rollout's first and last.
	spanning      int32
	spanMax       int32
	cancelled     int32
	uses          int32 // train steps on it
	resumed       int32
	resumedReward float64
}

// endsAt counts a rollout that began under the version first and ended under last. It
// computes without branches, which no processor would foresee: whether a switch
// fell into a rollout is all but chance.
func (g *liveGroup) endsAt(last, first int32) {
	g.spanning += negative(first - last)
	g.spanMax = max(g.spanMax, last-first)
	newer := negative(g.newest - last)
	older := negative(last - g.newest)
	g.atNewest = g.atNewest&(newer-1) + 1 - older
	g.newest = max(g.newest, last)
}

// negative is 1 for a negative number and 0 for others.
func negative(v int32) int32 { return int32(uint32(v) >> 31) }

// GroupTokens returns the response tokens scored so far of a group that has not
// ended, 0 for others.
func (r *Recorder) GroupTokens(id loop.GroupID) int64 {
	if g := r.groups.Get(id); g != nil {
		return g.tokens
	}
	return 0
}
