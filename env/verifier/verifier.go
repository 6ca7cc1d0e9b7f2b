package verifier

import (
	"context"
	"encoding/json"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

// Case is a rollout that is to be judged.
type Case struct {
	Task *taskset.Task
	// Rollout names the attempt: g12-s3-a1.
	Rollout string
	// Response is the text of the policy's last message, Messages the whole chat.
	Response string
	Messages []json.RawMessage
	// Truncated: the last response reached its limit.
	Truncated bool
	// Box is where the policy's tools ran and its tests are to run; nil where there is none. It is
	// made at its first use.
	Box sandbox.Box
}

// Verdict is what a rollout is worth.
type Verdict struct {
	// Reward is finite and within the verifier's range.
	Reward float64
	// Exact: the answer is wholly right.
	Exact bool
	// Steps are rewards of single turns, the first turn's first; nil for none. Where there are any and
	// the verdict has no Reward of its own, that is their sum.
	Steps []float64
	// Metrics are further figures by name, for records.
	Metrics map[string]float64
	// Limit is the limit of the sandbox that the policy's code met when it was judged, empty for none.
	Limit sandbox.Class
	// Note says why, for readers.
	Note string
}

// Verifier judges rollouts. It is safe for concurrent use. An error that wraps a
// [sandbox.Failure] says of which class; no error ever stands for a reward of 0.
type Verifier interface {
	Verify(ctx context.Context, c Case) (Verdict, error)
	// Close ends what the verifier runs.
	Close() error
}
