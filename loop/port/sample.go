package port

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
)

// Sample is the trainable record of one rollout. Tokens, LossMask, Logprobs and
// Versions have the same length.
type Sample struct {
	ID RolloutID
	// Tokens are prompt and response ids in order.
	Tokens []int32
	// LossMask is 1 where the policy sampled the token.
	LossMask []uint8
	// Logprobs are the sampling log-probabilities in nats, 0 where LossMask is 0.
	Logprobs []float32
	// Versions are the policy versions that sampled each token, loop.NoVersion where LossMask is 0.
	Versions []loop.Version
	// Reward is the environment's verdict, finite; Exact says that the answer is wholly right.
	Reward float32
	Exact  bool
	// Truncated: the response reached its length limit.
	Truncated bool
	// Breaks are the indices in Tokens at which another sequence begins. A rollout whose history was
	// changed on the way (a branch) leaves several, one after the other, and each is trained on as
	// one. They rise, from above 0 to below len(Tokens); nil for one sequence.
	Breaks []int32
	// Agents are those who speak in the sequences, one each; nil where calls name no agent.
	Agents []Agent
	// Channels are the side channels of its sequences, in the order of these; nil for none. Their bytes lie in blobs of
	// this attempt.
	Channels []channel.Channel
	// Media stand among its tokens, in order, by their places in Tokens; nil for none. Their bytes lie in blobs of the
	// group (GroupMedia), each once.
	Media []media.Item
	// Derived: at least one version was derived from when its engine switched, and not reported by it.
	Derived bool
	// Pruned: a rule of the environment stopped the rollout early. It has no reward,
	// counts for nothing and is not kept.
	Pruned bool
	// Resumes are the places at which the rollout went on after an interruption, in
	// their order. The runtime fills them in where they are nil. An environment that left
	// responses out, or keeps them in another order, places those of its responses
	// (Generation.Resumes) itself.
	Resumes []ResumePoint
	// Prompt, Response and Answer are readable renderings for sample files.
	Prompt, Response, Answer string
	// GenerateNS is the time at the engine, EnvironmentNS the time in tools and verifiers, both in nanoseconds.
	GenerateNS, EnvironmentNS int64
}

// ResponseTokens returns how many tokens the policy sampled.
func (s *Sample) ResponseTokens() int {
	n := 0
	for _, m := range s.LossMask {
		n += int(m)
	}
	return n
}

// Sequences is how many sequences the rollout left: one, and one more for every break.
func (s *Sample) Sequences() int { return len(s.Breaks) + 1 }

// Sequence is the i-th sequence: Tokens[first:end].
func (s *Sample) Sequence(i int) (first, end int) {
	end = len(s.Tokens)
	if i > 0 {
		first = int(s.Breaks[i-1])
	}
	if i < len(s.Breaks) {
		end = int(s.Breaks[i])
	}
	return first, end
}

// ResumePoint is a place at which an interrupted rollout went on.
type ResumePoint struct {
	// At is the index in Sample.Tokens of the first token sampled after it;
	// len(Tokens) if none was.
	At int32
	// Version is what the engine served that went on with it.
	Version loop.Version
}

// Span is a run of consecutive tokens that one version sampled without an
// interruption.
type Span struct {
	// First and End are indices in Sample.Tokens: the span is Tokens[First:End].
	First, End int
	// Version sampled them.
	Version loop.Version
	// Resumed: the rollout was resumed right before First, with a cache filled anew.
	Resumed bool
}

// Spans returns the spans of a sample in order. A span ends where the version
// changes, where the rollout was interrupted and where a token was not sampled by
// the policy.
func (s *Sample) Spans() []Span {
	var spans []Span
	next := 0 // of Resumes
	for i, m := range s.LossMask {
		resumed := false
		for ; next < len(s.Resumes) && int(s.Resumes[next].At) <= i; next++ {
			resumed = true
		}
		if m == 0 {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].End == i && spans[n-1].Version == s.Versions[i] && !resumed {
			spans[n-1].End++
			continue
		}
		spans = append(spans, Span{First: i, End: i + 1, Version: s.Versions[i], Resumed: resumed})
	}
	return spans
}

// Resumed reports whether the rollout was interrupted after its first token and resumed.
func (s *Sample) Resumed() bool { return len(s.Resumes) > 0 }

// StateVersions returns the lowest and the highest version of the tokens sampled before the last
// resume. Those tokens made the state in which the environment was when another policy went on from
// it. Both are loop.NoVersion for a rollout that was never resumed.
func (s *Sample) StateVersions() (low, high loop.Version) {
	if len(s.Resumes) == 0 {
		return loop.NoVersion, loop.NoVersion
	}
	return s.versionsBefore(int(s.Resumes[len(s.Resumes)-1].At))
}

// StateLag is the number of versions by which the environment's state lagged behind the policy that
// the rollout was last resumed under. It is the version served there less the lowest of
// StateVersions. It is 0 for a rollout that was never resumed, and negative where it was resumed on
// an engine that lags behind.
func (s *Sample) StateLag() loop.Version {
	low, _ := s.StateVersions()
	if low == loop.NoVersion {
		return 0
	}
	return s.Resumes[len(s.Resumes)-1].Version - low
}

func (s *Sample) versionsBefore(end int) (low, high loop.Version) {
	low, high = loop.NoVersion, loop.NoVersion
	for i := range min(end, len(s.Tokens)) {
		if s.LossMask[i] == 0 {
			continue
		}
		v := s.Versions[i]
		if low == loop.NoVersion || v < low {
			low = v
		}
		high = max(high, v)
	}
	return low, high
}
