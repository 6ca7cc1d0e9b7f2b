package vllm

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// Events as vLLM 0.32.0 sends them, one of each way, and what is in them.
const (
	eventTokens      = `{"request_id":"generate-tokens-g1-s0.","usage":null,"output_mode":"tokens","choices":[{"index":0,"finish_reason":null,"stop_reason":null,"token_ids":[30],"routed_experts":null,"sampling_mask":null,"weight_versions":null,"logprobs":{"content":[{"token_id":30,"logprob":-3.97139048576355,"rank":8,"top_logprobs":[{"token_id":30,"logprob":-3.97139048576355,"rank":8}]}]}}]}`
	eventText        = `{"request_id":"generate-tokens-g1-s0.","usage":null,"output_mode":"text","choices":[{"index":0,"finish_reason":null,"stop_reason":null,"token_ids":[30],"routed_experts":null,"sampling_mask":null,"weight_versions":null,"text":"h","logprobs":{"content":[{"token":"h","logprob":-3.97139048576355,"bytes":[104],"top_logprobs":[{"token":"h","logprob":-3.97139048576355,"bytes":[104]}]}]}}]}`
	eventCompletions = `{"id":"cmpl-g1-s0.","object":"text_completion","created":1795278228,"model":"policy","choices":[{"index":0,"text":"h","logprobs":{"text_offset":[0],"token_logprobs":[-3.97139048576355],"tokens":["token_id:30"],"top_logprobs":[{"token_id:30":-3.97139048576355}]},"finish_reason":null,"stop_reason":null,"prompt_token_ids":[3,20,21,4],"token_ids":[30]}]}`
	eventLast        = `{"request_id":"r","usage":null,"output_mode":"tokens","choices":[{"index":0,"finish_reason":"abort","stop_reason":null,"token_ids":[],"weight_versions":[{"version":"v0","start":0,"end":22},{"version":"v1","start":22,"end":25}],"logprobs":{"content":[]}}]}`
)

func TestCommonEventsAreScanned(t *testing.T) {
	for _, data := range []string{eventTokens, eventText, eventCompletions} {
		var e event
		if !e.scan([]byte(data)) {
			t.Errorf("left to encoding/json: %s", data)
		}
	}
}

func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       upstream.Delta
	}{
		{"tokens", eventTokens, upstream.Delta{Tokens: []int32{30}, Logprobs: []float32{-3.97139048576355}}},
		{"text", eventText, upstream.Delta{Tokens: []int32{30}, Logprobs: []float32{-3.97139048576355}, Text: "h"}},
		{"completions", eventCompletions, upstream.Delta{Tokens: []int32{30}, Logprobs: []float32{-3.97139048576355}, Text: "h"}},
		{"spans after an abort", eventLast, upstream.Delta{Finish: upstream.FinishAbort, Spans: []upstream.Span{{Label: "v0", End: 22}, {Label: "v1", Start: 22, End: 25}}}},
		{"ids in tokens of older builds", `{"choices":[{"index":0,"token_ids":null,"finish_reason":"stop","logprobs":{"content":[{"token":"token_id:7","logprob":-1},{"token":"token_id:9","logprob":-9999.0}]}}]}`,
			upstream.Delta{Tokens: []int32{7, 9}, Logprobs: []float32{-1, missing}, Finish: upstream.FinishStop}},
		{"ids beside a completion", `{"choices":[{"text":"ab","finish_reason":"length","logprobs":{"token_logprobs":[-1,null],"tokens":["token_id:7","token_id:9"]}}]}`,
			upstream.Delta{Tokens: []int32{7, 9}, Logprobs: []float32{-1, missing}, Text: "ab", Finish: upstream.FinishLength}},
		{"no log-probs at all", `{"choices":[{"token_ids":[7,8],"logprobs":null,"finish_reason":null}]}`,
			upstream.Delta{Tokens: []int32{7, 8}, Logprobs: []float32{missing, missing}}},
		{"a log-prob that is left out", `{"choices":[{"token_ids":[7],"logprobs":{"content":[{"token_id":7}]}}]}`,
			upstream.Delta{Tokens: []int32{7}, Logprobs: []float32{missing}}},
		{"escapes", `{"choices":[{"token_ids":[7],"text":"\"\n\u00e9 \ud83d\ude00","logprobs":{"content":[{"token_id":7,"logprob":0}]}}]}`,
			upstream.Delta{Tokens: []int32{7}, Logprobs: []float32{0}, Text: "\"\né 😀"}},
		{"usage alone", `{"choices":[],"usage":{"prompt_tokens":3}}`, upstream.Delta{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got upstream.Delta
			if err := (&decoder{path: pathGenerate}).Event([]byte(test.data), &got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens, test.want.Tokens) || !slices.Equal(got.Logprobs, test.want.Logprobs) ||
				got.Text != test.want.Text || got.Finish != test.want.Finish || !slices.Equal(got.Spans, test.want.Spans) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	for name, data := range map[string]string{
		"another token's log-prob": `{"choices":[{"token_ids":[7],"logprobs":{"content":[{"token_id":8,"logprob":-1}]}}]}`,
		"more log-probs":           `{"choices":[{"token_ids":[7],"logprobs":{"token_logprobs":[-1,-2],"tokens":["a","b"]}}]}`,
		"an unknown end":           `{"choices":[{"token_ids":[7],"finish_reason":"tired"}]}`,
		"an id that is none":       `{"choices":[{"token_ids":[7.5]}]}`,
		"half an event":            `{"choices":[{"token_ids":[7`,
		"two events":               eventTokens + eventTokens,
	} {
		var into upstream.Delta
		err := (&decoder{path: pathGenerate}).Event([]byte(data), &into)
		if err == nil || len(into.Tokens) != 0 {
			t.Errorf("%s: %v, %d tokens; want an error and none", name, err, len(into.Tokens))
		}
	}
}

func TestErrorsInsideTheStream(t *testing.T) {
	for data, want := range map[string]int{
		`{"error": {"message": "Token id 99 is out of vocabulary", "type": "BadRequestError", "param": null, "code": 400}}`: 400,
		`{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}`:            500,
		`{"error": {"message": "Overloaded"}}`: 500,
	} {
		var into upstream.Delta
		err := (&decoder{path: pathGenerate}).Event([]byte(data), &into)
		if upstream.StatusOf(err) != want {
			t.Errorf("%s: %v, want status %d", data, err, want)
		}
	}
	long := `{"error": {"message": "` + strings.Repeat("x", 1<<20) + `", "code": 400}}`
	if err := (&decoder{}).Event([]byte(long), &upstream.Delta{}); err == nil || len(err.Error()) > 2<<10 {
		t.Error("the words of an error are not cut")
	}
}

// same compares what scanner and encoding/json read; a NaN never comes from JSON.
func same(a, b *event) bool {
	return slices.Equal(a.tokens, b.tokens) && slices.EqualFunc(a.logprobs, b.logprobs, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) &&
		slices.Equal(a.named, b.named) && string(a.text) == string(b.text) && string(a.finish) == string(b.finish) && slices.Equal(a.spans, b.spans)
}

func FuzzScanAgreesWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{eventTokens, eventText, eventCompletions, eventLast,
		`{"choices":[{"token_ids":[1,2],"token_ids":[3]}]}`, `{"Choices":[{"token_ids":[1]}],"choices":[]}`,
		`{"choices":[{"logprobs":{"tokens":["token_id:1"],"content":[{"token":"token_id:2","logprob":1e-3}]}}]}`,
		`{"choices":[{"text":"\u0041\ud83d\n","finish_reason":null}],"x":{"a\n":[1.5e+3,true,{}]}}`,
		`{"choices":[{"text":"` + "\xff" + `"}]}`, `{"choices":null,"usage":{"a":-0.0}} `, `{"choices":[{"token_ids":[01]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var scanned, parsed event
		if !scanned.scan(data) {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("scanned what is not JSON: %q", data)
		}
		if err := parsed.parse(data); err != nil {
			t.Fatalf("scanned what encoding/json refuses: %v: %q", err, data)
		}
		if parsed.refused != nil || !same(&scanned, &parsed) {
			t.Fatalf("scanned %+v, encoding/json reads %+v: %q", scanned, parsed, data)
		}
	})
}

func BenchmarkEvent(b *testing.B) {
	for name, data := range map[string]string{"tokens": eventTokens, "text": eventText, "completions": eventCompletions} {
		b.Run(name, func(b *testing.B) {
			d, event := &decoder{path: pathGenerate}, []byte(data)
			var into upstream.Delta
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				into.Tokens, into.Logprobs, into.Text = into.Tokens[:0], into.Logprobs[:0], ""
				if err := d.Event(event, &into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("encoding-json", func(b *testing.B) {
		var e event
		data := []byte(eventText)
		b.ReportAllocs()
		for b.Loop() {
			if err := e.parse(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
