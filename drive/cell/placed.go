package cell

import (
	"fmt"
	"github.com/headway-rl/headway/loop/port"
	"math"
)

// versionRuns returns how many runs of one version, between interruptions, the
// sampled tokens make, as metrics and the simulator count them: unlike Spans, it
// takes no notice of the tokens in between that the policy did not sample.
func versionRuns(s *port.Sample) int {
	spans := s.Spans()
	runs := 0
	for i := range spans {
		if i == 0 || spans[i].Resumed || spans[i].Version != spans[i-1].Version {
			runs++
		}
	}
	return runs
}

// place notes where, in a sample's tokens, the rollout was resumed: sampled
// holds, for each resume, how many tokens the policy had sampled by then. The first told of
// them came with responses, whose environment may have placed them.
func place(s *port.Sample, resumes []resume, told int) {
	if s.Resumes != nil { // what is left came after the last response
		for _, r := range resumes[told:] {
			s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(len(s.Tokens)), Version: r.version})
		}
		return
	}
	next, sampled := 0, 0
	for i, m := range s.LossMask {
		if m == 0 {
			continue
		}
		for ; next < len(resumes) && resumes[next].sampled <= sampled; next++ {
			s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(i), Version: resumes[next].version})
		}
		sampled++
	}
	for ; next < len(resumes); next++ {
		s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(len(s.Tokens)), Version: resumes[next].version})
	}
}

// checkSample refuses what must never be trained on.
func checkSample(s *port.Sample, id port.RolloutID) error {
	n := len(s.Tokens)
	if s.ID != id {
		return fmt.Errorf("cell: the environment returned a sample of %v for %v", s.ID, id)
	}
	if n == 0 || len(s.LossMask) != n || len(s.Logprobs) != n || len(s.Versions) != n {
		return fmt.Errorf("cell: sample %v has %d tokens, %d mask entries, %d log-probs, %d versions: want equal numbers, at least 1", id, n, len(s.LossMask), len(s.Logprobs), len(s.Versions))
	}
	if r := float64(s.Reward); math.IsNaN(r) || math.IsInf(r, 0) {
		return fmt.Errorf("cell: sample %v has the reward %g: want a finite number", id, r)
	}
	before := int32(0)
	for _, at := range s.Breaks {
		if at <= before || int(at) >= n {
			return fmt.Errorf("cell: sample %v has a break at %d after %d: want breaks that rise, above 0 and below its %d tokens", id, at, before, n)
		}
		before = at
	}
	sampled := 0
	for i, m := range s.LossMask {
		if m == 0 {
			continue
		}
		sampled++
		if m != 1 {
			return fmt.Errorf("cell: sample %v has the mask value %d at token %d: want 0 or 1", id, m, i)
		}
		if s.Versions[i] < 0 {
			return fmt.Errorf("cell: sample %v has a token of unknown version at %d: nothing may be trained on it", id, i)
		}
		if p := float64(s.Logprobs[i]); math.IsNaN(p) || math.IsInf(p, 0) || p > 1e-3 {
			return fmt.Errorf("cell: sample %v has the log-prob %g at token %d: want a finite number of at most 0", id, p, i)
		}
	}
	if sampled == 0 {
		return fmt.Errorf("cell: sample %v has no token that the policy sampled", id)
	}
	if err := s.CheckAgents(); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	if err := checkMedia(s); err != nil {
		return err
	}
	return checkChannels(s)
}

// checkChannels refuses channels whose rows do not lie in the sequences that they are of.
func checkChannels(s *port.Sample) error {
	for i := range s.Channels {
		c := &s.Channels[i]
		if c.Sequence < 0 || int(c.Sequence) > len(s.Breaks) || i > 0 && c.Sequence < s.Channels[i-1].Sequence {
			return fmt.Errorf("cell: sample %v has the channel %s of sequence %d, out of order or of %d sequences", s.ID, c.Name, c.Sequence, len(s.Breaks)+1)
		}
		first, end := s.Sequence(int(c.Sequence))
		if err := c.Check(s.LossMask[first:end]); err != nil {
			return fmt.Errorf("cell: sample %v, sequence %d: %w", s.ID, c.Sequence, err)
		}
	}
	return nil
}
