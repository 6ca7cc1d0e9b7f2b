package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func TestEnd(t *testing.T) {
	for name, stop := range map[string]struct {
		do    func(*Dispatcher)
		claim string
		late  protocol.Code
	}{
		"run":   {(*Dispatcher).EndRun, protocol.ErrRunEnded.Error(), protocol.CodeExpired},
		"both":  {func(e *Dispatcher) { e.Drain(); e.EndRun(); e.Close() }, protocol.ErrRunEnded.Error(), protocol.CodeExpired},
		"close": {func(e *Dispatcher) { e.Drain(); e.Close() }, "unavailable: ", protocol.CodeUnavailable},
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
				wg.Go(func() {
					_, finishing = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
				})
				wg.Go(func() {
					_, sampling = e.Sample(t.Context(), d.ID, protocol.SampleRequest{Worker: "v", Prompt: []int32{20}})
				})
				synctest.Wait()
				stop.do(e)
				wg.Wait()
				if waiting == nil || !strings.Contains(waiting.Error(), stop.claim) {
					t.Errorf("a waiting claim ended by %v", waiting)
				}
				refused(t, finishing, stop.late, "")
				refused(t, sampling, stop.late, "")
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
			reply, err := e.Finish(t.Context(), claim.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
			if i == 0 && (err != nil || !reply.Counted) {
				t.Errorf("finished under a drain: %+v, %v", reply, err)
			}
			if i == 1 {
				refused(t, err, protocol.CodeUnavailable, "before the end of g2-s0-a1 was logged")
			}
		}
	})
}

// TestDrainGivesUp: a rollout that the runtime gives up because the process stops is not said to be
// unwanted. Whoever samples or touches it is told to come again.
func TestDrainGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
		c, idle := claim(t, e, "w"), claim(t, e, "w")
		var sampling error
		var wg sync.WaitGroup
		wg.Go(func() {
			_, sampling = e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
		})
		synctest.Wait()
		e.Drain()
		p.cancel()
		q.cancel()
		wg.Wait()
		<-q.done
		refused(t, sampling, protocol.CodeUnavailable, "is stopping")
		_, err := e.Turn(t.Context(), idle.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
		refused(t, err, protocol.CodeUnavailable, "is stopping")
		_, err = e.Finish(t.Context(), idle.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeUnavailable, "is stopping")
		touch := func() (protocol.TouchReply, error) {
			return e.Touch(t.Context(), idle.ID, protocol.TouchRequest{Worker: "w"})
		}
		_, err = touch()
		refused(t, err, protocol.CodeUnavailable, "is stopping")
		<-p.done
		empty(t, e)
		e.claimErr = protocol.ErrRunEnded
		if reply, err := touch(); err != nil || reply.Wanted {
			t.Errorf("a rollout of a run that has ended: %+v, %v", reply, err)
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
				e.Play(t.Context(), port.RolloutRequest{ID: task}, &slot{})
				e.Logged(task, false)
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

// TestClockLeaps: an injected clock that leaps, ahead and, against its contract, back,
// costs claims at worst: what is played still ends once.
func TestClockLeaps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		began, leap := time.Now(), time.Duration(0)
		e := open(t, func(o *Options) { o.Clock = func() int64 { return int64(time.Since(began) + leap) } })
		p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
		c, d := claim(t, e, "w"), claim(t, e, "w")
		leap = -time.Hour
		if _, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * ttl) // c was touched after the leap; d's deadline is an hour away
		<-p.done
		sample(t, e, "w", d.ID, 0, 20)
		leap = time.Hour
		_, err := e.Touch(t.Context(), d.ID, protocol.TouchRequest{Worker: "w"})
		refused(t, err, protocol.CodeExpired, "has expired")
		<-q.done
		for _, p := range []*played{p, q} {
			if !errors.Is(p.err, context.DeadlineExceeded) {
				t.Errorf("played: %v", p.err)
			}
		}
		empty(t, e)
		if st := e.Status(); st.Claimed != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestGivenUp: what the runtime gives up because its process ends is not said to count for nothing, though its reward has
// been accepted, and though nobody has said that the process stops.
func TestGivenUp(t *testing.T) {
	for name, k := range map[string]struct {
		state state
		why   error
		want  outcomeKind
	}{
		"claimed, ended":    {stateClaimed, port.ErrEnded, outcomeStopped},
		"claimed, aborted":  {stateClaimed, context.Canceled, outcomeUnwanted},
		"accepted, ended":   {stateAccepted, port.ErrEnded, outcomeUnlogged},
		"accepted, aborted": {stateAccepted, context.Canceled, outcomeFinished},
		"returned, ended":   {stateReturned, port.ErrEnded, outcomeUnlogged},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, nil)
				p := play(t, e, id(1, 0, 1))
				c := claim(t, e, "w")
				e.mu.Lock()
				s := e.sessions[c.ID]
				s.state = k.state
				e.giveUp(s, fmt.Errorf("the cell: %w", k.why))
				was := e.past.find(c.ID)
				e.mu.Unlock()
				if was == nil || was.kind != k.want {
					t.Errorf("it is %+v, want %v", was, k.want)
				}
				p.cancel()
				<-p.done
			})
		})
	}
}

// TestUnlogged: nobody is told for good of a failure that the log does not have, since the next process may go on with the rollout.
func TestUnlogged(t *testing.T) {
	for name, after := range map[string]struct {
		do       func(e *Dispatcher, id port.RolloutID)
		code     protocol.Code
		answered bool
	}{
		"logged": {func(e *Dispatcher, id port.RolloutID) { e.Logged(id, false) }, protocol.CodeExpired, true},
		"ended":  {func(e *Dispatcher, _ port.RolloutID) { e.EndRun() }, protocol.CodeExpired, true},
		"closed": {func(e *Dispatcher, _ port.RolloutID) { e.Close() }, protocol.CodeUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, nil)
				broken, failed, silent := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1)), play(t, e, id(3, 0, 1))
				all := []*played{broken, failed, silent}
				b, f, s := claim(t, e, "w"), claim(t, e, "w"), claim(t, e, "w")
				for _, p := range all {
					p.unlogged = true
				}
				finish := func() (protocol.FinishReply, error) {
					return e.Finish(t.Context(), f.ID, protocol.FinishRequest{Worker: "w", Failed: "no"})
				}
				touch := func(id string) (protocol.TouchReply, error) {
					reply, err := e.Touch(t.Context(), id, protocol.TouchRequest{Worker: "w"})
					return reply, e.Lasting(t.Context(), id, err)
				}
				sampled := func() error {
					_, err := e.Sample(t.Context(), b.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
					return e.Lasting(t.Context(), b.ID, err)
				}
				broken.slot.err = errors.New("no GPU")
				refused(t, sampled(), protocol.CodeUnavailable, "the log does not have that yet")
				var finishing sync.WaitGroup
				var reply protocol.FinishReply
				var err error
				finishing.Go(func() { reply, err = finish() })
				time.Sleep(ttl) // of the claim that nobody names, for a time in which the log takes nothing
				for _, p := range all {
					<-p.done
				}
				for _, claim := range []protocol.Claim{b, s} {
					_, err := touch(claim.ID)
					refused(t, err, protocol.CodeUnavailable, "the log does not have that yet")
				}
				synctest.Wait()
				if said, late := touch(f.ID); late != nil || !said.Wanted || err != nil || reply != (protocol.FinishReply{}) {
					t.Errorf("a failure that is not logged: %+v, %v; finished with %+v, %v", said, late, reply, err)
				}
				for i := range all {
					after.do(e, id(loop.GroupID(i+1), 0, 1))
				}
				finishing.Wait()
				if (err == nil) != after.answered || reply.Counted {
					t.Errorf("%+v, %v", reply, err)
				}
				if again, err := finish(); (err == nil) != after.answered || again != reply {
					t.Errorf("finished again: %+v, %v", again, err)
				}
				refused(t, sampled(), after.code, "")
				_, err = touch(s.ID)
				refused(t, err, after.code, "")
				if after.code == protocol.CodeExpired && len(e.unlogged) > 0 && !e.runEnded() {
					t.Errorf("left: %v", e.unlogged)
				}
				if reply, err := touch(b.ID); (err == nil) != after.answered || reply.Wanted {
					t.Errorf("%+v, %v", reply, err)
				}
			})
		})
	}
}

// TestReplaced: a process in whose place another may be gives no rollout up for good, though an engine failed there.
func TestReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var fence error
		e := open(t, func(o *Options) { o.Replaced = func(context.Context) error { return fence } })
		p, q := play(t, e, id(1, 0, 1)), play(t, e, id(2, 0, 1))
		c, done := claim(t, e, "w"), claim(t, e, "w")
		sample(t, e, "w", done.ID, 0, 20)
		go func() { <-q.done; e.Logged(id(2, 0, 1), true) }()
		if reply, err := e.Finish(t.Context(), done.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))}); err != nil || !reply.Counted {
			t.Fatalf("%+v, %v", reply, err)
		}
		p.slot.err = errors.New("the server samples while it should stand still")
		_, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}, MaxTokens: 4})
		refused(t, e.Lasting(t.Context(), c.ID, err), protocol.CodeExpired, "its engine failed")
		if reply, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil || reply.Wanted {
			t.Errorf("%+v, %v", reply, err)
		}
		fence = errors.New("the lease was not renewed")
		ask := func(id string) (error, error) {
			_, sampled := e.Sample(t.Context(), id, protocol.SampleRequest{Worker: "w", Turn: 1, Prompt: []int32{20}, MaxTokens: 4})
			_, touched := e.Touch(t.Context(), id, protocol.TouchRequest{Worker: "w"})
			return e.Lasting(t.Context(), id, sampled), e.Lasting(t.Context(), id, touched)
		}
		sampled, touched := ask(c.ID)
		refused(t, sampled, protocol.CodeUnavailable, "the lease was not renewed")
		refused(t, touched, protocol.CodeUnavailable, "the lease was not renewed")
		for _, id := range []string{done.ID, "g9-s0-a1"} {
			sampled, touched := ask(id)
			refused(t, sampled, protocol.CodeUnavailable, "may go on at another process")
			refused(t, touched, protocol.CodeUnavailable, "may go on at another process")
		}
		for _, code := range []protocol.Code{protocol.CodeBusy, protocol.CodeDiskFull, protocol.CodeInternal} { // which ask to come again
			if err := protocol.Refuse(code, "later"); e.Lasting(t.Context(), c.ID, err) != error(err) {
				t.Errorf("%v becomes another", err)
			}
		}
		e.EndRun()
		if _, touched := ask(c.ID); touched != nil {
			t.Errorf("after the run's end: %v", touched)
		}
	})
}
