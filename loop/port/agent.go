package port

import (
	"fmt"
	"slices"
)

// Agent is who speaks in a sequence of a rollout.
type Agent struct {
	// Name is its label, never empty.
	Name string
	// Untrained: nothing of the sequence is trained on.
	Untrained bool
}

// CheckAgents refuses labels that are not one a sequence, and a rollout of which nothing is trained on.
func (s *Sample) CheckAgents() error {
	if s.Agents == nil {
		return nil
	}
	if len(s.Agents) != s.Sequences() {
		return fmt.Errorf("sample %v has %d sequences and the agents of %d: want one each, or none", s.ID, s.Sequences(), len(s.Agents))
	}
	for i, a := range s.Agents {
		if a.Name == "" {
			return fmt.Errorf("sample %v has no agent in sequence %d, and others have: want one each, or none", s.ID, i)
		}
	}
	if !slices.ContainsFunc(s.Agents, func(a Agent) bool { return !a.Untrained }) {
		return fmt.Errorf("sample %v has no agent that is trained", s.ID)
	}
	return nil
}

// Untrained reports whether nothing of a sequence is trained on.
func (s *Sample) Untrained(sequence int) bool {
	return s.Agents != nil && s.Agents[sequence].Untrained
}

// Trained is the sample as a trainer gets it: without the sequences of agents that are not trained. It is s
// itself where all are, and where CheckAgents or a check of the breaks refuses it.
func (s *Sample) Trained() *Sample {
	if !slices.ContainsFunc(s.Agents, func(a Agent) bool { return a.Untrained }) || s.CheckAgents() != nil || !s.divided() {
		return s
	}
	out := *s
	out.Tokens, out.LossMask, out.Logprobs, out.Versions = nil, nil, nil, nil
	out.Breaks, out.Agents, out.Channels, out.Media, out.Resumes = nil, nil, nil, nil, nil
	for i, a := range s.Agents {
		if !a.Untrained {
			out.take(s, i)
		}
	}
	return &out
}

// divided reports whether the breaks rise, above 0 and below the number of tokens.
func (s *Sample) divided() bool {
	before := int32(0)
	for _, at := range s.Breaks {
		if at <= before || int(at) >= len(s.Tokens) {
			return false
		}
		before = at
	}
	return len(s.LossMask) == len(s.Tokens) && len(s.Logprobs) == len(s.Tokens) && len(s.Versions) == len(s.Tokens)
}

// take appends sequence i of another sample.
func (s *Sample) take(from *Sample, i int) {
	first, end := from.Sequence(i)
	begin, place := int32(len(s.Tokens)), int32(len(s.Agents))
	if begin > 0 {
		s.Breaks = append(s.Breaks, begin)
	}
	s.Tokens, s.LossMask = append(s.Tokens, from.Tokens[first:end]...), append(s.LossMask, from.LossMask[first:end]...)
	s.Logprobs, s.Versions = append(s.Logprobs, from.Logprobs[first:end]...), append(s.Versions, from.Versions[first:end]...)
	s.Agents = append(s.Agents, from.Agents[i])
	for _, c := range from.Channels {
		if int(c.Sequence) == i {
			c.Sequence = place
			s.Channels = append(s.Channels, c)
		}
	}
	for _, m := range from.Media {
		if int(m.Offset) >= first && int(m.Offset) < end {
			m.Offset += begin - int32(first)
			s.Media = append(s.Media, m)
		}
	}
	for _, p := range from.Resumes {
		if int(p.At) >= first && int(p.At) < end {
			s.Resumes = append(s.Resumes, ResumePoint{At: begin + p.At - int32(first), Version: p.Version})
		}
	}
}

// Spread puts values of Trained's tokens, one each, at the places of the sample's own. Others are 0.
func (s *Sample) Spread(values []float32) []float32 {
	if len(values) == 0 || len(values) == len(s.Tokens) {
		return values
	}
	out := make([]float32, len(s.Tokens))
	for i, a := range s.Agents {
		if first, end := s.Sequence(i); !a.Untrained {
			values = values[copy(out[first:end], values):]
		}
	}
	return out
}

// TrainedGroups are groups with the samples that a trainer gets. Those that are the same are not copied.
func TrainedGroups(groups []Group) []Group {
	out := groups
	for g := range groups {
		for i := range groups[g].Samples {
			s := &groups[g].Samples[i]
			trained := s.Trained()
			if trained == s {
				continue
			}
			if &out[0] == &groups[0] {
				out = slices.Clone(groups)
			}
			if &out[g].Samples[0] == &groups[g].Samples[0] {
				out[g].Samples = slices.Clone(groups[g].Samples)
			}
			out[g].Samples[i] = *trained
		}
	}
	return out
}
