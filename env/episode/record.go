package episode

import (
	"github.com/headway-rl/headway/env/sandbox"
)

// Kind says what a span of an episode was spent on.
type Kind string

// Kinds of spans.
const (
	Model        Kind = "model"         // the policy samples, its wait for a slot included
	SandboxWait  Kind = "sandbox_wait"  // no box may start
	SandboxStart Kind = "sandbox_start" // a box starts
	Tool         Kind = "tool"          // a command or a step of an environment runs
	VerifierWait Kind = "verifier_wait" // the verifier is busy with others
	Verifier     Kind = "verifier"      // the verdict is made
)

// earlier are the kinds that records of earlier versions have, with the present ones.
var earlier = map[Kind]Kind{"judge_wait": VerifierWait, "judge": Verifier}

// UnmarshalText reads a kind from a record, which an earlier version may have written.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = Kind(text)
	if now, was := earlier[*k]; was {
		*k = now
	}
	return nil
}

// Span is a stretch of an episode. Spans of one episode follow one another without overlap.
type Span struct {
	Kind Kind `json:"kind"`
	// Turn it belongs to, from 0; the verifier's is the last.
	Turn int `json:"turn"`
	// StartNS and EndNS are nanoseconds since the run's start, by the run's clock.
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`
	// Class is the limit that was met or the failure, empty for neither.
	Class sandbox.Class `json:"class,omitempty"`
	// Name of the tool.
	Name string `json:"name,omitempty"`
}

// TurnTokens are the input and the output of one turn, as the engine counted them.
type TurnTokens struct {
	Input  int `json:"input"`
	Output int `json:"output"`
}

// Record is one line of a run's episodes.jsonl: where the time of a rollout attempt went.
type Record struct {
	// Rollout names the attempt: g12-s3-a1. Task is the task's id.
	Rollout string `json:"rollout"`
	Task    string `json:"task,omitempty"`
	Turns   int    `json:"turns"`
	// Tokens are those of every turn; nil where the engine does not count inputs.
	Tokens []TurnTokens `json:"tokens,omitempty"`
	// Reward is nil for an attempt that failed; Failure is its class then.
	Reward  *float64      `json:"reward,omitempty"`
	Steps   []float64     `json:"steps,omitempty"`
	Failure sandbox.Class `json:"failure,omitempty"`
	Note    string        `json:"note,omitempty"`
	// Box is the sandbox's name. StateLow and StateHigh are the policy versions that made its state.
	Box       string             `json:"box,omitempty"`
	StateLow  *int64             `json:"state_low,omitempty"`
	StateHigh *int64             `json:"state_high,omitempty"`
	Limits    map[string]int     `json:"limits,omitempty"`
	Metrics   map[string]float64 `json:"metrics,omitempty"`
	Spans     []Span             `json:"spans"`
}
