package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/enginetest"
)

// routingFile is a conversation with a server that returns routed experts; the ids of its requests name what they show.
const routingFile = "routing.txt"

// What the requests of the recording have in common: two and a half blocks of 32 tokens as a prompt, which the caches
// of differently salted requests do not share.
var routingPrompt = func() []int32 {
	prompt := make([]int32, 80)
	for i := range prompt {
		prompt[i] = 8 + int32(i*i+3*i)%48
	}
	return prompt
}()

// routingScene is the server that is recorded, and how far it has come.
type routingScene struct {
	t        *testing.T
	direct   string // past the recorder
	recorded string
	weights  [2]string
}

// TestRecordRouting records testdata/routing.txt with the server that the environment names: vLLM 0.30.0 for CPU,
// started with --enable-return-routed-experts --block-size 32 --enable-scale-out and a mixture of experts.
func TestRecordRouting(t *testing.T) {
	address := os.Getenv("HEADWAY_TEST_VLLM_ROUTING")
	if address == "" || os.Getenv("HEADWAY_RECORD") != routingFile {
		t.Skip("HEADWAY_RECORD is not " + routingFile + ": to record it anew with the server of HEADWAY_TEST_VLLM_ROUTING")
	}
	recorder := enginetest.NewRecorder(address, nil)
	defer recorder.Close()
	first, second, _ := strings.Cut(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
	s := &routingScene{t, address, recorder.URL(), [2]string{first, second}}
	s.load(first)
	s.call("/reset_prefix_cache", nil)
	s.record()
	recorder.Settle()
	transcript := recorder.Transcript("vLLM 0.30.0 on a CPU, started with --enable-return-routed-experts --block-size 32 --enable-scale-out",
		"the model has 4 layers of which the first is dense, 8 experts and 2 for each token; the id of a request names what it shows")
	transcript.Scrub(map[string]string{first: "first", second: "second"})
	if err := transcript.Save(filepath.Join("testdata", routingFile)); err != nil {
		t.Fatal(err)
	}
}

// record says everything in its order.
func (s *routingScene) record() {
	wait := func(answer <-chan struct{}) { <-answer }
	wait(s.generate("whole", "a", 12, nil))
	wait(s.generate("cached", "a", 12, nil))
	wait(s.generate("streamed", "a", 12, map[string]any{"stream": true}))
	wait(s.generate("start", "a", 12, sampling("routed_experts_prompt_start", 60)))
	wait(s.generate("start-at-the-end", "a", 1, sampling("routed_experts_prompt_start", len(routingPrompt))))
	wait(s.generate("start-beyond", "a", 12, sampling("routed_experts_prompt_start", len(routingPrompt)+1)))
	wait(s.generate("stop", "a", 60, sampling("stop", []string{"0", "1", "2", "3", "4", "a", "b", "c", "d", "e"})))

	for _, stream := range []bool{false, true} {
		answer := s.generate("aborted-"+map[bool]string{false: "whole", true: "streamed"}[stream], "a", 150, map[string]any{"stream": stream})
		s.frozenAfter(10)
		s.abort("aborted-" + map[bool]string{false: "whole", true: "streamed"}[stream])
		wait(answer)
		s.call("/resume", nil)
	}
	s.call("/pause?mode=keep&clear_cache=false", nil)
	answer := s.generate("aborted-early", "a", 12, nil)
	for ended := false; !ended; { // until it has come so far that there is something to abort
		s.abort("aborted-early")
		select {
		case <-answer:
			ended = true
		default:
		}
	}
	s.call("/resume", nil)

	// Of one answer under two weights, the same answer under the first alone.
	wait(s.generate("unswitched", "b", 90, nil))
	s.call("/reset_prefix_cache", nil)
	answer = s.generate("switched", "b", 90, nil)
	s.frozenAfter(10)
	s.load(s.weights[1])
	s.call("/resume", nil)
	wait(answer)

	// The cache has the prompt's blocks as the first weights made them.
	wait(s.generate("stale", "b", 12, nil))
	s.call("/reset_prefix_cache", nil)
	wait(s.generate("fresh", "b", 12, nil))
	s.load(s.weights[0])
	s.call("/reset_prefix_cache", nil)
}

// sampling is a change of the parameters of sampling.
func sampling(name string, value any) map[string]any {
	return map[string]any{"sampling_params": map[string]any{name: value}}
}

// generate asks for tokens, and closes the channel when the answer has ended.
func (s *routingScene) generate(id, salt string, tokens int, change map[string]any) <-chan struct{} {
	s.t.Helper()
	params := map[string]any{"n": 1, "max_tokens": tokens, "temperature": 1, "seed": 5, "logprobs": 0, "ignore_eos": true}
	body := map[string]any{"model": "policy", "request_id": id, "token_ids": routingPrompt, "cache_salt": salt, "sampling_params": params}
	for name, value := range change {
		if more, ok := value.(map[string]any); ok {
			for name, value := range more {
				params[name] = value
			}
			continue
		}
		body[name] = value
	}
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := http.Post(s.recorded+pathGenerate, "application/json", bytes.NewReader(text))
		if err != nil {
			s.t.Errorf("%s: %v", id, err)
			return
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
	}()
	return done
}

// load replaces the weights in place and keeps the cache.
func (s *routingScene) load(dir string) {
	s.call("/collective_rpc", map[string]any{"method": "reload_weights", "kwargs": map[string]string{"weights_path": dir}})
	s.call("/update_weight_version", map[string]string{"new_version": filepath.Base(dir)})
}

func (s *routingScene) abort(id string) {
	s.call("/abort_requests", map[string]any{"request_ids": []string{prefixGenerate + id}})
}

// call is a recorded call that succeeds.
func (s *routingScene) call(path string, body any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	if body == nil {
		text = nil
	}
	res, err := http.Post(s.recorded+path, "application/json", bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if said, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s: %s", path, res.Status, said)
	}
}

// frozenAfter pauses the server once it has sampled so many more tokens.
func (s *routingScene) frozenAfter(tokens float64) {
	s.t.Helper()
	s.await("vllm:num_requests_running", 1)
	s.await("vllm:generation_tokens_total", s.metric("vllm:generation_tokens_total")+tokens)
	s.call("/pause?mode=keep&clear_cache=false", nil)
}

// await polls a metric, past the recorder, until it is so large.
func (s *routingScene) await(name string, least float64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for s.metric(name) < least {
		if ctx.Err() != nil {
			s.t.Fatalf("%s stays below %v", name, least)
		}
	}
}

func (s *routingScene) metric(name string) float64 {
	s.t.Helper()
	res, err := http.Get(s.direct + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				s.t.Fatal(fmt.Errorf("%s: %w", line, err))
			}
			return value
		}
	}
	s.t.Fatalf("no metric %s", name)
	return 0
}
