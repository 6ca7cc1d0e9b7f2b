package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
)

// Model is an adapter in training. Operations may be called by several goroutines; they are executed in the order of
// the calls. An operation's requests are sent after those of the one before it have been taken; results are awaited
// side by side.
//
// An operation that the service refuses before it has a number, for its data or its name, leaves the model as it was.
// So does a Forward or a Save that the service has taken and that then fails. Three things break the model. The first
// is a ForwardBackward, OptimStep or LoadState that fails in any other way. The second is a request of which it is not
// known whether it was taken. The third is a session that the service has forgotten. That error and all later ones wrap
// ErrBroken.
//
// A request that was sent and not answered may have been taken. It is sent again, under the number that it had, only at
// a service that was seen to execute a number once. Tinker and TuFT do so. One that takes requests as they arrive, as
// SkyRL does, would add a gradient twice or step twice, and there the model is broken. The model tries which kind a
// service is when it first matters, see knowsByNumber. Requests travel on connections of their own, which no idle
// server closes. So this is as rare as a network that fails within a second. A request that was surely not taken (no
// connection, or a status that says so: 408, 425, 429) is sent again anywhere.
type Model struct {
	s    *Session
	id   string
	made ModelOptions
	age  int           // the session's in which it was made
	turn chan struct{} // held by who sends requests

	mu     sync.Mutex
	last   int // number of the last request that was taken
	broken error
}

// NewModel makes an adapter to train. It is fresh until LoadState.
func (s *Session) NewModel(ctx context.Context, o ModelOptions) (*Model, error) {
	if o.Base == "" || o.Rank < 1 {
		return nil, fmt.Errorf("%w: create_model: base %q and rank %d: want a base model's name and a rank of at least 1", ErrRefused, o.Base, o.Rank)
	}
	for try := 1; ; try++ {
		m, age, err := s.newModel(ctx, o)
		if err == nil || !errors.Is(err, ErrGone) || try == mostGone {
			return m, err
		}
		if another, alive := s.revive(ctx, age); !another || alive != nil {
			return nil, errors.Join(err, alive)
		}
	}
}

// ClearPlace has the model that is made next begin without a gradient of another's. SkyRL 0.3, the service that reads
// JSON, gives a new model the lowest place that is free among its adapters. With it comes any gradient that an earlier
// model there had gathered and not stepped along, such as that of a client that was killed. It would be part of the
// first step, and nothing would say so. A step clears it, of a model that is then given up, since a step along nothing
// counts in Adam's too. At other services it does nothing.
func (s *Session) ClearPlace(ctx context.Context, o ModelOptions) error {
	if e, err := s.reads(ctx); err != nil || e != asJSON {
		return err
	}
	m, err := s.NewModel(ctx, o)
	if err != nil {
		return err
	}
	if _, err = m.OptimStep(ctx, Adam{}); err != nil {
		err = fmt.Errorf("clear the gradient that an earlier model may have left: %w", err)
	}
	kept := m.Unload(ctx)
	if errors.Is(kept, errors.ErrUnsupported) { // where none leaves, none comes after another
		kept = nil
	}
	return errors.Join(err, kept)
}

func (s *Session) newModel(ctx context.Context, o ModelOptions) (_ *Model, age int, _ error) {
	s.mu.Lock()
	session, age, seq := s.id, s.age, s.models
	s.models++
	s.mu.Unlock()
	l, err := jsonCall("create_model", map[string]any{
		"session_id": session, "model_seq_id": seq, "base_model": o.Base, "type": "create_model",
		"lora_config": map[string]any{"rank": o.Rank, "seed": o.Seed, "train_unembed": true, "train_mlp": true, "train_attn": true},
	})
	if err != nil {
		return nil, age, err
	}
	t, err := s.c.submit(ctx, l)
	if err != nil {
		return nil, age, err
	}
	a, err := s.c.await(ctx, l.operation, t, "")
	if err != nil {
		return nil, age, err
	}
	made := struct {
		ID string `json:"model_id"`
	}{t.ModelID}
	if err := readJSON(l.operation, a, &made); err != nil {
		return nil, age, err
	}
	if made.ID == "" {
		return nil, age, fmt.Errorf("%w: create_model: the answer has no model_id", ErrRefused)
	}
	return &Model{s: s, id: made.ID, made: o, age: age, turn: make(chan struct{}, 1)}, age, nil
}

// ID is the model's at the service.
func (m *Model) ID() string { return m.id }

// Forward computes log-probs and changes nothing. A server that reads JSON alone may not have it.
func (m *Model) Forward(ctx context.Context, data []Datum, loss Loss) (Output, error) {
	return m.pass(ctx, data, loss, true)
}

// ForwardBackward adds the loss's gradient to what has gathered since the last OptimStep. Data that is more than
// one request takes (the service's own limits, else 1,024 data and 5 MB) goes as several, numbered in order.
func (m *Model) ForwardBackward(ctx context.Context, data []Datum, loss Loss) (Output, error) {
	return m.pass(ctx, data, loss, false)
}

// OptimStep steps along the gathered gradient and clears it. It returns the service's metrics, such as a gradient norm.
func (m *Model) OptimStep(ctx context.Context, adam Adam) (map[string]float64, error) {
	params, err := adam.json()
	if err != nil {
		return nil, fmt.Errorf("%w: optim_step: %w", ErrRefused, err)
	}
	var stepped struct {
		Metrics map[string]float64 `json:"metrics"`
	}
	err = m.do(ctx, "optim_step", true, map[string]any{"adam_params": params}, &stepped)
	return stepped.Metrics, err
}

// json checks the settings and fills in what is 0.
func (a Adam) json() (map[string]any, error) {
	settings := map[string]any{"learning_rate": a.LearningRate, "beta1": orElse(a.Beta1, 0.9), "beta2": orElse(a.Beta2, 0.95), "eps": orElse(a.Epsilon, 1e-12), "weight_decay": 0}
	if a.GradientNorm != 0 {
		settings["grad_clip_norm"] = a.GradientNorm
	}
	for _, v := range []float64{a.LearningRate, a.Beta1, a.Beta2, a.Epsilon, a.GradientNorm} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("settings %+v: want finite numbers of at least 0", a)
		}
	}
	return settings, nil
}

func orElse(v, zero float64) float64 {
	if v == 0 {
		return zero
	}
	return v
}

// SaveState saves weights and optimizer, SaveSampler what can be sampled from, under a name of the caller's; each
// returns the path to name it by. A name that is there already is an error that wraps ErrRefused, except at TuFT 0.2.2,
// which saves over what was there.
func (m *Model) SaveState(ctx context.Context, name string) (path string, err error) {
	return m.save(ctx, "save_weights", name)
}

// SaveSampler saves what can be sampled from; see SaveState.
func (m *Model) SaveSampler(ctx context.Context, name string) (path string, err error) {
	return m.save(ctx, "save_weights_for_sampler", name)
}

func (m *Model) save(ctx context.Context, operation, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%w: %s: the name is empty", ErrRefused, operation)
	}
	var saved struct {
		Path string `json:"path"`
	}
	err := m.do(ctx, operation, false, map[string]any{"path": name}, &saved)
	if err == nil && saved.Path == "" {
		err = fmt.Errorf("%w: %s %s: the answer has no path", ErrRefused, operation, name)
	}
	return saved.Path, err
}

// LoadState takes the model to what SaveState has saved, optimizer included. Tinker loads into a model alone that has
// done nothing else before.
func (m *Model) LoadState(ctx context.Context, path string) error {
	return m.do(ctx, "load_weights", true, map[string]any{"path": path, "optimizer": true}, nil)
}

// Unload gives the model's place back at the service, which may have few (SkyRL: max_lora_adapters) and else keeps it
// until some time after the session. Saved state stays, though SkyRL's own backend samples from it only as long as the
// model is there. The model, which may be broken, is not to be used after it. A service that does not unload is an
// error that wraps errors.ErrUnsupported.
func (m *Model) Unload(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		defer m.leave()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l, err := jsonCall("unload_model", map[string]string{"model_id": m.id, "type": "unload_model"})
	if err != nil {
		return err
	}
	t, err := m.s.c.submit(ctx, l)
	if err == nil {
		_, err = m.s.c.await(ctx, l.operation, t, "")
	}
	switch {
	case isMissing(err):
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	case err == nil || errors.Is(err, ErrGone):
		m.mu.Lock()
		defer m.mu.Unlock()
		m.broken = fmt.Errorf("%w: model %s was unloaded", ErrBroken, m.id)
		return nil
	}
	return err
}

// do has the service do an operation whose request and result are JSON. changes says whether the model is another
// by it, and so not known after a failure.
func (m *Model) do(ctx context.Context, operation string, changes bool, body map[string]any, result any) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	t, err := m.send(ctx, func(seq int) (call, error) {
		body["model_id"], body["seq_id"], body["type"] = m.id, seq, operation
		return jsonCall(operation, body)
	})
	m.leave()
	if err != nil {
		return err
	}
	a, err := m.s.c.await(ctx, operation, t, "")
	if err == nil && result != nil {
		err = readJSON(operation, a, result)
	}
	if err != nil && changes {
		return m.breaks(operation, err)
	}
	return err
}

// take waits for the turn to send requests, which are sent in the order of calls.
func (m *Model) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := m.state(); err != nil {
		m.leave()
		return err
	}
	return nil
}

func (m *Model) leave() { <-m.turn }

// state is the error of a model that is broken.
func (m *Model) state() error {
	if _, age := m.s.stay(); age != m.age {
		return m.breaks("the session", fmt.Errorf("%w: its session ended", ErrGone))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

// breaks makes the model one that is not to be used any more, if it is not yet, and returns the error of the
// operation that has failed.
func (m *Model) breaks(operation string, err error) error {
	err = fmt.Errorf("%w: %s of model %s failed: %w", ErrBroken, operation, m.id, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		m.broken = err
	}
	return err
}

// send sends the request of the next number until it is taken. Only who has the turn may. A request that is refused
// leaves its number to the next.
func (m *Model) send(ctx context.Context, write func(seq int) (call, error)) (taken, error) {
	if ctx.Err() != nil {
		return taken{}, context.Cause(ctx)
	}
	m.mu.Lock()
	seq := m.last + 1
	m.mu.Unlock()
	l, err := write(seq)
	if err != nil {
		return taken{}, err
	}
	l.once, l.fresh = true, true
	t, err := m.s.c.submit(ctx, l)
	if errors.Is(err, errUnknown) && ctx.Err() == nil && m.s.knowsByNumber(ctx, m.made) {
		m.s.c.o.Logf("%s is sent again under its number: %v", l.operation, err)
		l.once = false
		if t, err = m.s.c.submit(ctx, l); err != nil {
			return taken{}, m.breaks(l.operation, err) // the first may have been taken all the same
		}
	}
	switch {
	case err == nil:
		m.mu.Lock()
		m.last = seq
		m.mu.Unlock()
		return t, nil
	case isMissing(err):
		return taken{}, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	case errors.Is(err, errUnknown), errors.Is(err, ErrGone):
		return taken{}, m.breaks(l.operation, err)
	}
	return taken{}, err
}

// isMissing says whether a refusal is that of a server that has no such operation at all.
func isMissing(err error) bool {
	var said *Error
	return errors.As(err, &said) && said.Status == http.StatusNotFound && isBare(said.Detail)
}
