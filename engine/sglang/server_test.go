package sglang

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// precision is how far log-probs of the same weights may be apart in float32.
const precision = 2e-4

// server returns the server that the environment names, what it can, and the two directories of
// weights of which it serves the first; a test that changes them puts the first back.
func server(t *testing.T) (*upstream.Server, *upstream.Capabilities, [2]string) {
	t.Helper()
	address := os.Getenv("HEADWAY_TEST_SGLANG")
	if address == "" {
		t.Skip("HEADWAY_TEST_SGLANG is not set: the address of a server that speaks SGLang, such as examples/hf_shim with --log-steps")
	}
	s, caps := probed(t, address)
	first, second, _ := strings.Cut(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
	return s, caps, [2]string{first, second}
}

// probed returns a server at an address and what it can.
func probed(t *testing.T, address string) (*upstream.Server, *upstream.Capabilities) {
	t.Helper()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	caps, err := New().Probe(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	return s, &caps
}

// limited bounds what hangs.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// running is a response under way.
type running struct {
	request upstream.Request
	events  *upstream.EventReader
	decoder upstream.Decoder
	delta   upstream.Delta
	body    io.Closer
}

// open begins a response.
func open(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request) *running {
	t.Helper()
	call, err := New().Generate(r, caps)
	if err != nil {
		t.Fatal(err)
	}
	body, err := s.Open(limited(t), http.MethodPost, call)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = body.Close() })
	return &running{r, upstream.NewEventReader(body, &r), New().Decoder(r, caps), upstream.Delta{}, body}
}

// until reads on until there are that many tokens, or to the end mark.
func (r *running) until(t *testing.T, tokens int) {
	t.Helper()
	for len(r.delta.Tokens) < tokens {
		data, err := r.events.Next()
		if err != nil {
			t.Fatalf("after %d tokens: %v", len(r.delta.Tokens), err)
		}
		if string(data) == "[DONE]" {
			return
		}
		if err := r.decoder.Event(data, &r.delta); err != nil {
			t.Fatalf("after %d tokens: %v", len(r.delta.Tokens), err)
		}
	}
}

const all = math.MaxInt

// nonce makes the ids of one run of the tests differ from those that the server's log has of another.
var nonce = time.Now().UnixNano()

// request is one of a test's own, with a random prompt.
func request(id string, tokens int, seed uint64) upstream.Request {
	random := rand.New(rand.NewPCG(seed, 1))
	prompt := make([]int32, 4+random.IntN(20))
	for i := range prompt {
		prompt[i] = 6 + random.Int32N(50)
	}
	return upstream.Request{ID: fmt.Sprintf("%x-%s|", nonce, id), Session: "session", Prompt: prompt, MaxTokens: tokens, Sampling: port.Sampling{Temperature: 1}}
}

// long begins a response that has at least that many tokens, as some end by themselves.
func long(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, id string, tokens int) *running {
	t.Helper()
	for seed := range uint64(200) {
		r := open(t, s, caps, request(id+strings.Repeat("-", int(seed)), 180, seed))
		r.until(t, tokens)
		if r.delta.Finish == "" {
			return r
		}
	}
	t.Fatalf("200 responses, and none of them has %d tokens", tokens)
	return nil
}

// farthest is the largest distance of log-probs.
func farthest(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}

// scores are the log-probs of a response's tokens by the server's present weights.
func (r *running) scores(t *testing.T, s *upstream.Server, caps *upstream.Capabilities) []float32 {
	t.Helper()
	scores, err := New().Score(limited(t), s, slices.Concat(r.request.Prompt, r.delta.Tokens), caps)
	if err != nil {
		t.Fatal(err)
	}
	return scores[len(r.request.Prompt)-1:]
}

func TestSampling(t *testing.T) {
	s, caps, _ := server(t)
	for seed := range uint64(12) {
		r := open(t, s, caps, request("sampling", 40, seed))
		r.until(t, all)
		if len(r.delta.Tokens) != len(r.delta.Logprobs) || r.delta.Finish == "" || len(r.delta.Tokens) == 40 != (r.delta.Finish == upstream.FinishLength) {
			t.Fatalf("%d tokens, %d log-probs, ended by %q", len(r.delta.Tokens), len(r.delta.Logprobs), r.delta.Finish)
		}
		if far := farthest(r.scores(t, s, caps), r.delta.Logprobs); far > precision {
			t.Errorf("sampled and scored log-probs differ by %g", far)
		}
		text, err := New().Decode(limited(t), s, r.delta.Tokens, caps)
		if err != nil || text != r.delta.Text {
			t.Errorf("the text is %q, its tokens read %q: %v", r.delta.Text, text, err)
		}
	}
	version, err := New().Version(limited(t), s, caps)
	if err != nil || version == "" {
		t.Errorf("it serves %q: %v", version, err)
	}
}

// weights makes a paused server serve other weights.
func weights(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, u upstream.Update) {
	t.Helper()
	if err := New().Pause(limited(t), s, u, caps); err != nil {
		t.Fatal(err)
	}
	err := New().Update(limited(t), s, u, caps)
	if err := New().Resume(limited(t), s, caps); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if version, err := New().Version(limited(t), s, caps); err != nil || version != u.Label {
		t.Fatalf("after the update to %s it says %q: %v", u.Label, version, err)
	}
}

// TestSwitch changes the weights under responses, with their keys and values kept or computed anew.
func TestSwitch(t *testing.T) {
	s, caps, dirs := server(t)
	if dirs[1] == "" {
		t.Skip("HEADWAY_TEST_WEIGHTS does not name two directories, DIR:DIR")
	}
	defer weights(t, s, caps, upstream.Update{Label: "first", Dir: dirs[0], Cache: upstream.CacheFlush})
	for _, cache := range []string{upstream.CacheFlush, upstream.CacheSalt} {
		t.Run(cache, func(t *testing.T) {
			weights(t, s, caps, upstream.Update{Label: "old", Dir: dirs[0], Cache: upstream.CacheFlush})
			var responses []*running
			for _, id := range []string{"a", "b", "c", "d"} {
				responses = append(responses, long(t, s, caps, cache+"-"+id, 12))
			}
			weights(t, s, caps, upstream.Update{Label: "new", Dir: dirs[1], Cache: cache})
			after := 0
			for _, r := range responses {
				r.until(t, all)
			}
			by := [2][][]float32{transformers(t, dirs[0], responses), transformers(t, dirs[1], responses)}
			for i, r := range responses {
				after += checkSwitched(t, s, caps, r, cache)
				if by[0] != nil {
					checkTransformers(t, s, caps, r, by[0][i], by[1][i])
				}
			}
			if after == 0 {
				t.Error("no token was sampled by the new weights: nothing was switched in the middle")
			}
		})
	}
}

// checkSwitched checks a response that began under the old weights, and returns how many tokens the
// new ones made.
func checkSwitched(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r *running, cache string) int {
	t.Helper()
	n, spans := len(r.delta.Tokens), r.delta.Spans
	if len(spans) == 0 || spans[0].Label != "old" || spans[0].Start != 0 || spans[len(spans)-1].End != n || len(spans) > 2 || len(spans) == 2 && (spans[1].Label != "new" || spans[1].Start != spans[0].End) {
		t.Fatalf("%d tokens with spans %+v", n, spans)
	}
	cut := spans[0].End
	if logged := steps(t, s, r.request.ID); logged != nil {
		want := append(slices.Repeat([]string{"old"}, cut), slices.Repeat([]string{"new"}, n-cut)...)
		if !slices.Equal(logged, want) {
			t.Errorf("spans %+v, and the server's own log of steps says %v", spans, logged)
		}
	}
	if cut == n {
		return 0
	}
	now := r.scores(t, s, caps)
	far := farthest(now[cut:], r.delta.Logprobs[cut:])
	if flushed := cache == upstream.CacheFlush; flushed && far > precision {
		t.Errorf("after the switch the log-probs differ from the new weights' by %g", far)
	}
	if far := farthest(now[:cut], r.delta.Logprobs); far < 100*precision {
		t.Errorf("the new weights score what the old ones sampled as those did, to %g", far)
	}
	return n - cut
}

// checkTransformers compares with what transformers says of a response by the old and the new weights.
func checkTransformers(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r *running, before, after []float32) {
	t.Helper()
	if far := farthest(after, r.scores(t, s, caps)); far > precision {
		t.Errorf("the new weights' scores differ from transformers' by %g", far)
	}
	cut := r.delta.Spans[0].End
	if far := farthest(before[:cut], r.delta.Logprobs); far > precision {
		t.Errorf("before the switch the log-probs differ from transformers' by %g", far)
	}
}

// steps is the server's own log of which weights made each token, nil where it keeps none.
func steps(t *testing.T, s *upstream.Server, id string) []string {
	t.Helper()
	var log struct {
		Versions []string `json:"versions"`
	}
	err := s.Call(limited(t), http.MethodGet, "/steps?rid="+url.QueryEscape(id), nil, &log)
	if upstream.StatusOf(err)/100 == 4 {
		t.Logf("no log of steps: %v", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return log.Versions
}

// transformers are the log-probs of responses by transformers, nil where there is no Python for it.
func transformers(t *testing.T, dir string, responses []*running) [][]float32 {
	t.Helper()
	python := os.Getenv("HEADWAY_TEST_PYTHON")
	if python == "" {
		t.Log("HEADWAY_TEST_PYTHON is not set: a Python with transformers, to compare with")
		return nil
	}
	const program = `
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
for text in sys.stdin:
    tokens = torch.tensor(json.loads(text))
    with torch.inference_mode():
        scores = torch.log_softmax(model(tokens[None]).logits[0, :-1], dim=-1)
    print(json.dumps(scores.gather(-1, tokens[1:, None])[:, 0].tolist()))
`
	var asked, problems bytes.Buffer
	for _, r := range responses {
		if err := json.NewEncoder(&asked).Encode(slices.Concat(r.request.Prompt, r.delta.Tokens)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(limited(t), python, "-c", program, dir)
	command.Stdin, command.Stderr = &asked, &problems
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	all, answers := make([][]float32, len(responses)), json.NewDecoder(bytes.NewReader(text))
	for i, r := range responses {
		if err := answers.Decode(&all[i]); err != nil {
			t.Fatal(err)
		}
		all[i] = all[i][len(r.request.Prompt)-1:]
	}
	return all
}

// TestAbort: an abort takes what begins with its rid, which a terminator makes one request.
func TestAbort(t *testing.T) {
	s, caps, _ := server(t)
	one, ten := long(t, s, caps, "abort1", 3), long(t, s, caps, "abort10", 3)
	if err := New().Abort(limited(t), s, one.request.ID, caps); err != nil {
		t.Fatal(err)
	}
	one.until(t, all)
	if one.delta.Finish != upstream.FinishAbort || len(one.delta.Tokens) < 3 || len(one.delta.Tokens) != len(one.delta.Logprobs) {
		t.Errorf("the aborted response ends by %q with %d tokens, %d log-probs", one.delta.Finish, len(one.delta.Tokens), len(one.delta.Logprobs))
	}
	if spans := one.delta.Spans; caps.VersionSpans && (len(spans) != 1 || spans[0].End != len(one.delta.Tokens)) {
		t.Errorf("the aborted response of %d tokens has the spans %+v", len(one.delta.Tokens), spans)
	}
	ten.until(t, all)
	if ten.delta.Finish == upstream.FinishAbort {
		t.Error("the abort of another took a response with it")
	}
	if err := New().Abort(limited(t), s, "", caps); err == nil {
		t.Error("an abort without a rid is no error")
	}
}

// TestFailedUpdate: what cannot be loaded is refused, and what is under way goes on with the old weights.
func TestFailedUpdate(t *testing.T) {
	s, caps, _ := server(t)
	if !caps.UpdateDisk {
		t.Skip("it takes no weights from a directory")
	}
	before, err := New().Version(limited(t), s, caps)
	if err != nil {
		t.Fatal(err)
	}
	r := long(t, s, caps, "failed", 3)
	u := upstream.Update{Label: "nothing", Dir: t.TempDir(), Cache: upstream.CacheSalt}
	if err := New().Pause(limited(t), s, u, caps); err != nil {
		t.Fatal(err)
	}
	err = New().Update(limited(t), s, u, caps)
	if err := New().Resume(limited(t), s, caps); err != nil {
		t.Fatal(err)
	}
	if upstream.StatusOf(err) != http.StatusBadRequest || !strings.Contains(err.Error(), u.Dir) {
		t.Errorf("from an empty directory: %v", err)
	}
	r.until(t, all)
	if after, err := New().Version(limited(t), s, caps); err != nil || after != before {
		t.Errorf("after a failed update it serves %q, before %q: %v", after, before, err)
	}
	if far := farthest(r.scores(t, s, caps), r.delta.Logprobs); far > precision {
		t.Errorf("across a failed update sampled and scored log-probs differ by %g", far)
	}
}

// TestTraps are the server's habits that the dialect goes round.
func TestTraps(t *testing.T) {
	s, caps, _ := server(t)
	post := func(path string, body any) error { return s.Call(limited(t), http.MethodPost, path, body, nil) }
	t.Run("a cache is not flushed while requests stand in place", func(t *testing.T) {
		r := long(t, s, caps, "flush", 3)
		if err := New().Pause(limited(t), s, upstream.Update{Cache: upstream.CacheSalt}, caps); err != nil {
			t.Fatal(err)
		}
		err := post("/flush_cache", nil)
		if err := New().Resume(limited(t), s, caps); err != nil {
			t.Fatal(err)
		}
		if upstream.StatusOf(err) != http.StatusBadRequest {
			t.Errorf("flushing while paused in place: %v", err)
		}
		r.until(t, all)
		if r.delta.Finish == upstream.FinishAbort {
			t.Error("the response was aborted")
		}
	})
	t.Run("naming the weights aborts everything, unless told not to", func(t *testing.T) {
		version, err := New().Version(limited(t), s, caps)
		if err != nil {
			t.Fatal(err)
		}
		for _, abort := range []bool{false, true} {
			r := long(t, s, caps, "named", 3)
			body := map[string]any{"new_version": version}
			if !abort {
				body["abort_all_requests"] = false
			}
			if err := post("/update_weight_version", body); err != nil {
				t.Fatal(err)
			}
			r.until(t, all)
			if (r.delta.Finish == upstream.FinishAbort) != abort {
				t.Errorf("abort_all_requests %t: it ends by %q", abort, r.delta.Finish)
			}
		}
	})
}

func TestChats(t *testing.T) {
	s, caps, _ := server(t)
	if !caps.Template {
		t.Skip("it renders no chats")
	}
	messages := []byte(`[{"role":"user","content":"hello, 12"},{"role":"assistant","content":"yes"}]`)
	whole, err := New().Render(limited(t), s, messages, nil, true, caps)
	if err != nil {
		t.Fatal(err)
	}
	without, err := New().Render(limited(t), s, messages, nil, false, caps)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) <= len(without) || !slices.Equal(whole[:len(without)], without) {
		t.Errorf("with the next message's beginning %v, without %v", whole, without)
	}
	text := "hello, 12"
	tokens, err := New().Encode(limited(t), s, text, caps)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := New().Decode(limited(t), s, tokens, caps); err != nil || back != text {
		t.Errorf("%q became %q: %v", text, back, err)
	}
	if _, err := New().Render(limited(t), s, []byte(`"no"`), nil, true, caps); upstream.StatusOf(err)/100 != 4 {
		t.Errorf("messages that are none: %v", err)
	}
}

// TestRefusals: what cannot be answered is an error that says so, before the stream or inside it.
func TestRefusals(t *testing.T) {
	s, caps, _ := server(t)
	for name, prompt := range map[string][]int32{"over the context": make([]int32, caps.Context+1), "outside the vocabulary": {3, int32(caps.Vocabulary)}} {
		r := request("refused", 4, 1)
		r.Prompt = prompt
		call, err := New().Generate(r, caps)
		if err != nil {
			t.Fatal(err)
		}
		body, err := s.Open(limited(t), http.MethodPost, call)
		if upstream.StatusOf(err) == http.StatusBadRequest {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := upstream.NewEventReader(body, &r).Next()
		if err == nil {
			err = New().Decoder(r, caps).Event(data, &upstream.Delta{})
		}
		if !errors.Is(err, upstream.ErrRefused) {
			t.Errorf("a prompt %s: %v", name, err)
		}
		_ = body.Close()
	}
}
