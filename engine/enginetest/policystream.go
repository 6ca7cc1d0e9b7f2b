package enginetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// sampling is one response as it is made.
type sampling struct {
	server *PolicyServer
	id     string
	prompt []int32
	most   int
	stop   []int32
	// event makes the JSON of an event, at a place of the response; the finish is empty but for the last.
	event func(tokens []int32, logprobs []float32, finish string, place int) any
	// last is what follows the tokens, nil for nothing.
	last func() any
	// spans of the tokens so far.
	spans []span
	// experts has a row for every pass so far.
	experts []byte
}

// span is a stretch of tokens under one label.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// completions answers /v1/completions.
func (s *PolicyServer) completions(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     string  `json:"request_id"`
		Model  string  `json:"model"`
		Prompt []int32 `json:"prompt"`
		Most   *int    `json:"max_tokens"`
		Stop   []int32 `json:"stop_token_ids"`
		Stream bool    `json:"stream"`
		IDs    bool    `json:"return_token_ids"`
		Probs  *int    `json:"logprobs"`
		Score  *int    `json:"prompt_logprobs"`
		Salt   *string `json:"cache_salt"`
		Only   []int32 `json:"allowed_token_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not understood: %v", err)
		return
	}
	switch vocabulary := s.opt.Policy.Vocabulary; {
	case req.Probs != nil && *req.Probs < 0:
		refuse(w, http.StatusBadRequest, "Requested sample logprobs of %d, which is greater than max allowed: 20", vocabulary)
		return
	case req.Salt != nil && *req.Salt == "":
		refuse(w, http.StatusBadRequest, "Parameter 'cache_salt' must be a non-empty string")
		return
	case len(req.Only) > 0 && int(req.Only[0]) >= vocabulary:
		refuse(w, http.StatusBadRequest, "allowed_token_ids contains out-of-vocab token id")
		return
	}
	o := &sampling{server: s, id: "cmpl-" + req.ID + "-0", prompt: req.Prompt, stop: req.Stop, most: 16}
	if req.Most != nil {
		o.most = *req.Most
	}
	frame := object{"id": "cmpl-" + req.ID, "object": "text_completion", "created": 0, "model": "policy"}
	with := func(choices ...any) object {
		out := object{"choices": choices}
		for key, value := range frame {
			out[key] = value
		}
		return out
	}
	o.event = func(tokens []int32, logprobs []float32, finish string, place int) any {
		text := s.spell(tokens)
		choice := object{"index": 0, "text": text, "finish_reason": orNull(finish), "stop_reason": nil, "logprobs": nil}
		if req.Probs != nil {
			choice["logprobs"] = object{"text_offset": []int{0}, "token_logprobs": logprobs, "tokens": []string{text}}
		}
		if req.IDs {
			choice["token_ids"] = tokens
			if choice["prompt_token_ids"] = nil; place == 0 {
				choice["prompt_token_ids"] = req.Prompt
			}
		}
		return with(choice)
	}
	o.last = func() any { return with() }
	if !req.Stream {
		o.whole(w, r, func(text string, _ []int32, logprobs []float32) any {
			choice := object{"index": 0, "text": text, "finish_reason": "length", "logprobs": object{"token_logprobs": logprobs}}
			if req.Score != nil {
				choice["prompt_logprobs"] = s.promptLogprobs(req.Prompt)
			}
			return with(choice)
		})
		return
	}
	o.run(w, r)
}

// spell is the text of tokens, with that of the EOS unless the server knows chats.
func (s *PolicyServer) spell(tokens []int32) string {
	p := s.opt.Policy
	if !s.opt.Chat {
		p.EOS = -1 // which no token is
	}
	return p.Spell(tokens...)
}

// whole answers with one body.
func (o *sampling) whole(w http.ResponseWriter, r *http.Request, content func(text string, tokens []int32, logprobs []float32) any) {
	s := o.server
	if why := o.refusal(); why != "" {
		refuse(w, http.StatusBadRequest, "%s", why)
		return
	}
	if !s.ready(r, nil) {
		return
	}
	defer s.weights.RUnlock()
	h := history(0).add(o.prompt...)
	text := ""
	var tokens []int32
	var logprobs []float32
	for range o.most {
		if s.opt.Rows {
			o.pass(s.weightsName(), h)
		}
		token, logprob := s.opt.Policy.next(s.weightsName(), h)
		h = h.add(token)
		text, tokens, logprobs = text+s.spell([]int32{token}), append(tokens, token), append(logprobs, logprob)
	}
	answerJSON(w, http.StatusOK, content(text, tokens, logprobs))
}

// promptLogprobs are those of the tokens of a prompt, nothing for the first. The weights must be held.
func (s *PolicyServer) promptLogprobs(prompt []int32) []any {
	out := []any{nil}
	h := history(0).add(prompt[0])
	for _, token := range prompt[1:] {
		entry := object{"logprob": s.opt.Policy.score(s.weightsName(), h, token), "rank": 1}
		out = append(out, object{fmt.Sprint(token): entry})
		h = h.add(token)
	}
	return out
}

// weightsName is the name of the weights that it serves.
func (s *PolicyServer) weightsName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// generate answers /inference/v1/generate.
func (s *PolicyServer) generate(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID       string  `json:"request_id"`
		Tokens   []int32 `json:"token_ids"`
		Stream   bool    `json:"stream"`
		Sampling struct {
			Most  *int    `json:"max_tokens"`
			Stop  []int32 `json:"stop_token_ids"`
			Start int     `json:"routed_experts_prompt_start"`
		} `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not understood: %v", err)
		return
	}
	o := &sampling{server: s, id: "generate-tokens-" + req.ID, prompt: req.Tokens, stop: req.Sampling.Stop, most: 16}
	if req.Sampling.Most != nil {
		o.most = *req.Sampling.Most
	}
	if !req.Stream {
		o.whole(w, r, func(_ string, tokens []int32, _ []float32) any {
			choice := object{"index": 0, "finish_reason": "length", "token_ids": tokens}
			if s.opt.Rows {
				choice["routed_experts"] = o.routed(req.Sampling.Start)
			}
			return object{"request_id": o.id, "choices": []any{choice}}
		})
		return
	}
	o.event = func(tokens []int32, logprobs []float32, finish string, _ int) any {
		entries := make([]any, len(tokens))
		for i, token := range tokens {
			entries[i] = object{"token_id": token, "logprob": logprobs[i], "rank": 1}
		}
		choice := object{"index": 0, "finish_reason": orNull(finish), "stop_reason": nil, "token_ids": tokens, "weight_versions": nil,
			"logprobs": object{"content": entries}}
		if finish != "" {
			choice["weight_versions"] = o.spans
			if s.opt.Rows {
				choice["routed_experts"] = o.routed(req.Sampling.Start)
			}
		}
		return object{"request_id": o.id, "usage": nil, "output_mode": "tokens", "choices": []any{choice}}
	}
	o.last = func() any {
		return object{"request_id": o.id, "usage": object{"prompt_tokens": len(req.Tokens)}, "output_mode": "tokens", "choices": []any{}}
	}
	o.run(w, r)
}

// orNull is nil for an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// refusal says why a prompt cannot be served, "" where it can.
func (o *sampling) refusal() string {
	p := o.server.opt
	for _, token := range o.prompt {
		if token < 0 || int(token) >= p.Policy.Vocabulary {
			return fmt.Sprintf("Token id %d is out of vocabulary", token)
		}
	}
	if n := len(o.prompt) + o.most; n > p.Context {
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d.", p.Context, n)
	}
	if len(o.prompt) == 0 || o.most < 1 {
		return "the prompt is empty, or max_tokens below 1"
	}
	return ""
}

// run samples and streams.
func (o *sampling) run(w http.ResponseWriter, r *http.Request) {
	if why := o.refusal(); why != "" {
		refuse(w, http.StatusBadRequest, "%s", why)
		return
	}
	s := o.server
	aborted := &underway{stop: make(chan struct{})}
	s.mu.Lock()
	s.running[o.id] = aborted
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if s.running[o.id] == aborted {
			delete(s.running, o.id)
		}
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	h := history(0).add(o.prompt...)
	for i := range o.most {
		if !s.ready(r, aborted.stop) {
			if r.Context().Err() == nil {
				_ = o.send(w, o.event([]int32{}, []float32{}, "abort", i))
				if aborted.marked { // which nobody changes behind the close
					_, _ = w.Write([]byte("data: [DONE]\n\n"))
				}
			}
			return
		}
		token, ended, err := o.token(w, h, i)
		if err != nil {
			return
		}
		if h = h.add(token); ended {
			break
		}
	}
	if o.send(w, o.last()) == nil {
		_, _ = w.Write([]byte("data: [DONE]\n\n"))
		if s.opt.Answered != nil && r.Context().Err() == nil {
			s.opt.Answered(o.id)
		}
	}
}

// ready waits until a token may be sampled; false when the request has ended instead. A true
// return holds the weights for reading.
func (s *PolicyServer) ready(r *http.Request, aborted <-chan struct{}) bool {
	if s.opt.Step > 0 {
		step := time.NewTimer(s.opt.Step)
		defer step.Stop()
		select {
		case <-step.C:
		case <-r.Context().Done():
			return false
		case <-aborted:
			return false
		}
	}
	for {
		s.weights.RLock()
		s.mu.Lock()
		paused := s.paused
		s.mu.Unlock()
		if paused == nil && r.Context().Err() == nil && !closed(aborted) {
			return true
		}
		s.weights.RUnlock()
		select {
		case <-paused:
		case <-r.Context().Done():
			return false
		case <-aborted:
			return false
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// token samples and sends one, with the weights held, and lets them go.
func (o *sampling) token(w http.ResponseWriter, h history, i int) (token int32, ended bool, err error) {
	s := o.server
	defer s.weights.RUnlock()
	s.mu.Lock()
	weights, label := s.serving, s.label
	s.sampled++
	s.mu.Unlock()
	if s.opt.Rows {
		o.pass(weights, h)
	}
	token, logprob := s.opt.Policy.next(weights, h)
	if n := len(o.spans); n > 0 && o.spans[n-1].Version == label {
		o.spans[n-1].End = i + 1
	} else {
		o.spans = append(o.spans, span{label, i, i + 1})
	}
	finish := ""
	switch {
	case token == s.opt.Policy.EOS || slices.Contains(o.stop, token):
		finish = "stop"
	case i == o.most-1:
		finish = "length"
	}
	return token, finish != "", o.send(w, o.event([]int32{token}, []float32{logprob}, finish, i))
}

// pass notes the experts of the passes that sampling a token takes: those of the whole prompt at first, then one.
func (o *sampling) pass(weights string, h history) {
	if len(o.experts) == 0 {
		before := history(0)
		for _, token := range o.prompt[:len(o.prompt)-1] {
			before = before.add(token)
			o.experts = append(o.experts, experts(weights, before)...)
		}
	}
	o.experts = append(o.experts, experts(weights, h)...)
}

// routed is a file of numpy with the rows of the passes from one on, in base64.
func (o *sampling) routed(start int) string {
	rows := o.experts[min(start*ExpertsBytes, len(o.experts)):]
	words := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", len(rows)/ExpertsBytes, expertLayers, expertsTop)
	words += strings.Repeat(" ", 63-(10+len(words))%64) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(words)), byte(len(words)>>8))
	return base64.StdEncoding.EncodeToString(append(append(file, words...), rows...))
}

// send writes one event.
func (o *sampling) send(w http.ResponseWriter, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
