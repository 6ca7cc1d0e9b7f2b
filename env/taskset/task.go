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
	// Files are put into the sandbox before the first turn, by their absolute path in it. Hidden are put there before
	// the verifier runs, when the policy is done.
	Files, Hidden map[string][]byte
	// Test is the command that judges in the sandbox, by a shell; empty for none.
	Test string
	// TurnsMax and TimeoutS bound a rollout of this task below the run's own bounds; 0 is those.
	TurnsMax int
	TimeoutS float64
	// Wants is what the task asks of its sandbox.
	Wants Wants
	// Fields are all of the file's, for verifiers and hooks.
	Fields map[string]json.RawMessage
}

// Wants is what a task asks of its sandbox and of who judges. Zeros leave it to the run.
type Wants struct {
	// Image is the container image that the task is meant for, for drivers that have images.
	Image string `json:"image,omitempty"`
	// CPUs, MemoryMB and DiskMB are the task's own idea of what it needs.
	CPUs     float64 `json:"cpus,omitempty"`
	MemoryMB int64   `json:"memory_mb,omitempty"`
	DiskMB   int64   `json:"disk_mb,omitempty"`
	// Network: the task says that it needs one. Whether it gets one is the run's decision.
	Network bool `json:"network,omitempty"`
	// VerifierTimeoutS bounds the Test command, in seconds.
	VerifierTimeoutS float64 `json:"verifier_timeout_s,omitempty"`
	// Env is for the commands of the policy and the Test command, VerifierEnv for the Test command alone.
	Env         map[string]string `json:"env,omitempty"`
	VerifierEnv map[string]string `json:"verifier_env,omitempty"`
}
