package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// serve starts a server that answers the given paths with the given bodies, and nothing else.
func serve(t *testing.T, answers map[string]string) *upstream.Server {
	t.Helper()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(front.Close)
	return reach(t, front.URL)
}

func reach(t *testing.T, address string) *upstream.Server {
	t.Helper()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const models = `{"data":[{"id":"m","owned_by":"somebody"}]}`

func TestNothingCanBeTrainedOn(t *testing.T) {
	for name, answers := range map[string]map[string]string{
		"completions": {"/v1/models": models, pathCompletions: `{"choices":[{"text":"a"}]}`},
		"chats alone": {"/v1/models": models, pathChat: `{"choices":[{"message":{"content":"a"}}]}`},
	} {
		caps, err := New().Probe(t.Context(), serve(t, answers))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fatal := false
		for _, m := range caps.Missing {
			fatal = fatal || m.Fatal
		}
		if !fatal || caps.TokenIDs || caps.Logprobs || caps.UpdateDisk || caps.Pause || caps.Model != "m" {
			t.Errorf("%s: %+v", name, caps)
		}
		_, err = New().Generate(upstream.Request{Prompt: []int32{1}, MaxTokens: 1}, &caps)
		if (err == nil) != (name == "completions") {
			t.Errorf("%s: sampling: %v", name, err)
		}
		if err := New().Update(t.Context(), nil, upstream.Update{}, &caps); !errors.Is(err, upstream.ErrLacking) {
			t.Errorf("%s: an update: %v", name, err)
		}
	}
}

func TestServersThatAreNone(t *testing.T) {
	for name, answers := range map[string]map[string]string{
		"nothing is answered":   {},
		"no completions at all": {"/v1/models": models},
		"empty completions":     {"/v1/models": models, pathCompletions: `{"choices":[]}`, pathChat: `{}`},
		"not JSON":              {"/v1/models": "hello"},
		"no models":             {"/v1/models": `{"data":[]}`},
	} {
		if _, err := New().Probe(t.Context(), serve(t, answers)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRequestsSayWhatIsMeant(t *testing.T) {
	caps := &upstream.Capabilities{Model: "m", Private: &learnt{completions: true}}
	call, err := New().Generate(upstream.Request{Prompt: []int32{7, 8}, MaxTokens: 5, Sampling: port.Sampling{Temperature: 0.5, Stop: []string{"x"}}}, caps)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(call.Body, &body); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"model": "m", "max_tokens": 5.0, "temperature": 0.5, "top_p": 1.0, "stream": true} {
		if body[key] != want {
			t.Errorf("%s is %v, want %v", key, body[key], want)
		}
	}
	if _, err := New().Generate(upstream.Request{Prompt: []int32{7}, MaxTokens: 5, Sampling: port.Sampling{TopK: 3}}, caps); !errors.Is(err, upstream.ErrRefused) {
		t.Errorf("top_k: %v", err)
	}
}

func TestEvents(t *testing.T) {
	var d upstream.Delta
	for _, data := range []string{`{"choices":[{"text":"he","finish_reason":null}]}`, `{"choices":[{"text":"y","finish_reason":"length"}]}`, `{"choices":[]}`} {
		if err := (decoder{}).Event([]byte(data), &d); err != nil {
			t.Fatal(err)
		}
	}
	if d.Text != "hey" || d.Finish != upstream.FinishLength || len(d.Tokens) != 0 {
		t.Errorf("%+v", d)
	}
	for data, status := range map[string]int{`{"error":{"message":"m","code":400}}`: 400, `{"error":{"message":"m","code":"x"}}`: 500, `{"choices":[{"finish_reason":"bored"}]}`: 0, `{`: 0} {
		if err := (decoder{}).Event([]byte(data), &d); err == nil || upstream.StatusOf(err) != status {
			t.Errorf("%s: %v, want status %d", data, err, status)
		}
	}
}

// A server's words end in logs: an error has their beginning alone.
func TestWordsAreCut(t *testing.T) {
	err := (decoder{}).Event([]byte(`{"error":{"message":"`+strings.Repeat("x", 1<<20)+`","code":400}}`), &upstream.Delta{})
	if err == nil || len(err.Error()) > 2<<10 {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// TestRealServer samples a text from any server.
func TestRealServer(t *testing.T) {
	address := os.Getenv("HEADWAY_TEST_OPENAI")
	if address == "" {
		t.Skip("HEADWAY_TEST_OPENAI is not set: the address of a server with /v1/completions")
	}
	s := reach(t, address)
	caps, err := New().Probe(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	r := upstream.Request{ID: "headway-test|", Prompt: []int32{3, 9, 10}, MaxTokens: 8, Sampling: port.Sampling{Temperature: 1}}
	call, err := New().Generate(r, &caps)
	if err != nil {
		t.Fatal(err)
	}
	body, err := s.Open(t.Context(), http.MethodPost, call)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	events := upstream.NewEventReader(body, &r)
	var d upstream.Delta
	for {
		data, err := events.Next()
		if err != nil || strings.HasPrefix(string(data), "[DONE]") {
			break
		}
		if err := New().Decoder(r, &caps).Event(data, &d); err != nil {
			t.Fatal(err)
		}
	}
	if d.Finish == "" || d.Text == "" {
		t.Errorf("%+v", d)
	}
}
