package vllm

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// conversation is a recording of testdata: what a server was started with, and what Probe finds.
type conversation struct {
	file  string
	flags string
	want  func(c *upstream.Capabilities)
	lacks []string // words of what is missing
}

// Every server was started with a model of 64 tokens and a context of 256.
var conversations = []conversation{
	{"everything.txt", "VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 --enable-scale-out --enable-lora --logprobs-mode processed_logprobs",
		func(c *upstream.Capabilities) {
			c.ProcessedLogprobs, c.VersionSpans, c.Pause, c.UpdateDisk, c.UpdateLora, c.Flush = true, true, true, true, true, true
		}, nil},
	{"developer.txt", "VLLM_SERVER_DEV_MODE=1 --disable-log-stats --no-enable-prefix-caching",
		func(c *upstream.Capabilities) { c.Pause, c.UpdateDisk, c.Flush = true, true, true },
		[]string{"own distribution", "which weights sampled", "an adapter", "how busy", "computes all turns"}},
	{"plain.txt", "nothing",
		func(*upstream.Capabilities) {},
		[]string{"own distribution", "cannot be paused", "which weights sampled", "an adapter", "cannot be dropped"}},
}

// TestRecord records a conversation of testdata with the server that the environment names.
func TestRecord(t *testing.T) {
	file := os.Getenv("HEADWAY_RECORD")
	if file == "" {
		t.Skip("HEADWAY_RECORD is not set: a file of testdata to record anew with the server of HEADWAY_TEST_VLLM")
	}
	i := slices.IndexFunc(conversations, func(c conversation) bool { return c.file == file })
	if i < 0 {
		t.Fatalf("%s is none of the conversations", file)
	}
	recorder := enginetest.NewRecorder(os.Getenv("HEADWAY_TEST_VLLM"), nil)
	defer recorder.Close()
	t.Setenv("HEADWAY_TEST_VLLM", recorder.URL())
	s, caps, weights := real(t)
	short := request(12)
	short.Sampling.Stop = []string{"0", "\"\n\u00e9"}
	open(t, s, caps, short).until(t, all)
	aborted := openLong(t, s, caps, request(60))
	aborted.until(t, 5)
	if err := New().Abort(limited(t), s, aborted.id, caps); err != nil {
		t.Fatal(err)
	}
	aborted.until(t, all)
	for _, prompt := range [][]int32{make([]int32, caps.Context+1), {3, int32(caps.Vocabulary)}} {
		r := request(4)
		r.Prompt = prompt
		call, err := New().Generate(r, caps)
		if err != nil {
			t.Fatal(err)
		}
		body, err := s.Open(limited(t), http.MethodPost, call)
		if err == nil { // else it is refused at once
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
		}
	}
	_, _ = New().Version(limited(t), s, caps)
	recorder.Settle()
	transcript := recorder.Transcript(caps.Software+" on a CPU, started with "+conversations[i].flags,
		"of /openapi.json, /server_info and /metrics there stands here what is read of them")
	for i := range transcript.Exchanges {
		shorten(&transcript.Exchanges[i])
	}
	transcript.Scrub(map[string]string{weights[0]: "model", filepath.Base(weights[0]): "model"})
	if err := transcript.Save(filepath.Join("testdata", file)); err != nil {
		t.Fatal(err)
	}
}

// shorten leaves of long answers that say much of a machine what the dialect reads.
func shorten(e *enginetest.Exchange) {
	var whole []byte
	for _, p := range e.Pieces {
		whole = append(whole, p.Data...)
	}
	var short []byte
	switch path, _, _ := strings.Cut(e.Path, "?"); path {
	case "/openapi.json":
		var d struct {
			Paths map[string]struct{} `json:"paths"`
		}
		_ = json.Unmarshal(whole, &d)
		short, _ = json.Marshal(d)
	case "/server_info":
		var d struct {
			Config *config `json:"vllm_config"`
		}
		_ = json.Unmarshal(whole, &d)
		short, _ = json.Marshal(d)
	case "/metrics":
		for line := range bytes.Lines(whole) {
			if bytes.HasPrefix(line, []byte(metricRunning)) || bytes.HasPrefix(line, []byte(metricWaiting)) || bytes.HasPrefix(line, []byte(metricCache)) {
				short = append(short, line...)
			}
		}
		short = append(short, "python_info 1.0\n"...)
	default:
		return
	}
	if e.Status == 200 {
		e.Pieces = []enginetest.Piece{{Data: short}}
	}
}

func TestProbeOfRecordedServers(t *testing.T) {
	for _, c := range conversations {
		t.Run(c.file, func(t *testing.T) {
			transcript, err := enginetest.Load(filepath.Join("testdata", c.file))
			if err != nil {
				t.Fatal(err)
			}
			replay := enginetest.NewReplay(transcript)
			defer replay.Close()
			s, err := upstream.NewServer(upstream.ServerOptions{URL: replay.URL()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			caps, err := New().Probe(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			want := upstream.Capabilities{Software: "vLLM 0.32.0", Model: "policy", Vocabulary: 64, Context: 256,
				TokenIDs: true, Logprobs: true, Salt: true, Template: true, Score: true}
			c.want(&want)
			got, lacks := caps, caps.Missing
			got.Paths, got.Missing, got.Private = nil, nil, nil
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("found %s\nwant %s", a, b)
			}
			if len(lacks) != len(c.lacks) {
				t.Errorf("missing are %+v, want %q", lacks, c.lacks)
			}
			for _, word := range c.lacks {
				if !slices.ContainsFunc(lacks, func(m upstream.Missing) bool { return strings.Contains(m.What, word) && m.Flag != "" }) {
					t.Errorf("missing are %+v, want one with %q", lacks, word)
				}
			}
			if missed := replay.Missed(); len(missed) > 0 {
				t.Errorf("not recorded: %q", missed)
			}
		})
	}
}

// A response of the probe that somebody aborts tells nothing of the server: the probe fails, and is made again.
func TestProbeIsNotMisledByAnAbort(t *testing.T) {
	transcript, err := enginetest.Load(filepath.Join("testdata", "everything.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// probe has the n-th response aborted, from 1, and says how many there were.
	probe := func(aborted int) (caps upstream.Capabilities, responses int, err error) {
		replay := enginetest.NewReplay(transcript)
		defer replay.Close()
		behind, err := url.Parse(replay.URL())
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(behind)
		proxy.ErrorLog = log.New(io.Discard, "", 0) // the probe leaves the response that a pause holds
		proxy.ModifyResponse = func(r *http.Response) error {
			path := r.Request.URL.Path
			if r.StatusCode != http.StatusOK || path != pathGenerate && path != pathCompletions {
				return nil
			}
			if responses++; responses != aborted {
				return nil
			}
			text := `{"choices":[{"index":0,"text":"","token_ids":[],"logprobs":null,"finish_reason":"abort"}]}`
			if path == pathGenerate {
				text = "data: " + text + "\n\ndata: [DONE]\n\n"
			}
			r.Header.Del("Content-Length")
			r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(text))
			return nil
		}
		server := httptest.NewServer(proxy)
		defer server.Close()
		s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		caps, err = New().Probe(t.Context(), s)
		return caps, responses, err
	}
	want, responses, err := probe(0)
	if err != nil || responses < 5 {
		t.Fatalf("%d responses, %v", responses, err)
	}
	want.Paths, want.Private = nil, nil
	for n := range responses {
		got, _, err := probe(n + 1)
		got.Paths, got.Private = nil, nil
		if a, b := asJSON(t, got), asJSON(t, want); err == nil && a != b {
			t.Errorf("response %d is aborted: found %s\nwant %s, or an error", n+1, a, b)
		}
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRecordedStreams reads every recorded stream with the decoder, and again key by key.
func TestRecordedStreams(t *testing.T) {
	streams, tokens, refusals := 0, 0, 0
	for _, c := range conversations {
		transcript, err := enginetest.Load(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range transcript.Exchanges {
			if !e.Stream() {
				continue
			}
			streams++
			d := &decoder{path: e.Path}
			var got, want upstream.Delta
			for i, data := range e.Events() {
				err := d.Event(data, &got)
				if refused := plainly(t, data, &want); refused != (err != nil) {
					t.Fatalf("%s, event %d: %v: %s", c.file, i, err, data)
				} else if refused {
					refusals++
				}
			}
			tokens += len(got.Tokens)
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("%s: %s\nread %s\nwant %s", c.file, e.Path, a, b)
			}
		}
	}
	if streams < 4*len(conversations) || tokens < 10*len(conversations) || refusals < len(conversations) {
		t.Errorf("%d streams with %d tokens and %d refusals: fewer than were recorded", streams, tokens, refusals)
	}
}

// plainly adds an event to d as JSON says it, and reports whether it is an error.
func plainly(t *testing.T, data []byte, d *upstream.Delta) (refused bool) {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	if e["error"] != nil {
		return true
	}
	for _, one := range e["choices"].([]any) {
		choice := one.(map[string]any)
		for _, id := range choice["token_ids"].([]any) {
			d.Tokens = append(d.Tokens, int32(id.(float64)))
		}
		logprobs := choice["logprobs"].(map[string]any)
		if entries, ok := logprobs["content"].([]any); ok {
			for _, entry := range entries {
				d.Logprobs = append(d.Logprobs, float32(entry.(map[string]any)["logprob"].(float64)))
			}
		} else {
			for _, x := range logprobs["token_logprobs"].([]any) {
				d.Logprobs = append(d.Logprobs, float32(x.(float64)))
			}
		}
		text, _ := choice["text"].(string)
		d.Text += text
		if finish, ok := choice["finish_reason"].(string); ok {
			d.Finish = upstream.Finish(finish)
		}
		spans, _ := choice["weight_versions"].([]any)
		for _, one := range spans {
			s := one.(map[string]any)
			d.Spans = append(d.Spans, upstream.Span{Label: s["version"].(string), Start: int(s["start"].(float64)), End: int(s["end"].(float64))})
		}
	}
	return false
}
