package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headway-rl/headway/engine/upstream"
)

// Dialect speaks to any server with OpenAI's API. The zero value is ready.
type Dialect struct{}

var _ upstream.Dialect = Dialect{}

// New returns the dialect.
func New() Dialect { return Dialect{} }

// Kind is openai.
func (Dialect) Kind() string { return "openai" }

// Paths of the server.
const (
	pathCompletions = "/v1/completions"
	pathChat        = "/v1/chat/completions"
)

// learnt is what Probe has found that only this dialect knows.
type learnt struct {
	// completions: the server goes on from token ids.
	completions bool
}

// Probe asks a server for its models, and whether it goes on from token ids or only has chats.
func (Dialect) Probe(ctx context.Context, s *upstream.Server) (upstream.Capabilities, error) {
	l := &learnt{}
	caps := upstream.Capabilities{Private: l}
	if err := identify(ctx, s, &caps); err != nil {
		return upstream.Capabilities{}, err
	}
	paths, err := s.Paths(ctx)
	if unreachable(err) {
		return upstream.Capabilities{}, err
	}
	caps.Paths = paths
	body := map[string]any{"model": caps.Model, "prompt": []int32{0, 1}, "max_tokens": 1}
	var reply completion
	err = s.Call(ctx, http.MethodPost, pathCompletions, body, &reply)
	if unreachable(err) {
		return upstream.Capabilities{}, err
	}
	l.completions = err == nil && len(reply.Choices) > 0
	if !l.completions {
		if chat := tryChat(ctx, s, caps.Model); chat != nil {
			return upstream.Capabilities{}, fmt.Errorf("%s answers neither completions (%w) nor chats (%w)", s.URL(), orEmpty(err), chat)
		}
	}
	lacking(l, &caps)
	return caps, nil
}

// orEmpty is what there is to say of a completion without a choice.
func orEmpty(err error) error {
	if err == nil {
		return errors.New("without a choice")
	}
	return err
}

// identify reads the software's name and the model's.
func identify(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) error {
	var models struct {
		Data []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
		} `json:"data"`
	}
	if err := s.Call(ctx, http.MethodGet, "/v1/models", nil, &models); err != nil {
		return err
	}
	var names []string
	for _, m := range models.Data {
		names = append(names, m.ID)
		if caps.Model == "" && (s.Model == "" || s.Model == m.ID) {
			caps.Model, caps.Software = m.ID, strings.TrimSpace("OpenAI's API "+m.Owner)
		}
	}
	if caps.Model == "" {
		return fmt.Errorf("%s serves no model %q but %s: want one of these as served_model, or none", s.URL(), s.Model, strings.Join(names, ", "))
	}
	return nil
}

// tryChat reports why chats are not answered.
func tryChat(ctx context.Context, s *upstream.Server, model string) error {
	body := map[string]any{"model": model, "max_tokens": 1, "messages": []any{map[string]string{"role": "user", "content": "a"}}}
	var reply completion
	err := s.Call(ctx, http.MethodPost, pathChat, body, &reply)
	if err == nil && len(reply.Choices) == 0 {
		err = orEmpty(nil)
	}
	return err
}

// lacking lists what no such server has.
func lacking(l *learnt, caps *upstream.Capabilities) {
	const instead = "vLLM, SGLang or llama-server, and kind vllm, sglang or llamacpp"
	caps.Missing = []upstream.Missing{
		{What: "no ids and no log-probs of sampled tokens: nothing can be trained on", Flag: instead, Fatal: true},
		{What: "its weights cannot be changed from here", Flag: instead},
	}
	if !l.completions {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "it does not go on from token ids, only from chats", Flag: "a server with " + pathCompletions, Fatal: true})
	}
}

// unreachable reports whether an error means that the server did not answer.
func unreachable(err error) bool {
	_, is := errors.AsType[*url.Error](err)
	return is
}

// Generate is a completion of token ids. OpenAI's form has no min_p and no top_k: a request that
// needs them is refused, and not sampled by other rules than it asks for.
func (Dialect) Generate(r upstream.Request, caps *upstream.Capabilities) (upstream.Call, error) {
	l, _ := caps.Private.(*learnt)
	s := r.Sampling
	switch {
	case l == nil || !l.completions:
		return upstream.Call{}, fmt.Errorf("%w: the server does not go on from token ids", upstream.ErrLacking)
	case s.TopK > 0 || s.MinP > 0 || len(s.StopTokens) > 0:
		return upstream.Call{}, fmt.Errorf("%w: OpenAI's API has no top_k, min_p and stop_token_ids, and the request has one", upstream.ErrRefused)
	}
	s.TopP = cmp.Or(s.TopP, 1)
	body := map[string]any{"model": caps.Model, "prompt": r.Prompt, "max_tokens": r.MaxTokens, "temperature": s.Temperature,
		"top_p": s.TopP, "n": 1, "stream": true}
	if len(s.Stop) > 0 {
		body["stop"] = s.Stop
	}
	text, err := json.Marshal(body)
	return upstream.Call{Path: pathCompletions, Body: text, Header: http.Header{"X-Request-Id": {r.ID}}}, err
}

// Abort does nothing: the end of a connection is all there is to end a request by.
func (Dialect) Abort(context.Context, *upstream.Server, string, *upstream.Capabilities) error {
	return nil
}

// Pause cannot be done.
func (Dialect) Pause(context.Context, *upstream.Server, upstream.Update, *upstream.Capabilities) error {
	return fmt.Errorf("%w: OpenAI's API has no pause", upstream.ErrLacking)
}

// Resume does nothing: nothing is ever paused.
func (Dialect) Resume(context.Context, *upstream.Server, *upstream.Capabilities) error { return nil }

// Update cannot be done.
func (Dialect) Update(context.Context, *upstream.Server, upstream.Update, *upstream.Capabilities) error {
	return fmt.Errorf("%w: OpenAI's API has no update of weights", upstream.ErrLacking)
}

// Version is unknown.
func (Dialect) Version(context.Context, *upstream.Server, *upstream.Capabilities) (string, error) {
	return "", nil
}
