package remote

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

var _ port.Restorer = (*Dispatcher)(nil)

// shelf keeps turns in memory. It can hold up whoever puts something there, or refuse it.
type shelf struct {
	mu   sync.Mutex
	all  map[port.RolloutID][][]byte
	hold chan struct{}
	err  error
	// unkeeping holds up whoever has nothing be kept, stuck refuses it. With late what is put is there, though its put fails.
	unkeeping chan struct{}
	stuck     error
	late      bool
	// unread is the error of who reads.
	unread error
}

func newShelf() *shelf { return &shelf{all: map[port.RolloutID][][]byte{}} }

func (s *shelf) KeepTurn(id port.RolloutID, number int32, data []byte) error {
	s.mu.Lock()
	hold, err := s.hold, s.err
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && !s.late:
		return err
	case int(number) != len(s.all[id]):
		return errors.New("out of turn")
	}
	s.all[id] = append(s.all[id], slices.Clone(data))
	return err
}

func (s *shelf) KeptTurns(id port.RolloutID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all[id])
}

func (s *shelf) ReadTurns(id port.RolloutID) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != nil {
		return nil, s.unread
	}
	return slices.Clone(s.all[id]), nil
}

func (*shelf) KeptBlobs(port.RolloutID) []int32 { return nil }

func (s *shelf) UnkeepTurns(id port.RolloutID) error {
	s.mu.Lock()
	unkeeping, err := s.unkeeping, s.stuck
	s.mu.Unlock()
	if unkeeping != nil {
		<-unkeeping
	}
	if err != nil {
		return err
	}
	s.DropTurns(id)
	return nil
}

func (s *shelf) DropTurns(id port.RolloutID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

func (s *shelf) RetainTurns(stands func(port.RolloutID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(id port.RolloutID, _ [][]byte) bool { return !stands(id) })
}

func (s *shelf) change(hold chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.err = hold, err
}

func keeping(s *shelf) func(*Options) { return func(o *Options) { o.Turns = s } }

// again plays a rollout in a process that begins where another has ended. It returns how far it had come.
func again(t *testing.T, e *Dispatcher, id port.RolloutID) (*played, port.Progress) {
	t.Helper()
	task := port.RolloutRequest{ID: id, Level: 2}
	e.Restoring(task)
	progress := e.Restore(task)
	p := play(t, e, id)
	p.slot.asked = make([]port.SampleRequest, progress.Turns) // whose responses are a function of the turn
	return p, progress
}

// leftTurn is what a process leaves that has ended behind a turn of a rollout, with the claim of that.
func leftTurn(t *testing.T) (*shelf, protocol.Claim) {
	t.Helper()
	kept := newShelf()
	e := open(t, keeping(kept))
	play(t, e, id(1, 0, 2))
	c := claim(t, e, "w")
	ask(t, e, c.ID, 20)
	e.Close()
	return kept, c
}

// TestHoldWhileRestored: a call that comes while its rollout is being read counts as one that came before.
func TestHoldWhileRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept, c := leftTurn(t)
		e := open(t, keeping(kept))
		task := port.RolloutRequest{ID: id(1, 0, 2), Level: 2}
		e.Restoring(task)
		held := make(chan func())
		go func() { held <- e.Hold(t.Context(), c.ID) }()
		synctest.Wait()
		e.Restore(task)
		release := <-held
		p := play(t, e, id(1, 0, 2))
		time.Sleep(3 * ttl)
		release()
		if _, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); err != nil {
			t.Error(err)
		}
		p.cancel()
		<-p.done
	})
}

// TestRestoreFails: where a process cannot read the turns of a rollout, the next may. So its worker is refused for now until
// the log has that the rollout is tried again.
func TestRestoreFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept, c := leftTurn(t)
		kept.unread = errors.New("the disk is full")
		e := open(t, keeping(kept))
		task := port.RolloutRequest{ID: id(1, 0, 2)}
		e.Restoring(task)
		e.Restore(task)
		touch := func() error {
			_, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"})
			return e.Lasting(t.Context(), c.ID, err)
		}
		refused(t, touch(), protocol.CodeUnavailable, "the log does not have that yet")
		play(t, e, id(1, 0, 2)) // which fails, and is logged
		refused(t, touch(), protocol.CodeExpired, "is not being played")
	})
}

// finish finishes a rollout and returns what it had come to.
func finish(t *testing.T, e *Dispatcher, p *played, rollout string) port.Sample {
	t.Helper()
	go e.Finish(t.Context(), rollout, protocol.FinishRequest{Worker: "w", Reward: new(float32(0.5))})
	<-p.done
	if p.err != nil {
		t.Fatal(p.err)
	}
	e.Logged(p.sample.ID, true)
	synctest.Wait()
	return p.sample
}

// TestRestoreNumbered: a worker goes on after a restart with the turn that it had come to. The one under way is begun anew, and
// an earlier one is answered as it was.
func TestRestoreNumbered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		before := play(t, e, id(1, 0, 2))
		c := claim(t, e, "w")
		first := sample(t, e, "w", c.ID, 0, 20, 21)
		go e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Turn: 1, Prompt: []int32{20, 21, 1, 2, 22}, MaxTokens: 4})
		synctest.Wait()
		e.Close()
		before.stop(port.ErrEnded)
		synctest.Wait()

		e = open(t, keeping(kept))
		p, progress := again(t, e, id(1, 0, 2))
		if want := (port.Progress{Turns: 1, Sampled: 2}); progress != want {
			t.Errorf("it had come to %+v, want %+v", progress, want)
		}
		if st := e.Status(); st.Claimed != 1 || st.Known != 1 {
			t.Errorf("status %+v", st)
		}
		if second := sample(t, e, "w", c.ID, 0, 20, 21); !reflect.DeepEqual(second, first) {
			t.Errorf("the first turn is answered with %+v, and was with %+v", second, first)
		}
		_, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "v", Turn: 1, Prompt: []int32{20, 21, 1, 2, 22}, MaxTokens: 4})
		refused(t, err, protocol.CodeConflict, "not claimed under the name v")
		sample(t, e, "w", c.ID, 1, 20, 21, 1, 2, 22)
		s := finish(t, e, p, c.ID)
		if want := []int32{20, 21, 1, 2, 22, 2, 3}; !slices.Equal(s.Tokens, want) || !slices.Equal(s.LossMask, []uint8{0, 0, 1, 1, 0, 1, 1}) {
			t.Errorf("tokens %v with mask %v, want %v", s.Tokens, s.LossMask, want)
		}
		if n := kept.KeptTurns(id(1, 0, 2)); n != 0 {
			t.Errorf("%d are kept of a rollout whose payload has them", n)
		}
		empty(t, e)
	})
}

// TestRestoreAnywhere: whatever an agent says, and wherever a restart falls between its calls, the rollout comes to the same.
func TestRestoreAnywhere(t *testing.T) {
	images := 0
	for seed := range uint64(50) {
		inBubble(t, func(t *testing.T) {
			at := rand.New(rand.NewPCG(seed, 1)).IntN(5)
			var samples [2]port.Sample
			for restarts := range samples {
				r := rand.New(rand.NewPCG(seed, 2))
				kept := newShelf()
				e := open(t, func(o *Options) { keeping(kept)(o); o.Limits.PromptTokens = 200 })
				p := play(t, e, id(1, 0, 1))
				p.slot.rows = true
				c := claim(t, e, "w")
				var said [][]int32
				var seen [][]media.Item
				for turn := range 5 {
					if restarts == 1 && turn == at {
						p.stop(port.ErrEnded)
						synctest.Wait()
						e = open(t, func(o *Options) { keeping(kept)(o); o.Limits.PromptTokens = 200 })
						var progress port.Progress
						p, progress = again(t, e, id(1, 0, 1))
						if p.slot.rows = true; int(progress.Blobs) != turn {
							t.Errorf("%d turns of a blob each are taken for %d blobs", turn, progress.Blobs)
						}
					}
					prompt := []int32{int32(20 + turn)} // no two calls are the same
					var images []media.Item
					if len(said) > 0 && r.IntN(4) > 0 {
						earlier := r.IntN(len(said))
						prompt, images = append(slices.Clone(said[earlier]), prompt...), slices.Clone(seen[earlier])
					}
					for range r.IntN(3) {
						prompt, images = append(prompt, 29), append(images, imageAt(int32(len(prompt)), 'a'+byte(r.IntN(3))))
					}
					req := protocol.TurnRequest{Prompt: prompt, Media: images, Agent: []string{"a", "b"}[r.IntN(2)]}
					reply, err := e.Turn(t.Context(), c.ID, req, nil)
					if err != nil {
						t.Fatal(err)
					}
					said, seen = append(said, append(slices.Clone(prompt), reply.Tokens...)), append(seen, images)
				}
				samples[restarts] = finish(t, e, p, c.ID)
				empty(t, e)
			}
			images += len(samples[1].Media)
			if len(samples[0].Channels) == 0 || !reflect.DeepEqual(samples[0], samples[1]) {
				t.Errorf("seed %d: with a restart before turn %d it came to %+v, without one to %+v", seed, at, samples[1], samples[0])
			}
		})
	}
	if images < 50 {
		t.Errorf("%d images in 50 rollouts", images)
	}
}

// TestRestoreUntold: a turn that was kept and whose end nobody heard is answered when it is asked for again, once. So is one
// whose client left while it was being kept.
func TestRestoreUntold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		hold := make(chan struct{})
		kept.change(hold, nil)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := e.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
			left <- err
		}()
		time.Sleep(2 * time.Second) // it is sampled by then
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left was told %v", err)
		}
		kept.change(nil, nil)
		close(hold)
		synctest.Wait()
		reply := ask(t, e, c.ID, 20)
		if n := len(p.slot.asked); n != 1 || !slices.Equal(reply.Tokens, []int32{1, 2}) || reply.Branches != 1 {
			t.Errorf("%d responses were sampled, the call was answered by %+v", n, reply)
		}
		p.stop(port.ErrEnded)
		synctest.Wait()

		e = open(t, keeping(kept))
		p, _ = again(t, e, id(1, 0, 1))
		var streamed []int32
		reply, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, func(d protocol.TurnDelta) { streamed = append(streamed, d.Tokens...) })
		if err != nil || !slices.Equal(reply.Tokens, []int32{1, 2}) || !slices.Equal(streamed, []int32{1, 2}) {
			t.Errorf("after the restart: %+v, %v, streamed %v", reply, err, streamed)
		}
		if reply := ask(t, e, c.ID, 20); reply.Branches != 2 { // and anew, as nobody repeats an answered call
			t.Errorf("asked for once more: %+v", reply)
		}
		if s := finish(t, e, p, c.ID); !slices.Equal(s.Tokens, []int32{20, 1, 2, 20, 2, 3}) {
			t.Errorf("tokens %v", s.Tokens)
		}
		empty(t, e)
	})
}

// TestNothingIsToldBeforeItIsKept: neither a claim nor a response. However long the keeping of a claim takes, it lasts from then on.
func TestNothingIsToldBeforeItIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		told := make(chan string, 1)
		for _, call := range []func() string{
			func() string { return claim(t, e, "w").ID },
			func() string { sample(t, e, "w", "g1-s0-a1", 0, 20); return "turn" },
		} {
			hold := make(chan struct{})
			kept.change(hold, nil)
			go func() { told <- call() }()
			time.Sleep(2 * ttl)
			if len(told) > 0 {
				t.Errorf("%s was told before it was kept", <-told)
			}
			close(hold)
			<-told
		}
		finish(t, e, p, "g1-s0-a1")
		empty(t, e)
	})
}

// TestCallsWaitForWhatIsRestored: a call that comes before its rollout is read waits, and finds it.
func TestCallsWaitForWhatIsRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		before := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		ask(t, e, c.ID, 20)
		before.stop(port.ErrEnded)
		synctest.Wait()

		e = open(t, keeping(kept))
		task := port.RolloutRequest{ID: id(1, 0, 1)}
		e.Restoring(task)
		calls := make(chan error, 4)
		go func() { _, err := e.Touch(t.Context(), c.ID, protocol.TouchRequest{Worker: "w"}); calls <- err }()
		go func() {
			_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20, 1, 2, 21}}, nil)
			calls <- err
		}()
		left, leave := context.WithCancel(t.Context())
		go func() {
			_, err := e.Touch(left, c.ID, protocol.TouchRequest{Worker: "w"})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("who left was told %v", err)
			}
			calls <- nil
		}()
		if _, err := e.Ended(c.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if len(calls) > 0 {
			t.Error("a call did not wait")
		}
		leave()
		e.Restore(task)
		p := play(t, e, id(1, 0, 1))
		for range 3 {
			if err := <-calls; err != nil {
				t.Error(err)
			}
		}
		finish(t, e, p, c.ID)
		empty(t, e)
	})
}

// TestNotKept: where the store has no room for a turn, its rollout goes on, and nothing of it is kept. Another process would
// go on without what its agents were told. None of them is told more before that is so.
func TestNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		ask(t, e, c.ID, 20)
		kept.unkeeping = make(chan struct{})
		kept.change(nil, port.ErrNoSpace)
		told := make(chan []int32, 1)
		go func() { told <- ask(t, e, c.ID, 20, 1, 2, 21).Tokens }()
		time.Sleep(5 * time.Second)
		if n := kept.KeptTurns(id(1, 0, 1)); len(told) > 0 || n != 2 {
			t.Errorf("%d responses were told while %d entries were kept", len(told), n)
		}
		close(kept.unkeeping)
		second := <-told
		kept.change(nil, nil)
		ask(t, e, c.ID, append([]int32{20, 1, 2, 21}, append(second, 22)...)...)
		if n := kept.KeptTurns(id(1, 0, 1)); n != 0 {
			t.Errorf("%d are kept, want none", n)
		}
		finish(t, e, p, c.ID)
		empty(t, e)
	})
}

// TestClaimNotKept: where the store has no room for a claim, nothing of the rollout is kept.
func TestClaimNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		kept.change(nil, port.ErrNoSpace)
		c := claim(t, e, "w")
		kept.change(nil, nil)
		ask(t, e, c.ID, 20)
		if n := kept.KeptTurns(id(1, 0, 1)); n != 0 {
			t.Errorf("%d are kept, want none", n)
		}
		finish(t, e, p, c.ID)
		empty(t, e)
	})
}

// TestClaimKeptUnawares: a claim whose put failed may be there all the same. It is given out once it is not.
func TestClaimKeptUnawares(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		kept.late = true
		kept.change(nil, errors.New("no answer"))
		kept.stuck = errors.New("nor now")
		_, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w"})
		refused(t, err, protocol.CodeUnavailable, "claims cannot be kept at the moment")
		if n := e.Status().Offered; n != 1 {
			t.Errorf("%d rollouts are offered again", n)
		}
		kept.stuck = nil
		c := claim(t, e, "w")
		kept.change(nil, nil)
		ask(t, e, c.ID, 20)
		if n := kept.KeptTurns(id(1, 0, 1)); n != 0 {
			t.Errorf("%d are kept, want none", n)
		}
		finish(t, e, p, c.ID)
		empty(t, e)
	})
}

// TestNotRestored: a rollout whose turns do not fit, or are damaged, ends with the reason.
func TestNotRestored(t *testing.T) {
	for name, entries := range map[string][]string{
		"goes on with sequence 3":   {`{"worker":"w"}`, `{"turn":{"branch":3,"added":[1],"response":{}}}`},
		"was kept as one":           {`{"worker":"w"}`, `{"turn":{"number":-1,"branch":0,"added":[20],"response":{"Tokens":[1],"Logprobs":[-1],"Versions":[1]}}}`, `{"turn":{"number":-1,"branch":1,"added":[20,1,2],"response":{}}}`},
		"1 tokens, 0 log-probs":     {`{"worker":"w"}`, `{"turn":{"branch":0,"added":[20],"response":{"Tokens":[1],"Versions":[1]}}}`},
		"unexpected end of JSON":    {`{"worker":"w"`},
		"no claim is among its":     {},
		"cannot unmarshal":          {`{"worker":"w"}`, `{"turn":{"number":"one"}}`},
		"invalid character 'x' loo": {`x`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				kept := newShelf()
				for _, text := range entries {
					kept.all[id(1, 0, 1)] = append(kept.all[id(1, 0, 1)], []byte(text))
				}
				e := open(t, keeping(kept))
				p, _ := again(t, e, id(1, 0, 1))
				<-p.done
				if p.err == nil || !strings.Contains(p.err.Error(), name) {
					t.Errorf("Play returned %v", p.err)
				}
				_, err := e.Touch(t.Context(), "g1-s0-a1", protocol.TouchRequest{Worker: "w"})
				refused(t, err, protocol.CodeExpired, "claim another")
				empty(t, e)
			})
		})
	}
}

// TestNothingIsToldByADeposedProcess: where the store takes no more turns, another process has the rollout. A response that may
// be unknown there is told to nobody, and the call may come again.
func TestNothingIsToldByADeposedProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		e := open(t, keeping(kept))
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		kept.change(nil, errors.New("fenced"))
		told := make(chan error, 1)
		go func() {
			_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
			told <- err
		}()
		time.Sleep(time.Minute)
		if len(told) > 0 {
			t.Errorf("the turn was answered by %v", <-told)
		}
		p.stop(port.ErrEnded)
		refused(t, <-told, protocol.CodeUnavailable, "call again later")
		<-p.done
		empty(t, e)
	})
}
