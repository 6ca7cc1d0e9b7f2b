package vllm

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
)

// Generate is a request on the way that Probe has found. All that a model's own defaults could
// decide is said: sampling, penalties and the number of tokens, which is 16 where it is left out.
func (Dialect) Generate(r upstream.Request, caps *upstream.Capabilities) (upstream.Call, error) {
	l := of(caps)
	served, err := model(r.Lora, caps)
	if err != nil {
		return upstream.Call{}, err
	}
	size := 512 + 8*len(r.Prompt)
	for i := range r.Media {
		size += 64 + base64.StdEncoding.EncodedLen(len(r.Media[i].Data))
	}
	b := make([]byte, 0, size)
	b = upstream.AppendString(append(b, `{"model":`...), served)
	b = upstream.AppendString(append(b, `,"request_id":`...), r.ID)
	if l.generate {
		b = upstream.AppendTokens(append(b, `,"token_ids":`...), media.Collapse(r.Prompt, r.Media))
		b = appendMedia(b, r.Media)
		if l.text {
			b = append(b, `,"output_mode":"text"`...)
		}
		b = append(b, `,"sampling_params":{`...)
		b = appendSampling(b, r)
		if r.Known > 0 && r.Asks(channel.RoutedExperts) {
			b = strconv.AppendInt(append(b, `,"routed_experts_prompt_start":`...), int64(r.Known), 10)
		}
		b = append(b, '}')
	} else if len(r.Media) > 0 {
		return upstream.Call{}, unseen()
	} else {
		b = upstream.AppendTokens(append(b, `,"prompt":`...), r.Prompt)
		b = append(b, `,"return_token_ids":true,"return_tokens_as_token_ids":true,`...)
		b = appendSampling(b, r)
	}
	if r.Salt != "" {
		b = upstream.AppendString(append(b, `,"cache_salt":`...), r.Salt)
	}
	if r.Priority != 0 { // some builds refuse any without --scheduling-policy priority
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(r.Priority), 10)
	}
	b = append(b, `,"stream":true}`...)
	path := pathCompletions
	if l.generate {
		path = pathGenerate
	}
	header := http.Header{"X-Request-Id": {r.ID}}
	if r.Session != "" {
		header["X-Session-Id"] = []string{r.Session}
	}
	return upstream.Call{Path: path, Body: b, Header: header}, nil
}

// model is the name that a request names the model by: that of the adapter which the last update
// has brought, or the model's own.
func model(lora bool, caps *upstream.Capabilities) (string, error) {
	if !lora {
		return caps.Model, nil
	}
	name := of(caps).adapter.Load()
	if name == nil {
		return "", fmt.Errorf("%w: an adapter is to sample, and none has been loaded since the server was asked what it can", upstream.ErrLacking)
	}
	return *name, nil
}

// appendSampling adds the fields that both ways name alike, without braces.
func appendSampling(b []byte, r upstream.Request) []byte {
	s := r.Sampling
	s.TopP = cmp.Or(s.TopP, 1)
	if s.TopK == 0 {
		s.TopK = -1 // every build takes -1 for all of them, older ones refuse 0
	}
	b = strconv.AppendInt(append(b, `"n":1,"max_tokens":`...), int64(r.MaxTokens), 10)
	b = upstream.AppendNumber(append(b, `,"temperature":`...), s.Temperature)
	b = upstream.AppendNumber(append(b, `,"top_p":`...), s.TopP)
	b = strconv.AppendInt(append(b, `,"top_k":`...), int64(s.TopK), 10)
	b = upstream.AppendNumber(append(b, `,"min_p":`...), s.MinP)
	b = append(b, `,"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0,"logprobs":0,"skip_special_tokens":true`...)
	if len(s.Stop) > 0 {
		stop, _ := json.Marshal(s.Stop) // no strings fail
		b = append(append(b, `,"stop":`...), stop...)
	}
	if len(s.StopTokens) > 0 {
		b = upstream.AppendTokens(append(b, `,"stop_token_ids":`...), s.StopTokens)
	}
	return b
}
