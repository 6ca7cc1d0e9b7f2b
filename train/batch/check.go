package batch

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// LogprobMax is the largest log-prob that counts as one: engines that round make a
// certain token's a little larger than 0.
const LogprobMax = 1e-3

// name renders a rollout as in every other text: g12-s3-a1.
func name(id port.RolloutID) string {
	return fmt.Sprintf("g%d-s%d-a%d", id.Group, id.Sample, id.Attempt)
}

func finite(x float32) bool { return x-x == 0 }

// checkGroup refuses a group whose stamps contradict the batch.
func checkGroup(g *port.Group, training loop.Version) error {
	switch {
	case len(g.Samples) == 0:
		return fmt.Errorf("batch: group %d has no samples, want at least one", g.ID)
	case g.StartVersion < 0 || g.StartVersion > g.ReadyVersion || g.ReadyVersion > training:
		return fmt.Errorf("batch: group %d started under version %d and was ready at %d, and the step starts from %d: want 0 ≤ start ≤ ready ≤ step",
			g.ID, g.StartVersion, g.ReadyVersion, training)
	}
	for i := range g.Samples {
		if id := g.Samples[i].ID; id.Group != g.ID {
			return fmt.Errorf("batch: group %d has the rollout %s of another group", g.ID, name(id))
		}
	}
	return nil
}

// checked is what was found on the way through a sample.
type checked struct {
	// response is how many tokens the policy sampled.
	response int
	// clean: where the mask is 0 the log-probs are 0 and the versions unknown already.
	clean bool
}

// checkSample refuses what must never be trained on.
func checkSample(s *port.Sample, training loop.Version, vocabulary int) (checked, error) {
	n := len(s.Tokens)
	if n == 0 || n > math.MaxInt32 || len(s.LossMask) != n || len(s.Logprobs) != n || len(s.Versions) != n {
		return checked{}, fmt.Errorf("batch: rollout %s has %d tokens, %d mask entries, %d log-probs and %d versions: want as many of each, at least 1",
			name(s.ID), n, len(s.LossMask), len(s.Logprobs), len(s.Versions))
	}
	if !finite(s.Reward) {
		return checked{}, fmt.Errorf("batch: rollout %s has the reward %g, want a finite number", name(s.ID), s.Reward)
	}
	if err := checkBreaks(s); err != nil {
		return checked{}, err
	}
	if err := s.CheckAgents(); err != nil {
		return checked{}, fmt.Errorf("batch: %w", err)
	}
	if vocabulary <= 0 || vocabulary > math.MaxInt32 {
		vocabulary = math.MaxInt32
	}
	c := checked{clean: true}
	// One test a token while all is well; what is wrong is found by a second look.
	mask, logprobs, versions := s.LossMask[:n], s.Logprobs[:n], s.Versions[:n]
	for i, token := range s.Tokens {
		if uint32(token) >= uint32(vocabulary) || mask[i] > 1 {
			return checked{}, tokenError(s, i, training, vocabulary)
		}
		v, p := versions[i], logprobs[i]
		if mask[i] == 0 {
			// Minus zero is not the 0 that is promised.
			c.clean = c.clean && v == loop.NoVersion && math.Float32bits(p) == 0
			continue
		}
		c.response++
		if uint64(v) > uint64(training) || !(p <= LogprobMax && p >= -math.MaxFloat32) {
			return checked{}, tokenError(s, i, training, vocabulary)
		}
	}
	return c, nil
}

// tokenError says what is wrong with token i, which checkSample has refused.
func tokenError(s *port.Sample, i int, training loop.Version, vocabulary int) error {
	token, version, logprob := s.Tokens[i], s.Versions[i], s.Logprobs[i]
	switch {
	case token < 0 || int(token) >= vocabulary:
		return fmt.Errorf("batch: rollout %s has the id %d at token %d, want from 0 to %d, inside the vocabulary", name(s.ID), token, i, vocabulary-1)
	case s.LossMask[i] > 1:
		return fmt.Errorf("batch: rollout %s has the mask value %d at token %d, want 1 where the policy sampled and else 0", name(s.ID), s.LossMask[i], i)
	case version < 0:
		return fmt.Errorf("batch: rollout %s has token %d of unknown version (%d), which the policy sampled: nothing may be trained on it", name(s.ID), i, version)
	case version > training:
		return fmt.Errorf("batch: rollout %s has token %d sampled by version %d, but the step starts from version %d: want at most that", name(s.ID), i, version, training)
	}
	return fmt.Errorf("batch: rollout %s has the log-prob %g at token %d, want a finite number of at most 0", name(s.ID), logprob, i)
}
