package vllm

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
)

// flags are what the server is started with to say a side channel.
var flags = map[string]string{
	channel.RoutedExperts: "--enable-return-routed-experts --enable-scale-out, vLLM 0.22 or newer",
	channel.SamplingMask:  "--return-sampling-mask --logprobs-mode processed_logprobs --enable-scale-out, vLLM 0.28 or newer",
}

// wideCut is a top_k that leaves all tokens of any weight.
const wideCut = 1000

// masked reports whether the server is to say what its cuts left. One that does refuses requests without a cut, and
// those at temperature 0, by an error of its own (500, seen at vLLM 0.32.0).
func masked(s *upstream.Server) bool { return slices.Contains(s.Channels, channel.SamplingMask) }

// bounded gives the body of a question a cut, and a temperature where it has none, if the server wants both.
func bounded(s *upstream.Server, body map[string]any, topK int) map[string]any {
	if !masked(s) {
		return body
	}
	body["top_k"] = topK
	if t, said := body["temperature"]; !said || t == 0 {
		body["temperature"] = 1
	}
	return body
}

// sideReply is what an answer as a whole says of side channels.
type sideReply struct {
	Choices []struct {
		Tokens []int32         `json:"token_ids"`
		Rows   json.RawMessage `json:"routed_experts"`
		Masks  json.RawMessage `json:"sampling_mask"`
	} `json:"choices"`
}

// channels finds out which of the side channels that are asked for the server says, and in which form. Only the newer
// way of sampling has any.
func (p *prober) channels() error {
	if len(p.s.Channels) == 0 {
		return nil
	}
	var reply sideReply
	if p.l.generate {
		body := map[string]any{"model": p.caps.Model, "token_ids": probePrompt,
			"sampling_params": map[string]any{"max_tokens": 2, "temperature": 1, "top_k": 2, "logprobs": 0, "ignore_eos": true}}
		if _, err := answered(p.s.Call(p.ctx, http.MethodPost, pathGenerate, body, &reply)); err != nil {
			return err
		}
	}
	for _, name := range p.s.Channels {
		form, why := reply.form(name, p.s.Experts)
		if why == "" {
			p.caps.Channels = append(p.caps.Channels, form)
			continue
		}
		p.caps.Missing = append(p.caps.Missing, upstream.Missing{What: "no " + name + " (rollout.channels): " + why, Flag: flags[name], Fatal: true})
	}
	return nil
}

// form is how the answer says a channel, or why it does not.
func (r *sideReply) form(name string, known rows.Shape) (rows.Form, string) {
	if len(r.Choices) != 1 {
		return rows.Form{}, "it does not sample by " + pathGenerate
	}
	c := r.Choices[0]
	switch name {
	case channel.RoutedExperts:
		var text string
		if len(c.Rows) == 0 || string(c.Rows) == "null" {
			return rows.Form{}, "its answers have none"
		}
		if json.Unmarshal(c.Rows, &text) != nil {
			return rows.Form{}, "its answers have them in another form than base64"
		}
		form, err := rows.Learn(name, rows.Numpy, text, len(probePrompt)+len(c.Tokens)-1, known)
		if err != nil {
			return form, err.Error()
		}
		return form, ""
	case channel.SamplingMask:
		var masks [][]int32
		if json.Unmarshal(c.Masks, &masks) != nil || len(masks) != len(c.Tokens) || len(masks) == 0 {
			return rows.Form{}, "its answers have none"
		}
		return rows.Masks, ""
	}
	return rows.Form{}, "vLLM has none"
}
