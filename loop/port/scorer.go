package port

import (
	"context"

	"github.com/headway-rl/headway/loop/channel"
)

// Scorer has other models say how likely the tokens are that the policy sampled: teachers to learn from, and references
// to stay near. It is safe for concurrent use.
type Scorer interface {
	// Score scores a finished sample, and changes nothing in it. It returns whole channels: one row for every sampled
	// token of every sequence that has one and is trained on, in the order of sequences. It returns the context's error soon after that is
	// done. Any other error says that no scores can be had now, after every attempt that the scorer makes by itself. The
	// rollout fails then, and may be tried again.
	Score(ctx context.Context, s *Sample) ([]Scores, error)
}

// Scores are a channel of one sequence, as a [Scorer] says it.
type Scores struct {
	// Header is the channel's form: rows of one length, aligned to sampled tokens.
	channel.Header
	// Sequence is the place of the sequence in its rollout: 0 for the first.
	Sequence int32
	// Data has the rows back to back.
	Data []byte
}
