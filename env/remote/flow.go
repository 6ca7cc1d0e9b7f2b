package remote

import (
	"sync"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/protocol"
)

// flow hands what an engine samples to whoever waits for it, as it comes. Nothing arrives any
// more once it is ended.
type flow struct {
	mu       sync.Mutex
	onTokens func(protocol.TurnDelta)
	// tokens and text are how much of the response was handed over; the text in bytes.
	tokens, text int
}

func (f *flow) add(d live.Delta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onTokens == nil {
		return
	}
	f.tokens += len(d.Tokens)
	f.text += len(d.Text)
	f.onTokens(protocol.TurnDelta{Tokens: d.Tokens, Logprobs: d.Logprobs, Text: d.Text})
}

// end says that nobody listens any more. A complete response comes with it: what of it was not
// handed over, because an engine said less on the way, is.
func (f *flow) end(reply *protocol.TurnReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	onTokens := f.onTokens
	f.onTokens = nil
	if reply == nil {
		return
	}
	tokens, text := min(f.tokens, len(reply.Tokens)), min(f.text, len(reply.Text))
	rest := protocol.TurnDelta{Tokens: reply.Tokens[tokens:], Logprobs: reply.Logprobs[tokens:], Text: reply.Text[text:]}
	if len(rest.Tokens) > 0 || rest.Text != "" {
		onTokens(rest)
	}
}
