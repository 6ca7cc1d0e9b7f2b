package remote

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/protocol"
)

const (
	ttl        = 10 * time.Second
	vocabulary = 30
)

var (
	_ live.Environment  = (*Environment)(nil)
	_ live.Acknowledger = (*Environment)(nil)
)

// slot is a sampler whose responses take a time and are a function of the turn.
type slot struct {
	takes time.Duration
	err   error
	mu    sync.Mutex
	asked []live.SampleRequest
	// stopped: Check had stopped the response.
	stopped bool
}

func (s *slot) Sample(ctx context.Context, req live.SampleRequest) (live.Generation, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	n := int32(len(s.asked))
	s.mu.Unlock()
	for range 10 { // as an engine does, token by token
		select {
		case <-time.After(s.takes / 10):
		case <-ctx.Done():
			return live.Generation{}, ctx.Err()
		}
		if req.Check([]int32{n}) {
			s.stopped = true
			return live.Generation{Tokens: []int32{n}, Logprobs: []float32{-1}, Versions: []loop.Version{1}, Pruned: true}, nil
		}
	}
	if s.err != nil {
		return live.Generation{}, s.err
	}
	return live.Generation{Tokens: []int32{n, n + 1}, Logprobs: []float32{-0.5, -0.25}, Versions: []loop.Version{1, 2}, Truncated: n == 2}, nil
}

// played is a rollout that the runtime plays.
type played struct {
	cancel context.CancelFunc
	slot   *slot
	done   chan struct{}
	sample live.Sample
	err    error
}

func open(t *testing.T, change func(*Options)) *Environment {
	t.Helper()
	opt := Options{Name: "reverse", Seed: 7, ClaimTTL: ttl, Vocabulary: vocabulary, Limits: Limits{PromptTokens: 12, ResponseTokens: 4},
		Newest: func() loop.Version { return 5 }, Logf: t.Logf}
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
func play(t *testing.T, e *Environment, id live.RolloutID) *played {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &played{cancel: cancel, slot: &slot{takes: time.Second}, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.sample, p.err = e.Play(ctx, live.Task{ID: id, Level: 2}, p.slot)
	}()
	synctest.Wait()
	return p
}

func id(group loop.GroupID, sample, attempt int32) live.RolloutID {
	return live.RolloutID{Group: group, Sample: sample, Attempt: attempt}
}

func claim(t *testing.T, e *Environment, worker string) protocol.Claim {
	t.Helper()
	claims, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: worker})
	if err != nil || len(claims.Rollouts) != 1 {
		t.Fatalf("worker %s claims %+v, %v: want one rollout", worker, claims, err)
	}
	return claims.Rollouts[0]
}

func sample(t *testing.T, e *Environment, worker, id string, turn int, prompt ...int32) protocol.SampleReply {
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
func empty(t *testing.T, e *Environment) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sessions)+len(e.latest)+e.offers.Len()+e.waiters.Len()+e.claimed != 0 {
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
func TestRollout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(12, 3, 1))
		c := claim(t, e, "w")
		want := protocol.Claim{ID: "g12-s3-a1", Group: 12, Sample: 3, Attempt: 1, Environment: "reverse", Prompt: 12, Level: 2, Seed: 7, DeadlineS: 10}
		if c != want {
			t.Errorf("claim %+v, want %+v", c, want)
		}
		first := sample(t, e, "w", c.ID, 0, 20, 21)
		if !slices.Equal(first.Tokens, []int32{1, 2}) || first.Finish != "stop" {
			t.Errorf("first turn %+v", first)
		}
		second := sample(t, e, "w", c.ID, 1, 20, 21, 1, 2, 22, 23)
		if !slices.Equal(second.Tokens, []int32{2, 3}) || second.Finish != "length" {
			t.Errorf("second turn %+v", second)
		}
		var counted [2]bool
		finished := make(chan error, 2)
		for i := range 2 { // a repeated call waits with the first
			go func() {
				reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 0.5, Exact: true, ResponseText: "ab"})
				counted[i] = reply.Counted
				finished <- err
			}()
		}
		<-p.done
		synctest.Wait()
		if p.err != nil || len(finished) > 0 {
			t.Fatalf("Play returned %v; %d calls to finish were answered before the log", p.err, len(finished))
		}
		s := p.sample
		if !slices.Equal(s.Tokens, []int32{20, 21, 1, 2, 22, 23, 2, 3}) || !slices.Equal(s.LossMask, []uint8{0, 0, 1, 1, 0, 0, 1, 1}) ||
			!slices.Equal(s.Logprobs, []float32{0, 0, -0.5, -0.25, 0, 0, -0.5, -0.25}) || !slices.Equal(s.Versions, []loop.Version{-1, -1, 1, 2, -1, -1, 1, 2}) ||
			s.ID != id(12, 3, 1) || s.Reward != 0.5 || !s.Exact || !s.Truncated || s.Response != "ab" {
			t.Errorf("sample %+v", s)
		}
		e.Logged(id(12, 3, 1), true)
		for range 2 {
			if err := <-finished; err != nil {
				t.Errorf("finish answered %v", err)
			}
		}
		if counted != [2]bool{true, true} {
			t.Errorf("counted %v", counted)
		}
		again, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 0.5, Exact: true})
		if err != nil || !again.Counted {
			t.Errorf("finished again: %+v, %v", again, err)
		}
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
		refused(t, err, protocol.CodeConflict, "other words")
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "v", Reward: 0.5, Exact: true})
		refused(t, err, protocol.CodeConflict, "claimed by worker w")
		empty(t, e)
	})
}

// TestOrder: offers are claimed in their order, several at once, by workers in the
// order in which they began to wait; a worker that waits in vain hears so.
func TestOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		if got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w", WaitS: 3}); err != nil || len(got.Rollouts) != 0 {
			t.Errorf("nothing is offered: %+v, %v", got, err)
		}
		var order []string
		var mu sync.Mutex
		for _, worker := range []string{"a", "b", "c"} {
			go func() {
				got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: worker, WaitS: 60})
				mu.Lock()
				defer mu.Unlock()
				if err == nil && len(got.Rollouts) == 1 {
					order = append(order, worker+" "+got.Rollouts[0].ID)
				}
			}()
			synctest.Wait()
		}
		for g := range 7 {
			play(t, e, id(loop.GroupID(g+1), 0, 1))
		}
		if want := []string{"a g1-s0-a1", "b g2-s0-a1", "c g3-s0-a1"}; !slices.Equal(order, want) {
			t.Errorf("claimed %v, want %v", order, want)
		}
		if st := e.Status(); st.Known != 4 || st.Claimed != 3 || st.Offered != 4 {
			t.Errorf("status %+v", st)
		}
		got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "d", Max: 3})
		if err != nil || len(got.Rollouts) != 3 || got.Rollouts[0].Group != 4 || got.Rollouts[2].Group != 6 {
			t.Errorf("three at once: %+v, %v", got, err)
		}
	})
}

// TestClaimUnheard: what was granted to a call that nobody listens to any more is
// offered again, first.
func TestClaimUnheard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		for g := range 2 {
			play(t, e, id(loop.GroupID(g+1), 0, 1))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Claim(gone, protocol.ClaimRequest{Worker: "w", Max: 2}); !errors.Is(err, context.Canceled) {
			t.Errorf("claimed for nobody: %v", err)
		}
		if c := claim(t, e, "v"); c.Group != 1 {
			t.Errorf("claimed %s first", c.ID)
		}
		if c := claim(t, e, "v"); c.Group != 2 {
			t.Errorf("claimed %s second", c.ID)
		}
	})
}

// TestExpiry: a claim lasts its time from the end of the last call; then the attempt
// fails by a timeout, its worker is named, and what it sends afterwards is refused.
func TestExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		time.Sleep(ttl - 1)
		sample(t, e, "w", c.ID, 0, 20) // takes a second
		time.Sleep(ttl - 1)
		if reply, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil || !reply.Wanted || reply.DeadlineS != 10 {
			t.Errorf("touched: %+v, %v", reply, err)
		}
		time.Sleep(ttl/2 + 1)
		if st := e.Status(); !slices.Equal(st.Silent, []string{"w"}) || st.Claimed != 1 {
			t.Errorf("status %+v", st)
		}
		<-p.done
		if !errors.Is(p.err, context.DeadlineExceeded) || !strings.Contains(p.err.Error(), "worker w was silent for 10s") {
			t.Errorf("played: %v", p.err)
		}
		if st := e.Status(); !slices.Equal(st.Silent, []string{"w"}) || st.Claimed != 0 {
			t.Errorf("status after it %+v", st)
		}
		play(t, e, id(1, 0, 2))
		for _, err := range lateCalls(t, e, c.ID, "w") {
			refused(t, err, protocol.CodeExpired, "has expired")
		}
		other := claim(t, e, "v")
		if other.ID != "g1-s0-a2" {
			t.Errorf("claimed %s", other.ID)
		}
		if c := claim2(t, e, "w"); len(c) != 0 || len(e.Status().Silent) != 0 {
			t.Errorf("a worker that calls again is silent: %+v", e.Status())
		}
	})
}

// claim2 claims without waiting, and may get nothing.
func claim2(t *testing.T, e *Environment, worker string) []protocol.Claim {
	t.Helper()
	got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: worker})
	if err != nil {
		t.Error(err)
	}
	return got.Rollouts
}

// lateCalls are the errors of every call that names a claim.
func lateCalls(t *testing.T, e *Environment, id, worker string) []error {
	t.Helper()
	_, sampled := e.Sample(t.Context(), id, protocol.SampleRequest{Worker: worker, Prompt: []int32{20}, MaxTokens: 4})
	_, finished := e.Finish(t.Context(), id, protocol.FinishRequest{Worker: worker, Reward: 1})
	return []error{sampled, finished}
}

// TestExpiryWhileSampling: a worker that went away in the middle of a response is
// missed when its claim has lasted its time, and the response is not sampled to its end.
func TestExpiryWhileSampling(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		p.slot.takes = 100 * time.Second
		began := time.Now()
		c := claim(t, e, "w")
		gone, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := e.Sample(gone, c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sampling for nobody ended by %v", err)
		}
		<-p.done
		if !errors.Is(p.err, context.DeadlineExceeded) || !p.slot.stopped {
			t.Errorf("played: %v, stopped %v", p.err, p.slot.stopped)
		}
		if took := time.Since(began); took != 15*time.Second+ttl+5*time.Second { // to the next token
			t.Errorf("ended after %v", took)
		}
		for _, err := range lateCalls(t, e, c.ID, "w") {
			refused(t, err, protocol.CodeExpired, "has expired")
		}
		empty(t, e)
	})
}

// TestDroppedConnection: a sample survives the connection of the call that asked for
// it; the same turn asked again joins it, and asked once more gets the same.
func TestDroppedConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		req := protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4}
		gone, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := e.Sample(gone, c.ID, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a dropped call ended by %v", err)
		}
		began := time.Now()
		joined, err := e.Sample(t.Context(), c.ID, req)
		if waited := time.Since(began); err != nil || waited != 500*time.Millisecond {
			t.Errorf("joined after %v: %v", waited, err)
		}
		again, err := e.Sample(t.Context(), c.ID, req)
		if err != nil || !slices.Equal(again.Tokens, joined.Tokens) || len(p.slot.asked) != 1 {
			t.Errorf("again %+v, %v; before %+v; %d generations", again, err, joined, len(p.slot.asked))
		}
		req.Prompt = []int32{21}
		_, err = e.Sample(t.Context(), c.ID, req)
		refused(t, err, protocol.CodeConflict, "another prompt")
		req.Turn = 2
		_, err = e.Sample(t.Context(), c.ID, req)
		refused(t, err, protocol.CodeConflict, "too early")
		req.Turn, req.Prompt = 1, []int32{20, 9, 9, 9}
		_, err = e.Sample(t.Context(), c.ID, req)
		refused(t, err, protocol.CodeConflict, "changed history")
	})
}

// TestUnwanted: an attempt that the loop gives up, before it is claimed, while it is
// sampled and while its tools are at work, and one that another takes the place of.
func TestUnwanted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		p.cancel()
		<-p.done
		if !errors.Is(p.err, context.Canceled) || len(claim2(t, e, "w")) > 0 {
			t.Errorf("an offer that was given up: %v", p.err)
		}
		p = play(t, e, id(2, 0, 1))
		c := claim(t, e, "w")
		time.AfterFunc(time.Second/2, p.cancel)
		_, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
		refused(t, err, protocol.CodeExpired, "no longer wanted")
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
		refused(t, err, protocol.CodeExpired, "no longer wanted")
		if reply, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil || reply.Wanted {
			t.Errorf("touched: %+v, %v", reply, err)
		}
		old := play(t, e, id(3, 0, 1))
		c = claim(t, e, "w")
		play(t, e, id(3, 0, 2))
		<-old.done
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
		refused(t, err, protocol.CodeExpired, "g3-s0-a2 has taken its place")
	})
}

// TestGivenUpAfterFinish: a worker whose reward came in time, and whose rollout the
// loop then gave up, hears that it does not count, whether the runtime says so or not.
func TestGivenUpAfterFinish(t *testing.T) {
	for name, giveUp := range map[string]func(*Environment, *played){
		"logged":  func(e *Environment, _ *played) { e.Logged(id(1, 0, 1), false) },
		"context": func(_ *Environment, p *played) { p.cancel() },
		"late":    func(e *Environment, p *played) { p.cancel(); synctest.Wait(); e.Logged(id(1, 0, 1), true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, nil)
				p := play(t, e, id(1, 0, 1))
				c := claim(t, e, "w")
				sample(t, e, "w", c.ID, 0, 20)
				go func() {
					<-p.done
					giveUp(e, p)
				}()
				reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
				if err != nil || reply.Counted {
					t.Errorf("answered %+v, %v", reply, err)
				}
				empty(t, e)
			})
		})
	}
}

// TestFailures: a worker may fail a rollout, by two reasons, and an engine may.
func TestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		for reason, timeout := range map[string]bool{"": false, "environment": false, "timeout": true} {
			p := play(t, e, id(1, 0, 1))
			c := claim(t, e, "w")
			reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Failed: "the sandbox died", Reason: reason})
			<-p.done
			if err != nil || reply.Counted || !strings.Contains(p.err.Error(), "the sandbox died") || errors.Is(p.err, context.DeadlineExceeded) != timeout {
				t.Errorf("failed by %q: %+v, %v; played %v", reason, reply, err, p.err)
			}
		}
		p := play(t, e, id(2, 0, 1))
		p.slot.err = errors.New("out of memory")
		c := claim(t, e, "w")
		_, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
		refused(t, err, protocol.CodeExpired, "its engine failed")
		<-p.done
		if !errors.Is(p.err, p.slot.err) {
			t.Errorf("played: %v", p.err)
		}
		empty(t, e)
	})
}

// TestSampledElsewhere: a rollout may come with its tokens, and with none that cannot be.
func TestSampledElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		good := func() protocol.FinishRequest {
			return protocol.FinishRequest{Worker: "w", Reward: 1, Tokens: []int32{20, 1, 2}, LossMask: []uint8{0, 1, 1}, Logprobs: []float32{0, -1, 0}, Versions: []loop.Version{0, 0, 5}}
		}
		for word, change := range map[string]func(*protocol.FinishRequest){
			"3 tokens, 2 loss_mask":  func(r *protocol.FinishRequest) { r.LossMask = r.LossMask[:2] },
			"logprobs[1] is NaN":     func(r *protocol.FinishRequest) { r.Logprobs[1] = float32(math.NaN()) },
			"logprobs[2] is -Inf":    func(r *protocol.FinishRequest) { r.Logprobs[2] = float32(math.Inf(-1)) },
			"logprobs[1] is 0.5":     func(r *protocol.FinishRequest) { r.Logprobs[1] = 0.5 },
			"loss_mask[1] is 2":      func(r *protocol.FinishRequest) { r.LossMask[1] = 2 },
			"loss_mask has no 1":     func(r *protocol.FinishRequest) { r.LossMask = []uint8{0, 0, 0} },
			"tokens[0] is 30":        func(r *protocol.FinishRequest) { r.Tokens[0] = vocabulary },
			"tokens[2] is -1":        func(r *protocol.FinishRequest) { r.Tokens[2] = -1 },
			"versions[1] is 6":       func(r *protocol.FinishRequest) { r.Versions[1] = 6 },
			"versions[2] is -1":      func(r *protocol.FinishRequest) { r.Versions[2] = -1 },
			"stand without tokens":   func(r *protocol.FinishRequest) { r.Tokens = nil },
			"nothing was sampled":    func(r *protocol.FinishRequest) { *r = protocol.FinishRequest{Worker: "w", Reward: 1} },
			"reward is NaN":          func(r *protocol.FinishRequest) { r.Reward = float32(math.NaN()) },
			"reward is +Inf":         func(r *protocol.FinishRequest) { r.Reward = float32(math.Inf(1)) },
			"without failed":         func(r *protocol.FinishRequest) { r.Reason = "timeout" },
			`reason is "tired"`:      func(r *protocol.FinishRequest) { r.Failed, r.Reason = "no", "tired" },
			`want letters, digits`:   func(r *protocol.FinishRequest) { r.Worker = "a b" },
			`want 1 to 128 characte`: func(r *protocol.FinishRequest) { r.Worker = "" },
		} {
			req := good()
			change(&req)
			_, err := e.Finish(t.Context(), c.ID, req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		req := good()
		for range 14 {
			req.Tokens, req.LossMask, req.Logprobs, req.Versions = append(req.Tokens, 1), append(req.LossMask, 1), append(req.Logprobs, -1), append(req.Versions, 1)
		}
		_, err := e.Finish(t.Context(), c.ID, req)
		refused(t, err, protocol.CodeTooLarge, "may have 16")
		go e.Finish(t.Context(), c.ID, good())
		<-p.done
		if s := p.sample; p.err != nil || !slices.Equal(s.Tokens, []int32{20, 1, 2}) || !slices.Equal(s.Versions, []loop.Version{-1, 0, 5}) || s.Logprobs[1] != -1 {
			t.Errorf("played %+v, %v", p.sample, p.err)
		}
		e.Logged(id(1, 0, 1), true)

		play(t, e, id(2, 0, 1))
		c = claim(t, e, "w")
		sample(t, e, "w", c.ID, 0, 20)
		_, err = e.Finish(t.Context(), c.ID, good())
		refused(t, err, protocol.CodeInvalid, "was sampled here")
		e.opt.Newest = nil
		play(t, e, id(3, 0, 1))
		_, err = e.Finish(t.Context(), claim(t, e, "w").ID, good())
		refused(t, err, protocol.CodeInvalid, "call sample")
	})
}

// TestBadCalls: what cannot be meant is refused and leaves the claim as it was.
func TestBadCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		play(t, e, id(1, 0, 1))
		_, err := e.Touch(t.Context(), "g1-s0-a1", protocol.TouchRequest{Worker: "w"})
		refused(t, err, protocol.CodeConflict, "not claimed")
		c := claim(t, e, "w")
		for word, req := range map[string]protocol.SampleRequest{
			"prompt is empty":    {MaxTokens: 4},
			"prompt[1] is 30":    {Prompt: []int32{0, vocabulary}, MaxTokens: 4},
			"max_tokens is 5":    {Prompt: []int32{0}, MaxTokens: 5},
			"max_tokens is -1":   {Prompt: []int32{0}, MaxTokens: -1},
			"turns count from 0": {Prompt: []int32{0}, Turn: -1},
		} {
			req.Worker = "w"
			_, err := e.Sample(t.Context(), c.ID, req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		_, err = e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: make([]int32, 13), MaxTokens: 4})
		refused(t, err, protocol.CodeTooLarge, "at most 12")
		for word, req := range map[string]protocol.ClaimRequest{
			"max is 1025":      {Worker: "w", Max: 1025},
			"max is -1":        {Worker: "w", Max: -1},
			"wait_s is 61":     {Worker: "w", WaitS: 61},
			"wait_s is -1":     {Worker: "w", WaitS: -1},
			"wait_s is NaN":    {Worker: "w", WaitS: math.NaN()},
			`worker "a/b"`:     {Worker: "a/b"},
			`is not among the`: {Worker: "w", Environments: []string{"sort", "chess"}},
		} {
			_, err := e.Claim(t.Context(), req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		for id, code := range map[string]protocol.Code{
			"g1-s0-a1x": protocol.CodeNotFound, "": protocol.CodeNotFound, "../status": protocol.CodeNotFound, "g01-s0-a1": protocol.CodeNotFound,
			"g1-s0-a9": protocol.CodeExpired, "g99-s0-a1": protocol.CodeExpired,
		} {
			_, err := e.Touch(t.Context(), id, protocol.TouchRequest{Worker: "w"})
			refused(t, err, code, "")
		}
		_, err = e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "v", Prompt: []int32{0}, MaxTokens: 4})
		refused(t, err, protocol.CodeConflict, "claimed by worker w")
		if got := sample(t, e, "w", c.ID, 0, 20); len(got.Tokens) != 2 {
			t.Errorf("the claim did not survive: %+v", got)
		}
		go e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Turn: 1, Prompt: []int32{20, 1, 2}})
		synctest.Wait()
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
		refused(t, err, protocol.CodeConflict, "still being sampled")
	})
}

// TestEnd: what waits when the run ends, and when the process stops.
func TestEnd(t *testing.T) {
	for name, stop := range map[string]struct {
		do    func(*Environment)
		claim string
		late  protocol.Code
	}{
		"run":   {(*Environment).EndRun, protocol.ErrRunEnded.Error(), protocol.CodeExpired},
		"both":  {func(e *Environment) { e.Drain(); e.EndRun(); e.Close() }, protocol.ErrRunEnded.Error(), protocol.CodeExpired},
		"close": {func(e *Environment) { e.Drain(); e.Close() }, "unavailable: ", protocol.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, nil)
				p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
				c, d := claim(t, e, "w"), claim(t, e, "v")
				sample(t, e, "w", c.ID, 0, 20)
				var waiting, finishing, sampling error
				var wg sync.WaitGroup
				wg.Go(func() { _, waiting = e.Claim(t.Context(), protocol.ClaimRequest{Worker: "u", WaitS: 60}) })
				wg.Go(func() { _, finishing = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: 1}) })
				wg.Go(func() {
					_, sampling = e.Sample(t.Context(), d.ID, protocol.SampleRequest{Worker: "v", Prompt: []int32{20}})
				})
				synctest.Wait()
				stop.do(e)
				wg.Wait()
				if waiting == nil || !strings.Contains(waiting.Error(), stop.claim) {
					t.Errorf("a waiting claim ended by %v", waiting)
				}
				refused(t, finishing, protocol.CodeUnavailable, "")
				refused(t, sampling, protocol.CodeUnavailable, "")
				_, err := e.Touch(t.Context(), d.ID, protocol.TouchRequest{Worker: "v"})
				refused(t, err, stop.late, "")
				p.cancel()
				q.cancel()
				<-p.done
				<-q.done
				synctest.Wait()
				empty(t, e)
			})
		})
	}
}

// TestDrain: nothing new is claimed, and what is claimed may finish; what the runtime
// then gives up is not said to count for nothing.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
		c, d := claim(t, e, "w"), claim(t, e, "w")
		e.Drain()
		play(t, e, id(3, 0, 1))
		_, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w", WaitS: 60})
		refused(t, err, protocol.CodeUnavailable, "stopping")
		for i, claim := range []protocol.Claim{c, d} {
			sample(t, e, "w", claim.ID, 0, 20)
			if i == 0 {
				go func() { <-p.done; e.Logged(id(1, 0, 1), true) }()
			} else {
				go func() { <-q.done; q.cancel() }()
			}
			reply, err := e.Finish(t.Context(), claim.ID, protocol.FinishRequest{Worker: "w", Reward: 1})
			if i == 0 && (err != nil || !reply.Counted) {
				t.Errorf("finished under a drain: %+v, %v", reply, err)
			}
			if i == 1 {
				refused(t, err, protocol.CodeUnavailable, "before g2-s0-a1 was logged")
			}
		}
	})
}

// TestMemory: what has ended is remembered up to a number, and forgotten beyond it.
func TestMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		for g := range Kept + 10 {
			task := id(loop.GroupID(g+1), 0, 1)
			done := make(chan struct{})
			go func() {
				defer close(done)
				e.Play(t.Context(), live.Task{ID: task}, &slot{})
			}()
			synctest.Wait()
			c := claim(t, e, "w")
			if _, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Failed: "no"}); err != nil {
				t.Fatal(err)
			}
			<-done
		}
		empty(t, e)
		if len(e.past.outcomes) != Kept || len(e.past.order) != Kept {
			t.Errorf("%d outcomes of %d claims are kept, want %d", len(e.past.outcomes), len(e.past.order), Kept)
		}
		failed := protocol.FinishRequest{Worker: "w", Failed: "no"}
		if _, err := e.Finish(t.Context(), "g11-s0-a1", failed); err != nil {
			t.Errorf("the oldest that is kept: %v", err)
		}
		_, err := e.Finish(t.Context(), "g10-s0-a1", failed)
		refused(t, err, protocol.CodeExpired, "ended long ago")
		for i := range 3 * workersMin {
			claim2(t, e, "x"+strings.Repeat("y", i%100)+string(rune('a'+i%26))+string(rune('a'+i/26%26)))
			time.Sleep(time.Second)
		}
		if n := len(e.workers.byName); n > 2*workersMin {
			t.Errorf("%d workers are remembered", n)
		}
	})
}

// TestOptions: what cannot be is refused by name.
func TestOptions(t *testing.T) {
	for word, change := range map[string]func(*Options){
		"Name":       func(o *Options) { o.Name = "" },
		"lasts":      func(o *Options) { o.ClaimTTL = 0 },
		"vocabulary": func(o *Options) { o.Vocabulary = 0 },
		"limits":     func(o *Options) { o.Limits.ResponseTokens = -1 },
	} {
		opt := Options{Name: "reverse", ClaimTTL: ttl, Vocabulary: 3}
		change(&opt)
		if _, err := New(opt); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
