package vllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// failing is a server that writes down what it is asked and answers 200 with nothing, except where
// it is told otherwise: faults and builds that cannot be had here.
type failing struct {
	asked   []string
	answers map[string]string // by path; "404", "500 text" or a body
	labels  []string          // of what it serves, one each time that it is asked, the last for good; v6 without any
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.asked = append(f.asked, strings.TrimSpace(r.URL.RequestURI()+" "+string(body)))
	answer := f.answers[r.URL.Path]
	if r.URL.Path == served && answer == "" {
		label := "v6"
		if len(f.labels) > 0 {
			label = f.labels[0]
			f.labels = f.labels[min(1, len(f.labels)-1):]
		}
		answer = fmt.Sprintf(`{"weight_version": %q}`, label)
	}
	var status int
	if _, err := fmt.Sscanf(answer, "%d", &status); err == nil {
		http.Error(w, answer, status)
		return
	}
	_, _ = io.WriteString(w, answer)
}

const served = "/weight_info"

// serve starts it.
func (f *failing) serve(t *testing.T) *upstream.Server {
	t.Helper()
	front := httptest.NewServer(f)
	t.Cleanup(front.Close)
	s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestWaysOfAnUpdate(t *testing.T) {
	reload := `/collective_rpc {"kwargs":{"weights_path":"/w/7"},"method":"reload_weights"}`
	label := `/update_weight_version {"new_version":"v7"}`
	send := `/update_weights {"update_info":{"path":"/w/7"}}`
	const images = "/reset_encoder_cache"
	for _, test := range []struct {
		name    string
		learnt  *learnt
		update  upstream.Update
		answers map[string]string
		asked   []string
		fails   bool
	}{
		{"reload", &learnt{}, upstream.Update{}, nil, []string{served, reload, served, label, images}, false},
		{"reload and flush", &learnt{}, upstream.Update{Cache: upstream.CacheFlush}, map[string]string{"/reset_prefix_cache": `{"success":true}`},
			[]string{served, reload, served, label, images, "/reset_prefix_cache?reset_running_requests=true"}, false},
		{"a flush that is not done", &learnt{}, upstream.Update{Cache: upstream.CacheFlush}, map[string]string{"/reset_prefix_cache": `{"success":false}`},
			[]string{served, reload, served, label, images, "/reset_prefix_cache?reset_running_requests=true"}, true},
		{"a build without labels", &learnt{}, upstream.Update{}, map[string]string{"/update_weight_version": "404", served: "404"}, []string{served, reload, served, label, images}, false},
		{"a build that sees no images", &learnt{}, upstream.Update{}, map[string]string{images: "404"}, []string{served, reload, served, label, images}, false},
		{"images that are not forgotten", &learnt{}, upstream.Update{}, map[string]string{images: "500"}, []string{served, reload, served, label, images}, true},
		{"a reload that fails keeps the old label", &learnt{}, upstream.Update{}, map[string]string{"/collective_rpc": "500 no such directory"}, []string{served, reload}, true},
		{"four phases", &learnt{transfer: true, phases: true}, upstream.Update{}, nil,
			[]string{"/start_weight_update", send, `/finish_weight_update {"weight_version":"v7"}`, images}, false},
		{"four phases of which one fails", &learnt{transfer: true, phases: true}, upstream.Update{}, map[string]string{"/update_weights": "500"},
			[]string{"/start_weight_update", send, `/finish_weight_update {}`}, true},
		{"two phases", &learnt{transfer: true}, upstream.Update{}, nil, []string{served, send, served, label, images}, false},
		{"two phases of which one fails", &learnt{transfer: true}, upstream.Update{}, map[string]string{"/update_weights": "500"}, []string{served, send}, true},
		{"an adapter", &learnt{}, upstream.Update{Lora: true}, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`},
			[]string{"/v1/models", `/v1/load_lora_adapter {"lora_name":"m@v7","lora_path":"/w/7"}`, label}, false},
		{"an adapter that is refused", &learnt{}, upstream.Update{Lora: true}, map[string]string{"/v1/models": "{}", "/v1/load_lora_adapter": "404"},
			[]string{"/v1/models", `/v1/load_lora_adapter {"lora_name":"m@v7","lora_path":"/w/7"}`}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &failing{answers: test.answers}
			test.update.Dir, test.update.Label = "/w/7", "v7"
			err := New().Update(t.Context(), f.serve(t), test.update, &upstream.Capabilities{Model: "m", Private: test.learnt})
			if (err != nil) != test.fails {
				t.Errorf("%v, want an error: %v", err, test.fails)
			}
			if err != nil && !strings.Contains(err.Error(), "v7 from /w/7") && test.update.Cache == "" {
				t.Errorf("%v does not say what of", err)
			}
			if !slices.Equal(f.asked, test.asked) {
				t.Errorf("asked %q\nwant  %q", f.asked, test.asked)
			}
		})
	}
}

// A server that is started again after the update, and before it has its label, has the weights that it starts with.
func TestStartedAgainBeforeTheLabel(t *testing.T) {
	for _, way := range []*learnt{{}, {transfer: true}} {
		f := &failing{labels: []string{"v6", "default"}}
		err := New().Update(t.Context(), f.serve(t), upstream.Update{Dir: "/w/7", Label: "v7"}, &upstream.Capabilities{Private: way})
		if err == nil || !strings.Contains(err.Error(), "started again") || strings.Contains(fmt.Sprint(f.asked), "/update_weight_version") {
			t.Errorf("%v, asked %q", err, f.asked)
		}
	}
}

// A server says whether it is paused, unless its developer's paths are not there.
func TestPausedAsItSays(t *testing.T) {
	for answer, want := range map[string][2]bool{`{"is_paused": true}`: {true, true}, `{"is_paused": false}`: {false, true}, "404": {false, false}} {
		f := &failing{answers: map[string]string{"/is_paused": answer}}
		paused, known, err := New().Paused(t.Context(), f.serve(t), nil)
		if got := [2]bool{paused, known}; got != want || err != nil {
			t.Errorf("%s: %v, want %v; %v", answer, got, want, err)
		}
	}
}

// Whatever adapters a version before or a failed switch has left are unloaded, the same one first. One
// that cannot be unloaded does not keep the new one from being served.
func TestAdaptersBeforeAreUnloaded(t *testing.T) {
	f := &failing{answers: map[string]string{"/v1/models": `{"data":[{"id":"m"},{"id":"m@v1"},{"id":"m@v2"},{"id":"other@v1"}]}`}}
	s, caps := f.serve(t), &upstream.Capabilities{Model: "m", Private: &learnt{}}
	for _, label := range []string{"v2", "v3"} {
		if err := New().Update(t.Context(), s, upstream.Update{Label: label, Dir: "/" + label, Lora: true}, caps); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/v1/models", `/v1/unload_lora_adapter {"lora_name":"m@v2"}`, `/v1/load_lora_adapter {"lora_name":"m@v2","lora_path":"/v2"}`, `/update_weight_version {"new_version":"v2"}`,
		`/v1/unload_lora_adapter {"lora_name":"m@v1"}`,
		"/v1/models", `/v1/load_lora_adapter {"lora_name":"m@v3","lora_path":"/v3"}`, `/update_weight_version {"new_version":"v3"}`,
		`/v1/unload_lora_adapter {"lora_name":"m@v1"}`, `/v1/unload_lora_adapter {"lora_name":"m@v2"}`}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked %q\nwant %q", f.asked, want)
	}
	f.answers["/v1/unload_lora_adapter"] = "500"
	if err := New().Update(t.Context(), s, upstream.Update{Label: "v4", Dir: "/v4", Lora: true}, caps); err != nil || *of(caps).adapter.Load() != "m@v4" {
		t.Errorf("an old adapter cannot be unloaded: %v", err)
	}
}

// TestPauseKeepsTheCache: the server drops keys and values in a pause unless it is told not to.
func TestPauseKeepsTheCache(t *testing.T) {
	f := &failing{}
	if err := New().Pause(t.Context(), f.serve(t), upstream.Update{}, nil); err != nil || !slices.Equal(f.asked, []string{"/pause?mode=keep&clear_cache=false"}) {
		t.Errorf("%q, %v", f.asked, err)
	}
}

func TestAbortsByID(t *testing.T) {
	for name, test := range map[string]struct {
		answers map[string]string
		asked   int
		fails   bool
	}{
		"developer's path":       {nil, 1, false},
		"scale-out's path":       {map[string]string{"/abort_requests": "404"}, 2, false},
		"no path":                {map[string]string{"/abort_requests": "404", "/inference/v1/abort_requests": "403"}, 2, false},
		"a server in bad health": {map[string]string{"/abort_requests": "500"}, 1, true},
	} {
		f := &failing{answers: test.answers}
		err := New().Abort(t.Context(), f.serve(t), "a|", nil)
		if (err != nil) != test.fails || len(f.asked) != test.asked {
			t.Errorf("%s: %v, asked %q", name, err, f.asked)
		}
		for _, asked := range f.asked {
			if !strings.HasSuffix(asked, `{"request_ids":["generate-tokens-a|","cmpl-a|-0","cmpl-a|"]}`) {
				t.Errorf("%s: asked %s", name, asked)
			}
		}
	}
	f := &failing{}
	if err := New().Abort(t.Context(), f.serve(t), "", nil); err != nil || len(f.asked) != 0 {
		t.Errorf("no id, which would stand for all: asked %q", f.asked)
	}
}

func TestVersion(t *testing.T) {
	for answer, want := range map[string]string{`{"weight_version":"v7"}`: "v7", "404": ""} {
		f := &failing{answers: map[string]string{"/weight_info": answer}}
		if label, err := New().Version(t.Context(), f.serve(t), nil); label != want || err != nil {
			t.Errorf("%s: %q, %v", answer, label, err)
		}
	}
}

func TestProbeOfWhatIsNotVLLM(t *testing.T) {
	for name, answers := range map[string]map[string]string{
		"another software": {"/v1/models": `{"data":[{"id":"m","owned_by":"sglang"}]}`},
		"no models":        {"/v1/models": `{"data":[]}`},
		"not JSON":         {"/v1/models": `hello`},
		"nothing there":    {"/v1/models": "404"},
	} {
		f := &failing{answers: answers}
		if _, err := New().Probe(t.Context(), f.serve(t)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := upstream.NewServer(upstream.ServerOptions{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New().Probe(t.Context(), s); err == nil || upstream.StatusOf(err) != 0 {
		t.Errorf("nobody there: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New().Probe(done, (&failing{}).serve(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

// A guest's probe stops nothing and drops nothing, whatever it finds.
func TestAGuestChangesNothing(t *testing.T) {
	for _, paused := range []string{"false", "true"} {
		f := &failing{answers: map[string]string{"/is_paused": `{"is_paused":` + paused + `}`, pathCompletions: "400"}}
		s := f.serve(t)
		s.Guest = true
		p := &prober{ctx: t.Context(), s: s, l: &learnt{}, caps: &upstream.Capabilities{Model: "m"}}
		if err := p.wake(); (err != nil) != (paused == "true") {
			t.Errorf("paused %s: %v", paused, err)
		}
		for _, step := range []func() error{p.pause, p.cache} {
			if err := step(); err != nil {
				t.Error(err)
			}
		}
		if !p.caps.Pause || !p.caps.Flush || !p.caps.Salt {
			t.Errorf("found %+v", *p.caps)
		}
		for _, asked := range f.asked {
			if !strings.HasPrefix(asked, "/is_paused") && !strings.HasPrefix(asked, pathCompletions) {
				t.Errorf("asked %s", asked)
			}
		}
	}
}
