package batch

import (
	"fmt"

	"github.com/headway-rl/headway/loop/port"
)

// sequences is how many sequences a rollout left: one, and one more for every break.
func sequences(s *port.Sample) int { return len(s.Breaks) + 1 }

// eachSequence visits the sequences of a rollout as tokens[first:end].
func eachSequence(s *port.Sample, visit func(first, end int)) {
	first := 0
	for _, at := range s.Breaks {
		visit(first, int(at))
		first = int(at)
	}
	visit(first, len(s.Tokens))
}

// checkBreaks refuses breaks that do not divide the tokens into sequences.
func checkBreaks(s *port.Sample) error {
	before := int32(0)
	for _, at := range s.Breaks {
		if at <= before || int(at) >= len(s.Tokens) {
			return fmt.Errorf("batch: rollout %s has a break at %d after %d: want breaks that rise, above 0 and below its %d tokens",
				name(s.ID), at, before, len(s.Tokens))
		}
		before = at
	}
	return nil
}
