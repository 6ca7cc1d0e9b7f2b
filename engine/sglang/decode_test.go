package sglang

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// event writes an event as SGLang does: ids, log-probs of which the list is, and how many there are in all.
func event(text, ids, logprobs, finish string, sampled int, more string) string {
	return fmt.Sprintf(`{"text":%s,"output_ids":[%s],"meta_info":{"id":"r|","finish_reason":%s,"prompt_tokens":3,"weight_version":"v1","num_retractions":0,"input_token_logprobs":[],"output_token_logprobs":[%s],"output_token_logprobs_length":9,"reasoning_tokens":0,"completion_tokens":%d,"cached_tokens":0%s}}`,
		text, ids, finish, logprobs, sampled, more)
}

const (
	stopReason   = `{"type":"stop","matched":4}`
	lengthReason = `{"type":"length","length":3}`
	abortReason  = `{"type":"abort","message":"Abort in waiting queue","status_code":null,"err_type":null}`
)

func TestStreams(t *testing.T) {
	spans := `,"weight_versions":[{"version":"v1","start":0,"end":2},{"version":"v2","start":2,"end":3}],"e2e_latency":0.1`
	want := upstream.Delta{Tokens: []int32{7, 8, 9}, Logprobs: []float32{-0.5, -1, -1.25}, Text: "a\"éc", Finish: upstream.FinishLength,
		Spans: []upstream.Span{{Label: "v1", Start: 0, End: 2}, {Label: "v2", Start: 2, End: 3}}}
	aborted := want
	aborted.Finish = upstream.FinishAbort
	stopped := upstream.Delta{Tokens: []int32{7, 8, 9}, Logprobs: []float32{-0.5, -1, -1.25}, Text: "a st", Finish: upstream.FinishStop}
	for _, test := range []struct {
		name   string
		events []string
		want   upstream.Delta
	}{
		{"cumulative", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, ""),
			event(`"a\"\u00e9"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, ""),
			event(`"a\"éc"`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", lengthReason, 3, spans),
		}, want},
		{"incremental", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, ""),
			event(`"\"\u00e9"`, "8", "[-1,8,null]", "null", 2, ""),
			event(`"c"`, "9", "[-1.25,9,null]", lengthReason, 3, spans),
		}, want},
		{"incremental, aborted in the queue: all log-probs and the last id", []string{
			event(`"a"`, "7", "[-0.5,7,null]", "null", 1, ""),
			event(`"\"é"`, "8", "[-1,8,null]", "null", 2, ""),
			event(`"a\"éc"`, "9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", abortReason, 3, spans),
		}, aborted},
		{"incremental, several tokens in an event and an end without any", []string{
			event(`"a\"é"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, ""),
			event(`"c"`, "9", "[-1.25,9,\"c\"]", "null", 3, ""),
			event(`""`, "", "", lengthReason, 3, spans),
		}, want},
		{"cumulative, the stop string taken back", []string{
			event(`"a st"`, "7,8", "[-0.5,7,null],[-1,8,null]", "null", 2, ""),
			event(`"a "`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", `{"type":"stop","matched":"stop"}`, 3, ""),
		}, stopped},
		{"one event", []string{event(`"a st"`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", stopReason, 3, "")}, stopped},
		{"the reason as a word", []string{event(`"a st"`, "7,8,9", "[-0.5,7,null],[-1,8,null],[-1.25,9,null]", `"stop"`, 3, "")}, stopped},
		{"aborted before the first token", []string{
			`{"text":"","output_ids":[],"meta_info":{"id":"r|","finish_reason":` + abortReason + `,"weight_version":"v1","weight_versions":[{"version":"v1","start":0,"end":0}],"e2e_latency":0.1}}`,
		}, upstream.Delta{Finish: upstream.FinishAbort}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := New().Decoder(upstream.Request{}, nil)
			var got upstream.Delta
			for _, e := range test.events {
				if err := d.Event([]byte(e), &got); err != nil {
					t.Fatalf("%s: %v", e, err)
				}
			}
			if !equal(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// equal compares deltas; log-probs that are missing are alike.
func equal(a, b upstream.Delta) bool {
	same := func(p, q float32) bool { return p == q || math.IsNaN(float64(p)) && math.IsNaN(float64(q)) }
	return slices.Equal(a.Tokens, b.Tokens) && slices.EqualFunc(a.Logprobs, b.Logprobs, same) &&
		a.Text == b.Text && a.Finish == b.Finish && slices.Equal(a.Spans, b.Spans)
}

func TestRefusedEvents(t *testing.T) {
	first := event(`"a"`, "7", "[-0.5,7,null]", "null", 1, "")
	for _, test := range []struct {
		name, event string
		is          error
		says        string
	}{
		{"no JSON", `{"text":`, nil, "not understood"},
		{"no meta_info", `{"text":"a"}`, nil, "without meta_info"},
		{"an error inside", `{"error":{"message":"out of memory","code":500}}`, nil, "out of memory"},
		{"a refusal inside", `{"error":{"message":"the prompt is too long","code":400}}`, upstream.ErrRefused, "too long"},
		{"a refusal as an abort", event(`""`, "", "", `{"type":"abort","message":"bad grammar","status_code":400}`, 1, ""), upstream.ErrRefused, "bad grammar"},
		{"a lost token", event(`"c"`, "9", "[-1,9,null]", "null", 3, ""), upstream.ErrLied, "after 1 tokens an event with 1"},
		{"fewer tokens than before", event(`""`, "", "", "null", 0, ""), upstream.ErrLied, "there are 0"},
		{"no log-probs", `{"text":"b","output_ids":[7,8],"meta_info":{"finish_reason":null,"completion_tokens":2}}`, upstream.ErrLied, "without output_token_logprobs"},
		{"no id", event(`"b"`, "8", "[-1,null,null]", "null", 2, ""), upstream.ErrLied, "without an id"},
		{"half an entry", event(`"b"`, "8", "[-1]", "null", 2, ""), nil, "1 parts"},
		{"an id that is none", event(`"b"`, "8", "[-1,99999999999,null]", "null", 2, ""), nil, "output_token_logprobs"},
		{"an unknown end", event(`"b"`, "8", "[-1,8,null]", `{"type":"weary"}`, 2, ""), upstream.ErrLied, "weary"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, got := &decoder{}, upstream.Delta{}
			if err := d.Event([]byte(first), &got); err != nil {
				t.Fatal(err)
			}
			before := *d
			err := d.Event([]byte(test.event), &got)
			if err == nil || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v that says %q", err, test.is, test.says)
			}
			if len(got.Tokens) != 1 || d.tokens != before.tokens {
				t.Errorf("a refused event has left %v", got)
			}
		})
	}
}

// A server whose queue is full says so inside a stream, and asks to be left alone for a while. What it breaks off after
// tokens goes on at once.
func TestAFullQueueIsNoAbort(t *testing.T) {
	const full = `{"type":"abort","message":"The request queue is full.","status_code":503,"err_type":null}`
	d, got := New().Decoder(upstream.Request{}, nil), upstream.Delta{}
	err := d.Event([]byte(event(`""`, "", "", full, 0, "")), &got)
	said, ok := errors.AsType[*upstream.StatusError](err)
	if !ok || said.Status != http.StatusServiceUnavailable || said.After <= 0 || !strings.Contains(err.Error(), "queue is full") || got.Finish != "" {
		t.Errorf("before the first token: %v, %+v", err, got)
	}
	for _, e := range []string{event(`"a"`, "7", "[-0.5,7,null]", "null", 1, ""), event(`"a"`, "7", "[-0.5,7,null]", full, 1, "")} {
		if err := d.Event([]byte(e), &got); err != nil {
			t.Fatal(err)
		}
	}
	if len(got.Tokens) != 1 || got.Finish != upstream.FinishAbort {
		t.Errorf("after a token: %+v", got)
	}
}

// An engine's words end in logs: no error has more than their beginning.
func TestWordsAreCut(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, data := range map[string]string{
		"a refusal as an abort": event(`""`, "", "", `{"type":"abort","message":"`+long+`","status_code":400}`, 1, ""),
		"an unknown end":        event(`""`, "", "", `{"type":"`+long+`"}`, 1, ""),
		"a refusal inside":      `{"error":{"message":"` + long + `","code":400}}`,
		"an error inside":       `{"error":{"message":"` + long + `","code":500}}`,
		"words of an error":     `{"error":"` + long + `"}`,
	} {
		if err := (&decoder{}).Event([]byte(data), &upstream.Delta{}); err == nil || len(err.Error()) > 2<<10 {
			t.Errorf("%s: an error of %d bytes", name, len(fmt.Sprint(err)))
		}
	}
}

// A log-prob that is missing must not look like one.
func TestMissingLogprob(t *testing.T) {
	for _, finish := range []string{"null", lengthReason} {
		var got upstream.Delta
		if err := (&decoder{}).Event([]byte(event(`"a"`, "7", "[null,7,null]", finish, 1, "")), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Logprobs) != 1 || !math.IsNaN(float64(got.Logprobs[0])) {
			t.Errorf("got %v", got.Logprobs)
		}
	}
}

// The scanner takes the usual events, so that the benchmark measures what is usual.
func TestUsualEventsAreScanned(t *testing.T) {
	for _, e := range []string{
		event(`"a"`, "7", "[-0.5,7,null]", "null", 1, ""),
		event(`"a\n\u00e9"`, "7", "[-0.5e-3,7,\"a\"]", "null", 1, `,"more":{"a":[true,false,null,"\\"]}`),
		strings.ReplaceAll(event(`"é"`, "7", "[-1,7,null]", "null", 1, ""), ",", " ,\n "),
	} {
		var got upstream.Delta
		if d := (&decoder{}); !d.scan([]byte(e), &got) || len(got.Tokens) != 1 {
			t.Errorf("not scanned: %s", e)
		}
	}
}

// FuzzEvent holds the scanner against encoding/json: what it takes means the same there.
func FuzzEvent(f *testing.F) {
	for _, finish := range []string{"null", stopReason} {
		f.Add([]byte(event(`"a\u00e9\ud83d\ude00\n"`, "7,8", "[-0.5,7,null],[null,8,\"x\"]", finish, 2, "")), 0, 0)
		f.Add([]byte(event(`"abc"`, "7,8", "[-0.5,7,null],[-1e-2,8,\"x\"]", finish, 2, "")), 1, 2)
		f.Add([]byte(event(`null`, "8", "[-1,8]", finish, 2, `,"completion_tokens":2`)), 1, 1)
	}
	f.Add([]byte(`{"meta_info":{"output_token_logprobs":[[1,2]],"completion_tokens":1,"finish_reason":null},"text":"\ud800"}`), 0, 0)
	f.Add([]byte(`{"Text":"a","meta_info":{"completion_tokens":0,"output_token_logprobs":[]}} `), 0, 0)
	f.Fuzz(func(t *testing.T, data []byte, tokens, text int) {
		if tokens < 0 || text < 0 {
			return
		}
		fast, slow := &decoder{tokens: tokens, text: text}, &decoder{tokens: tokens, text: text}
		var a, b upstream.Delta
		if !fast.scan(data, &a) {
			if !equal(a, upstream.Delta{}) || fast.tokens != tokens || fast.text != text {
				t.Fatalf("what is not taken has left %+v", a)
			}
			return
		}
		if err := slow.parse(data, &b); err != nil {
			t.Fatalf("the scanner takes what encoding/json refuses: %v", err)
		}
		if !equal(a, b) || fast.tokens != slow.tokens || fast.text != slow.text {
			t.Fatalf("scanned %+v (%d, %d), parsed %+v (%d, %d)", a, fast.tokens, fast.text, b, slow.tokens, slow.text)
		}
	})
}

// BenchmarkEvent reads whole streams and reports what an event costs. A cumulative event repeats
// everything before it, so its bytes grow; its allocations must not.
func BenchmarkEvent(b *testing.B) {
	for _, cumulative := range []bool{false, true} {
		for _, tokens := range []int{64, 1024} {
			mode := map[bool]string{false: "incremental", true: "cumulative"}[cumulative]
			b.Run(fmt.Sprintf("%s/%d", mode, tokens), func(b *testing.B) {
				events := stream(tokens, cumulative)
				into := upstream.Delta{Tokens: make([]int32, 0, tokens), Logprobs: make([]float32, 0, tokens)}
				d := &decoder{}
				b.ReportAllocs()
				bytes, at := 0, 0
				for b.Loop() {
					if at == len(events) {
						at, *d = 0, decoder{buffer: d.buffer}
						into = upstream.Delta{Tokens: into.Tokens[:0], Logprobs: into.Logprobs[:0]}
					}
					into.Text = "" // as a reader of events takes it
					if err := d.Event(events[at], &into); err != nil {
						b.Fatal(err)
					}
					bytes += len(events[at])
					at++
				}
				b.SetBytes(int64(bytes / b.N))
			})
		}
	}
}

// stream is a response's events but the last.
func stream(tokens int, cumulative bool) [][]byte {
	var events [][]byte
	var text, ids, logprobs string
	for i := range tokens {
		entry := fmt.Sprintf(",[-%d.%06d,%d,null]", i%7, i*7919%1000000, i*31%151936)
		if !cumulative {
			text, ids, logprobs = "", "", ""
		}
		text, ids, logprobs = text+" wo", ids+fmt.Sprintf(",%d", i*31%151936), logprobs+entry
		events = append(events, []byte(event(`"`+text+`"`, ids[1:], logprobs[1:], "null", i+1, "")))
	}
	return events
}
