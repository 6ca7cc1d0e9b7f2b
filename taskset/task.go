package taskset

import "encoding/json"

// Task is one prompt with all that a rollout of it needs.
type Task struct {
	// ID is unique in its set: the file's own, or the place in it.
	ID string
	// Messages are the chat that a rollout begins with, each an object in OpenAI's shape.
	Messages []json.RawMessage
	// Answer is what a verifier compares with, as the file has it; nil for none. The policy never sees it.
	Answer json.RawMessage
	// Level is the difficulty, 1 the easiest; 0 where the file says none.
	Level int
	// Files are put into the sandbox before the first turn, by their path in it; Hidden before the
	// verifier runs, when the policy is done.
	Files, Hidden map[string][]byte
	// Test is the command that judges in the sandbox, by a shell; empty for none.
	Test string
	// TurnsMax and TimeoutS bound a rollout of this task; 0 is the run's own bound.
	TurnsMax int
	TimeoutS float64
	// Fields are all of the file's, for verifiers and hooks.
	Fields map[string]json.RawMessage
}
