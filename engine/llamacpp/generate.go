package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// completion is a request to sample. Every sampler is in it, with the value that switches it off
// where it is not wanted: what is left out would be what the server was started with.
type completion struct {
	Prompt      []int32 `json:"prompt"`
	MaxTokens   int     `json:"n_predict"`
	Stream      bool    `json:"stream"`
	Probs       int     `json:"n_probs"`
	Processed   bool    `json:"post_sampling_probs"`
	Tokens      bool    `json:"return_tokens"`
	CachePrompt bool    `json:"cache_prompt"`
	Seed        uint32  `json:"seed"`

	Samplers    []string `json:"samplers"`
	Temperature float64  `json:"temperature"`
	TopK        int      `json:"top_k"`
	TopP        float64  `json:"top_p"`
	MinP        float64  `json:"min_p"`
	Stop        []string `json:"stop"`

	off
	Bias [][2]float64 `json:"logit_bias"`
}

// off switches off whatever else changes what is drawn.
type off struct {
	DynamicRange     float64 `json:"dynatemp_range"`
	TypicalP         float64 `json:"typical_p"`
	TopNSigma        float64 `json:"top_n_sigma"`
	XTC              float64 `json:"xtc_probability"`
	RepeatPenalty    float64 `json:"repeat_penalty"`
	PresencePenalty  float64 `json:"presence_penalty"`
	FrequencyPenalty float64 `json:"frequency_penalty"`
	Dry              float64 `json:"dry_multiplier"`
	Mirostat         int     `json:"mirostat"`
	AdaptiveTarget   float64 `json:"adaptive_target"`
	MinKeep          int     `json:"min_keep"`
	Keep             int     `json:"n_keep"`
	IgnoreEOS        bool    `json:"ignore_eos"`
	Backend          bool    `json:"backend_sampling"`
	Grammar          string  `json:"grammar"`
}

// samplers is their order: the temperature first, as other engines and trainers have it, so that
// the cuts are of the distribution that it makes. The server's own order has it last.
var samplers = []string{"temperature", "top_k", "top_p", "min_p"}

// neutral is how tokens are drawn by the policy as it is.
var neutral = port.Sampling{Temperature: 1, TopP: 1}

// completionOf is the request's body.
func completionOf(r upstream.Request) completion {
	how := r.Sampling
	how.TopP = cmp.Or(how.TopP, 1)
	if how.Stop == nil {
		how.Stop = []string{}
	}
	return completion{
		Prompt: r.Prompt, MaxTokens: r.MaxTokens, Stream: true, Probs: 1, Processed: true, Tokens: true, CachePrompt: true, Seed: seedOf(r),
		Samplers: samplers, Temperature: how.Temperature, TopK: how.TopK, TopP: how.TopP, MinP: how.MinP, Stop: how.Stop,
		off:  off{TypicalP: 1, TopNSigma: -1, RepeatPenalty: 1, AdaptiveTarget: -1},
		Bias: [][2]float64{},
	}
}

// seedOf is a request's own: two calls with different names draw differently, whatever seed the
// server was started with. The greatest number means "by chance" there, and is avoided.
func seedOf(r upstream.Request) uint32 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", r.ID, len(r.Prompt))
	sum := h.Sum64()
	return uint32(sum^sum>>32) >> 1
}

// Generate implements upstream.Dialect.
func (*Dialect) Generate(r upstream.Request, caps *upstream.Capabilities) (upstream.Call, error) {
	how := r.Sampling
	if !how.Policy() && how.Temperature != 0 && caps != nil && caps.Logprobs && !caps.ProcessedLogprobs {
		return upstream.Call{}, fmt.Errorf("temperature %g, top_p %g, top_k %d, min_p %g: this llama-server records only temperature 1 without cuts. Use a newer one, or the default of rollout.sampling",
			how.Temperature, how.TopP, how.TopK, how.MinP)
	}
	body, err := json.Marshal(completionOf(r))
	return upstream.Call{Path: "/completion", Body: body, Header: repeatable()}, err
}
