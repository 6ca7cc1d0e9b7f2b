package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/headway-rl/headway/engine/upstream"
)

// Update makes the server serve other weights, then gives them their label. Then it drops the keys
// and values of the old ones if asked to.
func (Dialect) Update(ctx context.Context, s *upstream.Server, u upstream.Update, caps *upstream.Capabilities) error {
	var err error
	switch l := of(caps); {
	case u.Lora:
		err = updateAdapter(ctx, s, u, caps)
	case l.transfer && l.phases:
		err = updateInPhases(ctx, s, u)
	case l.transfer:
		err = renamed(ctx, s, u, transfer)
	default:
		err = renamed(ctx, s, u, reload)
	}
	if err == nil && !u.Lora {
		err = forgetImages(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("weights %s from %s: %w", u.Label, u.Dir, err)
	}
	if u.Cache == upstream.CacheFlush {
		return flush(ctx, s)
	}
	return nil
}

// renamed updates the weights, and then gives them their label. A server that was started again meanwhile has lost the
// update: its label is not the one of before. It would give the new one to the weights that it starts with.
func renamed(ctx context.Context, s *upstream.Server, u upstream.Update, update func(context.Context, *upstream.Server, upstream.Update) error) error {
	before, err := labelOf(ctx, s)
	if err == nil {
		err = update(ctx, s, u)
	}
	if err != nil {
		return err
	}
	switch now, err := labelOf(ctx, s); {
	case err != nil:
		return err
	case now != before:
		return fmt.Errorf("the server called its weights %.200q before the update, and %.200q after it: it was started again meanwhile", before, now)
	}
	return name(ctx, s, u.Label)
}

// reload has the workers read a directory as they read the one they were started with.
func reload(ctx context.Context, s *upstream.Server, u upstream.Update) error {
	body := map[string]any{"method": "reload_weights", "kwargs": map[string]string{"weights_path": u.Dir}}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	content, err := s.Open(ctx, http.MethodPost, upstream.Call{Path: "/collective_rpc", Body: text, Header: closing()})
	if err != nil {
		if upstream.StatusOf(err) != 0 {
			return fmt.Errorf("%w (its layers are half replaced now: it ends at the next token it samples, and has to be started again)", err)
		}
		return err
	}
	defer content.Close()
	_, err = io.Copy(io.Discard, content)
	return err
}

// closing is the header of a call whose connection is not used again: where a worker raises, the
// server answers and then breaks the connection off, under whatever came next on it.
func closing() http.Header { return http.Header{"Connection": {"close"}} }

// transfer uses the weight-transfer backend that reads a path.
func transfer(ctx context.Context, s *upstream.Server, u upstream.Update) error {
	body := map[string]any{"update_info": map[string]string{"path": u.Dir}}
	return s.Call(ctx, http.MethodPost, "/update_weights", body, nil)
}

// updateInPhases transfers where a server has a session for that, which gives the label as well.
func updateInPhases(ctx context.Context, s *upstream.Server, u upstream.Update) error {
	if err := s.Call(ctx, http.MethodPost, "/start_weight_update", nil, nil); err != nil {
		return err
	}
	if err := transfer(ctx, s, u); err != nil { // a session that stays open would refuse the next one
		return errors.Join(err, s.Call(ctx, http.MethodPost, "/finish_weight_update", struct{}{}, nil))
	}
	return s.Call(ctx, http.MethodPost, "/finish_weight_update", map[string]string{"weight_version": u.Label}, nil)
}

// name gives what is served its label.
func name(ctx context.Context, s *upstream.Server, label string) error {
	err := s.Call(ctx, http.MethodPost, "/update_weight_version", map[string]string{"new_version": label}, nil)
	if absent(err) {
		return nil // Version says then that it does not know
	}
	return err
}

// updateAdapter loads every version of the adapter under a name of its own. Loading it in place of the old
// one does not do: requests that name it have it read from its directory for every token, and those under
// way go on with the directory that they began with.
func updateAdapter(ctx context.Context, s *upstream.Server, u upstream.Update, caps *upstream.Capabilities) error {
	adapter, err := upstream.SwitchAdapter(ctx, s, u, caps.Model, upstream.AdapterWords{
		Load: func(ctx context.Context, adapter, dir string) error {
			body := map[string]any{"lora_name": adapter, "lora_path": dir}
			return s.Call(ctx, http.MethodPost, "/v1/load_lora_adapter", body, nil)
		},
		Unload: func(ctx context.Context, adapter string) error { return unload(ctx, s, adapter) },
		Name:   func(ctx context.Context, label string) error { return name(ctx, s, label) },
	})
	if err == nil {
		of(caps).adapter.Store(&adapter)
	}
	return err
}

func unload(ctx context.Context, s *upstream.Server, adapter string) error {
	err := s.Call(ctx, http.MethodPost, "/v1/unload_lora_adapter", map[string]string{"lora_name": adapter}, nil)
	if upstream.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// flush drops all keys and values, also those of requests under way, which are computed anew.
func flush(ctx context.Context, s *upstream.Server) error {
	body, err := s.Open(ctx, http.MethodPost, upstream.Call{Path: "/reset_prefix_cache?reset_running_requests=true"})
	if err != nil {
		return fmt.Errorf("dropping old keys and values: %w", err)
	}
	defer body.Close()
	return flushed(body)
}

// flushed reads the answer: older builds say nothing, newer ones whether it was done.
func flushed(body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, 1<<10))
	if err != nil || len(text) == 0 {
		return err
	}
	var reply struct {
		Success *bool `json:"success"`
	}
	if json.Unmarshal(text, &reply) == nil && reply.Success != nil && !*reply.Success {
		return errors.New("dropping old keys and values: the server says that they are still held, by a transfer that is under way")
	}
	return nil
}
