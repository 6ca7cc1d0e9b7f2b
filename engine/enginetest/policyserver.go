package enginetest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"time"
)

// PolicyServer serves a Policy in the form of vLLM 0.32 with its developer's paths and
// /inference/v1/generate. The name of its weights is the last
// element of the directory they were loaded from.
type PolicyServer struct {
	front *httptest.Server
	opt   PolicyOptions
	// weights are held for reading while a token is sampled and sent, and for writing while paused.
	weights sync.RWMutex
	mu      sync.Mutex
	// paused is closed by a resume, nil while there is no pause.
	paused  chan struct{}
	serving string
	label   string
	running map[string]*underway // by the request's id
	sampled int
	// updates are the names of weights that were loaded, in order.
	updates []string
}

// underway is a response that can be aborted.
type underway struct {
	stop chan struct{} // closed to abort
	// marked: the mark of a stream's end follows.
	marked bool
}

// PolicyOptions say what a PolicyServer is like.
type PolicyOptions struct {
	Policy Policy
	// Listen is the port of this machine's loopback that it is at; 0 for a free one.
	Listen int
	// Context is the number of tokens that prompt and response may have together.
	Context int
	// Weights is the name of those that it begins with.
	Weights string
	// Spans: it has /inference/v1/generate, which says which weights sampled which tokens.
	Spans bool
	// Rows: answers of /inference/v1/generate bring the experts of every pass (Policy.Experts), as vLLM's do.
	Rows bool
	// Step is the time that a token takes, 0 for none.
	Step time.Duration
	// Chat: it renders chats, and its text leaves out the EOS.
	Chat bool
	// Deaf reports, for an update of weights, whether the server only says that it has taken it. Answered is called with
	// the id of each streamed response that has reached its end, while its caller is there. Nil for neither.
	Deaf     func() bool
	Answered func(id string)
	// Named is the name of the weights in a directory, or why they cannot be read; nil for its last element.
	Named func(dir string) (string, error)
}

// NewPolicyServer starts a server. It panics where it cannot listen.
func NewPolicyServer(o PolicyOptions) *PolicyServer {
	s := &PolicyServer{opt: o, serving: o.Weights, label: "default", running: map[string]*underway{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /openapi.json", s.describe)
	mux.HandleFunc("GET /version", says(func() any { return object{"version": "0.32.0"} }))
	mux.HandleFunc("GET /v1/models", says(s.models))
	mux.HandleFunc("GET /is_paused", says(func() any { return object{"is_paused": s.isPaused()} }))
	mux.HandleFunc("GET /weight_info", says(func() any { return object{"weight_version": s.Label()} }))
	mux.HandleFunc("GET /get_world_size", says(func() any { return object{"world_size": 1} }))
	mux.HandleFunc("GET /load", says(func() any { return object{"server_load": s.load()} }))
	mux.HandleFunc("POST /pause", says(func() any { s.pause(); return object{"status": "paused"} }))
	mux.HandleFunc("POST /resume", says(func() any { s.resume(); return object{"status": "resumed"} }))
	mux.HandleFunc("POST /reset_prefix_cache", says(func() any { return object{"success": true} }))
	mux.HandleFunc("POST /collective_rpc", s.reload)
	mux.HandleFunc("POST /update_weight_version", s.relabel)
	mux.HandleFunc("POST /abort_requests", s.abort)
	mux.HandleFunc("POST /v1/completions", s.completions)
	if o.Spans {
		mux.HandleFunc("POST /inference/v1/generate", s.generate)
		mux.HandleFunc("POST /inference/v1/abort_requests", s.abort)
	}
	if o.Chat {
		mux.HandleFunc("POST /tokenize", s.tokenize)
		mux.HandleFunc("POST /v1/completions/derender", s.derender)
	}
	s.front = httptest.NewUnstartedServer(mux)
	if o.Listen > 0 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.Listen))
		if err != nil {
			panic(err)
		}
		_ = s.front.Listener.Close() // its own, which nobody has been told of
		s.front.Listener = l
	}
	s.front.Start()
	return s
}

// object is JSON that is written.
type object = map[string]any

// URL is the server's address.
func (s *PolicyServer) URL() string { return s.front.URL }

// Close ends the server and cuts running streams off.
func (s *PolicyServer) Close() {
	s.resume()
	s.front.CloseClientConnections()
	s.front.Close()
}

// Sampled is how many tokens it has sampled.
func (s *PolicyServer) Sampled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sampled
}

// Label is the version as it was told.
func (s *PolicyServer) Label() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.label
}

// Updates are the names of the weights it has loaded since it was started, in order.
func (s *PolicyServer) Updates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.updates...)
}

// says answers with what a function returns.
func says(what func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, what()) }
}

func answerJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// refuse answers as vLLM does what it cannot serve.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answerJSON(w, status, object{"error": object{"message": fmt.Sprintf(format, args...), "type": "BadRequestError", "param": nil, "code": status}})
}

func (s *PolicyServer) describe(w http.ResponseWriter, _ *http.Request) {
	paths := object{}
	for _, path := range []string{"/health", "/version", "/v1/models", "/v1/completions", "/is_paused", "/pause", "/resume", "/weight_info", "/get_world_size",
		"/load", "/reset_prefix_cache", "/collective_rpc", "/update_weight_version", "/abort_requests"} {
		paths[path] = object{}
	}
	if s.opt.Spans {
		paths["/inference/v1/generate"], paths["/inference/v1/abort_requests"] = object{}, object{}
	}
	if s.opt.Chat {
		paths["/tokenize"], paths["/v1/completions/derender"] = object{}, object{}
	}
	answerJSON(w, http.StatusOK, object{"openapi": "3.1.0", "paths": paths})
}

func (s *PolicyServer) models() any {
	return object{"object": "list", "data": []any{object{"id": "policy", "object": "model", "root": "policy", "owned_by": "vllm", "max_model_len": s.opt.Context}}}
}

func (s *PolicyServer) load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

func (s *PolicyServer) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused != nil
}

// pause returns once no token is sampled any more.
func (s *PolicyServer) pause() {
	s.mu.Lock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
	s.mu.Unlock()
	s.weights.Lock() // whoever held it for a token under way has sent it now
	defer s.weights.Unlock()
}

func (s *PolicyServer) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// reload loads weights, which vLLM does whether or not it is paused.
func (s *PolicyServer) reload(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Method string `json:"method"`
		Kwargs struct {
			Path string `json:"weights_path"`
		} `json:"kwargs"`
	}
	err := json.NewDecoder(r.Body).Decode(&call)
	if err != nil || call.Method != "reload_weights" || call.Kwargs.Path == "" {
		refuse(w, http.StatusBadRequest, "want reload_weights with weights_path: %v", err)
		return
	}
	name := filepath.Base(call.Kwargs.Path)
	s.weights.Lock()
	defer s.weights.Unlock()
	if s.opt.Named != nil {
		if name, err = s.opt.Named(call.Kwargs.Path); err != nil {
			refuse(w, http.StatusInternalServerError, "%v", err)
			return
		}
	}
	if s.opt.Deaf == nil || !s.opt.Deaf() {
		s.mu.Lock()
		s.serving = name
		s.updates = append(s.updates, s.serving)
		s.mu.Unlock()
	}
	answerJSON(w, http.StatusOK, object{"results": []any{nil}})
}

func (s *PolicyServer) relabel(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Version string `json:"new_version"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil || call.Version == "" {
		refuse(w, http.StatusBadRequest, "want new_version: %v", err)
		return
	}
	s.weights.Lock()
	defer s.weights.Unlock()
	s.mu.Lock()
	s.label = call.Version
	s.mu.Unlock()
	answerJSON(w, http.StatusOK, object{"success": true, "new_version": call.Version})
}

// AbortAll ends all responses that are under way, as a pause in the mode abort does.
func (s *PolicyServer) AbortAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, response := range s.running {
		response.marked = true
		close(response.stop)
		delete(s.running, id)
	}
}

func (s *PolicyServer) abort(w http.ResponseWriter, r *http.Request) {
	var call struct {
		IDs []string `json:"request_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		refuse(w, http.StatusBadRequest, "want request_ids: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	aborted := 0
	for id, response := range s.running {
		for _, wanted := range call.IDs {
			if id == wanted {
				close(response.stop)
				delete(s.running, id)
				aborted++
			}
		}
	}
	answerJSON(w, http.StatusOK, object{"status": "aborted", "aborted": aborted})
}
