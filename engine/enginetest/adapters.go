package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// AdapterSubject is a server that runs and takes adapters.
type AdapterSubject struct {
	URL     string
	Dialect func() upstream.Dialect
	// Dirs are adapters with different weights, at least three: version v is number v modulo their number.
	Dirs []string
	// Remove takes an adapter from the server, as somebody else would.
	Remove func(ctx context.Context, s *upstream.Server, adapter string) error
	// Prompt begins every response, MaxTokens ends it, Vocabulary is the model's.
	Prompt     []int32
	MaxTokens  int
	Vocabulary int
	// Within is how far log-probs of the same adapter may be apart, in nats.
	Within float64
}

// Figures of RunAdapters.
const (
	adapterSlots    = 4
	adapterSwitches = 6
)

// adapters is one run of the suite.
type adapters struct {
	AdapterSubject
	engine  *upstream.Engine
	dialect upstream.Dialect
	server  *upstream.Server
	// spanning counts responses of two versions.
	spanning int
}

// RunAdapters switches adapters under responses, again and again. Every version has a name of its own, and every
// token is of the adapter that its version says. The cache of one serves no other, and one adapter is left. An adapter
// that a dead process has left goes, and one that is gone costs the engine its version and nothing else.
func RunAdapters(t *testing.T, subject AdapterSubject) {
	a := &adapters{AdapterSubject: subject, dialect: subject.Dialect()}
	a.open(t)
	a.leftover(t)
	a.serve(t, 0)
	for v := range loop.Version(adapterSwitches) {
		a.under(t, v+1)
	}
	t.Logf("%d switches under %d responses each, of which %d went on under the next adapter", adapterSwitches, adapterSlots, a.spanning)
	if a.spanning == 0 {
		t.Error("no response was under way in a switch: nothing has been tried")
	}
	a.gone(t, adapterSwitches)
	a.unreadable(t, adapterSwitches)
}

func (a *adapters) open(t *testing.T) {
	t.Helper()
	server, err := upstream.NewServer(upstream.ServerOptions{URL: a.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	a.server = server
	a.engine, err = upstream.New(upstream.Options{
		Name: "adapters", Slots: adapterSlots, Server: server, Dialect: a.dialect, Delivery: upstream.DeliveryLora, Vocabulary: a.Vocabulary, Logf: t.Logf,
		Views: func(_ context.Context, v loop.Version) (string, error) { return a.Dirs[int(v)%len(a.Dirs)], nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.engine.Close() })
}

// context is of one step: a hang fails it.
func (a *adapters) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// leftover loads an adapter as a process does that dies before its next switch.
func (a *adapters) leftover(t *testing.T) {
	t.Helper()
	ctx := a.context(t)
	caps, err := a.dialect.Probe(ctx, a.server)
	if err != nil {
		t.Fatal(err)
	}
	if !caps.UpdateLora {
		t.Fatalf("it takes no adapters: %v", caps.Lacks(upstream.DeliveryLora))
	}
	if err := a.dialect.Update(ctx, a.server, upstream.Update{Label: "v3-dead", Dir: a.Dirs[1], Lora: true}, &caps); err != nil {
		t.Fatal(err)
	}
	if names := a.listed(t); len(names) != 1 || !strings.HasSuffix(names[0], "@v3-dead") {
		t.Fatalf("a process before this one has left %q", names)
	}
}

// serve switches, and makes sure that one adapter is left, of the version's name.
func (a *adapters) serve(t *testing.T, version loop.Version) {
	t.Helper()
	ctx := a.context(t)
	if err := a.engine.Load(ctx, version); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Switch(ctx, version, false); err != nil {
		t.Fatal(err)
	}
	if names := a.listed(t); len(names) != 1 || !strings.Contains(names[0], fmt.Sprintf("@v%d-", version)) {
		t.Errorf("after the switch to version %d the server lists %q", version, names)
	}
}

// listed are the adapters that the server has.
func (a *adapters) listed(t *testing.T) (names []string) {
	t.Helper()
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := a.server.Call(a.context(t), http.MethodGet, "/v1/models", nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Data {
		if m.Parent != nil {
			names = append(names, m.ID)
		}
	}
	return names
}

// sample is one response; begun is called when it has tokens.
func (a *adapters) sample(ctx context.Context, sample int, begun func()) (port.Generation, error) {
	return a.engine.Generate(ctx, port.GenerateRequest{
		Rollout: port.RolloutID{Group: 1, Sample: int32(sample)}, Prompt: a.Prompt, MaxTokens: a.MaxTokens,
		OnTokens: func(port.Delta) { begun() },
	})
}

// under switches to a version while responses are under way.
func (a *adapters) under(t *testing.T, version loop.Version) {
	t.Helper()
	ctx := a.context(t)
	var all, begun sync.WaitGroup
	out := make([]port.Generation, adapterSlots)
	begun.Add(adapterSlots)
	for i := range out {
		all.Go(func() {
			var err error
			once := sync.OnceFunc(begun.Done)
			if out[i], err = a.sample(ctx, int(version)*adapterSlots+i, once); err != nil {
				t.Error(err)
			}
			once()
		})
	}
	begun.Wait()
	a.serve(t, version)
	all.Wait()
	for i := range out {
		a.judge(t, &out[i], version)
	}
}

// judge holds the log-probs of a response to the scores of the adapter that is served now.
func (a *adapters) judge(t *testing.T, g *port.Generation, served loop.Version) {
	t.Helper()
	caps, _ := a.engine.Capabilities()
	sequence := append(append([]int32(nil), a.Prompt...), g.Tokens...)
	scores, err := a.dialect.(upstream.Scorer).Score(a.context(t), a.server, sequence, &caps)
	if err != nil {
		t.Fatal(err)
	}
	last, old, oldTokens := loop.Version(-1), 0.0, 0
	for i, v := range g.Versions {
		far := math.Abs(float64(scores[len(a.Prompt)-1+i]) - float64(g.Logprobs[i]))
		switch {
		case v < last || v > served || v < served-1:
			t.Errorf("token %d is of version %d, after %d, and %d is served", i, v, last, served)
		case v == served && far > a.Within:
			t.Errorf("token %d of version %d is %g nats from what its adapter says: another one's weights, or another one's cache", i, v, far)
		case v < served:
			old, oldTokens = max(old, far), oldTokens+1
		}
		last = v
	}
	if len(g.Versions) > 0 && g.Versions[0] < last {
		a.spanning++
	}
	if oldTokens >= 8 && old <= a.Within {
		t.Errorf("%d tokens of the version before are at most %g nats from the adapter of version %d: it sampled them", oldTokens, old, served)
	}
}

// gone takes the adapter away in the middle of a run: the next response says so, and a switch mends it.
func (a *adapters) gone(t *testing.T, version loop.Version) {
	t.Helper()
	ctx := a.context(t)
	if err := a.Remove(ctx, a.server, a.listed(t)[0]); err != nil {
		t.Fatal(err)
	}
	_, err := a.sample(ctx, 1000, func() {})
	if !errors.Is(err, port.ErrEngineDown) || !strings.Contains(err.Error(), "no adapter ") {
		t.Errorf("without its adapter: %v", err)
	}
	if s := a.engine.Status(); s.Version != loop.NoVersion {
		t.Errorf("without its adapter it serves version %d", s.Version)
	}
	a.serve(t, version)
	if g, err := a.sample(ctx, 1001, func() {}); err != nil || len(g.Tokens) == 0 {
		t.Errorf("with the adapter again: %d tokens, %v", len(g.Tokens), err)
	}
}

// unreadable gives an adapter that the server cannot read: the error says so, and the next good one is served.
func (a *adapters) unreadable(t *testing.T, version loop.Version) {
	t.Helper()
	ctx, good := a.context(t), a.Dirs
	bad := t.TempDir()
	weights, err := os.ReadFile(filepath.Join(good[0], "adapter_model.safetensors"))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(bad, "adapter_model.safetensors"), weights, 0o644), os.WriteFile(filepath.Join(bad, "adapter_config.json"), []byte(`{"peft_type":"LORA"}`), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	a.Dirs = []string{bad}
	if err := a.engine.Load(ctx, version+1); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Switch(ctx, version+1, false); err == nil || !strings.Contains(err.Error(), "loading the adapter ") {
		t.Errorf("an adapter that cannot be read: %v", err)
	}
	a.Dirs = good
	a.serve(t, version+2)
	if g, err := a.sample(ctx, 1002, func() {}); err != nil || len(g.Tokens) == 0 {
		t.Errorf("after an adapter that could not be read: %d tokens, %v", len(g.Tokens), err)
	}
}
