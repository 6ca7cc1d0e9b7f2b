package sglang

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

func TestRequest(t *testing.T) {
	r := upstream.Request{ID: "g1-s2-a0-\"é\"|", Session: "s", Salt: "v3", Prompt: []int32{5, 6}, MaxTokens: 9, Priority: 4,
		Sampling: port.Sampling{Temperature: 0.5, TopP: 0.9, TopK: 3, MinP: 0.1, Stop: []string{"\n", "a\"b"}, StopTokens: []int32{2}}}
	sampling := func(more map[string]any) map[string]any {
		all := map[string]any{"max_new_tokens": 9.0, "temperature": 0.5, "top_p": 0.9, "top_k": 3.0, "min_p": 0.1, "frequency_penalty": 0.0,
			"presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0.0, "n": 1.0, "ignore_eos": false, "skip_special_tokens": true,
			"stop": []any{"\n", "a\"b"}, "stop_token_ids": []any{2.0}}
		for name, value := range more {
			if all[name] = value; value == nil {
				delete(all, name)
			}
		}
		return all
	}
	body := func(more map[string]any) map[string]any {
		all := map[string]any{"rid": r.ID, "input_ids": []any{5.0, 6.0}, "sampling_params": sampling(nil), "stream": true, "return_logprob": true,
			"logprob_start_len": -1.0, "top_logprobs_num": 0.0, "session_id": "s", "routing_key": "s", "extra_key": "v3"}
		for name, value := range more {
			if all[name] = value; value == nil {
				delete(all, name)
			}
		}
		return all
	}
	plain := r
	plain.Session, plain.Salt, plain.Sampling = "", "", port.Sampling{Temperature: 1}
	for _, test := range []struct {
		name    string
		request upstream.Request
		found   *found
		want    map[string]any
	}{
		{"everything", r, &found{}, body(nil)},
		{"priority, the higher is earlier", r, &found{priority: true}, body(map[string]any{"priority": -4.0})},
		{"priority, the lower is earlier", r, &found{priority: true, low: true}, body(map[string]any{"priority": 4.0})},
		{"the policy as it is", plain, nil, body(map[string]any{"session_id": nil, "routing_key": nil, "extra_key": nil,
			"sampling_params": sampling(map[string]any{"temperature": 1.0, "top_p": 1.0, "top_k": -1.0, "min_p": 0.0, "stop": nil, "stop_token_ids": nil})})},
	} {
		t.Run(test.name, func(t *testing.T) {
			caps := &upstream.Capabilities{}
			if test.found != nil {
				caps.Private = test.found
			}
			call, err := New().Generate(test.request, caps)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(call.Body, &got); err != nil {
				t.Fatalf("%v: %s", err, call.Body)
			}
			if call.Path != "/generate" || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s\ngot  %v\nwant %v", call.Path, got, test.want)
			}
		})
	}
	for name, change := range map[string]func(*upstream.Request){
		"no id":     func(r *upstream.Request) { r.ID = "" },
		"no prompt": func(r *upstream.Request) { r.Prompt = nil },
		"no tokens": func(r *upstream.Request) { r.MaxTokens = 0 },
		"adapter":   func(r *upstream.Request) { r.Lora = true },
	} {
		bad := r
		change(&bad)
		if _, err := New().Generate(bad, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
