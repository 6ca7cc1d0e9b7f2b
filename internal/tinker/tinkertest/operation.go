package tinkertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// model is an adapter in training.
type model struct {
	id       string
	weights  weights
	gradient map[int32]row
	next     int                // the number of the next request
	failed   int                // Strict: the number of one that failed as the next
	early    map[int]*operation // BySequence: what waits for its number
	bySeq    map[int]string     // BySequence: the future of each number
	free     time.Time          // when what was executed so far is done
}

// saved is what a path names.
type saved struct {
	model   string
	weights weights
}

// operation is a request to a model that was taken.
type operation struct {
	name    string
	seq     int
	saves   string // name to save under
	path    string // to load
	adam    adam
	data    []datum
	loss    loss
	forward bool
	fails   string
	future  *future
}

// future is what a client asks for the result of.
type future struct {
	done   chan struct{} // closed once the result is there
	ready  time.Time     // and from when it is given
	reply  reply         // the result in JSON, or the failure
	binary []byte        // the result in protobuf, where it has such a form
	lost   bool
}

// createModel makes an adapter. Its future is done at once.
func (s *Service) createModel(q request, fault Fault) reply {
	var asked struct {
		Session string `json:"session_id"`
		Base    string `json:"base_model"`
		Lora    *struct {
			Rank int `json:"rank"`
		} `json:"lora_config"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sessions[asked.Session] {
		return refused(http.StatusNotFound, "Session not found")
	}
	if asked.Lora == nil || asked.Lora.Rank < 1 {
		return refused(http.StatusBadRequest, "Missing LoRA config")
	}
	f, id := s.promise(fault)
	switch {
	case fault.Fails != "":
		s.fails(f, "server", fault.Fails)
	case asked.Base != s.o.Base:
		s.fails(f, "user", fmt.Sprintf("base model %q is not served, %q is", asked.Base, s.o.Base))
	default:
		m := &model{id: s.id("model"), weights: newWeights(s.o.Vocabulary), gradient: map[int32]row{}, next: 1, early: map[int]*operation{}, bySeq: map[int]string{}}
		if s.left != nil {
			m.gradient, s.left = s.left, nil
		}
		s.models[m.id] = m
		f.resolve(ok(map[string]any{"type": "create_model", "model_id": m.id}), nil, time.Now())
	}
	return taken(id)
}

// unload forgets a model.
func (s *Service) unload(q request, fault Fault) reply {
	var asked struct {
		Model string `json:"model_id"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models[asked.Model] == nil {
		return refused(http.StatusNotFound, "Model not found")
	}
	if s.o.Order == ByArrival {
		s.left = s.models[asked.Model].gradient
	}
	delete(s.models, asked.Model)
	f, id := s.promise(fault)
	f.resolve(ok(map[string]any{"type": "unload_model", "model_id": asked.Model}), nil, time.Now())
	return taken(id)
}

// promise makes a future. The caller has the lock.
func (s *Service) promise(fault Fault) (*future, string) {
	f, id := &future{done: make(chan struct{}), lost: fault.LoseFuture}, s.id("future")
	s.futures[id] = f
	return f, id
}

func taken(id string) reply { return ok(map[string]any{"request_id": id}) }

func (f *future) resolve(r reply, binary []byte, ready time.Time) {
	f.reply, f.binary, f.ready = r, binary, ready
	close(f.done)
}

// fails ends a future as each of the servers says it.
func (s *Service) fails(f *future, category, text string) {
	switch s.o.Order {
	case BySequence:
		f.resolve(ok(map[string]any{"error": text, "category": category}), nil, time.Now())
	case Strict:
		f.resolve(refused(http.StatusUnprocessableEntity, "Future failed: %s", text), nil, time.Now())
	default:
		f.resolve(refused(http.StatusBadRequest, "%s", text), nil, time.Now())
	}
}

// operate takes an operation whose request is JSON.
func (s *Service) operate(q request, fault Fault) reply {
	var asked struct {
		Model string `json:"model_id"`
		Seq   int    `json:"seq_id"`
		Path  string `json:"path"`
		Adam  adam   `json:"adam_params"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	o := &operation{name: q.operation, seq: asked.Seq, adam: asked.Adam}
	switch q.operation {
	case "save_weights", "save_weights_for_sampler":
		o.saves = asked.Path
		if strings.ContainsAny(o.saves, "/:") || o.saves == "" {
			return refused(http.StatusUnprocessableEntity, "path %q is no name", o.saves)
		}
	case "load_weights":
		o.path = asked.Path
	}
	return s.take(asked.Model, o, fault)
}

// take has an operation executed in the service's order.
func (s *Service) take(id string, o *operation, fault Fault) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[id]
	if m == nil {
		return refused(http.StatusNotFound, "Model not found")
	}
	if s.o.Order == ByArrival && o.saves != "" {
		if _, there := s.saved[s.place(m, o)]; there {
			return refused(http.StatusConflict, "Checkpoint '%s' already exists for model '%s'", o.saves, id)
		}
	}
	o.fails = fault.Fails
	if s.o.Order == BySequence && m.bySeq[o.seq] != "" {
		return taken(m.bySeq[o.seq])
	}
	var future string
	o.future, future = s.promise(fault)
	switch s.o.Order {
	case BySequence:
		m.bySeq[o.seq], m.early[o.seq] = future, o
		for next := m.early[m.next]; next != nil; next = m.early[m.next] {
			delete(m.early, m.next)
			m.next++
			s.execute(m, next)
		}
	case Strict:
		s.executeNext(m, o)
	default:
		s.execute(m, o)
	}
	return taken(future)
}

// executeNext executes what has the next number, and fails anything else.
func (s *Service) executeNext(m *model, o *operation) {
	if o.seq != m.next && (o.seq != m.next+1 || m.failed != m.next) {
		o.future.resolve(refused(http.StatusConflict, "Sequence conflict: expected %d, got %d.", m.next, o.seq), nil, time.Now())
		return
	}
	m.next, m.failed = o.seq, 0
	if s.execute(m, o) {
		m.next++
	} else {
		m.failed = o.seq
	}
}

// place is the path that an operation saves under.
func (s *Service) place(m *model, o *operation) string {
	if o.name == "save_weights" {
		return pathOf(m.id, "weights", o.saves)
	}
	return pathOf(m.id, "sampler_weights", o.saves)
}

func pathOf(run, kind, name string) string { return "tinker://" + run + "/" + kind + "/" + name }

// execute executes an operation, and reports whether it has not failed.
func (s *Service) execute(m *model, o *operation) bool {
	s.note(m, o)
	result, binary, err := s.result(m, o)
	if err != nil {
		category := "user"
		if o.fails != "" {
			category = "server"
		}
		s.fails(o.future, category, err.Error())
		return false
	}
	if now := time.Now(); m.free.Before(now) {
		m.free = now
	}
	m.free = m.free.Add(s.o.OperationTime)
	o.future.resolve(ok(result), binary, m.free)
	return true
}

func (s *Service) note(m *model, o *operation) {
	e := Executed{Operation: o.name, Model: m.id, Seq: o.seq, Name: o.saves + o.path}
	for _, d := range o.data {
		e.Tokens = append(e.Tokens, d.tokens)
	}
	s.executed = append(s.executed, e)
}

// result does what an operation is for.
func (s *Service) result(m *model, o *operation) (result map[string]any, binary []byte, err error) {
	if o.fails != "" {
		return nil, nil, fmt.Errorf("%s", o.fails)
	}
	switch o.name {
	case "optim_step":
		norm := m.weights.step(m.gradient, o.adam)
		clear(m.gradient)
		return map[string]any{"type": "optim_step", "metrics": map[string]float64{"grad_norm": norm}}, nil, nil
	case "load_weights":
		from, there := s.saved[o.path]
		if !there {
			return nil, nil, fmt.Errorf("checkpoint not found: %s", o.path)
		}
		m.weights = from.weights.clone()
		clear(m.gradient)
		return map[string]any{"type": o.name, "path": o.path}, nil, nil
	case "save_weights", "save_weights_for_sampler":
		path := s.place(m, o)
		if _, there := s.saved[path]; there {
			return nil, nil, fmt.Errorf("checkpoint already exists: %s", path)
		}
		s.saved[path] = saved{m.id, m.weights.clone()}
		return map[string]any{"type": o.name, "path": path}, nil, nil
	}
	return s.computed(m, o)
}

// computed is the result of a pass.
func (s *Service) computed(m *model, o *operation) (result map[string]any, binary []byte, err error) {
	for i, d := range o.data {
		if err := m.weights.check(d, o.loss); err != nil {
			return nil, nil, fmt.Errorf("datum %d: %w", i, err)
		}
	}
	gradient := m.gradient
	if o.forward {
		gradient = nil
	}
	logprobs, sum := m.weights.pass(o.data, o.loss, gradient)
	outputs := []any{}
	for _, of := range logprobs {
		outputs = append(outputs, map[string]any{"logprobs": map[string]any{"data": of, "dtype": "float32", "shape": []int{len(of)}}})
	}
	metrics := map[string]float64{"loss:sum": sum}
	result = map[string]any{"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": metrics}
	return result, passToProtobuf(logprobs, metrics), nil
}

// retrieve gives a future's result, once it is there.
func (s *Service) retrieve(q request) reply {
	var asked struct {
		ID string `json:"request_id"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	f := s.futures[asked.ID]
	lost := f == nil || f.lost
	s.mu.Unlock()
	if lost {
		if s.o.Order == BySequence {
			return refused(http.StatusGone, "the promise has expired")
		}
		return refused(http.StatusNotFound, "Future not found")
	}
	if !s.wait(q, f) {
		if s.o.Order == ByArrival {
			return refused(http.StatusRequestTimeout, "Timeout waiting for result")
		}
		return ok(map[string]any{"type": "try_again", "request_id": asked.ID, "queue_state": "active"})
	}
	if f.binary != nil && s.o.Encoding != JSON && strings.Contains(q.accept, "application/x-protobuf") {
		return reply{status: http.StatusOK, protobuf: f.binary}
	}
	return f.reply
}

// wait holds a question open until the result is there or the time is over.
func (s *Service) wait(q request, f *future) bool {
	over := time.NewTimer(s.o.Poll)
	defer over.Stop()
	select {
	case <-f.done:
	case <-over.C:
		return false
	case <-q.ctx.Done():
		return false
	case <-s.closed:
		return false
	}
	ready := time.NewTimer(time.Until(f.ready))
	defer ready.Stop()
	select {
	case <-ready.C:
		return true
	case <-over.C:
		return false
	case <-q.ctx.Done():
		return false
	case <-s.closed:
		return false
	}
}

// cancel is told that nobody waits for a future.
func (s *Service) cancel(q request) reply {
	if s.o.Deaf || s.o.Order != BySequence {
		return refused(http.StatusNotFound, "Not Found")
	}
	var asked struct {
		ID string `json:"request_id"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, asked.ID)
	return ok(map[string]any{})
}

// json reads a body, or is the refusal of one that is no JSON.
func (q request) json(into any) *reply {
	if err := json.Unmarshal(q.body, into); err != nil {
		r := refused(http.StatusUnprocessableEntity, "JSON decode error: %v", err)
		return &r
	}
	return nil
}
