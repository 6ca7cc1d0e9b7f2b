package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// errNoTokenizer is what rendering ends with where the server does not offer it.
var errNoTokenizer = errors.New("the server has no /tokenize that takes messages")

// tokenized is what /tokenize answers.
type tokenized struct {
	Tokens []int32 `json:"tokens"`
}

// Render implements [upstream.Templater].
func (*Dialect) Render(ctx context.Context, s *upstream.Server, messages, tools []byte, generation bool, caps *upstream.Capabilities) ([]int32, error) {
	path := learnt(caps).tokenize
	if path == "" {
		return nil, errNoTokenizer
	}
	body := map[string]any{"messages": json.RawMessage(messages), "add_generation_prompt": generation}
	if len(tools) > 0 {
		body["tools"] = json.RawMessage(tools)
	}
	return tokenize(ctx, s, path, body)
}

// Encode implements [upstream.Templater].
func (*Dialect) Encode(ctx context.Context, s *upstream.Server, text string, caps *upstream.Capabilities) ([]int32, error) {
	path := learnt(caps).tokenize
	if path == "" {
		return nil, errNoTokenizer
	}
	return tokenize(ctx, s, path, map[string]any{"prompt": text, "add_special_tokens": false})
}

func tokenize(ctx context.Context, s *upstream.Server, path string, body map[string]any) ([]int32, error) {
	if s.Model != "" {
		body["model"] = s.Model
	}
	var reply tokenized
	if err := s.Call(ctx, http.MethodPost, path, body, &reply); err != nil {
		return nil, err
	}
	if reply.Tokens == nil {
		return nil, fmt.Errorf("%s answers without tokens", path)
	}
	return reply.Tokens, nil
}

// Decode implements [upstream.Templater].
func (*Dialect) Decode(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) (string, error) {
	path := learnt(caps).detokenize
	if path == "" {
		return "", errNoTokenizer
	}
	if len(tokens) == 0 {
		return "", nil
	}
	body := map[string]any{"tokens": tokens, "skip_special_tokens": true}
	if s.Model != "" {
		body["model"] = s.Model
	}
	var reply struct {
		Text *string `json:"text"`
	}
	if err := s.Call(ctx, http.MethodPost, path, body, &reply); err != nil {
		return "", err
	}
	if reply.Text == nil {
		return "", fmt.Errorf("%s answers without text", path)
	}
	return *reply.Text, nil
}
