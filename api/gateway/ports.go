package gateway

import (
	"context"

	"github.com/headway-rl/headway/api/protocol"
)

// Rollouts is what the gateway samples with.
type Rollouts interface {
	// Turn samples one response for a claimed rollout and returns when it is complete. It calls
	// onTokens, if not nil, with each piece that arrives meanwhile, by one goroutine at a time. Where
	// the text of that is not how the reply's begins, a piece of it was lost, and the reply's is right.
	// A prompt that begins with all tokens of a branch goes on with it, the longest that fits; any other
	// begins a new branch. Where ctx ends before the response is complete, the turn is taken back:
	// nothing of it is recorded. Turns of one rollout wait for each other.
	Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error)
	// Hold has a claim last until release, and for its time from then on. It does nothing for a rollout that is not claimed. It may
	// wait while a rollout is restored.
	Hold(ctx context.Context, id string) (release func())
	// Ended is closed when the claim has ended, for any reason. For a rollout that is not claimed the
	// channel is nil, with a refusal.
	Ended(id string) (<-chan struct{}, error)
	// Lasting returns the error of a call, or one for now where the rollout may go on at another process. It may wait.
	Lasting(ctx context.Context, id string, err error) error
}

// Writable is what a response writer may know of its connection, beside http.ResponseWriter.
type Writable interface {
	// Writable reports whether the connection takes some kilobytes without waiting for the client.
	Writable() bool
}

// Templates renders chats and reads tokens.
type Templates interface {
	// Render returns the tokens of a chat; messages and tools are JSON in OpenAI's shape. With
	// generation the beginning of the assistant's next message stands at their end.
	Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error)
	// Encode returns the tokens of a text as it is; Decode the text of tokens without special ones.
	Encode(ctx context.Context, text string) ([]int32, error)
	Decode(ctx context.Context, tokens []int32) (string, error)
}
