// Package played plays the engine of an experiment: it speaks vLLM's words over real sockets, and samples nothing.
package played

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// Round says how streams go, from the next one on.
type Round struct {
	// Streams begin together, once as many have come. With 0 each begins when it comes.
	Streams int
	// Pause is the time between two events of one stream, 0 for none.
	Pause time.Duration
	// Spread has the streams' events come one after the other, not all at one instant.
	Spread bool
}

// opening is the time that paced streams have to open, all at once, before their first event: no event waits for that.
const opening = 250 * time.Millisecond

// Engine speaks vLLM's completions: as many events as max_tokens says, rendered beforehand.
type Engine struct {
	listener net.Listener
	server   *http.Server
	// tokens were sent, and active streams are open.
	tokens, active atomic.Int64
	// pause between two events of one stream, in nanoseconds.
	pause atomic.Int64
	// gate holds streams back until as many have come as a round has, so that they run together.
	mu      sync.Mutex
	spread  bool // streams begin one after the other within a pause, else at one instant
	waiting int
	want    int
	gate    chan struct{}
}

// New returns an engine that listens on a port of its own.
func New() (*Engine, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &Engine{listener: listener}
	e.Round(Round{})
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

// Address is where it listens, as HOST:PORT.
func (e *Engine) Address() string { return e.listener.Addr().String() }

// URL is its address for clients.
func (e *Engine) URL() string { return "http://" + e.Address() }

// Tokens is how many were sent so far.
func (e *Engine) Tokens() int64 { return e.tokens.Load() }

// Active is how many streams are open.
func (e *Engine) Active() int64 { return e.active.Load() }

// Close ends it, with the streams that are open.
func (e *Engine) Close() { _ = e.server.Close() }

// Round has the next streams go so.
func (e *Engine) Round(r Round) {
	e.pause.Store(int64(r.Pause))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting, e.want, e.gate, e.spread = 0, r.Streams, make(chan struct{}), r.Spread
	if r.Streams == 0 {
		close(e.gate)
	}
}

// enter waits until all streams of the round are there, and returns the part of a pause that this
// one begins later.
func (e *Engine) enter() (phase float64) {
	e.mu.Lock()
	gate := e.gate
	e.waiting++
	switch {
	case e.spread && e.want > 0:
		phase = float64(e.waiting-1) / float64(e.want)
	case e.spread:
		phase = rand.Float64()
	}
	if e.waiting == e.want {
		close(gate)
	}
	e.mu.Unlock()
	<-gate
	return phase
}

// together says whether streams begin together.
func (e *Engine) together() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.want > 0
}

// complete answers one completion: with a stream where it is asked for and long, else at once.
func (e *Engine) complete(w http.ResponseWriter, r *http.Request) {
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
	e.active.Add(1)
	defer e.active.Add(-1)
	together := e.together()
	long, phase := req.MaxTokens > 64 || !together, 0.0 // what is shorter is a probe, for which no round waits
	if long {
		phase = e.enter()
	}
	pause := time.Duration(e.pause.Load())
	next := time.Now().Add(time.Duration(phase * float64(pause)))
	if pause > 0 && together {
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
		e.tokens.Add(1)
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
