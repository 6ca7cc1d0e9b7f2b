package episode

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// ErrNoRoom is wrapped by a Policy's error where the chat leaves no room for another message. The chat
// until then is judged, as truncated.
var ErrNoRoom = errors.New("the chat leaves no room for a response")

// Policy says the next message of a chat.
type Policy interface {
	// Say samples the assistant's message after those given, which the caller sends back unchanged.
	// The tools are JSON in OpenAI's shape, nil for none.
	Say(ctx context.Context, messages []json.RawMessage, tools json.RawMessage) (Message, error)
}

// Message is what the policy said.
type Message struct {
	// Raw is the message as it goes on in the chat.
	Raw json.RawMessage
	// Text of it, and the tools that it calls.
	Text  string
	Calls []Call
	// Finish is stop, length or tool_calls.
	Finish string
	// VersionLow and VersionHigh are the lowest and highest policy versions of its tokens.
	VersionLow, VersionHigh int64
	// Tokens are those of the message, Prompt those of all that it answers; 0 where the engine does not say.
	Tokens, Prompt int
}

// Call is a call of a tool. Arguments are as the policy wrote them: JSON, or a text that it took
// for JSON.
type Call struct{ ID, Name, Arguments string }

// World is what a rollout acts on beside its chat: a sandbox with tools, or an environment that is a
// server. Each rollout has one of its own.
type World interface {
	// Tools are JSON in OpenAI's shape, nil for none.
	Tools() json.RawMessage
	// Begin may add to the chat before the first turn.
	Begin(ctx context.Context, task *taskset.Task) ([]json.RawMessage, error)
	// Act answers the policy's message: with messages to go on from, or with none where it is done.
	// Mistakes of the policy are answers that say so; an error is a failure of the world.
	Act(ctx context.Context, said Message) (Answer, error)
	// Close ends it, at any time.
	Close(ctx context.Context) error
}

// Answer is what a world says to a message.
type Answer struct {
	Messages []json.RawMessage
	// Done: the rollout ends here.
	Done bool
	// Reward of this step, where the world gives rewards; Rewarded says that it does.
	Reward   float64
	Rewarded bool
	// Limit is the limit that the policy's code met, empty for none.
	Limit sandbox.Class
}

// Boxed is a World with a sandbox, in which tests can run.
type Boxed interface {
	World
	// Box is made at its first use, with the task's files in it.
	Box() sandbox.Box
}

// Stated is a World that knows which of the policy's messages changed it. Of others every message is
// held to have, that they answered.
type Stated interface {
	World
	// State is the lowest and highest policy version of the tokens that made the world's state, -1 and
	// -1 for none yet.
	State() (low, high int64)
}

// Starter is a sandbox.Box that is made at its first use, and says where the time went.
type Starter interface {
	sandbox.Box
	// Ready makes the box where there is none yet.
	Ready(ctx context.Context) error
	// Waited is how long no box could start, Started how long this one's start took: both up to now.
	Waited() time.Duration
	Started() time.Duration
}

// Outcome is a rollout that was played to its end.
type Outcome struct {
	Verdict verifier.Verdict
	// Response is the text of the policy's last message, Messages the whole chat.
	Response string
	Messages []json.RawMessage
	Turns    int
	// Truncated: the last message reached its limit, or there was no room for another; TurnsSpent: no
	// turn was left.
	Truncated, TurnsSpent bool
	// Limits are the limits that the policy's code met, in tools and tests, each with how often.
	Limits map[sandbox.Class]int
	// StateLow and StateHigh are the versions of the tokens that made the world's state, -1 for none.
	StateLow, StateHigh int64
	// Record is filled in for an episode that failed, too.
	Record Record
}
