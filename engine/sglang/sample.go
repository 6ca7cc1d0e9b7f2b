package sglang

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// logprob is a [log-prob, id, text] of a reply; the log-prob is nil where there is none.
type logprob struct {
	value *float64
	id    int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *logprob) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("an entry of %d parts, want a log-prob and an id", len(parts))
	}
	if err := json.Unmarshal(parts[0], &p.value); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &p.id)
}

// sampled is a whole reply of /generate.
type sampled struct {
	IDs  []int32 `json:"output_ids"`
	Meta struct {
		Completion int           `json:"completion_tokens"`
		Input      []logprob     `json:"input_token_logprobs"`
		Output     []logprob     `json:"output_token_logprobs"`
		Spans      []versionSpan `json:"weight_versions"`
		Finish     *finishReason `json:"finish_reason"`
	} `json:"meta_info"`
}

// sample asks for a short response in one piece; start is from which token of the prompt on log-probs
// are wanted, -1 for none. An adapter samples where one is named.
func sample(ctx context.Context, s *upstream.Server, adapter string, prompt []int32, start int, sampling map[string]any) (sampled, error) {
	body := map[string]any{"input_ids": prompt, "sampling_params": sampling, "return_logprob": true, "logprob_start_len": start}
	if adapter != "" {
		body["lora_path"] = adapter
	}
	var reply sampled
	if err := s.Call(ctx, http.MethodPost, "/generate", body, &reply); err != nil {
		return reply, err
	}
	if finish, err := reply.Meta.Finish.finish(); err != nil || finish == upstream.FinishAbort {
		return reply, cmp.Or(err, errors.New("/generate: the response is aborted before it is whole"))
	}
	return reply, nil
}

// Score implements [upstream.Scorer].
func (*Dialect) Score(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) ([]float32, error) {
	if len(tokens) < 2 {
		return nil, fmt.Errorf("%d tokens to score: want at least two, as the first follows nothing", len(tokens))
	}
	reply, err := sample(ctx, s, learnt(caps).adapter(), tokens, 0, map[string]any{"max_new_tokens": 0, "temperature": 1})
	if err != nil {
		return nil, err
	}
	input := reply.Meta.Input
	if len(input) != len(tokens) {
		return nil, fmt.Errorf("%w: %d input_token_logprobs of %d tokens", upstream.ErrLied, len(input), len(tokens))
	}
	scores := make([]float32, 0, len(tokens)-1)
	for i, p := range input[1:] {
		if p.value == nil || p.id != tokens[i+1] {
			return nil, fmt.Errorf("%w: token %d is %d in input_token_logprobs, was sent as %d, and has a log-prob: %t", upstream.ErrLied, i+1, p.id, tokens[i+1], p.value != nil)
		}
		scores = append(scores, float32(*p.value))
	}
	return scores, nil
}
