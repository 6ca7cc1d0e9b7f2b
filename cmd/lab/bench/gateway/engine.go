package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// timeDigits is the width of the time of sending in an event's text.
const timeDigits = 19

// opening is the time that paced streams have to open, all at once, before their first event: no event waits for that.
const opening = 250 * time.Millisecond

// engine speaks vLLM's completions: as many events as max_tokens says, rendered beforehand.
type engine struct {
	listener net.Listener
	server   *http.Server
	// pause between two events of one stream, in nanoseconds.
	pause atomic.Int64
	// gate holds streams back until as many have come as a round has, so that they run together.
	mu      sync.Mutex
	spread  bool // streams begin one after the other within a pause, else at one instant
	waiting int
	want    int
	gate    chan struct{}
}

func newEngine() (*engine, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &engine{listener: listener, gate: make(chan struct{})}
	mux := http.NewServeMux()
	reply := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	reply("/health", `{}`)
	reply("/version", `{"version":"0.32.0"}`)
	reply("/v1/models", `{"object":"list","data":[{"id":"policy","object":"model","owned_by":"vllm","max_model_len":131072}]}`)
	reply("/openapi.json", `{"paths":{"/v1/completions":{},"/v1/models":{},"/health":{},"/version":{},"/tokenize":{},"/detokenize":{}}}`)
	reply("/tokenize", `{"count":3,"max_model_len":131072,"tokens":[3,5,4]}`)
	reply("/detokenize", `{"prompt":"abc"}`)
	mux.HandleFunc("POST /v1/completions", e.complete)
	e.server = &http.Server{Handler: mux}
	go func() { _ = e.server.Serve(listener) }()
	return e, nil
}

func (e *engine) url() string { return "http://" + e.listener.Addr().String() }
func (e *engine) close()      { _ = e.server.Close() }

// round prepares for so many streams.
func (e *engine) round(s settings) {
	e.pause.Store(int64(s.pause))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting, e.want, e.gate, e.spread = 0, s.streams, make(chan struct{}), s.spread
}

// enter waits until all streams of the round are there, and returns the part of a pause that this
// one begins later.
func (e *engine) enter() (phase float64) {
	e.mu.Lock()
	gate := e.gate
	if e.spread {
		phase = float64(e.waiting) / float64(e.want)
	}
	if e.waiting++; e.waiting == e.want {
		close(gate)
	}
	e.mu.Unlock()
	<-gate
	return phase
}

// complete answers one completion: with a stream where it is asked for and long, else at once.
func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	var req struct {
		MaxTokens int  `json:"max_tokens"`
		Stream    bool `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !req.Stream {
		one := strings.Replace(event(0, req.MaxTokens-1, req.MaxTokens), `"prompt_token_ids":null,`, `"prompt_token_ids":[3,4,5],`, 1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, one)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	flusher.Flush()
	long, phase := req.MaxTokens > 64, 0.0 // what is shorter is a probe
	if long {
		phase = e.enter()
	}
	pause := time.Duration(e.pause.Load())
	next := time.Now().Add(time.Duration(phase * float64(pause)))
	if pause > 0 {
		next = next.Add(opening)
	}
	before, after, _ := strings.Cut(event(0, 1, 1<<30), strings.Repeat("0", timeDigits))
	line := []byte("data: " + before + strings.Repeat("0", timeDigits) + after + "\n\n")
	stamp := line[len("data: ")+len(before):][:timeDigits]
	for i := range req.MaxTokens {
		if long && pause > 0 {
			next = next.Add(pause)
			time.Sleep(time.Until(next))
		}
		if i == req.MaxTokens-1 {
			line = []byte("data: " + event(time.Now().UnixNano(), i, req.MaxTokens) + "\n\n")
		} else {
			strconv.AppendInt(stamp[:0], time.Now().UnixNano(), 10)
		}
		if _, err := w.Write(line); err != nil {
			return
		}
		if pause > 0 || i%16 == 15 {
			flusher.Flush()
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// event is one token's, in the form of vLLM 0.32.
func event(sent int64, i, n int) string {
	finish := "null"
	if i == n-1 {
		finish = `"length"`
	}
	return fmt.Sprintf(`{"id":"cmpl-a55900676368aa1e","object":"text_completion","created":1795277403,"model":"policy","choices":[{"index":0,"text":"%0*d","logprobs":{"text_offset":[0],"token_logprobs":[-4.160435676574707],"tokens":["abc"],"top_logprobs":[{"abc":-4.160435676574707}]},"finish_reason":%s,"stop_reason":null,"prompt_token_ids":null,"token_ids":[5]}]}`,
		timeDigits, sent, finish)
}
