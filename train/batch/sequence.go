package batch

import (
	"fmt"

	"github.com/headway-rl/headway/loop/port"
)

// eachSequence visits the sequences of a rollout as tokens[first:end].
func eachSequence(s *port.Sample, visit func(first, end int)) {
	for i := range s.Sequences() {
		visit(s.Sequence(i))
	}
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
