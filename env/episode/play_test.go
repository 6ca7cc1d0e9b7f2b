package episode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// script is a policy that says what it is told, each message after its time.
type script struct {
	lines []line
	turn  int
	// saw has the chats that it was given.
	saw [][]json.RawMessage
}

type line struct {
	text    string
	calls   []episode.Call
	finish  string
	takes   time.Duration
	err     error
	version int64
	// prompt and tokens are what the engine counts.
	prompt, tokens int
}

func (s *script) Say(ctx context.Context, messages []json.RawMessage, _ json.RawMessage) (episode.Message, error) {
	if s.turn >= len(s.lines) {
		return episode.Message{}, errors.New("the script has no more lines")
	}
	l := s.lines[s.turn]
	s.turn++
	s.saw = append(s.saw, append([]json.RawMessage{}, messages...))
	if l.takes > 0 {
		select {
		case <-time.After(l.takes):
		case <-ctx.Done():
			return episode.Message{}, ctx.Err()
		}
	}
	raw, err := json.Marshal(map[string]any{"role": "assistant", "content": l.text})
	return episode.Message{Raw: raw, Text: l.text, Calls: l.calls, Finish: l.finish, VersionLow: l.version, VersionHigh: l.version + 1, Prompt: l.prompt, Tokens: l.tokens}, errors.Join(l.err, err)
}

// call is a message that calls one tool.
func call(name string, arguments any) line {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return line{calls: []episode.Call{{ID: "c1", Name: name, Arguments: string(text)}}, finish: "tool_calls"}
}

// says judges by the response: it is the reward.
func says(t *testing.T) *verifier.Bounded {
	t.Helper()
	return verifier.Bound(judged(func(_ context.Context, c verifier.Case) (verifier.Verdict, error) {
		reward, err := strconv.ParseFloat(strings.TrimSpace(c.Response), 64)
		return verifier.Verdict{Reward: reward}, err
	}), verifier.Bounds{Range: [2]float64{0, 1}, Concurrency: 8, Timeout: time.Minute})
}

// judged is a verifier in Go.
type judged func(context.Context, verifier.Case) (verifier.Verdict, error)

func (f judged) Verify(ctx context.Context, c verifier.Case) (verifier.Verdict, error) {
	return f(ctx, c)
}
func (f judged) Close() error { return nil }

// world answers every message, as a function says.
type world struct {
	act   func(ctx context.Context, said episode.Message) (episode.Answer, error)
	begin []json.RawMessage
	err   error
}

func (w world) Tools() json.RawMessage { return nil }
func (w world) Begin(context.Context, *taskset.Task) ([]json.RawMessage, error) {
	return w.begin, w.err
}
func (w world) Act(ctx context.Context, said episode.Message) (episode.Answer, error) {
	return w.act(ctx, said)
}
func (w world) Close(context.Context) error { return nil }

func user(text string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"role": "user", "content": text})
	if err != nil {
		panic(err)
	}
	return raw
}

func question() *taskset.Task {
	return &taskset.Task{ID: "t1", Messages: []json.RawMessage{user("?")}, Answer: json.RawMessage(`1`)}
}

// checkSpans fails where spans overlap, leave a gap, or do not add up to the episode's time.
func checkSpans(t *testing.T, r episode.Record, from, to time.Duration) {
	t.Helper()
	at := from.Nanoseconds()
	for i, s := range r.Spans {
		if s.StartNS != at || s.EndNS < s.StartNS {
			t.Errorf("span %d is %+v, and the one before ends at %d", i, s, at)
		}
		at = s.EndNS
	}
	if at != to.Nanoseconds() {
		t.Errorf("the spans end at %v, the episode at %v: %s", time.Duration(at), to, lines(r))
	}
}

// lines are a record's spans, one a word: kind, turn, name, class and time.
func lines(r episode.Record) string {
	var words []string
	for _, s := range r.Spans {
		word := fmt.Sprintf("%s@%d", s.Kind, s.Turn)
		for _, more := range []string{s.Name, string(s.Class)} {
			if more != "" {
				word += ":" + more
			}
		}
		words = append(words, word+"="+time.Duration(s.EndNS-s.StartNS).String())
	}
	return strings.Join(words, " ")
}

func TestSingleTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{lines: []line{{text: "0.5", takes: 2 * time.Second, finish: "stop"}}}
		o, err := episode.Play(t.Context(), question(), p, nil, says(t), episode.Options{Rollout: "g1-s0-a0"})
		if err != nil || o.Verdict.Reward != 0.5 || o.Turns != 1 || o.Response != "0.5" || len(o.Messages) != 2 || o.Truncated || o.TurnsSpent {
			t.Errorf("%+v, %v", o, err)
		}
		r := o.Record
		if *r.Reward != 0.5 || r.Failure != "" || r.Rollout != "g1-s0-a0" || r.Task != "t1" || r.StateLow != nil || r.Box != "" || lines(r) != "model@0=2s" {
			t.Errorf("%+v: %s", r, lines(r))
		}
		checkSpans(t, r, 0, 2*time.Second)
	})
}

// Every moment of an episode of several turns belongs to one span, and the wait for who judges is told
// from the judging.
func TestSpansAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := verifier.Bound(judged(func(context.Context, verifier.Case) (verifier.Verdict, error) {
			time.Sleep(3 * time.Second)
			return verifier.Verdict{Reward: 1}, nil
		}), verifier.Bounds{Concurrency: 1})
		went := make(chan struct{})
		go func() { // somebody else is judged from 5 s to 8 s
			defer close(went)
			time.Sleep(5 * time.Second)
			if _, err := slow.Verify(t.Context(), verifier.Case{}); err != nil {
				t.Error(err)
			}
		}()
		w := world{act: func(ctx context.Context, said episode.Message) (episode.Answer, error) {
			time.Sleep(time.Second)
			back := episode.Enter(ctx, episode.SandboxStart, "")
			time.Sleep(time.Second)
			back()
			time.Sleep(500 * time.Millisecond)
			return episode.Answer{Messages: []json.RawMessage{user("go on")}, Done: said.Text == "end"}, nil
		}}
		p := &script{lines: []line{{text: "a", takes: 400 * time.Millisecond, version: 7}, {text: "end", takes: 100 * time.Millisecond, version: 4}}}
		began := time.Now().Add(-time.Hour) // the run is older than the episode
		o, err := episode.Play(t.Context(), question(), p, w, slow, episode.Options{Clock: func() int64 { return time.Since(began).Nanoseconds() }})
		<-went
		if err != nil || o.Turns != 2 || len(o.Messages) != 5 || o.StateLow != 4 || o.StateHigh != 8 {
			t.Errorf("%+v, %v", o, err)
		}
		want := "model@0=400ms tool@0=1s sandbox_start@0=1s tool@0=500ms model@1=100ms tool@1=1s sandbox_start@1=1s tool@1=500ms verifier_wait@1=2.5s verifier@1=3s"
		if got := lines(o.Record); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		checkSpans(t, o.Record, time.Hour, time.Hour+11*time.Second)
		if _, err := json.Marshal(o.Record); err != nil {
			t.Error(err)
		}
	})
}

// A record has the tokens of every turn where the engine counts them all.
func TestTokensOfTurns(t *testing.T) {
	w := world{act: func(_ context.Context, said episode.Message) (episode.Answer, error) {
		return episode.Answer{Messages: []json.RawMessage{user("go on")}, Done: said.Text == "1"}, nil
	}}
	for second, want := range map[int]string{70: "[{40 9} {70 3}]", 0: "[]"} {
		p := &script{lines: []line{{text: "a", prompt: 40, tokens: 9}, {text: "1", prompt: second, tokens: 3}}}
		o, err := episode.Play(t.Context(), question(), p, w, says(t), episode.Options{})
		if got := fmt.Sprint(o.Record.Tokens); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

// How a chat ends, and what is said of it.
func TestEnds(t *testing.T) {
	goOn := world{act: func(context.Context, episode.Message) (episode.Answer, error) {
		return episode.Answer{Messages: []json.RawMessage{user("more")}}, nil
	}}
	many := &script{}
	for range 40 {
		many.lines = append(many.lines, line{text: "0.25"})
	}
	for _, test := range []struct {
		name                  string
		lines                 []line
		world                 episode.World
		options               episode.Options
		task                  int
		turns                 int
		truncated, turnsSpent bool
	}{
		{"without a world after one", many.lines, nil, episode.Options{}, 0, 1, false, false},
		{"after as many as are usual", many.lines, goOn, episode.Options{}, 0, 16, false, true},
		{"after as many as the run says", many.lines, goOn, episode.Options{TurnsMax: 3}, 0, 3, false, true},
		{"after as many as the task says", many.lines, goOn, episode.Options{TurnsMax: 3}, 2, 2, false, true},
		{"at the limit of a message", []line{{text: "0.25"}, {text: "0.25", finish: "length"}}, goOn, episode.Options{}, 0, 2, true, false},
		{"where no room is left", []line{{text: "0.25"}, {err: fmt.Errorf("400: %w", episode.ErrNoRoom)}}, goOn, episode.Options{}, 0, 1, true, false},
		{"with a world that says nothing", many.lines, world{act: func(context.Context, episode.Message) (episode.Answer, error) {
			return episode.Answer{}, nil
		}}, episode.Options{}, 0, 1, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			task := question()
			task.TurnsMax = test.task
			o, err := episode.Play(t.Context(), task, &script{lines: test.lines}, test.world, says(t), test.options)
			if err != nil || o.Turns != test.turns || o.Truncated != test.truncated || o.TurnsSpent != test.turnsSpent || o.Verdict.Reward != 0.25 {
				t.Errorf("%d turns, truncated %v, spent %v, reward %v: %v", o.Turns, o.Truncated, o.TurnsSpent, o.Verdict.Reward, err)
			}
			if len(task.Messages) != 1 {
				t.Error("the task's own messages were changed, which other rollouts share")
			}
		})
	}
}

// Without a verifier the rewards of the world's steps, turn by turn, are what a rollout is worth.
func TestStepRewards(t *testing.T) {
	rewards := []any{0.5, nil, 0.25}
	play := func(rewards []any, judge verifier.Verifier) (episode.Outcome, error) {
		turn := 0
		w := world{act: func(context.Context, episode.Message) (episode.Answer, error) {
			a := episode.Answer{Messages: []json.RawMessage{user("more")}, Done: turn == len(rewards)-1}
			a.Reward, a.Rewarded = rewards[turn].(float64)
			turn++
			return a, nil
		}}
		return episode.Play(t.Context(), question(), &script{lines: []line{{text: "0"}, {text: "0"}, {text: "0"}}}, w, judge, episode.Options{})
	}
	o, err := play(rewards, nil)
	if err != nil || o.Verdict.Reward != 0.75 || fmt.Sprint(o.Verdict.Steps) != "[0.5 0 0.25]" || fmt.Sprint(o.Record.Steps) != "[0.5 0 0.25]" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := play(rewards, says(t)); err != nil || o.Verdict.Reward != 0 || o.Verdict.Steps != nil {
		t.Errorf("with a verifier: %+v, %v", o, err)
	}
	for name, test := range map[string]struct {
		rewards []any
		class   sandbox.Class
	}{
		"NaN":      {[]any{math.NaN()}, sandbox.Protocol},
		"infinity": {[]any{0.5, math.Inf(-1)}, sandbox.Protocol},
		"too much": {[]any{1e300}, sandbox.Protocol},
		"none":     {[]any{nil, nil}, sandbox.VerifierProtocol},
		"the sum":  {[]any{9e29, 9e29}, sandbox.Protocol},
	} {
		if o, err := play(test.rewards, nil); sandbox.ClassOf(err) != test.class || o.Record.Reward != nil || o.Record.Failure != test.class || o.Verdict.Reward != 0 {
			t.Errorf("%s: %+v, %v", name, o.Record, err)
		}
	}
}

// A rollout that ends before the world has rewarded anything is worth nothing: the policy has spent its tokens or turns.
func TestEndsBeforeARewards(t *testing.T) {
	more := world{act: func(context.Context, episode.Message) (episode.Answer, error) {
		return episode.Answer{Messages: []json.RawMessage{user("more")}}, nil
	}}
	for name, lines := range map[string][]line{"cut": {{text: "a", finish: "length"}}, "turns": {{text: "a"}, {text: "b"}}} {
		o, err := episode.Play(t.Context(), question(), &script{lines: lines}, more, nil, episode.Options{TurnsMax: 2})
		if err != nil || o.Verdict.Reward != 0 || o.Record.Reward == nil {
			t.Errorf("%s: %+v, %v", name, o.Verdict, err)
		}
	}
}

// A task bounds its rollouts below the run's bounds, and not above them.
func TestBoundsOfATask(t *testing.T) {
	for _, bounds := range []struct{ run, task, want int }{{2, 9, 2}, {9, 2, 2}, {0, 3, 3}, {3, 0, 3}} {
		synctest.Test(t, func(t *testing.T) {
			more := world{act: func(context.Context, episode.Message) (episode.Answer, error) {
				return episode.Answer{Messages: []json.RawMessage{user("more")}}, nil
			}}
			task := question()
			task.TurnsMax = bounds.task
			o, err := episode.Play(t.Context(), task, &script{lines: slices.Repeat([]line{{text: "0"}}, 10)}, more, says(t), episode.Options{TurnsMax: bounds.run})
			if err != nil || o.Turns != bounds.want {
				t.Errorf("%+v: %d turns, %v", bounds, o.Turns, err)
			}
			task.TimeoutS = float64(bounds.task)
			began := time.Now()
			_, err = episode.Play(t.Context(), task, &script{lines: []line{{takes: time.Hour}}}, nil, says(t), episode.Options{Timeout: time.Duration(bounds.run) * time.Second})
			if took := time.Since(began); sandbox.ClassOf(err) != sandbox.Timeout || took != time.Duration(bounds.want)*time.Second {
				t.Errorf("%+v: %v, %v", bounds, took, err)
			}
		})
	}
}

// What fails is a failure of its class, with a record, and no reward.
func TestFailures(t *testing.T) {
	failing := func(err error) world {
		return world{act: func(context.Context, episode.Message) (episode.Answer, error) { return episode.Answer{}, err }}
	}
	verdict := func(v verifier.Verdict, err error) verifier.Verifier {
		return judged(func(context.Context, verifier.Case) (verifier.Verdict, error) { return v, err })
	}
	for _, test := range []struct {
		name  string
		line  line
		world episode.World
		judge verifier.Verifier
		class sandbox.Class
		spans string
	}{
		{"the policy", line{err: errors.New("engine down")}, nil, verdict(verifier.Verdict{}, nil), episode.PolicyFailed, "model@0:policy=0s"},
		{"the policy, with a class", line{err: sandbox.Fail(sandbox.BackendDown, "say", "", "down")}, nil, verdict(verifier.Verdict{}, nil), sandbox.BackendDown, "model@0:backend_down=0s"},
		{"no room at all", line{err: episode.ErrNoRoom}, nil, verdict(verifier.Verdict{}, nil), sandbox.BadTask, "model@0:bad_task=0s"},
		{"the world", line{}, failing(sandbox.Fail(sandbox.Lost, "run", "b", "gone")), verdict(verifier.Verdict{}, nil), sandbox.Lost, "tool@0:lost=0s"},
		{"the world, without a class", line{}, failing(errors.New("what?")), verdict(verifier.Verdict{}, nil), episode.WorldFailed, "tool@0:world=0s"},
		{"the world's beginning", line{}, world{err: sandbox.Fail(sandbox.Quota, "create", "", "full")}, verdict(verifier.Verdict{}, nil), sandbox.Quota, "tool@0:begin:quota=0s"},
		{"the verifier", line{}, nil, verdict(verifier.Verdict{Reward: 1}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "no")), sandbox.VerifierCrash, "verifier@0:verifier_crash=0s"},
		{"a verdict that is none", line{}, nil, verdict(verifier.Verdict{Reward: math.NaN()}, nil), sandbox.VerifierProtocol, "verifier@0:verifier_protocol=0s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, err := episode.Play(t.Context(), question(), &script{lines: []line{test.line}}, test.world, test.judge, episode.Options{Rollout: "g1-s2-a3"})
				if sandbox.ClassOf(err) != test.class || !strings.Contains(err.Error(), "g1-s2-a3") {
					t.Errorf("%v, want %s", err, test.class)
				}
				if o.Record.Failure != test.class || o.Record.Reward != nil || o.Record.Note == "" || o.Verdict.Reward != 0 || len(o.Record.Limits) > 0 {
					t.Errorf("%+v", o.Record)
				}
				if lines(o.Record) != test.spans {
					t.Errorf("%s, want %s", lines(o.Record), test.spans)
				}
			})
		})
	}
}

// An episode whose time is over has failed by that, wherever it was, and says so by class and by error;
// one that nobody wants any more is told apart.
func TestTimeout(t *testing.T) {
	slowWorld := world{act: func(ctx context.Context, _ episode.Message) (episode.Answer, error) {
		<-ctx.Done()
		return episode.Answer{}, sandbox.Fail(sandbox.Lost, "run", "b", "%w", ctx.Err())
	}}
	slowJudge := verifier.Bound(judged(func(ctx context.Context, _ verifier.Case) (verifier.Verdict, error) {
		<-ctx.Done()
		return verifier.Verdict{}, ctx.Err()
	}), verifier.Bounds{Timeout: time.Hour})
	for name, test := range map[string]struct {
		takes time.Duration
		world episode.World
		spans string
	}{
		"the policy":   {time.Hour, nil, "model@0:timeout=1m0s"},
		"the world":    {time.Second, slowWorld, "model@0=1s tool@0:timeout=59s"},
		"the verifier": {time.Second, nil, "model@0=1s verifier@0:timeout=59s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				task := question()
				task.TimeoutS = 60
				o, err := episode.Play(t.Context(), task, &script{lines: []line{{takes: test.takes}}}, test.world, slowJudge, episode.Options{Timeout: time.Hour})
				if !errors.Is(err, context.DeadlineExceeded) || sandbox.ClassOf(err) != sandbox.Timeout || o.Record.Failure != sandbox.Timeout {
					t.Errorf("%v: %+v", err, o.Record)
				}
				if lines(o.Record) != test.spans || len(o.Limits) != 0 {
					t.Errorf("%s, limits %v; want %s", lines(o.Record), o.Limits, test.spans)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Second, cancel)
				o, err = episode.Play(ctx, task, &script{lines: []line{{takes: test.takes}}}, test.world, slowJudge, episode.Options{})
				if !errors.Is(err, context.Canceled) || o.Record.Failure != episode.Unwanted || o.Record.Reward != nil {
					t.Errorf("given up: %v: %+v", err, o.Record)
				}
				ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				o, err = episode.Play(ctx, task, &script{lines: []line{{takes: test.takes}}}, test.world, slowJudge, episode.Options{})
				if !errors.Is(err, context.DeadlineExceeded) || o.Record.Failure != sandbox.Timeout {
					t.Errorf("by the caller's time: %v: %+v", err, o.Record)
				}
			})
		})
	}
}

// Whoever enters a span outside of an episode, or after it, changes nothing.
func TestEnterOutside(t *testing.T) {
	episode.Enter(t.Context(), episode.Tool, "x")()
	episode.Mark(t.Context(), sandbox.Disk)
	var kept context.Context
	w := world{act: func(ctx context.Context, _ episode.Message) (episode.Answer, error) {
		kept = ctx
		episode.Mark(ctx, sandbox.Disk)
		return episode.Answer{Done: true, Limit: sandbox.Disk}, nil
	}}
	o, err := episode.Play(t.Context(), question(), &script{lines: []line{{text: "1"}}}, w, says(t), episode.Options{})
	before := lines(o.Record)
	episode.Mark(kept, sandbox.Lost)
	episode.Enter(kept, episode.Verifier, "late")()
	if err != nil || lines(o.Record) != before || o.Limits[sandbox.Disk] != 1 || o.Record.Limits["disk"] != 1 {
		t.Errorf("%s, %v, %v", lines(o.Record), o.Limits, err)
	}
}
