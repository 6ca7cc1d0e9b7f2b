package remote

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// ask makes a call of an agent.
func ask(t *testing.T, e *Dispatcher, id string, prompt ...int32) protocol.TurnReply {
	t.Helper()
	reply, err := e.Turn(t.Context(), id, protocol.TurnRequest{Prompt: prompt}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestTurns: a history that goes on stays one branch, one that was changed begins another,
// and the sample has them one after the other.
func TestTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		for _, turn := range []struct {
			prompt           []int32
			branch, branches int
		}{
			{[]int32{20}, 0, 1},           // answered with 1 2
			{[]int32{20, 1, 2, 21}, 0, 1}, // with 2 3
			{[]int32{20, 1, 9, 21}, 1, 2}, // with 3 4
			{[]int32{20, 1, 2, 21, 2, 3, 22}, 0, 2},
			{[]int32{20}, 2, 3},
		} {
			reply := ask(t, e, c.ID, turn.prompt...)
			if reply.Branch != turn.branch || reply.Branches != turn.branches {
				t.Errorf("%v is added to branch %d of %d, want %d of %d", turn.prompt, reply.Branch, reply.Branches, turn.branch, turn.branches)
			}
		}
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		<-p.done
		s := p.sample
		if want := []int32{20, 1, 2, 21, 2, 3, 22, 4, 5, 20, 1, 9, 21, 3, 4, 20, 5, 6}; !slices.Equal(s.Tokens, want) {
			t.Errorf("tokens %v, want %v", s.Tokens, want)
		}
		if want := []int32{9, 15}; !slices.Equal(s.Breaks, want) {
			t.Errorf("breaks %v, want %v", s.Breaks, want)
		}
		e.Logged(id(1, 0, 1), true)
		synctest.Wait()
		empty(t, e)
	})
}

// TestTurnTakenBack: a turn whose client leaves stops the engine and leaves nothing; the next
// one, with the same prompt, begins as if it had never been.
func TestTurnTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		for _, left := range []time.Duration{0, 450 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if _, err := e.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", left, err)
			}
			cancel()
			synctest.Wait()
		}
		reply := ask(t, e, c.ID, 20)
		if !p.slot.stopped || reply.Branch != 0 || reply.Branches != 1 {
			t.Errorf("stopped %v; the next turn is added to branch %d of %d", p.slot.stopped, reply.Branch, reply.Branches)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		e.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: []int32{29}}, nil)
		// Its client is gone, so that nothing keeps the rollout from being finished.
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		<-p.done
		if p.err != nil || !slices.Equal(p.sample.Tokens, append([]int32{20}, reply.Tokens...)) || p.sample.Breaks != nil {
			t.Errorf("sample %+v, %v: want what was answered with %v", p.sample, p.err, reply.Tokens)
		}
	})
}

// TestTurnsWait: calls of one rollout are sampled one after the other, in their order, and one
// that is taken back holds up none.
func TestTurnsWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		answered := make(chan int, 4)
		for i := range 4 {
			ctx := t.Context()
			if i == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			go func() {
				if _, err := e.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: []int32{int32(20 + i)}}, nil); err == nil {
					answered <- i
				}
			}()
			synctest.Wait()
		}
		for _, want := range []int{0, 2, 3} {
			if got := <-answered; got != want {
				t.Errorf("call %d is answered, want %d", got, want)
			}
		}
		var prompts []int32
		for _, req := range p.slot.asked {
			prompts = append(prompts, req.Prompt...)
		}
		if want := []int32{20, 22, 23}; !slices.Equal(prompts, want) {
			t.Errorf("the engine was asked for %v, want %v", prompts, want)
		}
	})
}

// TestFinishDropsTurns: a reward is for what was answered. Calls that are open then are told so,
// and nothing of them is recorded; a rollout of which nothing was answered cannot be finished.
func TestFinishDropsTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		call := func(prompt int32) chan error {
			over := make(chan error, 1)
			go func() {
				_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{prompt}}, nil)
				over <- err
			}()
			synctest.Wait()
			return over
		}
		first := call(20)
		_, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeInvalid, "an agent under /v1, a worker by sample")
		refused(t, err, protocol.CodeInvalid, "ends by failed, with reason environment, timeout or data")
		if err := <-first; err != nil {
			t.Fatalf("a finish that was refused ended the call: %v", err)
		}
		running, waiting := call(21), call(22)
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, <-running, protocol.CodeConflict, "is finished")
		refused(t, <-waiting, protocol.CodeConflict, "is finished")
		<-p.done
		if !p.slot.stopped || !slices.Equal(p.sample.Tokens, []int32{20, 1, 2}) {
			t.Errorf("stopped %v; recorded %v, want what was answered", p.slot.stopped, p.sample.Tokens)
		}
	})
}

// TestTurnBound: a rollout does not grow without end.
func TestTurnBound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		ask(t, e, c.ID, 20)
		ask(t, e, c.ID, 20, 1, 2, 21)
		ask(t, e, c.ID, 22)
		e.mu.Lock()
		r := &e.sessions[c.ID].record
		if r.size != 9 {
			t.Errorf("counted %d tokens, want 6 and 3", r.size)
		}
		r.size = int(e.opt.RolloutBytesMax / tokenBytes)
		e.mu.Unlock()
		for range 2 { // the rollout has ended
			_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{23}}, nil)
			refused(t, err, protocol.CodeTooLarge, "tokens in 2 branches")
		}
		<-p.done
		if p.err == nil || !strings.Contains(p.err.Error(), BoundRollout) {
			t.Errorf("the runtime hears %v", p.err)
		}
		if b := e.Bounds(); b[0].Held != 0 || b[1].Refused != 1 {
			t.Errorf("bounds %+v: want nothing held, and one call refused", b)
		}
	})
}

// TestTurnPatience: who waits too long for the first token is told why, and what to do.
func TestTurnPatience(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, func(o *Options) { o.TurnWait = 5 * time.Second })
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		p.slot.slow = true
		p.slot.takes = 40 * time.Second // the first token after 4: it may take its time then
		first := make(chan error, 1)
		go func() {
			_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
			first <- err
		}()
		synctest.Wait()
		_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{21}}, nil)
		refused(t, err, protocol.CodeBusy, "wait for one call before the next")
		if err := <-first; err != nil {
			t.Error(err)
		}
		p.slot.take(80 * time.Second) // after 8
		_, err = e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{22}}, nil)
		refused(t, err, protocol.CodeUnavailable, "send it again")
		_, err = e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{22}}, nil)
		refused(t, err, protocol.CodeUnavailable, "send it again")
		time.Sleep(7 * time.Second) // and then the engine hears that nobody waits
		p.slot.take(time.Second)
		if reply := ask(t, e, c.ID, 23); reply.Branches != 2 {
			t.Errorf("%d branches: want two, the others were refused", reply.Branches)
		}
	})
}

// TestTurnKeepsClaim: a claim lasts while a turn is sampled, and its time from then on.
func TestTurnKeepsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		p.slot.takes = 5 * ttl
		c := claim(t, e, "w")
		ended, err := e.Ended(c.ID)
		if err != nil {
			t.Fatal(err)
		}
		ask(t, e, c.ID, 20)
		time.Sleep(ttl - time.Second)
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the claim has ended before its time")
		default:
		}
		if _, err := e.Ended(c.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		<-ended
		<-p.done
		if !errors.Is(p.err, context.DeadlineExceeded) {
			t.Errorf("ended by %v", p.err)
		}
		_, err = e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
		refused(t, err, protocol.CodeExpired, "has expired")
		_, err = e.Ended(c.ID)
		refused(t, err, protocol.CodeExpired, "has expired")
	})
}

// TestHoldKeepsClaim: so does a call of an agent that has asked for no turn yet.
func TestHoldKeepsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		e.Hold(t.Context(), "g1-s0-a1")() // which nobody has claimed
		c := claim(t, e, "w")
		release := e.Hold(t.Context(), c.ID)
		time.Sleep(3 * ttl)
		release()
		time.Sleep(ttl - time.Second)
		ask(t, e, c.ID, 20)
		time.Sleep(ttl)
		<-p.done
		e.Hold(t.Context(), c.ID)()
		empty(t, e)
	})
}

// TestTurnRefused: a turn that cannot be meant, or whose rollout is not there, is told so.
func TestTurnRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, func(o *Options) { o.ClientSampling = SamplingRefuse })
		p := play(t, e, id(1, 0, 1))
		turn := func(id string, req protocol.TurnRequest) error {
			_, err := e.Turn(t.Context(), id, req, nil)
			return err
		}
		one := protocol.TurnRequest{Prompt: []int32{20}}
		refused(t, turn("g1-s0-a1", one), protocol.CodeConflict, "not claimed")
		_, err := e.Ended("g1-s0-a1")
		refused(t, err, protocol.CodeConflict, "not claimed")
		refused(t, turn("g9-s0-a1", one), protocol.CodeExpired, "not being played")
		refused(t, turn("nonsense", one), protocol.CodeNotFound, "id of a claim")
		c := claim(t, e, "w")
		number := func(x float64) *float64 { return &x }
		k := -2
		for word, req := range map[string]protocol.TurnRequest{
			"prompt is empty":              {},
			"prompt[1] is 30":              {Prompt: []int32{1, 30}},
			"max_tokens is -1":             {Prompt: []int32{1}, MaxTokens: -1},
			"temperature is -1":            {Prompt: []int32{1}, Sampling: protocol.Sampling{Temperature: number(-1)}},
			"temperature is NaN":           {Prompt: []int32{1}, Sampling: protocol.Sampling{Temperature: number(math.NaN())}},
			"top_p is 0: want a number ab": {Prompt: []int32{1}, Sampling: protocol.Sampling{TopP: number(0)}},
			"min_p is 1.5":                 {Prompt: []int32{1}, Sampling: protocol.Sampling{MinP: number(1.5)}},
			"top_k is -2":                  {Prompt: []int32{1}, Sampling: protocol.Sampling{TopK: &k}},
			"stop[1] is empty":             {Prompt: []int32{1}, Sampling: protocol.Sampling{Stop: []string{"a", ""}}},
			"stop_token_ids[0] is 31":      {Prompt: []int32{1}, Sampling: protocol.Sampling{StopTokens: []int32{31}}},
			"[temperature top_p]":          {Prompt: []int32{1}, Sampling: protocol.Sampling{Temperature: number(0), TopP: number(0.5)}},
		} {
			refused(t, turn(c.ID, req), protocol.CodeInvalid, word)
		}
		err = turn(c.ID, protocol.TurnRequest{Prompt: make([]int32, 13)})
		refused(t, err, protocol.CodeContextExceeded, "this one has 13: shorten the history to at most 12, or end the rollout; the limit is environment.prompt_tokens_max")
		// More than the limit is cut to it.
		if err := turn(c.ID, protocol.TurnRequest{Prompt: []int32{20}, MaxTokens: 99}); err != nil || p.slot.asked[0].MaxTokens != 4 {
			t.Errorf("%v; asked for %d tokens", err, p.slot.asked[0].MaxTokens)
		}
		_, err = e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{20}})
		refused(t, err, protocol.CodeConflict, "sampled by an agent")
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(0))})
		<-p.done
		refused(t, turn(c.ID, one), protocol.CodeConflict, "is finished")
		e.Logged(id(1, 0, 1), true)
		synctest.Wait()
		refused(t, turn(c.ID, one), protocol.CodeConflict, "is finished")

		q := play(t, e, id(2, 0, 1))
		d := claim(t, e, "w")
		sample(t, e, "w", d.ID, 0, 20)
		refused(t, turn(d.ID, one), protocol.CodeConflict, "numbered calls")
		play(t, e, id(2, 0, 2))
		<-q.done
		refused(t, turn(d.ID, one), protocol.CodeExpired, "no longer wanted")
		e.EndRun()
		refused(t, turn("g3-s0-a1", one), protocol.CodeExpired, "the run has ended")
	})
}

// TestTurnBroken: a rollout whose engine fails is over, for its agent as well.
func TestTurnBroken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		p.slot.err = errors.New("out of memory")
		c := claim(t, e, "w")
		_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: []int32{20}}, nil)
		refused(t, err, protocol.CodeExpired, "out of memory")
		<-p.done
		if !errors.Is(p.err, p.slot.err) {
			t.Errorf("Play returned %v", p.err)
		}
		synctest.Wait()
		empty(t, e)
	})
}

// told is a sampler that answers by what it was given, one after the other.
type told struct {
	answers chan port.Generation
}

func (s told) Sample(_ context.Context, req port.SampleRequest) (port.Generation, error) {
	return <-s.answers, nil
}

// TestTurnResumes: the places at which a rollout was resumed are those of its branches, in whose
// order soever they were sampled, and a dropped response leaves its own to the next.
func TestTurnResumes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		answers := make(chan port.Generation)
		done := make(chan port.Sample)
		go func() {
			s, _ := e.Play(t.Context(), port.RolloutRequest{ID: id(1, 0, 1)}, told{answers})
			done <- s
		}()
		synctest.Wait()
		c := claim(t, e, "w")
		answer := func(drop bool, resumes []port.ResumePoint, prompt ...int32) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go e.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: prompt}, nil)
			synctest.Wait()
			if drop {
				cancel()
				synctest.Wait()
			}
			answers <- port.Generation{Tokens: []int32{1, 2, 3}, Logprobs: []float32{-1, -1, -1}, Versions: []loop.Version{1, 1, 2}, Resumes: resumes, Derived: drop}
			synctest.Wait()
		}
		answer(false, nil, 20)
		answer(false, []port.ResumePoint{{At: 0, Version: 1}, {At: 2, Version: 2}}, 21)
		answer(true, []port.ResumePoint{{At: 1, Version: 3}}, 20, 1, 2, 3, 22)
		answer(false, []port.ResumePoint{{At: 1, Version: 4}}, 20, 1, 2, 3, 22)
		answer(true, []port.ResumePoint{{At: 2, Version: 5}}, 23)
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		s := <-done
		want := []port.ResumePoint{{At: 5, Version: 3}, {At: 6, Version: 4}, {At: 9, Version: 1}, {At: 11, Version: 2}, {At: 12, Version: 5}}
		if !slices.Equal(s.Resumes, want) || len(s.Tokens) != 12 || !slices.Equal(s.Breaks, []int32{8}) {
			t.Errorf("resumes %v in %v with breaks %v, want %v", s.Resumes, s.Tokens, s.Breaks, want)
		}
		if s.Derived {
			t.Error("a version is said to be derived, and only those of dropped responses are")
		}
	})
}

// saying is a sampler that says pieces of text on the way, a token each, and all in the end.
type saying struct {
	pieces []string
	all    string
}

func (s saying) Sample(_ context.Context, req port.SampleRequest) (port.Generation, error) {
	g := port.Generation{Text: s.all}
	for i, text := range s.pieces {
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, 1), append(g.Logprobs, -1), append(g.Versions, 1)
		req.OnTokens(port.Delta{Tokens: g.Tokens[i:], Logprobs: g.Logprobs[i:], Text: text})
	}
	return g, nil
}

// TestTurnWithAPieceLost: what an engine has not said of a text on the way comes with the end, unless
// what it has said is not how the text begins: then nothing that could follow is right.
func TestTurnWithAPieceLost(t *testing.T) {
	for name, c := range map[string]struct {
		saying
		told string
	}{
		"nothing": {saying{[]string{"Hello ", "world"}, "Hello world"}, "Hello world"},
		"the end": {saying{[]string{"Hello", ""}, "Hello world"}, "Hello world"},
		"all":     {saying{[]string{"", ""}, "Hello world"}, "Hello world"},
		"the middle": {saying{[]string{"Hello ", "ld, the answer is 42"}, "Hello world, the answer is 42"},
			"Hello ld, the answer is 42"},
		"the engine says none in the end": {saying{[]string{"Hello ", "ld"}, ""}, "Hello ld"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := open(t, nil)
				go e.Play(t.Context(), port.RolloutRequest{ID: id(1, 0, 1)}, c.saying)
				synctest.Wait()
				told := ""
				reply, err := e.Turn(t.Context(), claim(t, e, "w").ID, protocol.TurnRequest{Prompt: []int32{20}}, func(d protocol.TurnDelta) { told += d.Text })
				if err != nil || told != c.told || reply.Text != c.all {
					t.Errorf("told %q and answered %q, %v: want %q and %q", told, reply.Text, err, c.told, c.all)
				}
			})
		})
	}
}
