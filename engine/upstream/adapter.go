package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// adapterMark stands between a model's name and a version's label in the name of an adapter.
const adapterMark = "@"

// Limits of adapters of former versions.
const (
	// unloadLimit bounds one unload. SGLang answers it only when the last request of the adapter has ended.
	unloadLimit = 10 * time.Second
	// adaptersMax is how many adapters that could not be unloaded may stay at a server.
	adaptersMax = 4
)

// AdapterWords are how a dialect loads an adapter, unloads one, and gives what is served its label.
// Unload returns nil for an adapter that is not there.
type AdapterWords struct {
	Load   func(ctx context.Context, adapter, dir string) error
	Unload func(ctx context.Context, adapter string) error
	Name   func(ctx context.Context, label string) error
}

// SwitchAdapter loads an update's adapter under a name of its own, which it returns. Then it unloads every other
// that a switch has loaded, of this process or of one before it. The engine has ended all that
// the others sampled before: no request changes its adapter, and an adapter goes after its last request.
//
// An adapter that cannot be unloaded takes room, and is tried again with the next update. More than
// adaptersMax of them are an error.
func SwitchAdapter(ctx context.Context, s *Server, u Update, model string, words AdapterWords) (adapter string, err error) {
	adapter = model + adapterMark + u.Label
	before, err := adapters(ctx, s, model)
	if err != nil {
		return "", err
	}
	if slices.Contains(before, adapter) { // the same once more, after a failure
		if err := words.Unload(ctx, adapter); err != nil {
			return "", fmt.Errorf("unloading the adapter %s, which is to be loaded anew: %w", adapter, err)
		}
	}
	if err := words.Load(ctx, adapter, u.Dir); err != nil {
		return "", fmt.Errorf("loading the adapter %s: %w", adapter, err)
	}
	if err := words.Name(ctx, u.Label); err != nil {
		return "", err
	}
	var stay []error
	for _, old := range before {
		if old == adapter {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, unloadLimit)
		if err := words.Unload(limited, old); err != nil {
			stay = append(stay, fmt.Errorf("%s: %w", old, err))
		}
		cancel()
	}
	if len(stay) > adaptersMax {
		return "", fmt.Errorf("%d adapters of former versions cannot be unloaded: %w", len(stay), errors.Join(stay...))
	}
	return adapter, nil
}

// AdapterLabel is the label of what a server samples with an adapter. It is the one that the server says itself, or
// that of the adapter's name where it says none. Of a server that does not list the adapter it is no label but a
// text, so that the server counts as another one.
func AdapterLabel(ctx context.Context, s *Server, model, adapter, said string) (string, error) {
	loaded, err := adapters(ctx, s, model)
	if err != nil {
		return "", err
	}
	if !slices.Contains(loaded, adapter) {
		return fmt.Sprintf("no adapter %s, and %d others of the model", adapter, len(loaded)), nil
	}
	return cmp.Or(said, strings.TrimPrefix(adapter, model+adapterMark)), nil
}

// adapters lists the server's adapters that switches have loaded.
func adapters(ctx context.Context, s *Server, model string) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := s.Call(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return nil, fmt.Errorf("listing the adapters: %w", err)
	}
	var ours []string
	for _, m := range list.Data {
		if strings.HasPrefix(m.ID, model+adapterMark) {
			ours = append(ours, m.ID)
		}
	}
	return ours, nil
}

// judgeAdapter tells a request that is refused from an adapter that is gone: a server refuses a request of
// an adapter that it does not have as it refuses a bad one.
func (e *Engine) judgeAdapter(ctx context.Context, err error) error {
	if e.opt.Delivery != DeliveryLora || !errors.Is(err, ErrRefused) {
		return err
	}
	e.recognised.Store(0) // it is asked, whatever it has said before
	if lost := e.recognise(ctx); lost != nil {
		return lost
	}
	return err
}
