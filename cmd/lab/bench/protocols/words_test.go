package protocols

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/sglang"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
)

// field is what a route takes under one name. Kinds are of JSON; none means any. Default is nil where it is computed.
// Fields are those of an object, or of the objects of a list; none means any.
type field struct {
	Kinds    []string         `json:"kinds"`
	Required bool             `json:"required"`
	Default  any              `json:"default"`
	Fields   map[string]field `json:"fields"`
}

// route is what read.py found out about a route.
type route struct {
	Loose  bool             `json:"loose"`
	Fields map[string]field `json:"fields"`
	Query  map[string]field `json:"query"`
}

// word is one request of a dialect.
type word struct {
	route string
	query url.Values
	body  map[string]any
}

// listen returns a server that writes down what it is asked, and answers so that a dialect goes on.
// Beyond the answers that are given, another server answers where there is one.
func listen(t *testing.T, paths []string, answers map[string]string, behind http.Handler) (*upstream.Server, func() []word) {
	t.Helper()
	var mu sync.Mutex
	var words []word
	described := map[string]any{}
	for _, path := range paths {
		described[path] = map[string]any{}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		said := word{route: r.Method + " " + r.URL.Path, query: r.URL.Query()}
		if json.Unmarshal(text, &said.body) != nil && len(text) > 0 {
			t.Errorf("%s: no JSON object: %s", said.route, text)
		}
		mu.Lock()
		words = append(words, said)
		mu.Unlock()
		if r.URL.Path == "/openapi.json" {
			_ = json.NewEncoder(w).Encode(map[string]any{"paths": described})
			return
		}
		answer, has := answers[r.URL.Path]
		if !has && behind != nil {
			r.Body = io.NopCloser(bytes.NewReader(text))
			behind.ServeHTTP(w, r)
			return
		}
		if !has {
			answer = `{"success":true}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(front.Close)
	s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, func() []word {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(words)
	}
}

// speak has a dialect say everything that it can. Errors are of answers, which are made up here.
func speak(t *testing.T, d upstream.Dialect, s *upstream.Server) []word {
	t.Helper()
	caps, err := d.Probe(t.Context(), s)
	if err != nil {
		t.Logf("%s: the probe ended early: %v", d.Kind(), err)
	}
	ctx := t.Context()
	request := upstream.Request{ID: "r.", Prompt: []int32{1, 2}, MaxTokens: 4, Session: "s", Salt: "v1", Priority: 1}
	request.Sampling.Temperature, request.Sampling.Stop, request.Sampling.StopTokens = 1, []string{"x"}, []int32{3}
	var said []word
	if call, err := d.Generate(request, &caps); err != nil {
		t.Error(err)
	} else {
		said = append(said, wordOf(t, call))
	}
	update := upstream.Update{Dir: "/w", Label: "v1", Cache: upstream.CacheFlush}
	_ = d.Abort(ctx, s, "r.", &caps)
	_ = d.Pause(ctx, s, update, &caps)
	_ = d.Update(ctx, s, update, &caps)
	_, _ = d.Version(ctx, s, &caps)
	_ = d.Resume(ctx, s, &caps)
	update.Lora, request.Lora = true, true
	if err := d.Update(ctx, s, update, &caps); err != nil {
		t.Error(err)
	}
	if call, err := d.Generate(request, &caps); err != nil {
		t.Error(err)
	} else {
		said = append(said, wordOf(t, call))
	}
	update.Lora = false
	if j, ok := d.(upstream.Joiner); ok {
		group := upstream.Group{Name: "g", Address: "a", Port: 1, RankOffset: 1, WorldSize: 2, Backend: "nccl"}
		_ = j.Join(ctx, s, group, &caps)
		update.Dir, update.Group, update.Tensors = "", group, []upstream.Tensor{{Name: "a", DType: "int8", Shape: []int64{1}}}
		_ = d.Update(ctx, s, update, &caps)
		_ = j.Part(ctx, s, group, &caps)
	}
	if p, ok := d.(upstream.Scorer); ok {
		_, _ = p.Score(ctx, s, []int32{1, 2}, &caps)
	}
	if p, ok := d.(upstream.Templater); ok {
		_, _ = p.Render(ctx, s, []byte(`[]`), []byte(`[]`), true, &caps)
		_, _ = p.Encode(ctx, s, "a", &caps)
		_, _ = p.Decode(ctx, s, []int32{1}, &caps)
	}
	return said
}

// wordOf is a request that is not sent.
func wordOf(t *testing.T, call upstream.Call) word {
	t.Helper()
	said := word{route: "POST " + call.Path, body: map[string]any{}}
	if err := json.Unmarshal(call.Body, &said.body); err != nil {
		t.Error(err)
	}
	return said
}

// kind is JSON's word for a value.
func kind(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	}
	return "object"
}

// differences are the words that a release would refuse, or not understand.
func differences(words []word, routes map[string]route) []string {
	found := map[string]bool{}
	for _, w := range words {
		r, there := routes[w.route]
		if !there {
			found[w.route+" is no route of it"] = true
			continue
		}
		objects(found, w.route, "", w.body, r.Fields, r.Loose)
		for name := range w.query {
			if _, known := r.Query[name]; !known {
				found[w.route+" has no parameter "+name] = true
			}
		}
	}
	var all []string
	for text := range found {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// objects notes what an object of a body, at a place in it, has that the release does not take there.
func objects(found map[string]bool, route, at string, body map[string]any, fields map[string]field, loose bool) {
	for name, value := range body {
		f, known := fields[name]
		switch k := kind(value); {
		case !known && !loose:
			found[route+" has no field "+at+name] = true
		case known && len(f.Kinds) > 0 && !slices.Contains(f.Kinds, k):
			found[route+" wants "+at+name+" as "+strings.Join(f.Kinds, " or ")+", we send "+k] = true
		}
		if len(f.Fields) == 0 {
			continue
		}
		inside, _ := value.([]any)
		for _, one := range append(inside, value) {
			if object, is := one.(map[string]any); is {
				objects(found, route, at+name+".", object, f.Fields, false)
			}
		}
	}
	for name, f := range fields {
		if _, sent := body[name]; f.Required && !sent {
			found[route+" requires "+at+name+", which we do not send"] = true
		}
	}
}

// read has read.py read the routes of a wheel's modules.
func read(t *testing.T, wheel, modules string) map[string]route {
	t.Helper()
	var routes map[string]route
	python(t, &routes, "read.py", wheel, modules)
	if len(routes) == 0 {
		t.Fatalf("%s has no routes in %s", wheel, modules)
	}
	return routes
}

// python has a program of this folder read something, and reads what it prints.
func python(t *testing.T, into any, arguments ...string) {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on the PATH: the reader of wheels is a program of Python")
	}
	text, err := exec.CommandContext(t.Context(), program, arguments...).Output()
	if err != nil {
		t.Fatalf("%v: %v", arguments, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %v", arguments, err)
	}
}

// released is the wheel in the folder HEADWAY_WHEELS whose name begins so; without the folder the test is skipped.
func released(t *testing.T, wheel string) string {
	t.Helper()
	folder := os.Getenv("HEADWAY_WHEELS")
	if folder == "" {
		t.Skip("HEADWAY_WHEELS is not set: make test-protocols downloads released wheels and names their folder there")
	}
	found, _ := filepath.Glob(filepath.Join(folder, wheel+"-*.whl"))
	if len(found) != 1 {
		t.Fatalf("%d wheels of %s in %s, want one: see requirements/", len(found), wheel, folder)
	}
	return found[0]
}

// hold fails on a difference that is not known, and on a known one that is none any more.
func hold(t *testing.T, got []string, known map[string]string) {
	t.Helper()
	for _, text := range got {
		if known[text] == "" {
			t.Error(text)
		}
	}
	for text, why := range known {
		if !slices.Contains(got, text) {
			t.Errorf("it is no difference any more: %s (%s)", text, why)
		}
	}
}

// TestReleases holds the dialects' words against the released wheels in the folder HEADWAY_WHEELS.
func TestReleases(t *testing.T) {
	for _, release := range releases {
		t.Run(release.wheel, func(t *testing.T) {
			routes := read(t, released(t, release.wheel), release.modules)
			hold(t, differences(wordsOf(t, release.dialect, routes), routes), release.known)
		})
	}
}

// wordsOf are the requests of a dialect to a server that has these routes.
func wordsOf(t *testing.T, dialect string, routes map[string]route) []word {
	t.Helper()
	var paths []string
	for name := range routes {
		_, path, _ := strings.Cut(name, " ")
		paths = append(paths, path)
	}
	if dialect == "sglang" {
		s, heard := listen(t, paths, map[string]string{
			"/model_info": `{"model_path":"m","weight_version":"v0"}`, "/server_info": `{}`, "/workers": `{}`,
			"/v1/models": `{"data":[{"id":"m","max_model_len":64},{"id":"m@v0"}]}`, "/tokenize": `{"tokens":[1]}`, "/v1/tokenize": `{"tokens":[1]}`,
			"/detokenize": `{"text":"a"}`, "/v1/detokenize": `{"text":"a"}`,
			"/generate": `{"output_ids":[3],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.5,3,null]],"input_token_logprobs":[[null,1,null],[-0.5,2,null]]}}`,
		}, nil)
		said := speak(t, sglang.New(), s)
		return append(heard(), said...)
	}
	policy := enginetest.NewPolicyServer(enginetest.PolicyOptions{
		Policy: enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 40}, Context: 64, Weights: "w", Spans: true,
	})
	t.Cleanup(policy.Close)
	at, err := url.Parse(policy.URL())
	if err != nil {
		t.Fatal(err)
	}
	s, heard := listen(t, paths, map[string]string{
		"/tokenize": `{"tokens":[1],"count":1}`, "/detokenize": `{"prompt":"a"}`, "/v1/load_lora_adapter": `{}`, "/v1/completions/derender": `{"choices":[{"text":"a"}]}`,
	}, httputil.NewSingleHostReverseProxy(at))
	said := speak(t, vllm.Dialect{}, s)
	return append(heard(), said...)
}

// TestDifferences: what a release does not take is found; what it takes in any form is not.
func TestDifferences(t *testing.T) {
	inside := map[string]field{"m": {Kinds: []string{"string"}, Required: true}}
	routes := map[string]route{"POST /a": {
		Fields: map[string]field{"n": {Kinds: []string{"integer"}, Required: true}, "any": {}, "deep": {Fields: inside}}, Query: map[string]field{"q": {}},
	}}
	said := []word{
		{route: "POST /a", body: map[string]any{"n": 1.0, "any": []any{}}, query: url.Values{"q": {"1"}}},
		{route: "POST /a", body: map[string]any{"n": "1", "m": true}, query: url.Values{"p": {"1"}}},
		{route: "POST /a", body: map[string]any{"n": 1.0, "deep": map[string]any{"m": 1.0, "o": true}}},
		{route: "POST /a", body: map[string]any{"n": 1.0, "deep": []any{map[string]any{"m": "a"}, map[string]any{}}}},
		{route: "POST /a"},
		{route: "POST /b"},
	}
	want := []string{"POST /a has no field deep.o", "POST /a has no field m", "POST /a has no parameter p",
		"POST /a requires deep.m, which we do not send", "POST /a requires n, which we do not send",
		"POST /a wants deep.m as string, we send integer", "POST /a wants n as integer, we send string", "POST /b is no route of it"}
	if got := differences(said, routes); !slices.Equal(got, want) {
		t.Errorf("found %q\nwant  %q", got, want)
	}
}
