package remote

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

const (
	ttl        = 10 * time.Second
	vocabulary = 30
)

var (
	_ port.Environment  = (*Dispatcher)(nil)
	_ port.Acknowledger = (*Dispatcher)(nil)
	_ port.Starter      = (*Dispatcher)(nil)
)

// slot is a sampler whose responses take a time and are a function of the turn.

type slot struct {
	takes time.Duration
	err   error
	mu    sync.Mutex
	asked []port.SampleRequest
	// rows: each response has some, in a blob of its own.
	rows bool
	// stopped: Check had stopped the response, or it was dropped. A deaf slot never hears of it; one
	// that is slow to hear only when it has a token.
	stopped, deaf, slow bool
}

func (s *slot) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	n, takes := int32(len(s.asked)), s.takes
	s.mu.Unlock()
	for range 10 { // as an engine does, token by token
		select {
		case <-time.After(takes / 10):
		case <-s.dropped(req):
			s.mu.Lock()
			s.stopped = true
			s.mu.Unlock()
			return port.Generation{}, port.ErrDropped
		case <-ctx.Done():
			return port.Generation{}, ctx.Err()
		}
		if !s.deaf && req.Check([]int32{n}) {
			s.stopped = true
			return port.Generation{Tokens: []int32{n}, Logprobs: []float32{-1}, Versions: []loop.Version{1}, Pruned: true}, nil
		}
	}
	if s.err != nil {
		return port.Generation{}, s.err
	}
	g := port.Generation{Tokens: []int32{n, n + 1}, Logprobs: []float32{-0.5, -0.25}, Versions: []loop.Version{1, 2}, Truncated: n == 2}
	if s.rows {
		g.Channels = []channel.Channel{{Header: channel.Header{Name: "scores", DType: channel.F32, Align: channel.Sampled}, Parts: []channel.Part{{Rows: 2, Blob: n - 1}}}}
	}
	return g, nil
}

// dropped is closed when a response is to end at once, as far as the slot hears of it.
func (s *slot) dropped(req port.SampleRequest) <-chan struct{} {
	if s.deaf || s.slow {
		return nil
	}
	return req.Dropped
}

// take says how long the responses take that are asked for from now on.
func (s *slot) take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = d
}

// played is a rollout that the runtime plays.

type played struct {
	cancel context.CancelFunc
	// stop ends the rollout as the end of the runtime does.
	stop   context.CancelCauseFunc
	slot   *slot
	done   chan struct{}
	sample port.Sample
	err    error
	// unlogged: the log does not take the failure.
	unlogged bool
}

// log says that a failure is in the log.
func (p *played) log(e *Dispatcher, id port.RolloutID) {
	if !p.unlogged {
		e.Logged(id, false)
	}
}

func open(t *testing.T, change func(*Options)) *Dispatcher {
	t.Helper()
	opt := Options{Name: "reverse", Seed: 7, ClaimTTL: ttl, Vocabulary: vocabulary, Limits: Limits{PromptTokens: 12, ResponseTokens: 4},
		Newest: func() loop.Version { return 5 }}
	if change != nil {
		change(&opt)
	}
	e, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// play plays a rollout as the runtime does; its context ends when the test does.

func play(t *testing.T, e *Dispatcher, id port.RolloutID) *played {
	t.Helper()
	runtime, stop := context.WithCancelCause(t.Context())
	ctx, cancel := context.WithCancel(runtime)
	p := &played{cancel: cancel, stop: stop, slot: &slot{takes: time.Second}, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.sample, p.err = e.Play(ctx, port.RolloutRequest{ID: id, Level: 2}, p.slot)
		if p.err != nil && ctx.Err() == nil {
			p.log(e, id)
		}
	}()
	synctest.Wait()
	return p
}

func id(group loop.GroupID, sample, attempt int32) port.RolloutID {
	return port.RolloutID{Group: group, Sample: sample, Attempt: attempt}
}

func claim(t *testing.T, e *Dispatcher, worker string) protocol.Claim {
	t.Helper()
	claims, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: worker})
	if err != nil || len(claims.Rollouts) != 1 {
		t.Fatalf("worker %s claims %+v, %v: want one rollout", worker, claims, err)
	}
	return claims.Rollouts[0]
}

func sample(t *testing.T, e *Dispatcher, worker, id string, turn int, prompt ...int32) protocol.SampleReply {
	t.Helper()
	reply, err := e.Sample(t.Context(), id, protocol.SampleRequest{Worker: worker, Turn: turn, Prompt: prompt, MaxTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// refused checks code and a word of a refusal.

func refused(t *testing.T, err error, code protocol.Code, word string) {
	t.Helper()
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != code || !strings.Contains(refusal.Message, word) {
		t.Errorf("got %v: want %s with %q", err, code, word)
	}
}

// empty checks that nothing is left of the rollouts that were played.

func empty(t *testing.T, e *Dispatcher) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sessions)+len(e.latest)+len(e.started)+e.offers.Len()+e.waiters.Len()+e.claimed != 0 {
		t.Errorf("left: %d sessions, %d samples, %d offers, %d waiters, %d claimed", len(e.sessions), len(e.latest), e.offers.Len(), e.waiters.Len(), e.claimed)
	}
	for name, w := range e.workers.byName {
		if w.claims != 0 || w.open != 0 {
			t.Errorf("worker %s holds %d claims in %d calls", name, w.claims, w.open)
		}
	}
}

// inBubble runs a test under a clock of its own.

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// TestRollout: claim, two turns with tool tokens between them, a reward that is
// answered when the runtime has logged it.
