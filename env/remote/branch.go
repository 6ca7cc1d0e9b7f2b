package remote

import (
	"slices"
	"sync/atomic"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// turn is one response that is asked for, and what becomes of it. The environment's mutex
// guards it, what is atomic apart.
type turn struct {
	// prompt is everything before the response, maxTokens bounds it; sampling is nil for the policy as it is.
	prompt    []int32
	media     []media.Item
	maxTokens int
	// agent speaks, without a name where nobody is named.
	agent port.Agent
	// known is the first row of passes that the engine is to say.
	known int
	// asked is how many tokens the prompt had.
	asked    int
	sampling *port.Sampling
	// number counts a worker's calls to Sample from 0; -1 for a call of Turn.
	number int
	// dropped is closed when nobody waits for the response any more: it is not recorded.
	dropped chan struct{}
	// begun: its first token has been sampled. flow has what arrives meanwhile, nil where nobody listens.
	begun atomic.Bool
	flow  *flow
	// keeps: the response is durable, or about to be.
	keeps bool
	// done is closed when the response is recorded as branch.tokens[first:end]; end is 0 before.
	done       chan struct{}
	branch     *branch
	place      int
	first, end int
	finish     string
	text       string
}

func newTurn(number int, prompt []int32, maxTokens int, sampling *port.Sampling) *turn {
	return &turn{number: number, prompt: slices.Clone(prompt), asked: len(prompt), maxTokens: maxTokens, sampling: sampling,
		dropped: make(chan struct{}), done: make(chan struct{})}
}

// drop says that nobody waits for the response any more. The environment's mutex must be held.
func (t *turn) drop() {
	if !t.isDropped() {
		close(t.dropped)
	}
}

// isDropped asks the channel that a sampler looks at: whoever stops a response for it can tell
// from that channel why. Engines call it between steps, without the mutex.
func (t *turn) isDropped() bool {
	select {
	case <-t.dropped:
		return true
	default:
		return false
	}
}

// numbered reports whether a worker counts the turn, as Sample asks for it.
func (t *turn) numbered() bool { return t.number >= 0 }

// branch is one sequence of a rollout: one entry a token in every slice.
type branch struct {
	// agent speaks in it.
	agent    port.Agent
	tokens   []int32
	mask     []uint8
	logprobs []float32
	versions []loop.Version
	// resumes are the places at which the rollout went on after an interruption.
	resumes []port.ResumePoint
	// channels are its side channels.
	channels []channel.Channel
	// media stand among its tokens.
	media []media.Item
}

// channel finds a side channel by its form, which it begins where there is none.
func (b *branch) channel(h channel.Header) *channel.Channel {
	at := slices.IndexFunc(b.channels, func(c channel.Channel) bool { return c.Name == h.Name })
	if at < 0 {
		at = len(b.channels)
		b.channels = append(b.channels, channel.Channel{Header: h})
	}
	return &b.channels[at]
}

// known is the first row of passes that an engine is to say after a prompt that the branch goes on with; 0 without any
// channel.
func (b *branch) known(prompt int) int {
	if len(b.channels) == 0 {
		return 0
	}
	known, passes := prompt-1, false
	mask := append(slices.Clone(b.mask), make([]uint8, prompt-len(b.mask))...)
	for i := range b.channels {
		if c := &b.channels[i]; c.Align == channel.Passes {
			known, passes = min(known, c.Wanted(0, mask)), true
		}
	}
	if !passes {
		return 0
	}
	return known
}

func (b *branch) add(token int32, mask uint8, logprob float32, version loop.Version) {
	b.tokens, b.mask = append(b.tokens, token), append(b.mask, mask)
	b.logprobs, b.versions = append(b.logprobs, logprob), append(b.versions, version)
}

// record is what a rollout's turns have left so far: a branch for every history that was not
// an earlier one's continuation.
type record struct {
	branches []*branch
	// turns are those of Sample, by their numbers; others counts those of Turn.
	turns  []*turn
	others int
	// size is the tokens of all branches.
	size int
	// cut: the last response reached its limit. derived: a version was not the engine's own word.
	cut, derived bool
	// carried are the resumes that came with responses which are not recorded: they are of the next.
	carried []port.ResumePoint
}

// empty reports whether nothing was sampled.
func (r *record) empty() bool { return len(r.branches) == 0 }

// fit is the place of the branch that an agent's prompt goes on with: the longest of that agent's whose tokens and media
// it begins with, the oldest of several. It is the number of branches where there is none.
func (r *record) fit(agent port.Agent, prompt []int32, items []media.Item) int {
	best, length := len(r.branches), 0
	for i, b := range r.branches {
		if n := len(b.tokens); b.agent == agent && n > length && n <= len(prompt) && slices.Equal(prompt[:n], b.tokens) && media.Begins(items, b.media, n) {
			best, length = i, n
		}
	}
	return best
}

// goesOn is the branch that an agent's prompt goes on with, or a new one at the same place. A new one has the side channels of
// the tokens that it shares with another: those of the longest such beginning.
func (r *record) goesOn(agent port.Agent, prompt []int32, items []media.Item) (*branch, int) {
	place := r.fit(agent, prompt, items)
	if place < len(r.branches) {
		return r.branches[place], place
	}
	from, shared := (*branch)(nil), 1
	for _, b := range r.branches {
		if len(b.channels) == 0 {
			continue
		}
		if n := media.Common(b.media, items, commonPrefix(b.tokens, prompt)); n > shared {
			from, shared = b, n
		}
	}
	out := &branch{agent: agent}
	if from != nil {
		for i := range from.channels {
			out.channels = append(out.channels, from.channels[i].Fork(shared))
		}
	}
	return out, place
}

// commonPrefix is how many tokens both begin with.
func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// sampled adds a turn with its response.
func (r *record) sampled(t *turn, g *port.Generation) {
	b, place := r.goesOn(t.agent, t.prompt, t.media)
	if t.place = place; place == len(r.branches) {
		r.branches = append(r.branches, b)
	}
	r.size -= len(b.tokens)
	for _, token := range t.prompt[len(b.tokens):] {
		b.add(token, 0, 0, loop.NoVersion)
	}
	t.branch, t.first, b.media = b, len(b.tokens), t.media
	for _, p := range append(r.carried, g.Resumes...) {
		b.resumes = append(b.resumes, port.ResumePoint{At: int32(t.first) + p.At, Version: p.Version})
	}
	r.carried = nil
	for i, token := range g.Tokens {
		b.add(token, 1, g.Logprobs[i], g.Versions[i])
	}
	for i := range g.Channels {
		// Rows of another form come from an engine with another model: they are absent.
		_ = b.channel(g.Channels[i].Header).Append(&g.Channels[i], t.first, b.mask)
	}
	t.end, t.text, t.finish = len(b.tokens), g.Text, "stop"
	if g.TextPartial { // whoever needs it reads it from the tokens
		t.text = ""
	}
	r.size += t.end
	switch {
	case g.Pruned:
		t.finish = "pruned"
	case g.Truncated:
		t.finish = "length"
	}
	t.prompt = b.tokens[:t.first:t.first] // of which there is one copy now
	r.cut, r.derived = t.finish == "length", r.derived || g.Derived
	if !t.numbered() {
		r.others++
	}
}

// left notes what remains of a response that is not recorded.
func (r *record) left(g *port.Generation) {
	for _, p := range g.Resumes {
		r.carried = append(r.carried, port.ResumePoint{Version: p.Version})
	}
}

// reply is the response of a turn of Sample that is done.
func (t *turn) reply() protocol.SampleReply {
	b := t.branch
	return protocol.SampleReply{
		Tokens: slices.Clone(b.tokens[t.first:t.end]), Logprobs: slices.Clone(b.logprobs[t.first:t.end]),
		Versions: slices.Clone(b.versions[t.first:t.end]), Finish: t.finish,
	}
}

// sample is the record as it is trained on: the branches one after the other.
func (r *record) sample() port.Sample {
	n := 0
	for _, b := range r.branches {
		n += len(b.tokens)
	}
	s := port.Sample{Truncated: r.cut, Derived: r.derived, Resumes: []port.ResumePoint{}}
	if len(r.branches) > 1 {
		s.Tokens, s.LossMask = make([]int32, 0, n), make([]uint8, 0, n)
		s.Logprobs, s.Versions = make([]float32, 0, n), make([]loop.Version, 0, n)
	}
	for i, b := range r.branches {
		begin := int32(len(s.Tokens))
		if b.agent.Name != "" { // then all have one
			s.Agents = append(s.Agents, b.agent)
		}
		if i > 0 {
			s.Breaks = append(s.Breaks, begin)
		}
		for _, p := range b.resumes {
			s.Resumes = append(s.Resumes, port.ResumePoint{At: begin + p.At, Version: p.Version})
		}
		s.Media = media.Moved(s.Media, b.media, begin)
		for _, c := range b.channels {
			c.Sequence = int32(i)
			s.Channels = append(s.Channels, c)
		}
		if len(r.branches) == 1 {
			s.Tokens, s.LossMask, s.Logprobs, s.Versions = b.tokens, b.mask, b.logprobs, b.versions
			continue
		}
		s.Tokens, s.LossMask = append(s.Tokens, b.tokens...), append(s.LossMask, b.mask...)
		s.Logprobs, s.Versions = append(s.Logprobs, b.logprobs...), append(s.Versions, b.versions...)
	}
	for _, p := range r.carried {
		s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(n), Version: p.Version})
	}
	return s
}
