package llamacpp

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/headway-rl/headway/engine/upstream"
)

// properties are what a server says of itself: GET /props.
type properties struct {
	Slots    int    `json:"total_slots"`
	Alias    string `json:"model_alias"`
	Path     string `json:"model_path"`
	Build    string `json:"build_info"`
	Template string `json:"chat_template"`
	Metrics  bool   `json:"endpoint_metrics"`
	Listing  bool   `json:"endpoint_slots"`
	Defaults struct {
		Context int `json:"n_ctx"`
	} `json:"default_generation_settings"`
}

// learnt is what Probe keeps for itself.
type learnt struct {
	properties
	// ends: a chat that ends with the assistant's message is rendered to its end.
	ends bool
	mu   sync.Mutex
	// special remembers of tokens whether they are.
	special map[int32]bool
}

// models is the list under /v1/models.
type models struct {
	Data []struct {
		ID   string `json:"id"`
		Meta struct {
			Vocabulary int `json:"n_vocab"`
		} `json:"meta"`
	} `json:"data"`
}

// Probe implements upstream.Dialect. It samples one token.
func (d *Dialect) Probe(ctx context.Context, s *upstream.Server) (upstream.Capabilities, error) {
	var caps upstream.Capabilities
	own := &learnt{special: map[int32]bool{}}
	if err := s.Call(ctx, http.MethodGet, "/props", nil, &own.properties); err != nil {
		switch upstream.StatusOf(err) {
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			return caps, upstream.OtherKind(fmt.Errorf("%s is no llama-server: %w", s.URL(), err))
		case http.StatusServiceUnavailable:
			return caps, fmt.Errorf("llama-server at %s has not loaded its model yet: %w", s.URL(), err)
		}
		return caps, err
	}
	if own.Slots == 0 {
		return caps, upstream.OtherKind(fmt.Errorf("%s is no llama-server: its answer to /props names no slots", s.URL()))
	}
	var list models
	if err := s.Call(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return caps, err
	}
	caps = upstream.Capabilities{
		Software: fmt.Sprintf("llama-server %s, %d slots", own.Build, own.Slots), Model: own.Alias,
		Context: own.Defaults.Context, Slots: own.Slots, Unmarked: true, Private: own,
	}
	if len(list.Data) > 0 {
		caps.Model, caps.Vocabulary = list.Data[0].ID, list.Data[0].Meta.Vocabulary
	}
	if err := d.probeSampling(ctx, s, &caps); err != nil {
		return caps, err
	}
	if err := d.probeTemplate(ctx, s, own, &caps); err != nil {
		return caps, err
	}
	if !own.Metrics && !own.Listing {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "how busy it is cannot be asked", Flag: "--metrics, or --slots"})
	}
	return caps, nil
}

// probeSampling samples a token, to see what comes with it.
func (d *Dialect) probeSampling(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) error {
	r := upstream.Request{ID: "probe", Prompt: []int32{0}, MaxTokens: 1, Sampling: neutral}
	body := completionOf(r)
	body.Stream = false
	var reply event
	if err := post(ctx, s, "/completion", body, &reply); err != nil {
		return fmt.Errorf("sampling a token to see what comes with it: %w", err)
	}
	caps.TokenIDs = len(reply.Tokens) == 1
	if shown := reply.shown(); len(shown) == 1 {
		caps.Logprobs = shown[0].Prob != nil || shown[0].Logprob != nil
		caps.ProcessedLogprobs = shown[0].Prob != nil
	} else if caps.TokenIDs { // a token inside a character has no probability: see ErrHiddenToken
		caps.Logprobs, caps.ProcessedLogprobs = true, true
	}
	caps.Score = caps.TokenIDs && caps.Logprobs
	if !caps.TokenIDs {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "it returns no token ids (return_tokens), so that nothing can be recorded", Flag: "a newer llama-server", Fatal: true})
	}
	if !caps.Logprobs {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "it returns no probabilities of sampled tokens (n_probs), so that nothing can be trained on", Flag: "a newer llama-server", Fatal: true})
	} else if !caps.ProcessedLogprobs {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "its log-probs are of the model's own distribution (no post_sampling_probs): temperature 1 without cuts alone can be trained on", Flag: "a newer llama-server"})
	}
	return nil
}
