package plane

import (
	"context"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/store/weights"
)

// willing is a driver whose engines start at once.
type willing struct{}

func (willing) Start(context.Context, int) error { return nil }
func (willing) Alive(context.Context, int) error { return nil }
func (willing) Stop(context.Context, int) error  { return nil }
func (willing) Close() error                     { return nil }

// A run that is open and has not begun waits for version 0, whichever way it comes, and then for the engines that are to
// be there from the start: not for those that the fleet may start later.
func TestWhatARunWaitsForBeforeItBegins(t *testing.T) {
	store, err := weights.Open(t.TempDir(), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"first", "second", "third"}
	state := StateRunning
	p := &Plane{Record: &record.Record{Parts: &parts.Parts{Weights: store, Fleet: fleet.New(fleet.Options{Driver: willing{}, Names: names})}}}
	p.state.Store(&state)
	for _, name := range names {
		e := config.Engine{Kind: "vllm", Name: name, URL: "http://127.0.0.1:1", Slots: 1}
		server, err := parts.ServerOf(e)
		if err != nil {
			t.Fatal(err)
		}
		dialect, err := parts.DialectOf(e, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		made, err := upstream.New(upstream.Options{Name: name, Slots: 1, Server: server, Dialect: dialect, Vocabulary: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = made.Close() })
		p.Cfg.Engines, p.Upstreams = append(p.Cfg.Engines, e), append(p.Upstreams, made)
	}
	waits := func(want string) {
		t.Helper()
		if got := p.firstVersionText(live.View{}); got != want {
			t.Errorf("it waits for %q, want %q", got, want)
		}
	}
	waits("the trainer to publish version 0")
	draft, err := store.Begin(t.Context(), weights.Description{Kind: weights.KindNone}) // which engines get by a collective
	if err != nil {
		t.Fatal(err)
	}
	if _, err := draft.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits("engines to serve version 0")
	for i := range 2 {
		if err := p.Fleet.Acquire(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	waits("2 engines to serve version 0: first, second")
	p.Fleet = nil
	waits("3 engines to serve version 0: first, second, third")
}
