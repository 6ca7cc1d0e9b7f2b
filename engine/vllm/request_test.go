package vllm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// generated returns a request's body as a server reads it.
func generated(t *testing.T, l *learnt, r upstream.Request) (upstream.Call, map[string]any) {
	t.Helper()
	call, err := New().Generate(r, &upstream.Capabilities{Model: `a "model"`, Private: l})
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(call.Body, &body); err != nil {
		t.Fatalf("%v: %s", err, call.Body)
	}
	return call, body
}

// TestNothingIsLeftToDefaults: what a server would fill in from the model's own settings is said,
// max_tokens among it, which is 16 where it is left out.
func TestNothingIsLeftToDefaults(t *testing.T) {
	r := upstream.Request{ID: "id|", Prompt: []int32{7, 8}, MaxTokens: 500, Sampling: port.Sampling{Temperature: 1}}
	want := map[string]any{"n": 1.0, "max_tokens": 500.0, "temperature": 1.0, "top_p": 1.0, "top_k": -1.0, "min_p": 0.0,
		"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": 0.0, "skip_special_tokens": true}
	call, body := generated(t, &learnt{generate: true, text: true}, r)
	if call.Path != pathGenerate || call.Header.Get("X-Request-Id") != "id|" || body["output_mode"] != "text" || body["model"] != `a "model"` {
		t.Errorf("%s %v: %s", call.Path, call.Header, call.Body)
	}
	if !reflect.DeepEqual(body["sampling_params"], any(want)) {
		t.Errorf("got  %v\nwant %v", body["sampling_params"], want)
	}
	call, body = generated(t, &learnt{}, r)
	if call.Path != pathCompletions || body["return_token_ids"] != true || body["return_tokens_as_token_ids"] != true {
		t.Errorf("%s: %s", call.Path, call.Body)
	}
	for key, value := range want {
		if body[key] != value {
			t.Errorf("%s is %v, want %v", key, body[key], value)
		}
	}
	for _, key := range []string{"priority", "cache_salt", "stop", "stop_token_ids"} {
		if _, there := body[key]; there {
			t.Errorf("%s is said, and nobody has asked for it", key)
		}
	}
}

func TestWhatIsAskedForIsSaid(t *testing.T) {
	r := upstream.Request{ID: "i", Session: "traj", Salt: "v\"7", Prompt: []int32{1}, MaxTokens: 1, Priority: -3,
		Sampling: port.Sampling{Temperature: 1e-7, TopP: 0.9, TopK: 5, MinP: 0.1, Stop: []string{"a\n", "</b>"}, StopTokens: []int32{4, 2}}}
	for _, l := range []*learnt{{}, {generate: true}} {
		call, body := generated(t, l, r)
		sampling := body
		if l.generate {
			sampling = body["sampling_params"].(map[string]any)
		}
		for key, value := range map[string]any{"temperature": 1e-7, "top_p": 0.9, "top_k": 5.0, "min_p": 0.1, "stop": []any{"a\n", "</b>"}, "stop_token_ids": []any{4.0, 2.0}} {
			if !reflect.DeepEqual(sampling[key], value) {
				t.Errorf("%s is %v, want %v", key, sampling[key], value)
			}
		}
		if body["cache_salt"] != "v\"7" || body["priority"] != -3.0 || call.Header.Get("X-Session-Id") != "traj" {
			t.Errorf("%s, %v", call.Body, call.Header)
		}
	}
}

func TestRequestsForAnAdapter(t *testing.T) {
	l := &learnt{generate: true}
	name := "m@v7"
	l.adapter.Store(&name)
	caps := &upstream.Capabilities{Model: "m", Private: l}
	for lora, want := range map[bool]string{true: `"model":"m@v7"`, false: `"model":"m"`} {
		call, err := New().Generate(upstream.Request{Prompt: []int32{1}, MaxTokens: 1, Lora: lora}, caps)
		if err != nil || !strings.Contains(string(call.Body), want) {
			t.Errorf("%s, %v: want %s", call.Body, err, want)
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	caps := &upstream.Capabilities{Model: "policy", Private: &learnt{generate: true, text: true}}
	r := upstream.Request{ID: "hw-0|", Session: "s", Salt: "v7", Prompt: make([]int32, 1000), MaxTokens: 500, Sampling: port.Sampling{Temperature: 1}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New().Generate(r, caps); err != nil {
			b.Fatal(err)
		}
	}
}
