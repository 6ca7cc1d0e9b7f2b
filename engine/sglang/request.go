package sglang

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
)

// Generate implements [upstream.Dialect]. Every field that shapes the distribution is given: the
// server takes a missing one from the model's preferences.
func (*Dialect) Generate(r upstream.Request, caps *upstream.Capabilities) (upstream.Call, error) {
	adapter := learnt(caps).adapter()
	switch {
	case r.ID == "":
		return upstream.Call{}, errors.New("a request to SGLang needs an id: an empty rid is the beginning of every other")
	case r.Lora && adapter == "":
		return upstream.Call{}, fmt.Errorf("%w: an adapter is to sample, and none has been loaded since the server was asked what it can", upstream.ErrLacking)
	case len(r.Prompt) == 0 || r.MaxTokens < 1:
		return upstream.Call{}, fmt.Errorf("%d prompt tokens and %d to sample: want at least one of each", len(r.Prompt), r.MaxTokens)
	}
	b := make([]byte, 0, 512+8*len(r.Prompt)+len(r.ID)+len(r.Session)+len(r.Salt))
	b = upstream.AppendString(append(b, `{"rid":`...), r.ID)
	b = upstream.AppendTokens(append(b, `,"input_ids":`...), r.Prompt)
	if r.Lora {
		b = upstream.AppendString(append(b, `,"lora_path":`...), adapter)
	}
	b = append(b, `,"sampling_params":`...)
	b = appendSampling(b, r)
	b = append(b, `,"stream":true,"return_logprob":true,"logprob_start_len":-1,"top_logprobs_num":0`...)
	for _, name := range r.Channels {
		b = append(append(append(b, `,"return_`...), name...), `":true`...)
		if name == channel.RoutedExperts && r.Known > 0 {
			b = strconv.AppendInt(append(b, `,"routed_experts_start_len":`...), int64(r.Known), 10)
		}
	}
	if r.Session != "" {
		b = upstream.AppendString(append(b, `,"session_id":`...), r.Session)
		b = upstream.AppendString(append(b, `,"routing_key":`...), r.Session)
	}
	if r.Salt != "" {
		b = upstream.AppendString(append(b, `,"extra_key":`...), r.Salt)
	}
	if f := learnt(caps); r.Priority != 0 && f.priority {
		priority := -r.Priority // the higher is earlier, unless the server was told otherwise
		if f.low {
			priority = r.Priority
		}
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(priority), 10)
	}
	return upstream.Call{Path: "/generate", Body: append(b, '}')}, nil
}

// appendSampling appends the parameters of a request as JSON.
func appendSampling(b []byte, r upstream.Request) []byte {
	s := r.Sampling
	topP, topK := s.TopP, s.TopK
	topP = cmp.Or(topP, 1)
	topK = cmp.Or(topK, -1)
	b = strconv.AppendInt(append(b, `{"max_new_tokens":`...), int64(r.MaxTokens), 10)
	b = upstream.AppendNumber(append(b, `,"temperature":`...), s.Temperature)
	b = upstream.AppendNumber(append(b, `,"top_p":`...), topP)
	b = strconv.AppendInt(append(b, `,"top_k":`...), int64(topK), 10)
	b = upstream.AppendNumber(append(b, `,"min_p":`...), s.MinP)
	b = append(b, `,"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"min_new_tokens":0,"n":1,"ignore_eos":false,"skip_special_tokens":true`...)
	if len(s.Stop) > 0 {
		b = append(b, `,"stop":[`...)
		for i, text := range s.Stop {
			if i > 0 {
				b = append(b, ',')
			}
			b = upstream.AppendString(b, text)
		}
		b = append(b, ']')
	}
	if len(s.StopTokens) > 0 {
		b = upstream.AppendTokens(append(b, `,"stop_token_ids":`...), s.StopTokens)
	}
	return append(b, '}')
}
