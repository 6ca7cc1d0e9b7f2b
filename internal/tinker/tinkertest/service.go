package tinkertest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Order is what a service makes of the numbers of a model's requests.
type Order int

const (
	// BySequence executes in the order of the numbers and holds what comes early, as Tinker does. A number that it
	// has seen already is the same request again, and is not executed twice.
	BySequence Order = iota
	// Strict fails a request whose number is not the next with status 409, as TuFT does. The number after one
	// that has failed is a next one too.
	Strict
	// ByArrival does not look at the number, as SkyRL does: a request that comes twice is executed twice. Another habit of
	// that server is here too: the next model has the gradient that the last unloaded one had gathered.
	ByArrival
)

// Encoding is what passes over data and results are written in.
type Encoding int

const (
	// Protobuf is Tinker's and TuFT's. JSON is refused with 415.
	Protobuf Encoding = iota
	// JSON is SkyRL's 0.3, which answers protobuf with 500.
	JSON
	// Either reads both, and writes what is asked for.
	Either
)

// Options of a service; the zero value is a quick one like Tinker itself.
type Options struct {
	Order    Order
	Encoding Encoding
	// Base is the name of the only base model; empty means test/base.
	Base string
	// Vocabulary is the number of tokens; 0 means 32.
	Vocabulary int
	// MostData and MostBytes are the limits of one request that the service tells; 0 tells none.
	MostData, MostBytes int
	// Key that requests must carry; empty asks for none.
	Key string
	// Poll is how long a question for a result is held open; 0 means 45 s.
	Poll time.Duration
	// OperationTime is how long a model's operation takes, TokenTime how long a sampled token does. Results are
	// known at once and given after it.
	OperationTime, TokenTime time.Duration
	// Undeletable services have no path to delete what was saved, and Deaf ones none to cancel a future.
	Undeletable, Deaf bool
	// OneAdapter has every sampler of a model sample from the weights that the model has in training, instead of those
	// that were saved. SkyRL's own backend does so.
	OneAdapter bool
}

// Executed is an operation on a model, or a sample, that the service has executed.
type Executed struct {
	// Operation is its name in the API, such as forward_backward (forward for one without gradient).
	Operation string
	// Model is the model's id, for a sample the id of its sampling session.
	Model string
	// Seq is the number that the request had.
	Seq int
	// Name that was saved under, or path that was loaded or sampled from.
	Name string
	// Tokens are the inputs of the data, or the prompt: one row a datum.
	Tokens [][]int32
}

// Service is a service in memory. Its methods may be called at any time by any goroutine.
type Service struct {
	o      Options
	server *http.Server
	pipes  chan net.Conn
	closed chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	made     int // ids given so far
	sessions map[string]bool
	models   map[string]*model
	left     map[int32]row // gradient of the last unloaded model, nil for none
	samplers map[string]*sampler
	futures  map[string]*future
	saved    map[string]saved // by path
	executed []Executed
	requests map[string]int // by operation
	stopped  []string       // futures that were cancelled
	faults   []*Fault
}

// New starts a service; Close ends it.
func New(o Options) *Service {
	o.Base = cmp.Or(o.Base, "test/base")
	o.Vocabulary = cmp.Or(o.Vocabulary, 32)
	o.Poll = cmp.Or(o.Poll, 45*time.Second)
	s := &Service{
		o: o, pipes: make(chan net.Conn), closed: make(chan struct{}),
		sessions: map[string]bool{}, models: map[string]*model{}, samplers: map[string]*sampler{},
		futures: map[string]*future{}, saved: map[string]saved{}, requests: map[string]int{},
	}
	s.server = &http.Server{Handler: s}
	s.ended.Go(func() { _ = s.server.Serve((*listener)(s)) })
	return s
}

// Close ends the service and the requests that it has under way.
func (s *Service) Close() {
	close(s.closed)
	_ = s.server.Close()
	s.ended.Wait()
}

// URL is what a client is given; it is answered over Dial alone.
func (s *Service) URL() string { return "http://tinker.test" }

// Dial connects to the service, for any address.
func (s *Service) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.pipes <- theirs:
		return ours, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// listener takes the connections that are dialled.
type listener Service

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.pipes:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "tinker.test"} }

// Executed is what was executed so far, in order, samples included.
func (s *Service) Executed() []Executed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Executed(nil), s.executed...)
}

// Operations are the names of the operations that were executed on models so far, in order, without samples.
func (s *Service) Operations() (names []string) {
	for _, e := range s.Executed() {
		if e.Operation != "asample" {
			names = append(names, e.Operation)
		}
	}
	return names
}

// Requests is how many requests have come for an operation, faults included.
func (s *Service) Requests(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[operation]
}

// Cancelled is how many futures the service was told to stop.
func (s *Service) Cancelled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stopped)
}

// Paths are those under which something is saved, in no order.
func (s *Service) Paths() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.saved {
		paths = append(paths, path)
	}
	return paths
}

// Forget has the service forget sessions, models, samplers and futures, as one that was started anew. Saved state
// stays.
func (s *Service) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
	clear(s.models)
	clear(s.samplers)
	for _, f := range s.futures {
		f.lost = true
	}
}

// id gives a new one. The caller has the lock.
func (s *Service) id(kind string) string {
	s.made++
	return fmt.Sprintf("%s_%04d", kind, s.made)
}

// reply is an answer of the service.
type reply struct {
	status      int
	body        any
	protobuf    []byte // instead of body, where not nil
	contentType string
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

// refused is a reply in FastAPI's form.
func refused(status int, format string, args ...any) reply {
	return reply{status: status, body: map[string]any{"detail": fmt.Sprintf(format, args...)}}
}

func (r reply) write(w http.ResponseWriter) {
	switch {
	case r.protobuf != nil:
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(r.status)
		_, _ = w.Write(r.protobuf)
	case r.contentType != "":
		w.Header().Set("Content-Type", r.contentType)
		w.WriteHeader(r.status)
		_, _ = fmt.Fprint(w, r.body)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(r.status)
		_ = json.NewEncoder(w).Encode(r.body)
	}
}

// request is one that has come.
type request struct {
	ctx         context.Context
	operation   string
	contentType string
	accept      string
	body        []byte
}

// ServeHTTP answers one request of the API.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := read(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault := s.met(q.operation)
	if !fault.before(q.ctx, s.closed) {
		panic(http.ErrAbortHandler)
	}
	var answer reply
	switch {
	case fault.Status == http.StatusNotFound && fault.Plain:
		answer = reply{status: fault.Status, body: "404 page not found", contentType: "text/plain"}
	case fault.Status != 0 && fault.Plain:
		answer = reply{status: fault.Status, body: "a fault of the test's", contentType: "text/plain"}
	case fault.Status != 0:
		answer = refused(fault.Status, "a fault of the test's")
	case s.o.Key != "" && r.Header.Get("X-API-Key") != s.o.Key:
		answer = refused(http.StatusUnauthorized, "the key is not the service's")
	case r.Method == http.MethodDelete:
		answer = s.deletes(strings.TrimPrefix(r.URL.Path, "/api/v1/"))
	default:
		answer = s.answers(q, fault)
	}
	if fault.LoseAnswer || q.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	answer.write(w)
}

// answers does what a request asks for.
func (s *Service) answers(q request, fault Fault) reply {
	switch q.operation {
	case "client/config":
		return ok(s.config())
	case "get_server_capabilities":
		return ok(map[string]any{"supported_models": []any{map[string]any{"model_name": s.o.Base}}})
	case "create_session":
		return s.createSession()
	case "session_heartbeat":
		return s.heartbeat(q)
	case "create_sampling_session":
		return s.createSampler(q)
	case "create_model":
		return s.createModel(q, fault)
	case "unload_model":
		return s.unload(q, fault)
	case "asample":
		return s.sample(q, fault)
	case "retrieve_future":
		return s.retrieve(q)
	case "cancel_future":
		return s.cancel(q)
	case "forward_backward":
		return s.pass(q, fault)
	case "forward":
		if s.o.Encoding != Protobuf {
			return s.pass(q, fault)
		}
	case "optim_step", "save_weights", "save_weights_for_sampler", "load_weights":
		return s.operate(q, fault)
	}
	return refused(http.StatusNotFound, "Not Found")
}

func (s *Service) config() map[string]any {
	config := map[string]any{"pjwt_auth_enabled": false}
	if s.o.MostData > 0 {
		config["fwdbwd_max_chunk_len"] = s.o.MostData
	}
	if s.o.MostBytes > 0 {
		config["fwdbwd_max_chunk_bytes_count"] = s.o.MostBytes
	}
	return config
}

func (s *Service) createSession() reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.id("session")
	s.sessions[id] = true
	return ok(map[string]any{"type": "create_session", "session_id": id})
}

func (s *Service) heartbeat(q request) reply {
	var asked struct {
		ID string `json:"session_id"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sessions[asked.ID]:
		return ok(map[string]any{"type": "session_heartbeat"})
	case s.o.Order == BySequence:
		return refused(http.StatusGone, "session %s has finished", asked.ID)
	}
	return refused(http.StatusNotFound, "Session not found")
}

// deletes deletes what was saved, by the path training_runs/RUN/checkpoints/KIND/NAME.
func (s *Service) deletes(path string) reply {
	parts := strings.Split(path, "/")
	if s.o.Undeletable || len(parts) != 5 || parts[0] != "training_runs" || parts[2] != "checkpoints" {
		return refused(http.StatusNotFound, "Not Found")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := pathOf(parts[1], parts[3], parts[4])
	if _, there := s.saved[place]; !there {
		return refused(http.StatusNotFound, "Checkpoint not found: %s", place)
	}
	delete(s.saved, place)
	return reply{status: http.StatusNoContent}
}
