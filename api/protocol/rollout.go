package protocol

import (
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/media"
)

// ClaimRequest asks for rollouts to play: POST /api/v1/rollouts/claim. 204 means that
// none was there within WaitS; 205 that the run has ended.
type ClaimRequest struct {
	// Worker names the process; Environments are the names it plays, empty for any.
	Worker       string   `json:"worker"`
	Environments []string `json:"environments,omitempty"`
	// Max is the number of rollouts wanted at once, 1 to 1024; 0 means 1.
	Max int `json:"max,omitempty"`
	// WaitS is how long to wait for one, at most 60.
	WaitS float64 `json:"wait_s"`
}

// Claims is the reply: at least one.
type Claims struct {
	Rollouts []Claim `json:"rollouts"`
}

// Claim is a rollout to play. All rollouts of a group are to get the same prompt.
type Claim struct {
	// ID names the claim in every later call. It is made of group, sample and attempt: g12-s3-a1.
	ID      string       `json:"id"`
	Group   loop.GroupID `json:"group"`
	Sample  int32        `json:"sample"`
	Attempt int32        `json:"attempt"`
	// Key is the API key of an agent that plays the rollout, ID and a signature. It samples for this
	// rollout under /v1 while the claim lasts, and does nothing else. Secret is the worker's own: sample,
	// touch and finish ask for it. Both are empty between parts of one process.
	Key    string `json:"key,omitempty"`
	Secret string `json:"secret,omitempty"`
	// URL is where all later calls for the rollout go, and its agent's: to the process that plays it. Empty stands for the
	// address that answered.
	URL string `json:"url,omitempty"`
	// Environment is the name of the environment to play. Prompt is the number of the prompt in its
	// set (the group's own number where there is no set). Level is the difficulty from 1, 0 for none.
	Environment string `json:"environment"`
	Prompt      uint64 `json:"prompt"`
	Level       int32  `json:"level,omitempty"`
	// Evaluation: the prompt is one of those kept for evaluation, by its number from 1, and nothing is trained on
	// it. Group is below 0 then.
	Evaluation bool `json:"evaluation,omitempty"`
	// Seed is the run's: prompts are a function of (seed, prompt, level).
	Seed uint64 `json:"seed"`
	// DeadlineS is how long the claim lasts from now without a call that names it.
	DeadlineS float64 `json:"deadline_s"`
}

// SampleRequest samples a response with the rollout's engine slot, however often the
// rollout is interrupted meanwhile: POST /api/v1/rollouts/{id}/sample. The prompt of a later
// turn begins with the prompt and response of the turn before.
type SampleRequest struct {
	Worker string `json:"worker"`
	// Secret is the claim's.
	Secret string `json:"secret"`
	// Turn counts the rollout's calls from 0, so that a repeated call gets the same answer.
	Turn int `json:"turn"`
	// Prompt token ids, MaxTokens of the response; 0 means the run's limit.
	Prompt    []int32 `json:"prompt"`
	MaxTokens int     `json:"max_tokens"`
	// Agent labels who speaks; every call of a rollout names one, or none does. A later prompt begins with the
	// agent's own turns before. Train false keeps what the agent samples out of the trainer's batches.
	Agent string `json:"agent,omitempty"`
	Train *bool  `json:"train,omitempty"`
}

// SampleReply is a response, one entry a token.
type SampleReply struct {
	Tokens   []int32        `json:"tokens"`
	Logprobs []float32      `json:"logprobs"`
	Versions []loop.Version `json:"versions"`
	// Finish is stop (end of sequence), length (MaxTokens) or pruned.
	Finish string `json:"finish"`
}

// Sampling is how a client wants tokens drawn; nil fields are left to the run.
type Sampling struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	TopK        *int     `json:"top_k,omitempty"`
	MinP        *float64 `json:"min_p,omitempty"`
	// Stop are texts that end a response, StopTokens ids.
	Stop       []string `json:"stop,omitempty"`
	StopTokens []int32  `json:"stop_token_ids,omitempty"`
}

// TurnRequest asks for one response of a rollout, through the gateway. Unlike SampleRequest it
// names no worker and no turn, and its prompt may begin anew.
type TurnRequest struct {
	Prompt []int32
	// Media stand in the prompt, in order.
	Media []media.Item
	// MaxTokens of the response; 0 means the run's limit, and more is cut to it.
	MaxTokens int
	Sampling  Sampling
	// Agent and Train are as in SampleRequest.
	Agent string
	Train *bool
}

// TurnDelta is a piece of a response as it arrives.
type TurnDelta struct {
	Tokens   []int32
	Logprobs []float32
	Text     string
}

// TurnReply is a response, one entry a token.
type TurnReply struct {
	Tokens   []int32
	Logprobs []float32
	Versions []loop.Version
	// Text without special tokens; empty where the engine says none.
	Text string
	// Finish is stop, length or pruned.
	Finish string
	// Branch is the number of the sequence it was added to, from 0; Branches how many there are.
	Branch, Branches int
	// Overridden names what the run's sampling settings took the place of.
	Overridden []string
}

// FinishRequest ends a rollout: POST /api/v1/rollouts/{id}/finish. When it is answered with
// 200 the rollout is durable: its payload and its place in the ledger survive a crash.
type FinishRequest struct {
	Worker string `json:"worker"`
	// Secret is the claim's.
	Secret string `json:"secret"`
	// Reward is finite, and nil only beside Failed: a judge that divided by zero says null, which is no 0.
	// Exact says that the answer is wholly right.
	Reward *float32 `json:"reward,omitempty"`
	Exact  bool     `json:"exact,omitempty"`
	// Failed, if not empty, says that the rollout cannot be scored and why; Reward counts for nothing.
	// Reason is one of those below, empty for environment.
	Failed string `json:"failed,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Class is the kind of a failure, in one word such as verifier_crash or lost. It has small letters,
	// digits and _, at most 40 of them. Empty for unknown.
	Class string `json:"class,omitempty"`
	// Prompt, Response and Answer are readable renderings for sample files.
	PromptText   string `json:"prompt_text,omitempty"`
	ResponseText string `json:"response_text,omitempty"`
	AnswerText   string `json:"answer_text,omitempty"`
	// Tokens, Logprobs and Versions are needed only where the rollout was sampled elsewhere than by
	// SampleRequest. LossMask, a list of 0 and 1, comes with them; all are of one length.
	Tokens   []int32        `json:"tokens,omitempty"`
	LossMask LossMask       `json:"loss_mask,omitempty"`
	Logprobs []float32      `json:"logprobs,omitempty"`
	Versions []loop.Version `json:"versions,omitempty"`
}

// Reasons of a failed rollout. The first two are failures of the infrastructure: the rollout is tried
// again. A program of the policy's that crashes or takes too long is none of them: it has a reward.
const (
	// ReasonEnvironment: a machine, a sandbox, a tool or a verifier failed.
	ReasonEnvironment = "environment"
	// ReasonTimeout: one of them took too long.
	ReasonTimeout = "timeout"
	// ReasonData: the task itself cannot be played or judged. It is not tried again.
	ReasonData = "data"
)

// LossMask is 1 where the policy sampled a token, else 0. In JSON it is a list of numbers, and never a text as
// other lists of bytes are.
type LossMask []uint8

// MarshalJSON implements json.Marshaler.
func (m LossMask) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, one := range m {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(one), 10)
	}
	return append(text, ']'), nil
}

// FinishReply says what became of it.
type FinishReply struct {
	// Counted: it is one of its group's rollouts. False for one that the loop had given up meanwhile.
	Counted bool `json:"counted"`
}

// TouchRequest keeps a claim while its worker is busy with tools: POST /api/v1/rollouts/{id}/touch.
type TouchRequest struct {
	Worker string `json:"worker"`
	// Secret is the claim's.
	Secret string `json:"secret"`
}

// TouchReply says how long the claim lasts, and whether the rollout is still wanted.
type TouchReply struct {
	DeadlineS float64 `json:"deadline_s"`
	Wanted    bool    `json:"wanted"`
}
