package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
)

// tokens is the reply of /tokenize.
type tokens struct {
	Tokens []int32 `json:"tokens"`
}

// Render asks the server to render a chat. Words of a message that spell a special token become
// that token: the server reads the rendered text as a whole.
func (Dialect) Render(ctx context.Context, s *upstream.Server, messages, tools []byte, generation bool, caps *upstream.Capabilities) ([]int32, error) {
	body := map[string]any{"model": caps.Model, "messages": json.RawMessage(messages), "add_generation_prompt": generation}
	if len(tools) > 0 {
		body["tools"] = json.RawMessage(tools)
	}
	return tokenize(ctx, s, body)
}

// Encode returns the tokens of a text. Words that spell a special token become that token.
func (Dialect) Encode(ctx context.Context, s *upstream.Server, text string, caps *upstream.Capabilities) ([]int32, error) {
	body := map[string]any{"model": caps.Model, "prompt": text, "add_special_tokens": false}
	return tokenize(ctx, s, body)
}

func tokenize(ctx context.Context, s *upstream.Server, body map[string]any) ([]int32, error) {
	var reply tokens
	err := s.Call(ctx, http.MethodPost, "/tokenize", body, &reply)
	if err == nil && reply.Tokens == nil {
		err = fmt.Errorf("%w: /tokenize answers without tokens", upstream.ErrLied)
	}
	return reply.Tokens, err
}

// Decode returns the text of tokens without special ones.
func (Dialect) Decode(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) (string, error) {
	if len(tokens) == 0 {
		return "", nil
	}
	l := of(caps)
	if l.derender {
		return derender(ctx, s, tokens, caps)
	}
	kept := make([]int32, 0, len(tokens))
	for _, token := range tokens {
		special, err := l.isSpecial(ctx, s, token, caps)
		if err != nil {
			return "", err
		}
		if !special {
			kept = append(kept, token)
		}
	}
	return detokenize(ctx, s, kept, caps)
}

// derender decodes tokens as the server decodes its own responses: without special ones.
func derender(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) (string, error) {
	choice := map[string]any{"index": 0, "token_ids": tokens, "finish_reason": "stop"}
	response := map[string]any{"request_id": "headway", "choices": []any{choice}}
	body := map[string]any{"model": caps.Model, "generate_responses": []any{response}}
	var reply struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
	}
	if err := s.Call(ctx, http.MethodPost, "/v1/completions/derender", body, &reply); err != nil {
		return "", err
	}
	if len(reply.Choices) != 1 {
		return "", fmt.Errorf("/v1/completions/derender: %d texts for one response", len(reply.Choices))
	}
	return reply.Choices[0].Text, nil
}

// detokenize decodes tokens, special ones too.
func detokenize(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) (string, error) {
	var reply struct {
		Prompt *string `json:"prompt"`
	}
	if err := s.Call(ctx, http.MethodPost, "/detokenize", map[string]any{"model": caps.Model, "tokens": tokens}, &reply); err != nil {
		return "", err
	}
	if reply.Prompt == nil {
		return "", fmt.Errorf("%w: /detokenize answers without a prompt", upstream.ErrLied)
	}
	return *reply.Prompt, nil
}

// isSpecial finds out about one token and remembers it. A special token is one that has a text, and
// none where special ones are left out; the server is asked to sample it both ways. Only those that
// begin with a bracket are asked about, which all but a few of the world's special tokens do.
func (l *learnt) isSpecial(ctx context.Context, s *upstream.Server, token int32, caps *upstream.Capabilities) (bool, error) {
	if known, ok := l.special.Load(token); ok {
		return known.(bool), nil
	}
	text, err := detokenize(ctx, s, []int32{token}, caps)
	if err != nil {
		return false, err
	}
	special := false
	if text != "" && (text[0] == '<' || text[0] == '[') {
		shown, err := sampleOnly(ctx, s, token, caps)
		if err != nil {
			return false, fmt.Errorf("whether token %d (%q) is special: %w", token, text, err)
		}
		special = shown == ""
	}
	l.special.Store(token, special)
	return special, nil
}

// sampleOnly has the server sample one token, and returns its text without special ones.
func sampleOnly(ctx context.Context, s *upstream.Server, token int32, caps *upstream.Capabilities) (string, error) {
	body := map[string]any{"model": caps.Model, "prompt": []int32{token}, "max_tokens": 1, "temperature": 0,
		"allowed_token_ids": []int32{token}, "ignore_eos": true, "skip_special_tokens": true}
	body = bounded(s, body, 1)
	var reply struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
	}
	if err := s.Call(ctx, http.MethodPost, pathCompletions, body, &reply); err != nil {
		return "", err
	}
	if len(reply.Choices) != 1 {
		return "", fmt.Errorf("%s: %d responses where one was asked for", pathCompletions, len(reply.Choices))
	}
	return reply.Choices[0].Text, nil
}

// Score asks for the log-probs of a prompt. They are of the model's own distribution under every
// --logprobs-mode of the server, and always computed, never taken from a cache. The prompt must
// leave room for one token in the context.
func (Dialect) Score(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) ([]float32, error) {
	served := caps.Model
	if adapter := of(caps).adapter.Load(); adapter != nil {
		served = *adapter
	}
	body := map[string]any{"model": served, "prompt": tokens, "max_tokens": 1, "temperature": 1, "prompt_logprobs": 0}
	body = bounded(s, body, 1)
	var reply struct {
		Choices []struct {
			Finish   string `json:"finish_reason"`
			Logprobs []map[string]struct {
				Logprob *float32 `json:"logprob"`
			} `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	if err := s.Call(ctx, http.MethodPost, pathCompletions, body, &reply); err != nil {
		return nil, err
	}
	if len(reply.Choices) == 1 && reply.Choices[0].Finish == string(upstream.FinishAbort) {
		return nil, fmt.Errorf("%s: %w", pathCompletions, errAborted)
	}
	if len(reply.Choices) != 1 || len(reply.Choices[0].Logprobs) != len(tokens) {
		return nil, fmt.Errorf("%s: not one log-prob for each of %d tokens", pathCompletions, len(tokens))
	}
	scores := make([]float32, 0, len(tokens))
	for i, token := range tokens[min(1, len(tokens)):] {
		entry, ok := reply.Choices[0].Logprobs[i+1][strconv.Itoa(int(token))]
		if !ok || entry.Logprob == nil {
			return nil, fmt.Errorf("%s: token %d of the prompt, %d, has no log-prob", pathCompletions, i+1, token)
		}
		scores = append(scores, *entry.Logprob)
	}
	return scores, nil
}
