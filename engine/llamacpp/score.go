package llamacpp

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/engine/upstream"
)

// forced is what is added to the logit of a token that is to be sampled; no model's own reach it.
const forced = 1e6

// Score implements upstream.Scorer by one request a token: it is forced by a bias, which the
// log-prob of the model's own distribution does not see. The prompt's cache makes each of them one
// step of decoding. At 49 000 tokens they are some 2e-4 nats off. A token that ends inside a character has
// [upstream.LogprobMissing]: the server counts it, and shows none.
func (*Dialect) Score(ctx context.Context, s *upstream.Server, tokens []int32, _ *upstream.Capabilities) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("no tokens to score")
	}
	logprobs, said := make([]float32, 0, len(tokens)-1), false
	for i, token := range tokens[1:] {
		body := completionOf(upstream.Request{ID: "score", Prompt: tokens[:i+1], MaxTokens: 1})
		body.Stream, body.Processed, body.Bias = false, false, [][2]float64{{float64(token), forced}}
		var reply event
		if err := post(ctx, s, "/completion", body, &reply); err != nil {
			return nil, err
		}
		shown := reply.shown()
		switch {
		case len(shown) == 1 && shown[0].ID == token && shown[0].Logprob != nil:
			logprobs, said = append(logprobs, float32(*shown[0].Logprob)), true
		case len(shown) == 0 && reply.Predicted == 1:
			logprobs = append(logprobs, upstream.LogprobMissing)
		default:
			return nil, fmt.Errorf("token %d (place %d) cannot be scored: llama-server does not say its log-prob", token, i+1)
		}
	}
	if !said && len(logprobs) > 0 {
		return nil, fmt.Errorf("llama-server says the log-prob of none of %d tokens", len(logprobs))
	}
	return logprobs, nil
}
