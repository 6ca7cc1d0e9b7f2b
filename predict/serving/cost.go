package serving

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim/serving"
	"github.com/headway-rl/headway/predict/hardware"
)

// StepCost turns a replica into the time of its steps, for [serving.Engine]. Its prompt and response lengths do not
// matter: contexts come with the load.
//
// A step reads the weights or multiplies, whichever takes longer. Reading the decoding sequences' caches, attention over
// prompts, exchanges and the overhead come on top.
func StepCost(r hardware.Replica) func(serving.Load) float64 {
	c := &stepCost{replica: r.WithDefaults()}
	c.replica.MeanTokens, c.replica.MeanSquareTokens = 0, 0
	const tokens = 4096.0
	once, twice := c.replica.PrefillSeconds(tokens), c.replica.PrefillSeconds(2*tokens)
	square := (twice - 2*once) / (2 * tokens * tokens)
	c.perToken, c.perPair = once/tokens-square*tokens, 2*square
	c.perLink = (c.decode(2*tokens, 1).Link - c.decode(tokens, 1).Link) / tokens
	return c.seconds
}

// stepCost keeps what a step's time is made of.
type stepCost struct {
	replica                    hardware.Replica
	perToken, perPair, perLink float64
	by                         []decodeCost // number of decoding sequences
}

// decodeCost is a decode step of so many sequences: what does not depend on contexts, and the time to read their caches
// at contexts of the lengths of knots.
type decodeCost struct {
	known                            bool
	weights, compute, link, overhead float64
	cache                            [len(knots)]float64
}

// knots are context lengths between which the time to read a cache is taken as linear: it bends where a window ends.
var knots = [...]float64{0, 128, 1024, 32768}

// decode prices a step.
func (c *stepCost) decode(sequences, context float64) hardware.Decode {
	r := c.replica
	r.PromptTokens = context
	return r.Decode(sequences)
}

// of returns the cost for a number of sequences.
func (c *stepCost) of(sequences int) *decodeCost {
	for len(c.by) <= sequences {
		c.by = append(c.by, decodeCost{})
	}
	one := &c.by[sequences]
	if !one.known {
		n := float64(sequences)
		d := c.decode(n, 1)
		*one = decodeCost{known: true, weights: d.Weights, compute: d.Compute, link: d.Link, overhead: d.Overhead}
		for i, context := range knots {
			one.cache[i] = c.decode(n, context).Cache
		}
	}
	return one
}

// cacheS is the time to read caches of a mean context.
func (d *decodeCost) cacheS(context float64) float64 {
	i := 1
	for i < len(knots)-1 && context > knots[i] {
		i++
	}
	slope := (d.cache[i] - d.cache[i-1]) / (knots[i] - knots[i-1])
	return math.Max(d.cache[i-1]+slope*(context-knots[i-1]), 0)
}

// seconds is the time of a step.
func (c *stepCost) seconds(l serving.Load) float64 {
	if l.Prefill == 0 {
		d := c.of(max(l.Decoding, 1))
		return math.Max(d.weights+d.cacheS(read(l)/float64(max(l.Decoding, 1))), d.compute) + d.link + d.overhead
	}
	prefill := float64(l.Prefill)
	weights := c.of(min(l.Decoding+l.Prefill, mostExperts)).weights // every token chooses experts
	seconds := c.perPair*l.PrefillPairs + c.perLink*prefill
	if l.Decoding == 0 {
		return math.Max(weights, c.perToken*prefill) + seconds + c.of(1).overhead
	}
	d := c.of(l.Decoding)
	return math.Max(weights, d.compute+c.perToken*prefill) + d.cacheS(read(l)/float64(l.Decoding)) + seconds + d.link + d.overhead
}

// sharedReads is the share of the reads of a cache that go to memory though another sequence of the step reads the same: the rest
// is met in the GPU's own cache. It is a round figure for route-32b-precise-15, route-32b-precise-30 and
// route-scotus-epp, of two sources, whose steps are faster than the memory.
const sharedReads = 0.7

// read is how many tokens' caches a step reads from memory: shared ones not once for each sequence.
func read(l serving.Load) float64 {
	return math.Min(l.Distinct, l.Resident) + sharedReads*math.Max(l.Resident-l.Distinct, 0)
}

// mostExperts is a number of tokens that choose all experts of any model but for a rounding.
const mostExperts = 1024

// CacheTokens is how many tokens of contexts of about a length a replica's cache holds, and an error where its weights do not fit.
func CacheTokens(r hardware.Replica, context float64) (int, error) {
	r.PromptTokens, r.MeanTokens, r.MeanSquareTokens = math.Max(context, 1), 0, 0
	one := r.PromptTokens
	r = r.WithDefaults()
	room := r.CacheRoomBytes()
	if room <= 0 {
		return 0, fmt.Errorf("%d × %s: the weights of %s take more than the memory: %.0f GB are missing", r.GPUs, r.GPU.Name, r.Model.Name, -room/1e9)
	}
	copies := 1.0
	if r.HeadsRepeated && r.Model.KVHeads > 0 {
		copies = math.Max(float64(r.GPUs)/float64(r.Model.KVHeads), 1)
	}
	return int(math.Min(room/(copies*r.Model.CacheBytes(one, r.KVBytes))*one, 1e9)), nil
}
