package remote

import (
	"sync"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/protocol"
)

// flow carries what an engine samples to the goroutine that waits for it. The engine never
// waits for a slow reader: what piles up is handed over in one piece.
type flow struct {
	// ready, of one element, says that something is pending.
	ready chan struct{}

	mu      sync.Mutex
	pending protocol.TurnDelta

	// What follows belongs to the goroutine that waits: slices to be used again, and how much of
	// the response was handed over.
	spare        protocol.TurnDelta
	tokens, text int
}

func newFlow() *flow { return &flow{ready: make(chan struct{}, 1)} }

// add takes in a piece, which it does not keep.
func (f *flow) add(d live.Delta) {
	f.mu.Lock()
	p := &f.pending
	p.Tokens, p.Logprobs = append(p.Tokens, d.Tokens...), append(p.Logprobs, d.Logprobs...)
	p.Text += d.Text
	f.mu.Unlock()
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// deliver hands over what is pending.
func (f *flow) deliver(onTokens func(protocol.TurnDelta)) {
	f.mu.Lock()
	d := f.pending
	f.pending = protocol.TurnDelta{Tokens: f.spare.Tokens[:0], Logprobs: f.spare.Logprobs[:0]}
	f.mu.Unlock()
	f.spare = d
	if len(d.Tokens) == 0 && d.Text == "" {
		return
	}
	f.tokens += len(d.Tokens)
	f.text += len(d.Text)
	onTokens(d)
}

// finish hands over the rest of a response that is complete, so that the pieces make up the
// whole even where an engine has said less on the way.
func (f *flow) finish(reply *protocol.TurnReply, onTokens func(protocol.TurnDelta)) {
	f.deliver(onTokens)
	tokens, text := min(f.tokens, len(reply.Tokens)), min(f.text, len(reply.Text))
	rest := protocol.TurnDelta{Tokens: reply.Tokens[tokens:], Logprobs: reply.Logprobs[tokens:], Text: reply.Text[text:]}
	if len(rest.Tokens) > 0 || rest.Text != "" {
		onTokens(rest)
	}
}
