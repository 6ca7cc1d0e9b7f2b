package chat

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	"github.com/headway-rl/headway/loop"
)

// strictServer is a vLLM with that template.
func strictServer(t *testing.T) serverTemplate {
	t.Helper()
	policy := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: servedTemplate, Context: 256, Weights: "m0"})
	t.Cleanup(policy.Close)
	behind, err := url.Parse(policy.URL())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", enginetest.StrictTemplate)
	mux.HandleFunc("POST /detokenize", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"prompt":"x"}`) })
	mux.Handle("/", httputil.NewSingleHostReverseProxy(behind))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	server, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := upstream.New(upstream.Options{Name: "renderer", Slots: 1, Server: server, Dialect: vllm.New(), Vocabulary: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	templates, err := upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{engine}})
	if err != nil {
		t.Fatal(err)
	}
	return serverTemplate{templates}
}

var servedTemplate = enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 12}

// oneWord is a rollout that always says the same; every prompt begins a branch.
type oneWord struct{ branches int }

func (*oneWord) Ended(string) (<-chan struct{}, error) { return make(chan struct{}), nil }

func (*oneWord) Hold(context.Context, string) func() { return func() {} }

func (*oneWord) Lasting(_ context.Context, _ string, err error) error { return err }

func (o *oneWord) Turn(_ context.Context, _ string, _ protocol.TurnRequest, _ func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	o.branches++
	return protocol.TurnReply{Tokens: []int32{7}, Logprobs: []float32{-1}, Versions: []loop.Version{0}, Text: "x", Finish: "stop", Branch: o.branches - 1, Branches: o.branches}, nil
}

// TestServersTemplateRefuses: what a server's template refuses is told to the agent as its own
// mistake, which its library does not repeat; and a template that renders no chat's beginning begins
// a branch.
func TestServersTemplateRefuses(t *testing.T) {
	template := strictServer(t)
	g, err := gateway.New(gateway.Options{Rollouts: &oneWord{}, Templates: template, Model: "tiny", Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, c := range []struct {
		name, path, body string
		status           int
		retry, says      string
	}{
		{"a chat", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, 200, "", `"began":"first"`},
		{"a chat that goes on", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"},{"role":"user","content":"b"}]}`, 200, "", `"began":"fallback"`},
		{"a chat that it refuses", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, 400, "false", `"param":"messages"`},
		{"a text that it refuses", "/v1/completions", `{"prompt":"refuse"}`, 400, "false", `"param":"prompt"`},
		{"a server that breaks", "/v1/completions", `{"prompt":"break"}`, 503, "true", "out of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			r.Header.Set(protocol.RolloutHeader, "g1-s0-a1")
			g.ServeHTTP(w, r)
			if w.Code != c.status || w.Header().Get("X-Should-Retry") != c.retry || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d, retry %q: %s; want %d, %q and %s", w.Code, w.Header().Get("X-Should-Retry"), w.Body, c.status, c.retry, c.says)
			}
		})
	}
}

// A refusal in an engine's own words, without a status, is one as well; the server's trouble is not.
func TestRefusedByServer(t *testing.T) {
	refusal, ok := errors.AsType[*protocol.Refusal](refusedByServer(errors.Join(upstream.ErrRefused), "messages"))
	if !ok || refusal.Code != protocol.CodeInvalid {
		t.Errorf("a refusal is %v", refusal)
	}
	for _, status := range []int{401, 404, 429, 500, 503} {
		if err := error(&upstream.StatusError{Path: "/tokenize", Status: status}); refusedByServer(err, "messages") != err {
			t.Errorf("status %d is the client's to correct", status)
		}
	}
	if refusedByServer(nil, "messages") != nil {
		t.Error("no error is a refusal")
	}
}

// The document's words for grammars are those that there are: api/calls looks for each of its own in the schema.
func TestToolFormats(t *testing.T) {
	field, ok := reflect.TypeFor[config.Gateway]().FieldByName("ToolFormat")
	if !ok {
		t.Fatal("no ToolFormat")
	}
	words := strings.Fields(field.Tag.Get("allowed"))
	if len(words) < 3 || words[0] != "auto" || words[len(words)-1] != "none" {
		t.Fatalf("allowed are %v", words)
	}
	for _, word := range words[1 : len(words)-1] {
		if calls.ByName(word) == nil {
			t.Errorf("%s is allowed, and no grammar", word)
		}
	}
}
