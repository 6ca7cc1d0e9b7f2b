package remote

import (
	"strings"
	"sync"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// flow hands what an engine samples to whoever waits for it, as it comes. Nothing arrives any
// more once it is ended.
type flow struct {
	mu       sync.Mutex
	onTokens func(protocol.TurnDelta)
	// tokens is how many of the response were handed over, text which text.
	tokens int
	text   strings.Builder
}

func (f *flow) add(d port.Delta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onTokens == nil {
		return
	}
	f.tokens += len(d.Tokens)
	f.text.WriteString(d.Text)
	f.onTokens(protocol.TurnDelta{Tokens: d.Tokens, Logprobs: d.Logprobs, Text: d.Text})
}

// end says that nobody listens any more. A complete response comes with it: what of it was not
// handed over, because an engine said less on the way, is. Where the text that was is not how the
// response's begins, because a piece was lost as it went on at another engine, no more of it is: it
// would be wrong at that place. Whoever listened finds that by the response.
func (f *flow) end(reply *protocol.TurnReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	onTokens := f.onTokens
	f.onTokens = nil
	if reply == nil {
		return
	}
	tokens := min(f.tokens, len(reply.Tokens))
	rest := protocol.TurnDelta{Tokens: reply.Tokens[tokens:], Logprobs: reply.Logprobs[tokens:]}
	if text, ok := strings.CutPrefix(reply.Text, f.text.String()); ok {
		rest.Text = text
	}
	if len(rest.Tokens) > 0 || rest.Text != "" {
		onTokens(rest)
	}
}
