package vllm

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/engine/upstream"
)

// missing stands for a log-prob that is not there, as the server itself clamps one that is not finite.
const missing = -9999

// event is what one event of a stream says of the only response in it. Its slices are used again
// by the next.
type event struct {
	tokens   []int32
	logprobs []float32
	// named are the token ids beside the log-probs, where these name them.
	named  []int32
	text   []byte
	finish []byte
	spans  []span
	// lengths and ids are of the masks of the tokens, one length for a token.
	lengths, ids []int32
	// expanded is what the server has made of a prompt with media, nil where it does not say.
	expanded *upstream.Expansion
	// refused is the whole of an error in the stream.
	refused *refusal
}

// span is a stretch of tokens of one version, in the server's words.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// refusal is an error in a stream that began with HTTP 200.
type refusal struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
}

func (e *event) reset() {
	e.tokens, e.logprobs, e.named = e.tokens[:0], e.logprobs[:0], e.named[:0]
	e.text, e.finish, e.spans, e.refused = e.text[:0], e.finish[:0], e.spans[:0], nil
	e.lengths, e.ids, e.expanded = e.lengths[:0], e.ids[:0], nil
}

// wire is an event as encoding/json reads it, of both ways and of every age: where the scanner
// does not know a shape, this decides.
type wire struct {
	Error *refusal `json:"error"`
	expansion
	Choices []struct {
		Tokens []int32 `json:"token_ids"`
		Text   string  `json:"text"`
		Finish string  `json:"finish_reason"`
		Spans  []span  `json:"weight_versions"`
		// Masks are read apart: what they are does not decide about the tokens.
		Masks    json.RawMessage `json:"sampling_mask"`
		Logprobs *struct {
			Content []struct {
				Token   string   `json:"token"`
				TokenID *int32   `json:"token_id"`
				Logprob *float32 `json:"logprob"`
			} `json:"content"`
			Tokens        []string   `json:"tokens"`
			TokenLogprobs []*float32 `json:"token_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
}

// parse reads an event of any shape.
func (e *event) parse(data []byte) error {
	e.reset()
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	e.refused, e.expanded = w.Error, w.read()
	if len(w.Choices) == 0 {
		return nil
	}
	c := w.Choices[0]
	e.tokens = append(e.tokens, c.Tokens...)
	e.text, e.finish, e.spans = append(e.text, c.Text...), append(e.finish, c.Finish...), append(e.spans, c.Spans...)
	var masks [][]int32
	if json.Unmarshal(c.Masks, &masks) == nil {
		for _, ids := range masks {
			e.lengths, e.ids = append(e.lengths, int32(len(ids))), append(e.ids, ids...)
		}
	}
	if c.Logprobs == nil {
		return nil
	}
	for _, entry := range c.Logprobs.Content {
		e.logprobs = append(e.logprobs, orMissing(entry.Logprob))
		if entry.TokenID != nil {
			e.named = append(e.named, *entry.TokenID)
		} else {
			e.name(entry.Token)
		}
	}
	for _, x := range c.Logprobs.TokenLogprobs {
		e.logprobs = append(e.logprobs, orMissing(x))
	}
	for _, token := range c.Logprobs.Tokens {
		e.name(token)
	}
	return nil
}

// name takes a token id from the word that stands for it. Other words are texts of tokens.
func (e *event) name(token string) {
	digits, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return
	}
	if id, err := strconv.ParseInt(digits, 10, 32); err == nil {
		e.named = append(e.named, int32(id))
	}
}

// tokenPrefix begins a token that is named by its id in place of its text.
const tokenPrefix = "token_id:"

func orMissing(x *float32) float32 {
	if x == nil || math.IsNaN(float64(*x)) {
		return missing
	}
	return *x
}
