package remote

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

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
				reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(0.5)), Exact: true, ResponseText: "ab"})
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
		again, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(0.5)), Exact: true})
		if err != nil || !again.Counted {
			t.Errorf("finished again: %+v, %v", again, err)
		}
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeConflict, "other words")
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "v", Reward: new(float32(0.5)), Exact: true})
		refused(t, err, protocol.CodeConflict, "not claimed under the name v")
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

// TestStartOrder: offers stand in the order in which the loop starts rollouts, whichever of the goroutines
// that play them begins first, for a worker that waits as for one that comes later. One that is claimed
// and over before it is played, or has been replaced by then, is over.
func TestStartOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		var waited protocol.Claims
		go func() { waited, _ = e.Claim(t.Context(), protocol.ClaimRequest{Worker: "v", WaitS: 60}) }()
		synctest.Wait()
		order := []port.RolloutID{id(2, 0, 1), id(2, 1, 1), id(1, 1, 2), id(3, 0, 1), id(3, 0, 2)}
		for _, rollout := range order {
			e.Starting(port.RolloutRequest{ID: rollout})
		}
		synctest.Wait()
		if len(waited.Rollouts) != 1 || waited.Rollouts[0].ID != "g2-s0-a1" {
			t.Errorf("who had waited got %+v", waited)
		}
		failed := claim(t, e, "w")
		var finishing sync.WaitGroup
		finishing.Go(func() {
			if _, err := e.Finish(t.Context(), failed.ID, protocol.FinishRequest{Worker: "w", Failed: "no"}); err != nil {
				t.Error(err)
			}
		})
		defer finishing.Wait()
		synctest.Wait()
		var all []*played
		for _, rollout := range slices.Backward(order) {
			all = append(all, play(t, e, rollout))
		}
		for i, over := range []error{nil, context.Canceled, nil, errAny, nil} {
			select {
			case <-all[i].done:
				if over == nil || over != errAny && !errors.Is(all[i].err, over) {
					t.Errorf("%v ended by %v, want %v", order[len(order)-1-i], all[i].err, over)
				}
			default:
				if over != nil {
					t.Errorf("%v is played on", order[len(order)-1-i])
				}
			}
		}
		got := []string{failed.ID}
		for range 2 {
			got = append(got, claim(t, e, "w").ID)
		}
		if want := []string{"g2-s1-a1", "g1-s1-a2", "g3-s0-a2"}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		for _, p := range all {
			p.cancel()
		}
		synctest.Wait()
		empty(t, e)
	})
}

// errAny stands for any error.
var errAny = errors.New("any")

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
		if !errors.Is(p.err, context.DeadlineExceeded) || p.err.Error() != "env/remote: the claim of g1-s0-a1 has expired: for 10s no call named it, and server.claim_s is 10s; worker w holds it, which has not called for anything else either" {
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

// TestExpiryOfABusyWorker: a worker that calls for other claims is not called silent when one
// expires that no call has named.
func TestExpiryOfABusyWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
		unused, used := claim(t, e, "w"), claim(t, e, "w")
		time.Sleep(ttl - 1)
		if _, err := e.Touch(t.Context(), used.ID, protocol.TouchRequest{Worker: "w"}); err != nil {
			t.Error(err)
		}
		<-p.done
		if text := p.err.Error(); !errors.Is(p.err, context.DeadlineExceeded) || strings.Contains(text, "silent") || strings.Contains(text, "deadline") ||
			!strings.Contains(text, "for 10s no call named it") || !strings.Contains(text, "called for others meanwhile") {
			t.Errorf("played: %v", p.err)
		}
		if st := e.Status(); len(st.Silent) != 0 || st.Claimed != 1 {
			t.Errorf("status %+v", st)
		}
		_, err := e.Touch(t.Context(), unused.ID, protocol.TouchRequest{Worker: "w"})
		refused(t, err, protocol.CodeExpired, "because no call named it for 10s")
		q.cancel()
	})
}

// claim2 claims without waiting, and may get nothing.

func claim2(t *testing.T, e *Dispatcher, worker string) []protocol.Claim {
	t.Helper()
	got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: worker})
	if err != nil {
		t.Error(err)
	}
	return got.Rollouts
}

// lateCalls are the errors of every call that names a claim.

func lateCalls(t *testing.T, e *Dispatcher, id, worker string) []error {
	t.Helper()
	_, sampled := e.Sample(t.Context(), id, protocol.SampleRequest{Worker: worker, Prompt: []int32{20}, MaxTokens: 4})
	_, finished := e.Finish(t.Context(), id, protocol.FinishRequest{Worker: worker, Reward: new(float32(1))})
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
		if took := time.Since(began); took != 15*time.Second+ttl {
			t.Errorf("ended after %v", took)
		}
		for _, err := range lateCalls(t, e, c.ID, "w") {
			refused(t, err, protocol.CodeExpired, "has expired")
		}
		empty(t, e)
	})
}

// TestExpiryAtADeafEngine: an engine that samples on for a worker that is gone, and then
// fails, does not take the blame.
func TestExpiryAtADeafEngine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		p.slot.takes, p.slot.deaf, p.slot.err = 100*time.Second, true, errors.New("out of memory")
		c := claim(t, e, "w")
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e.Sample(gone, c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
		<-p.done
		if !errors.Is(p.err, context.DeadlineExceeded) || errors.Is(p.err, p.slot.err) {
			t.Errorf("played: %v", p.err)
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
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeExpired, "no longer wanted")
		if reply, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil || reply.Wanted {
			t.Errorf("touched: %+v, %v", reply, err)
		}
		old := play(t, e, id(3, 0, 1))
		c = claim(t, e, "w")
		play(t, e, id(3, 0, 2))
		<-old.done
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeExpired, "g3-s0-a2 has taken its place")
	})
}

// TestGivenUpAfterFinish: a worker whose reward came in time, and whose rollout the
// loop then gave up, hears that it does not count, whether the runtime says so or not.

func TestGivenUpAfterFinish(t *testing.T) {
	for name, giveUp := range map[string]func(*Dispatcher, *played){
		"logged":  func(e *Dispatcher, _ *played) { e.Logged(id(1, 0, 1), false) },
		"context": func(_ *Dispatcher, p *played) { p.cancel() },
		"late":    func(e *Dispatcher, p *played) { p.cancel(); synctest.Wait(); e.Logged(id(1, 0, 1), true) },
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
				reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
				if err != nil || reply.Counted {
					t.Errorf("answered %+v, %v", reply, err)
				}
				empty(t, e)
			})
		})
	}
}

// A worker whose reward came in time is not told that it does not count where the runtime has ended: it may be in the log.
func TestRuntimeEndsAfterFinish(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		sample(t, e, "w", c.ID, 0, 20)
		go func() {
			<-p.done
			p.stop(port.ErrEnded)
		}()
		_, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeUnavailable, "before the end of g1-s0-a1 was logged")
		empty(t, e)
	})
}

// TestFailures: a worker may fail a rollout, by three reasons, and an engine may.
func TestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		for reason, is := range map[string]error{"": nil, "environment": nil, "timeout": context.DeadlineExceeded, "data": port.ErrData} {
			p := play(t, e, id(1, 0, 1))
			c := claim(t, e, "w")
			reply, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Failed: "the sandbox died", Reason: reason})
			<-p.done
			if err != nil || reply.Counted || !strings.Contains(p.err.Error(), "the sandbox died") ||
				errors.Is(p.err, context.DeadlineExceeded) != (is == context.DeadlineExceeded) || errors.Is(p.err, port.ErrData) != (is == port.ErrData) {
				t.Errorf("failed by %q: %+v, %v; played %v", reason, reply, err, p.err)
			}
		}
		// What a worker says becomes one short line: a log and a terminal are not its to write in.
		p := play(t, e, id(3, 0, 1))
		long := "no\x1b[2J\n10:00:00 all is well" + strings.Repeat("x", 900_000)
		if _, err := e.Finish(t.Context(), claim(t, e, "w").ID, protocol.FinishRequest{Worker: "w", Failed: long}); err != nil {
			t.Error(err)
		}
		<-p.done
		if said := p.err.Error(); len(said) > failedBytesMax+200 || strings.ContainsAny(said, "\x1b\n") || !strings.Contains(said, `no\x1b[2J\n10:00`) || !strings.Contains(said, "bytes more)") {
			t.Errorf("failed by %.200q, %d bytes", said, len(said))
		}
		p = play(t, e, id(2, 0, 1))
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
