package sglang

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/headway-rl/headway/engine/upstream"
)

// Paths of adapters.
const (
	pathLoad   = "/load_lora_adapter"
	pathUnload = "/unload_lora_adapter"
	pathLabel  = "/update_weight_version"
)

// served remembers the adapter that is served.
type served struct{ name atomic.Pointer[string] }

// adapter is the name of the adapter that is served, empty before the first.
func (f found) adapter() string {
	if f.served == nil {
		return ""
	}
	if name := f.served.name.Load(); name != nil {
		return *name
	}
	return ""
}

// updateAdapter loads every version of the adapter under a name of its own. An unload is answered when the last
// request of the adapter has ended, and keeps the next load waiting until then: nothing may be paused meanwhile.
func updateAdapter(ctx context.Context, s *upstream.Server, u upstream.Update, caps *upstream.Capabilities) error {
	adapter, err := upstream.SwitchAdapter(ctx, s, u, caps.Model, upstream.AdapterWords{
		Load: func(ctx context.Context, adapter, dir string) error {
			return succeed(ctx, s, pathLoad, map[string]any{"lora_name": adapter, "lora_path": dir, "pinned": false})
		},
		Unload: func(ctx context.Context, adapter string) error {
			err := succeed(ctx, s, pathUnload, map[string]any{"lora_name": adapter})
			if err != nil && strings.Contains(err.Error(), noSuchAdapter) {
				return nil
			}
			return err
		},
		Name: func(ctx context.Context, label string) error {
			err := succeed(ctx, s, pathLabel, map[string]any{"new_version": label, "abort_all_requests": false})
			if upstream.StatusOf(err) == http.StatusNotFound {
				return nil // the adapter's name has it too
			}
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("weights %s from %s: %w", u.Label, u.Dir, err)
	}
	if f := learnt(caps); f.served != nil {
		f.served.name.Store(&adapter)
	}
	return nil
}

// noSuchAdapter is a part of the words by which SGLang says that an adapter is not loaded. It has no code for it.
const noSuchAdapter = "does not exist. Loaded LoRAs"
