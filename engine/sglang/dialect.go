package sglang

import (
	"context"
	"errors"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// Dialect is SGLang's way to speak. It has no state.
type Dialect struct{}

// New returns the dialect.
func New() *Dialect { return &Dialect{} }

// Kind implements [upstream.Dialect].
func (*Dialect) Kind() string { return "sglang" }

// found is what Probe learnt beside the capabilities.
type found struct {
	// server, model and load are the paths that answer of several names, empty for none.
	server, model, load string
	// tokenize and detokenize are empty where chats cannot be rendered.
	tokenize, detokenize string
	// session: tensors are taken only between a begin and an end.
	session bool
	// served is what adapter is served, kept beside what is copied.
	served *served
	// router: the address is that of a router.
	router bool
	// priority: requests may have one; low: the lower is earlier.
	priority, low bool
}

// learnt returns what Probe found; nothing of a server that was not probed.
func learnt(caps *upstream.Capabilities) found {
	if caps != nil {
		if f, ok := caps.Private.(*found); ok {
			return *f
		}
	}
	return found{}
}

var _ interface {
	upstream.Dialect
	upstream.Joiner
	upstream.Templater
	upstream.Scorer
} = (*Dialect)(nil)

// Abort implements [upstream.Dialect]: it takes every request whose rid begins with id, which is
// this one alone as ids end in a terminator.
func (*Dialect) Abort(ctx context.Context, s *upstream.Server, id string, _ *upstream.Capabilities) error {
	if id == "" {
		return errors.New("an abort without a rid would end every request of the server")
	}
	return s.Call(ctx, http.MethodPost, "/abort_request", map[string]any{"rid": id}, nil)
}

// Modes of a pause: in place keeps keys and values, retract computes them anew.
const (
	modeInPlace = "in_place"
	modeRetract = "retract"
)

// Pause implements [upstream.Dialect]. SGLang answers before its scheduler has heard of the pause;
// it answers a question that goes through the scheduler only afterwards.
func (*Dialect) Pause(ctx context.Context, s *upstream.Server, next upstream.Update, caps *upstream.Capabilities) error {
	mode := modeInPlace
	if next.Cache == upstream.CacheFlush {
		mode = modeRetract
	}
	if err := s.Call(ctx, http.MethodPost, "/pause_generation", map[string]any{"mode": mode}, nil); err != nil {
		return err
	}
	if path := learnt(caps).server; path != "" {
		return s.Call(ctx, http.MethodGet, path, nil, nil)
	}
	return nil
}

// Resume implements [upstream.Dialect].
func (*Dialect) Resume(ctx context.Context, s *upstream.Server, _ *upstream.Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/continue_generation", map[string]any{}, nil)
}

// Update implements [upstream.Dialect]. A server that is paused in place refuses to flush its cache,
// so that is asked for only where the pause was a retraction. The server refuses a flush only after it has
// changed the weights. A directory that it cannot read may leave it weights of both versions. So the
// weights are unknown after any error.
func (*Dialect) Update(ctx context.Context, s *upstream.Server, u upstream.Update, caps *upstream.Capabilities) error {
	if u.Lora {
		return updateAdapter(ctx, s, u, caps)
	}
	if u.Group.Name != "" {
		return updateDistributed(ctx, s, u, learnt(caps).session)
	}
	return succeed(ctx, s, "/update_weights_from_disk", map[string]any{
		"model_path": u.Dir, "weight_version": u.Label,
		"flush_cache": u.Cache == upstream.CacheFlush, "abort_all_requests": false,
	})
}

// Version implements [upstream.Dialect].
func (*Dialect) Version(ctx context.Context, s *upstream.Server, caps *upstream.Capabilities) (string, error) {
	f := learnt(caps)
	var reply struct {
		Version string `json:"weight_version"`
	}
	if f.model != "" {
		if err := s.Call(ctx, http.MethodGet, f.model, nil, &reply); err != nil {
			return "", err
		}
	}
	if adapter := f.adapter(); adapter != "" {
		return upstream.AdapterLabel(ctx, s, caps.Model, adapter, reply.Version)
	}
	return reply.Version, nil
}
