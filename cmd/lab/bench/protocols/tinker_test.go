package protocols

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/internal/tinker/tinkertest"
)

// wheelTinker is the release of Tinker's own client whose words internal/tinker has.
const wheelTinker = "tinker-0.38.0"

// probed is why a request may have nothing in it.
const probed = "the probe sends nothing, to see in what form the service reads a pass"

// tinkerKnown are differences that are none for us, each with its reason.
var tinkerKnown = map[string]string{
	"POST /api/v1/forward is no route of it":                                              "servers that read JSON have it; the client marks forward_backward in protobuf",
	"POST /api/v1/forward_backward has no field type":                                     "servers that read JSON take it; the client writes protobuf",
	"POST /api/v1/forward_backward requires forward_backward_input, which we do not send": probed,
	"POST /api/v1/forward_backward requires model_id, which we do not send":               probed,
	"POST /api/v1/unload_model is no route of it":                                         "SkyRL and TuFT have it; the client's type has the same fields",
}

// tinkerWords are the requests of a client that does everything, to a service that reads JSON.
func tinkerWords(t *testing.T) []word {
	t.Helper()
	service := tinkertest.New(tinkertest.Options{Encoding: tinkertest.JSON})
	t.Cleanup(service.Close)
	var mu sync.Mutex
	var words []word
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		said := word{route: r.Method + " " + r.URL.Path, query: r.URL.Query()}
		if len(text) > 0 && json.Unmarshal(text, &said.body) != nil {
			said.body = nil // a probe of protobuf
		} else {
			mu.Lock()
			words = append(words, said)
			mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := tinker.Open(ctx, tinker.Options{URL: front.URL, Name: "run"})
	must(err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Bases(ctx)
	must(err)
	options := tinker.ModelOptions{Base: "test/base", Rank: 4, Seed: 1}
	m, err := s.NewModel(ctx, options)
	must(err)
	data := []tinker.Datum{{Tokens: []int32{1, 2}, Targets: []int32{2, 3}, Weights: []float32{1, 1}, Logprobs: []float32{-1, -1}, Advantages: []float32{1, 1}}}
	_, err = m.ForwardBackward(ctx, data, tinker.Loss{Name: "ppo", Config: map[string]float64{"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}})
	must(err)
	_, err = m.Forward(ctx, data, tinker.Loss{Name: "cross_entropy"})
	must(err)
	_, err = m.OptimStep(ctx, tinker.Adam{LearningRate: 0.1, GradientNorm: 1})
	must(err)
	state, err := m.SaveState(ctx, "a")
	must(err)
	sampled, err := m.SaveSampler(ctx, "b")
	must(err)
	fresh, err := s.NewModel(ctx, options)
	must(err)
	must(fresh.LoadState(ctx, state))
	must(fresh.Unload(ctx))
	sampler, err := s.NewSampler(ctx, sampled)
	must(err)
	for _, q := range []tinker.SampleRequest{
		{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1, TopP: 1, Seed: 1, Stop: []int32{3}},
		{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1, TopP: 0.5, TopK: 2},
	} {
		_, err = sampler.Sample(ctx, q)
		must(err)
	}
	must(s.Delete(ctx, sampled))
	mu.Lock()
	defer mu.Unlock()
	return words
}

// named gives a word the route whose template its path fits, where a part that varies is {}.
func named(w word, routes map[string]route) word {
	for name := range routes {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\{\}`, ".+") + "$"
		if strings.Contains(name, "{}") && strings.HasSuffix(name, "}") && regexp.MustCompile(pattern).MatchString(w.route) {
			w.route = name
			return w
		}
	}
	return w
}

// TestTinker holds the requests of internal/tinker against the client that Tinker releases, and its zero values
// against that client's defaults.
func TestTinker(t *testing.T) {
	var routes map[string]route
	python(t, &routes, "sdk.py", released(t, wheelTinker), "tinker")
	if len(routes) < 20 {
		t.Fatalf("%d requests of the client: does sdk.py read it?", len(routes))
	}
	words := tinkerWords(t)
	for i := range words {
		words[i] = named(words[i], routes)
	}
	hold(t, differences(words, routes), tinkerKnown)
	compared := 0
	for _, w := range words {
		for object, names := range map[string][]string{"adam_params": {"beta1", "beta2", "eps", "weight_decay"}, "lora_config": {"train_unembed", "train_mlp", "train_attn"}} {
			sent, is := w.body[object].(map[string]any)
			for _, name := range names {
				if want := routes[w.route].Fields[object].Fields[name].Default; is && sent[name] != want {
					t.Errorf("%s: %s.%s is %v, and %v by default at the client", w.route, object, name, sent[name], want)
				} else if is {
					compared++
				}
			}
		}
	}
	if compared < 7 {
		t.Errorf("%d defaults were compared", compared)
	}
}

// TestTinkerWords: every operation of the client is said here, so that none goes uncompared.
func TestTinkerWords(t *testing.T) {
	said := map[string]bool{}
	for _, w := range tinkerWords(t) {
		said[strings.TrimPrefix(w.route[strings.Index(w.route, " ")+1:], "/api/v1/")] = true
	}
	for _, operation := range []string{"client/config", "create_session", "get_server_capabilities", "create_model", "forward_backward", "forward",
		"optim_step", "save_weights", "save_weights_for_sampler", "load_weights", "unload_model", "create_sampling_session", "asample", "retrieve_future"} {
		if !said[operation] {
			t.Errorf("%s is not said", operation)
		}
	}
}
