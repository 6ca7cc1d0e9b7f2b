package vllm

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/engine/upstream"
)

// Dialect speaks to vLLM's OpenAI-compatible server. The zero value is ready.
type Dialect struct{}

var (
	_ upstream.Dialect   = Dialect{}
	_ upstream.Pauser    = Dialect{}
	_ upstream.Templater = Dialect{}
	_ upstream.Scorer    = Dialect{}
	_ upstream.Viewer    = Dialect{}
)

// New returns the dialect.
func New() Dialect { return Dialect{} }

// Kind is vllm.
func (Dialect) Kind() string { return "vllm" }

// Paths of the server. Those of sampling come in two ways: the newer takes and returns token ids
// alone and reports spans of versions, the other has been there from the beginning.
const (
	pathGenerate    = "/inference/v1/generate"
	pathCompletions = "/v1/completions"
)

// learnt is what Probe has found that only this dialect knows, and what it remembers of a server.
type learnt struct {
	// generate: responses come by pathGenerate, with their text where text is set.
	generate, text bool
	// transfer: the server has a weight-transfer backend that takes a path; phases: an update
	// with it is started and finished.
	transfer, phases bool
	// derender: it can decode tokens as it decodes its own responses.
	derender bool
	// adapter is the name of the adapter that is served; nil before the first.
	adapter atomic.Pointer[string]
	// special remembers of token ids whether they are special (map[int32]bool).
	special sync.Map
}

// of returns what Probe has learnt of a server.
func of(caps *upstream.Capabilities) *learnt {
	if caps != nil {
		if l, ok := caps.Private.(*learnt); ok {
			return l
		}
	}
	return &learnt{}
}

// Prefixes that the server puts before the id of a request, by way. That of a completion also
// gets the number of its prompt behind it.
const (
	prefixGenerate    = "generate-tokens-"
	prefixCompletions = "cmpl-"
)

// Abort stops a response by the ids that the server may have made of its request's; those that it
// does not know change nothing. Where it has no such path nothing is done: the end of a connection ends its request on every build.
func (Dialect) Abort(ctx context.Context, s *upstream.Server, id string, _ *upstream.Capabilities) error {
	if id == "" {
		return nil // no id stands for all of them
	}
	body := map[string][]string{"request_ids": {prefixGenerate + id, prefixCompletions + id + "-0", prefixCompletions + id}}
	err := s.Call(ctx, http.MethodPost, "/abort_requests", body, nil)
	if absent(err) {
		err = s.Call(ctx, http.MethodPost, "/inference/v1/abort_requests", body, nil)
	}
	if absent(err) {
		return nil
	}
	return err
}

// absent reports whether a reply says that the server has no such path, or has it switched off.
func absent(err error) bool {
	switch upstream.StatusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusForbidden:
		return true
	}
	return false
}

// Pause freezes the server. Its cache is kept: the server's default for clear_cache is true. That
// drops the keys and values of running requests too, in mode keep as in the others.
func (Dialect) Pause(ctx context.Context, s *upstream.Server, _ upstream.Update, _ *upstream.Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/pause?mode=keep&clear_cache=false", nil, nil)
}

// Resume lets the server go on.
func (Dialect) Resume(ctx context.Context, s *upstream.Server, _ *upstream.Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/resume", nil, nil)
}

// Paused asks the server.
func (Dialect) Paused(ctx context.Context, s *upstream.Server, _ *upstream.Capabilities) (paused, known bool, err error) {
	return isPaused(ctx, s)
}

// Version is the label of the last update, "default" before the first. Where an adapter is served, the server
// has to list it as well: its label stays when an adapter goes.
func (Dialect) Version(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) (string, error) {
	label, err := labelOf(ctx, s)
	if err != nil {
		return "", err
	}
	if adapter := of(caps).adapter.Load(); adapter != nil {
		return upstream.AdapterLabel(ctx, s, caps.Model, *adapter, label)
	}
	return label, nil
}

// labelOf is the label that the server was given last, empty where it knows none.
func labelOf(ctx context.Context, s *upstream.Server) (string, error) {
	var info struct {
		Label string `json:"weight_version"`
	}
	err := s.Call(ctx, http.MethodGet, "/weight_info", nil, &info)
	if absent(err) {
		err = nil
	}
	return info.Label, err
}
