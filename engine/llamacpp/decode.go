package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/engine/upstream"
)

// ErrHiddenToken is wrapped by the error of a stream that hides a sampled token, because it ended
// in the middle of a character. The tokens before it stand.
var ErrHiddenToken = errors.New("llama-server does not show a token that ends inside a character")

// probability is what an event says of one token: prob of the distribution it was drawn from, or
// logprob of the model's own.
type probability struct {
	ID      int32    `json:"id"`
	Prob    *float64 `json:"prob"`
	Logprob *float64 `json:"logprob"`
}

// logprob is the log-prob; an error where there is none.
func (p probability) logprob() (float32, error) {
	switch {
	case p.Prob != nil && *p.Prob > 0 && *p.Prob <= 1+1e-6:
		return float32(min(math.Log(*p.Prob), 0)), nil
	case p.Prob != nil:
		return 0, fmt.Errorf("llama-server gives token %d the probability %g", p.ID, *p.Prob)
	case p.Logprob != nil:
		return float32(*p.Logprob), nil
	}
	return 0, fmt.Errorf("llama-server gives token %d no probability", p.ID)
}

// event is one of a stream, or a whole reply. The array of probabilities has had two names.
type event struct {
	Tokens    []int32       `json:"tokens"`
	Text      string        `json:"content"`
	Stop      bool          `json:"stop"`
	StopType  string        `json:"stop_type"`
	Predicted int           `json:"tokens_predicted"`
	Named     []probability `json:"completion_probabilities"`
	Probs     []probability `json:"probs"`
	Error     *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Type    string `json:"type"`
	} `json:"error"`
}

// shown are the probabilities under either name.
func (e *event) shown() []probability {
	if len(e.Named) > 0 {
		return e.Named
	}
	return e.Probs
}

// decoder reads one stream.
type decoder struct {
	stops []int32
	// processed: probabilities must be of the distribution that was drawn from.
	processed bool
	event     event
	tokens    int
	ended     bool
}

// Decoder implements upstream.Dialect.
func (*Dialect) Decoder(r upstream.Request, caps *upstream.Capabilities) upstream.Decoder {
	return &decoder{stops: r.Sampling.StopTokens, processed: caps != nil && caps.ProcessedLogprobs}
}

// Event implements upstream.Decoder. What follows the end of a response is passed over.
func (d *decoder) Event(data []byte, into *upstream.Delta) error {
	if d.ended {
		return nil
	}
	e := &d.event
	// What a reader leaves out of an element keeps what was there before: nothing may be.
	clear(e.Named)
	clear(e.Probs)
	*e = event{Tokens: e.Tokens[:0], Named: e.Named[:0], Probs: e.Probs[:0]}
	if err := json.Unmarshal(data, e); err != nil {
		return fmt.Errorf("llama-server sends what is no event: %w: %w", err, upstream.Excerpt(data))
	}
	if e.Error != nil {
		return fmt.Errorf("llama-server breaks off: %d %s: %s", e.Error.Code, upstream.Said(e.Error.Type), upstream.Said(e.Error.Message))
	}
	if err := d.count(e); err != nil {
		return err
	}
	return d.take(e, into)
}

// count checks that an event shows what it counts.
func (d *decoder) count(e *event) error {
	shown := e.shown()
	if len(shown) != len(e.Tokens) {
		return fmt.Errorf("llama-server sends %d tokens with %d probabilities", len(e.Tokens), len(shown))
	}
	for i, p := range shown {
		if p.ID != e.Tokens[i] {
			return fmt.Errorf("llama-server sends token %d with the probability of token %d", e.Tokens[i], p.ID)
		}
		if d.processed && p.Prob == nil && p.Logprob != nil {
			return fmt.Errorf("llama-server gives token %d a log-prob of the model's own distribution, where it gave those of the sampled one when it was probed", p.ID)
		}
	}
	if e.Predicted > d.tokens+len(e.Tokens) {
		return fmt.Errorf("%w: it counts %d tokens and has shown %d", ErrHiddenToken, e.Predicted, d.tokens+len(e.Tokens))
	}
	return nil
}

// take adds an event's tokens, up to one that ends the response.
func (d *decoder) take(e *event, into *upstream.Delta) error {
	for i, p := range e.shown() {
		logprob, err := p.logprob()
		if err != nil {
			return err
		}
		into.Tokens, into.Logprobs = append(into.Tokens, e.Tokens[i]), append(into.Logprobs, logprob)
		d.tokens++
		if slices.Contains(d.stops, p.ID) {
			d.ended, into.Finish = true, upstream.FinishStop
			return nil
		}
	}
	into.Text += e.Text
	if !e.Stop {
		return nil
	}
	d.ended = true
	switch e.StopType {
	case "eos", "word":
		into.Finish = upstream.FinishStop
	case "limit":
		into.Finish = upstream.FinishLength
	default: // none: it was stopped from outside
		into.Finish = upstream.FinishAbort
	}
	return nil
}
