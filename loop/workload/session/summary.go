package session

import "math"

// Summary describes a record. Tokens and times are per call unless a field says otherwise.
type Summary struct {
	// Format is the record's, BlockTokens the length of its blocks (0 without blocks).
	Format      Format `json:"format"`
	BlockTokens int    `json:"block_tokens,omitempty"`
	// Sessions are counted without sub-agents, Groups where sessions share prompts.
	Sessions int `json:"sessions"`
	Groups   int `json:"groups,omitempty"`
	Agents   int `json:"sub_agents,omitempty"`
	// Calls are all, AgentCalls those of sub-agents among them.
	Calls      int `json:"calls"`
	AgentCalls int `json:"sub_agent_calls,omitempty"`
	// Turns are the calls of a session without its sub-agents; Prompt is the input of its first.
	Turns  Stats `json:"turns_per_session"`
	Prompt Stats `json:"prompt_tokens"`
	Input  Stats `json:"input_tokens"`
	Output Stats `json:"output_tokens"`
	// Generated is what a session generates in all, its sub-agents included.
	Generated Stats `json:"generated_tokens_per_session"`
	// Gap is the time before every call but a session's first, in seconds.
	Gap Stats `json:"gap_s"`
	// LastStartS is when the last session begins, in seconds.
	LastStartS float64 `json:"last_start_s,omitempty"`
	// Reused is the share of input tokens that a cache without bounds, shared by all sessions, has when they
	// come. With blocks these came before. Without, a call has the context of the call before, and a session the
	// prompt of its group. Estimated says that the share is from a sample of the blocks.
	Reused    float64 `json:"reused_share"`
	Estimated bool    `json:"reused_share_estimated,omitempty"`
	// Empty counts calls that generate nothing, Shrunk calls whose input does not continue the call before.
	Empty  int `json:"calls_without_output,omitempty"`
	Shrunk int `json:"calls_that_restart_the_context,omitempty"`
}

// Counter sums up sessions, in memory that does not grow with them.
type Counter struct {
	record                                       *Record
	sum                                          Summary
	turns, prompt, input, output, generated, gap sketch
	blocks                                       seen
	inputs, found                                float64
	groups                                       map[int]struct{}
}

// NewCounter returns a counter of a record's sessions.
func NewCounter(r *Record) *Counter {
	return &Counter{record: r, sum: Summary{Format: r.format, BlockTokens: r.block}, groups: map[int]struct{}{}}
}

// Add counts a session.
func (c *Counter) Add(s *Session) {
	c.sum.Sessions++
	c.sum.LastStartS = max(c.sum.LastStartS, s.StartS)
	_, again := c.groups[s.Group]
	if c.record.Grouped() && !again {
		c.groups[s.Group] = struct{}{}
	}
	if len(s.Calls) > 0 {
		c.turns.add(float64(len(s.Calls)))
		c.prompt.add(float64(s.Calls[0].InputTokens))
	}
	c.generated.add(float64(c.calls(s, c.record.Grouped() && again, false)))
	if c.record.local {
		c.blocks.forget() // no later session has them
	}
}

// calls counts the calls of a session, and returns what they generate.
func (c *Counter) calls(s *Session, promptSeen, agent bool) (generated int) {
	for i := range s.Calls {
		call := &s.Calls[i]
		c.sum.Calls++
		if agent {
			c.sum.AgentCalls++
		}
		c.input.add(float64(call.InputTokens))
		c.output.add(float64(call.OutputTokens))
		if generated += call.OutputTokens; call.OutputTokens == 0 {
			c.sum.Empty++
		}
		if i > 0 {
			c.gap.add(call.GapS)
		}
		c.inputs += float64(call.InputTokens)
		switch {
		case call.Blocks != nil:
			for _, id := range call.Blocks {
				c.blocks.ask(id)
			}
		case i > 0:
			c.found += float64(min(call.InputTokens, s.Calls[i-1].InputTokens+s.Calls[i-1].OutputTokens))
		case promptSeen:
			c.found += float64(call.InputTokens)
		}
		if i > 0 && call.kept(&s.Calls[i-1], c.sum.BlockTokens) < s.Calls[i-1].InputTokens {
			c.sum.Shrunk++
		}
	}
	for i := range s.Agents {
		c.sum.Agents++
		generated += c.calls(&s.Agents[i], false, true)
	}
	return generated
}

// Summary returns the sum so far.
func (c *Counter) Summary() Summary {
	s := c.sum
	s.Groups = len(c.groups)
	s.Turns, s.Prompt, s.Input = c.turns.stats(), c.prompt.stats(), c.input.stats()
	s.Output, s.Generated, s.Gap = c.output.stats(), c.generated.stats(), c.gap.stats()
	if c.inputs > 0 {
		s.Reused = (c.found + c.blocks.found()*float64(s.BlockTokens)) / c.inputs
	}
	s.Estimated = c.blocks.estimated
	return s
}

// kept returns how many tokens at the start of a call's input stand in the cache since the call before of its session.
// Output is in it where the whole input before is.
func (c *Call) kept(before *Call, block int) int {
	all := min(c.InputTokens, before.InputTokens+before.OutputTokens)
	if c.Blocks == nil || before.Blocks == nil {
		return all
	}
	same := 0
	for same < len(c.Blocks) && same < len(before.Blocks) && c.Blocks[same] == before.Blocks[same] {
		same++
	}
	if same == len(before.Blocks) && c.InputTokens >= before.InputTokens {
		return all
	}
	return same * block
}

// seenMost bounds the blocks that are remembered.
const seenMost = 1 << 20

// seen counts blocks that came before: all but the first of each. Beyond seenMost it remembers a half of them by their
// identifiers, then a quarter, and so on. How many differ then follows within 0.2 %, however often some of them come.
type seen struct {
	ids   map[uint64]struct{}
	shift uint
	// asked are all, other those that differ and were forgotten.
	asked, other float64
	estimated    bool
}

// ask counts a block.
func (s *seen) ask(id uint64) {
	s.asked++
	if !s.sampled(id) {
		return
	}
	if s.ids == nil {
		s.ids = map[uint64]struct{}{}
	}
	s.ids[id] = struct{}{}
	if len(s.ids) > seenMost {
		s.shift++
		s.estimated = true
		for id := range s.ids {
			if !s.sampled(id) {
				delete(s.ids, id)
			}
		}
	}
}

// sampled reports whether a block is one of those that are remembered.
func (s *seen) sampled(id uint64) bool { return mix(id)>>(64-s.shift) == 0 }

// different returns how many of the blocks differ.
func (s *seen) different() float64 { return s.other + float64(len(s.ids))*float64(uint64(1)<<s.shift) }

// forget forgets the blocks, which come no more.
func (s *seen) forget() {
	s.other, s.shift = s.different(), 0
	clear(s.ids)
}

// found returns how many blocks came before.
func (s *seen) found() float64 { return max(s.asked-s.different(), 0) }

// mix spreads identifiers, which mostly count from 0, over 64 bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Stats describes numbers. Quantiles are within 1 % and exact for whole numbers up to 50.
type Stats struct {
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Max    float64 `json:"max"`
}

// sketchBase is the ratio of two buckets' bounds.
const sketchBase = 1.02

// sketch counts numbers of at least 0 in buckets that are 2 % wide.
type sketch struct {
	buckets  map[int]int
	n, zeros int
	sum      float64
	min, max float64
}

func (s *sketch) add(x float64) {
	if s.buckets == nil {
		s.buckets, s.min = map[int]int{}, x
	}
	s.n++
	s.sum += x
	s.min, s.max = min(s.min, x), max(s.max, x)
	if x < sketchLeast {
		s.zeros++
		return
	}
	s.buckets[int(math.Round(math.Log(x)/math.Log(sketchBase)))]++
}

// sketchLeast is the smallest number that a bucket tells from 0: a microsecond, in seconds.
const sketchLeast = 1e-6

func (s *sketch) stats() Stats {
	if s.n == 0 {
		return Stats{}
	}
	return Stats{Mean: s.sum / float64(s.n), Min: s.min, Median: s.quantile(0.5), P90: s.quantile(0.9), Max: s.max}
}

// quantile returns the middle of the bucket that holds the number of that rank.
func (s *sketch) quantile(q float64) float64 {
	left := int(math.Ceil(q*float64(s.n))) - s.zeros
	if left <= 0 {
		return max(s.min, 0)
	}
	low, high := math.MaxInt, math.MinInt
	for b := range s.buckets {
		low, high = min(low, b), max(high, b)
	}
	for b := low; b <= high; b++ {
		if left -= s.buckets[b]; left <= 0 {
			x := math.Pow(sketchBase, float64(b))
			if whole := math.Round(x); math.Abs(x-whole) <= x*(sketchBase-1)/2 && whole > 0 {
				x = whole
			}
			return min(max(x, s.min), s.max)
		}
	}
	return s.max
}
