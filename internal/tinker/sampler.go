package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// Sampler samples from saved weights, which are its own even when the model changes or ends. It is safe for concurrent
// use.
type Sampler struct {
	s    *Session
	path string

	making chan struct{} // held by who makes it at the service
	mu     sync.Mutex
	id     string
	age    int // the session's in which it was made
	asked  int // samples in that session
}

// NewSampler samples from what Model.SaveSampler has saved under path.
func (s *Session) NewSampler(ctx context.Context, path string) (*Sampler, error) {
	r := &Sampler{s: s, path: path, making: make(chan struct{}, 1), age: -1}
	if err := r.make(ctx, ""); err != nil {
		return nil, fmt.Errorf("sampler of %s: %w", path, err)
	}
	return r, nil
}

// make makes the sampler at the service unless it is another there than the one given by now. A session that the
// service has forgotten is begun anew first.
func (r *Sampler) make(ctx context.Context, known string) error {
	select {
	case r.making <- struct{}{}:
		defer func() { <-r.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if id, _ := r.now(); id != known {
		return nil
	}
	var err error
	for range mostGone {
		var id string
		var age int
		if id, age, err = r.s.newSampler(ctx, r.path); err == nil {
			r.mu.Lock()
			r.id, r.age, r.asked = id, age, 0
			r.mu.Unlock()
			return nil
		}
		if !errors.Is(err, ErrGone) {
			return err
		}
		if another, alive := r.s.revive(ctx, age); !another || alive != nil {
			return errors.Join(err, alive)
		}
	}
	return err
}

func (r *Sampler) now() (id string, age int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id, r.age
}

// newSampler makes a sampling session, and says in a session of which age.
func (s *Session) newSampler(ctx context.Context, path string) (id string, age int, err error) {
	s.mu.Lock()
	session, age, seq := s.id, s.age, s.samplers
	s.samplers++
	s.mu.Unlock()
	var made struct {
		ID string `json:"sampling_session_id"`
	}
	err = s.c.askJSON(ctx, "create_sampling_session", map[string]any{
		"session_id": session, "sampling_session_seq_id": seq, "model_path": path, "type": "create_sampling_session",
	}, &made)
	if err == nil && made.ID == "" {
		err = fmt.Errorf("%w: create_sampling_session: the answer has no sampling_session_id", ErrRefused)
	}
	return made.ID, age, err
}

// number is the sampler's at the service and the number of the next sample.
func (r *Sampler) number(ctx context.Context) (id string, seq int, err error) {
	known, age := r.now()
	if _, current := r.s.stay(); current != age {
		if err := r.make(ctx, known); err != nil {
			return known, 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.id, r.asked, nil
}

// Sample samples one sequence. When ctx ends it returns at once; the service is told to stop, where it can.
func (r *Sampler) Sample(ctx context.Context, q SampleRequest) (Sequence, error) {
	if err := q.check(); err != nil {
		return Sequence{}, fmt.Errorf("%w: sample: %w", ErrRefused, err)
	}
	sequence, id, err := r.sample(ctx, q)
	if errors.Is(err, ErrGone) && ctx.Err() == nil {
		// The sampler, its session or the path: made anew, the first two are there again.
		if err = r.make(ctx, id); err == nil {
			sequence, _, err = r.sample(ctx, q)
		}
	}
	if err != nil {
		return Sequence{}, fmt.Errorf("sample from %s: %w", r.path, err)
	}
	return sequence, nil
}

// sample numbers a sample and gets it from the sampler that has the id at the service.
func (r *Sampler) sample(ctx context.Context, q SampleRequest) (_ Sequence, id string, err error) {
	id, seq, err := r.number(ctx)
	if err != nil {
		return Sequence{}, id, err
	}
	body := q.json()
	body["sampling_session_id"], body["seq_id"] = id, seq
	l, err := jsonCall("asample", body)
	if err != nil {
		return Sequence{}, id, err
	}
	a, err := r.result(ctx, l)
	if err != nil {
		return Sequence{}, id, err
	}
	s, err := firstSequence(a, q.MaxTokens)
	return s, id, err
}

// mostGone is how often a sampler or a sample is asked for that the service says it does not know.
const mostGone = 3

// result submits a sample and waits for it. A sample changes nothing, so that it may be sent again under its number.
func (r *Sampler) result(ctx context.Context, l call) (answer, error) {
	for gone := 1; ; gone++ {
		t, err := r.s.c.submit(ctx, l)
		if err != nil {
			return answer{}, err
		}
		a, err := r.s.c.await(ctx, l.operation, t, protobufType)
		if ctx.Err() != nil {
			r.s.stop(t)
		}
		if err == nil || !errors.Is(err, ErrGone) || gone == mostGone {
			return a, err
		}
		r.s.c.o.Logf("a sample is asked for again: %v", err)
	}
}

// firstSequence reads a result, which has the one sequence that was asked for.
func firstSequence(a answer, most int) (Sequence, error) {
	sequences, err := sequencesFrom(a)
	if err != nil {
		return Sequence{}, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if len(sequences) != 1 {
		return Sequence{}, fmt.Errorf("the service returns %d sequences: want 1", len(sequences))
	}
	s := sequences[0]
	if len(s.Logprobs) != len(s.Tokens) {
		return Sequence{}, fmt.Errorf("the service returns %d log-probs of %d tokens: want one each", len(s.Logprobs), len(s.Tokens))
	}
	if len(s.Tokens) > most {
		return Sequence{}, fmt.Errorf("the service returns %d tokens: want at most %d", len(s.Tokens), most)
	}
	return s, nil
}

// stopTime is how long the service is tried to be told to stop.
const stopTime = 10 * time.Second

// stop tells the service that nobody waits for a future any more. It returns at once and never fails: a service
// that is not told computes something that nobody reads.
func (s *Session) stop(t taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf || s.closed {
		return
	}
	s.live.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, stopTime)
		defer cancel()
		l, err := jsonCall("cancel_future", map[string]string{"request_id": t.RequestID})
		if err != nil {
			return
		}
		a, _, err := s.c.try(ctx, l)
		if err == nil && (a.status == http.StatusMethodNotAllowed || a.status == http.StatusNotFound && isBare(detail(a.body))) {
			s.mu.Lock()
			s.deaf = true
			s.mu.Unlock()
		}
	})
}

// check says what of a request no service could do.
func (q SampleRequest) check() error {
	switch {
	case len(q.Prompt) == 0:
		return errors.New("no prompt: want at least one token")
	case q.MaxTokens < 1:
		return fmt.Errorf("at most %d tokens: want at least 1", q.MaxTokens)
	case !(q.Temperature >= 0) || math.IsInf(q.Temperature, 0):
		return fmt.Errorf("temperature %v: want a number of at least 0", q.Temperature)
	case !(q.TopP > 0 && q.TopP <= 1):
		return fmt.Errorf("top p %v: want above 0, at most 1, where 1 cuts nothing", q.TopP)
	case q.TopK < 0:
		return fmt.Errorf("top k %d: want at least 0, where 0 cuts nothing", q.TopK)
	case len(q.Stop) > 0 && len(q.StopTexts) > 0:
		return errors.New("both tokens and texts to stop at: want at most one of the two")
	}
	for i, id := range q.Prompt {
		if id < 0 {
			return fmt.Errorf("token %d of the prompt is %d: want an id of at least 0", i, id)
		}
	}
	return nil
}

// json is the request without the sampler.
func (q SampleRequest) json() map[string]any {
	topK := cmp.Or(q.TopK, -1)
	params := map[string]any{"max_tokens": q.MaxTokens, "temperature": q.Temperature, "top_p": q.TopP, "top_k": topK}
	if q.Seed != 0 {
		params["seed"] = q.Seed
	}
	if len(q.Stop) > 0 {
		params["stop"] = q.Stop
	} else if len(q.StopTexts) > 0 {
		params["stop"] = q.StopTexts
	}
	return map[string]any{"num_samples": 1, "prompt": inputOf(q.Prompt), "sampling_params": params, "type": "sample"}
}
