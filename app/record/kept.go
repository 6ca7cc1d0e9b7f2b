package record

import (
	"strings"
	"sync"

	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// keptGroup is a group on which a step is trained, kept to be read.
type keptGroup struct {
	group port.Group
	// from is the version that the step starts from.
	from loop.Version
	// spell renders tokens, nil where they cannot be; std: advantages are over the deviation of the rewards.
	spell func([]int32) string
	std   bool

	mu sync.Mutex
	// ratios are the trainer's log-ratios by token, nil before the step has ended.
	ratios map[port.RolloutID][]float32
}

// trained takes what the trainer found.
func (k *keptGroup) trained(ratios map[port.RolloutID][]float32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ratios = ratios
}

// bytes is what keeping the group takes, about.
func (k *keptGroup) bytes() (n int64) {
	for i := range k.group.Samples {
		s := &k.group.Samples[i]
		n += 400 + 21*int64(len(s.Tokens)) + int64(len(s.Prompt)+len(s.Response)+len(s.Answer))
	}
	return n
}

// prompt is what was asked, as text.
func (k *keptGroup) prompt() string {
	if len(k.group.Samples) == 0 {
		return ""
	}
	s := &k.group.Samples[0]
	if s.Prompt != "" || k.spell == nil {
		return s.Prompt
	}
	first := 0
	for first < len(s.Tokens) && s.LossMask[first] == 0 {
		first++
	}
	return k.spell(s.Tokens[:first])
}

// readable is the group for the dashboard.
func (k *keptGroup) readable() dashboard.Readable {
	return dashboard.Readable{ID: k.group.ID, Step: k.from + 1, Prompt: k.prompt(), Bytes: k.bytes(), Rollouts: k.rollouts, Tokens: true, Text: k.prompt() != ""}
}

// rollouts are the group's samples as a reader sees them.
func (k *keptGroup) rollouts() []dashboard.RolloutDetail {
	k.mu.Lock()
	ratios := k.ratios
	k.mu.Unlock()
	samples := k.group.Samples
	rewards, advantages := make([]float32, len(samples)), make([]float32, len(samples))
	for i := range samples {
		rewards[i] = samples[i].Reward
	}
	grpo.Advantages(advantages, rewards, k.std)
	out := make([]dashboard.RolloutDetail, 0, len(samples))
	for i := range samples {
		s, advantage := &samples[i], float64(advantages[i])
		out = append(out, dashboard.RolloutDetail{Sample: s.ID.Sample, Attempt: s.ID.Attempt, Reward: float64(s.Reward), Advantage: &advantage,
			Truncated: s.Truncated, Turns: turnsOf(s, s.Spread(ratios[s.ID]), k.spell)})
	}
	return out
}

// line has the figures of the group, for a file.
func (k *keptGroup) line() dashboard.GroupLine {
	l := dashboard.GroupLine{ID: k.group.ID, Step: k.from + 1, End: loop.EndTrained.String(), Staleness: k.from - k.group.StartVersion, Prompt: k.prompt(), Readable: true}
	for i := range k.group.Samples {
		s := &k.group.Samples[i]
		reward := float64(s.Reward)
		if i == 0 {
			l.RewardMin, l.RewardMax = reward, reward
		}
		l.RewardMin, l.RewardMax = min(l.RewardMin, reward), max(l.RewardMax, reward)
		l.RewardMean += reward / float64(len(k.group.Samples))
		l.Tokens += int64(s.Trained().ResponseTokens())
	}
	return l
}

// turnsOf splits a sample where the policy's words begin and end: what comes before its first is the prompt, what
// lies between is a tool's. A branch of the history begins with a prompt again.
func turnsOf(s *port.Sample, ratios []float32, spell func([]int32) string) []dashboard.Turn {
	var turns []dashboard.Turn
	breaks, opening, sequence := s.Breaks, true, 0
	for first := 0; first < len(s.Tokens); {
		if len(breaks) > 0 && int(breaks[0]) == first {
			breaks, opening = breaks[1:], true
			sequence++
		}
		end := first + 1
		for end < len(s.Tokens) && s.LossMask[end] == s.LossMask[first] && (len(breaks) == 0 || int(breaks[0]) != end) {
			end++
		}
		turn := turnOf(s, first, end, opening, ratios, spell)
		if turn.Role == "policy" && s.Agents != nil {
			turn.Name = s.Agents[sequence].Name
		}
		turns = append(turns, turn)
		first, opening = end, false
	}
	if len(turns) > 0 && s.Prompt != "" && turns[0].Role == "prompt" {
		turns[0].Text = s.Prompt
	}
	if len(turns) == 2 && turns[1].Text == "" {
		turns[1].Text = s.Response
	}
	if s.Answer != "" {
		turns = append(turns, dashboard.Turn{Role: "verifier", Name: "expected", Text: s.Answer})
	}
	return turns
}

// turnOf is the turn of the tokens from first to end, which are all the policy's or all not.
func turnOf(s *port.Sample, first, end int, opening bool, ratios []float32, spell func([]int32) string) dashboard.Turn {
	t := dashboard.Turn{Role: "tool"}
	if spell != nil {
		t.Text = spell(s.Tokens[first:end])
	}
	if s.LossMask[first] == 0 {
		if opening {
			t.Role = "prompt"
		}
		return t
	}
	t.Role, t.IDs, t.Logprobs = "policy", s.Tokens[first:end], s.Logprobs[first:end]
	for i := first; i < end; i++ {
		t.Versions = append(t.Versions, int64(s.Versions[i]))
		if i < len(ratios) {
			t.LogRatios = append(t.LogRatios, &ratios[i])
		}
	}
	t.Pieces = piecesOf(s.Tokens[first:end], spell)
	return t
}

// pieceTokensMax is up to how many tokens are spelled with what is before them, which says where spaces belong.
const pieceTokensMax = 512

// piecesOf spells tokens one by one, nil where they cannot be.
func piecesOf(tokens []int32, spell func([]int32) string) []string {
	if spell == nil {
		return nil
	}
	pieces, before := make([]string, len(tokens)), ""
	for i := range tokens {
		pieces[i] = spell(tokens[i : i+1])
		if len(tokens) > pieceTokensMax {
			continue
		}
		whole := spell(tokens[:i+1])
		if rest, follows := strings.CutPrefix(whole, before); follows {
			pieces[i] = rest
		}
		before = whole
	}
	return pieces
}
