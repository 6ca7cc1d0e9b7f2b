package env

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
)

func mustTask(t *testing.T, name string) ScoredTask {
	t.Helper()
	task, err := New(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// TestTasks holds every task to the contract of ScoredTask.
func TestTasks(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			task := mustTask(t, name)
			if task.Name() != name {
				t.Errorf("the task calls itself %q", task.Name())
			}
			for seed := range uint64(3) {
				for group := range uint64(400) {
					p := TrainingProblem(task, seed, group, 0)
					checkProblem(t, task, p)
					if again := TrainingProblem(task, seed, group, 0); !reflect.DeepEqual(p, again) {
						t.Fatalf("seed %d group %d: %v, then %v", seed, group, p, again)
					}
					if SplitOf(p.Prompt) != Training {
						t.Fatalf("training prompt %v is held out", p.Prompt)
					}
				}
			}
		})
	}
}

func checkProblem(t *testing.T, task ScoredTask, p Problem) {
	t.Helper()
	limits := task.Limits()
	if len(p.Prompt) > limits.PromptTokens || len(p.Answer) > limits.ResponseTokens {
		t.Fatalf("problem %v exceeds the limits %+v", p, limits)
	}
	if p.Prompt[0] != Begin || p.Prompt[len(p.Prompt)-1] != Separator || p.Answer[len(p.Answer)-1] != End {
		t.Fatalf("problem %v lacks its marks", p)
	}
	for _, tokens := range [][]int32{p.Prompt, p.Answer} {
		for _, token := range tokens {
			if token < 0 || int(token) >= task.Vocabulary().Size() {
				t.Fatalf("problem %v holds %d, outside the vocabulary of %d", p, token, task.Vocabulary().Size())
			}
		}
	}
	if s := task.Score(p, p.Answer); s != (Score{Reward: 1, Exact: true}) {
		t.Fatalf("the answer of %v scores %+v", p, s)
	}
	// Any deviation must cost, or the policy would learn it.
	rng := rand.New(rand.NewPCG(uint64(p.Prompt[1]), 1))
	for name, response := range map[string][]int32{
		"nothing": {}, "cut": p.Answer[:len(p.Answer)-1], "runs on": append(append([]int32{}, p.Answer...), End),
		"one wrong": wrongAt(p.Answer, rng.IntN(len(p.Answer))),
	} {
		if s := task.Score(p, response); s.Exact || s.Reward < 0 || s.Reward >= 1 {
			t.Fatalf("%s response %v to %v scores %+v", name, response, p, s)
		}
	}
}

func wrongAt(answer []int32, at int) []int32 {
	wrong := append([]int32{}, answer...)
	wrong[at] = Begin
	return wrong
}

// TestTasksAnswerRight spells problems out and computes the answers anew.
func TestTasksAnswerRight(t *testing.T) {
	for name, check := range map[string]func(question, answer string) bool{
		"reverse": func(q, a string) bool {
			for i := range q {
				if q[i] != a[len(a)-1-i] {
					return false
				}
			}
			return len(q) == len(a) && len(q) >= 2 && len(q) <= 5
		},
		"sort": func(q, a string) bool {
			counts := map[rune]int{}
			for _, r := range q {
				counts[r]++
			}
			last := rune(0)
			for _, r := range a {
				counts[r]--
				if counts[r] < 0 || r < last {
					return false
				}
				last = r
			}
			return len(q) == len(a)
		},
		"addition": func(q, a string) bool {
			x, y, _ := strings.Cut(q, "+")
			return number(x)+number(y) == number(a)
		},
	} {
		task := mustTask(t, name)
		for group := range uint64(200) {
			p := TrainingProblem(task, 7, group, 0)
			question := strings.TrimSuffix(task.Vocabulary().Decode(p.Prompt), "→")
			answer := strings.TrimSuffix(task.Vocabulary().Decode(p.Answer), ".")
			if !check(question, answer) {
				t.Fatalf("%s: %q has the answer %q", name, question, answer)
			}
		}
	}
}

// number reads digits, the least significant first.
func number(text string) int {
	n := 0
	for i := len(text) - 1; i >= 0; i-- {
		n = 10*n + int(text[i]-'0')
	}
	return n
}

func TestPartialCredit(t *testing.T) {
	task := mustTask(t, "reverse")
	v := task.Vocabulary()
	p := v.problem(v.mustEncode("abc"), v.mustEncode("cba"))
	for response, want := range map[string]float64{
		"cba.": 1, "cba": 0.75, "cb.": 0.5, "cxa.": 0.75, "abc.": 0.5, "cbaa.": 0.6, "": 0, ".": 0, "cbaxxx": 0.5,
	} {
		tokens := v.mustEncode(strings.TrimSuffix(response, "."))
		if strings.HasSuffix(response, ".") {
			tokens = append(tokens, End)
		}
		if got := task.Score(p, tokens).Reward; got != want {
			t.Errorf("%q scores %g, want %g", response, got, want)
		}
	}
}

// TestHeldOutIsDisjoint draws both splits at length: at least 1000 held-out
// prompts, all distinct, none of which any group of several seeds plays.
func TestHeldOutIsDisjoint(t *testing.T) {
	for _, name := range Names() {
		task := mustTask(t, name)
		problems, err := HeldOutProblems(task, 1000)
		if err != nil {
			t.Fatal(err)
		}
		held := map[string]bool{}
		for _, p := range problems {
			checkProblem(t, task, p)
			held[fmt.Sprint(p.Prompt)] = true
		}
		if len(held) != 1000 {
			t.Errorf("%s: %d distinct held-out prompts, want 1000", name, len(held))
		}
		for seed := range uint64(3) {
			for group := range uint64(5000) {
				if p := TrainingProblem(task, seed, group, 0); held[fmt.Sprint(p.Prompt)] {
					t.Fatalf("%s: seed %d group %d trains on the held-out prompt %q", name, seed, group, task.Vocabulary().Decode(p.Prompt))
				}
			}
		}
	}
	few, err := New("sort", Options{LettersMax: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := HeldOutProblems(few, 5000); err == nil {
		t.Error("promised more held-out prompts than there are")
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New("revers", Options{})
	if err == nil || !strings.Contains(err.Error(), `"reverse"`) || !strings.Contains(err.Error(), "sort") {
		t.Errorf("a typo gives %v, want the known names and the nearest", err)
	}
	for _, o := range []Options{{LettersMin: 4, LettersMax: 3}, {LettersMin: -1}, {LettersMax: 65}, {LettersMin: 1, LettersMax: 2}} {
		if _, err := New("sort", o); err == nil {
			t.Errorf("options %+v accepted", o)
		}
	}
}

// script answers with fixed generations.
type script struct {
	generation port.Generation
	err        error
}

func (s script) Sample(context.Context, port.SampleRequest) (port.Generation, error) {
	return s.generation, s.err
}

func TestPlayMakesTheRecord(t *testing.T) {
	task := mustTask(t, "reverse")
	e := NewSingleTurn(task, 5, nil, Pruning{})
	id := port.RolloutID{Group: 9, Sample: 2, Attempt: 1}
	p := TrainingProblem(task, 5, 9, 0)
	n := len(p.Answer)
	g := port.Generation{Tokens: p.Answer, Logprobs: make([]float32, n), Versions: make([]loop.Version, n)}
	for i := range n {
		g.Logprobs[i], g.Versions[i] = -float32(i), loop.Version(3+i)
	}
	s, err := e.Play(context.Background(), port.RolloutRequest{ID: id}, script{generation: g})
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != id || !s.Exact || s.Reward != 1 || s.ResponseTokens() != n || s.Response != s.Answer {
		t.Errorf("record %+v", s)
	}
	for i := range s.Tokens {
		j := i - len(p.Prompt)
		want := [4]any{int32(0), uint8(0), float32(0), loop.NoVersion}
		if j >= 0 {
			want = [4]any{p.Answer[j], uint8(1), -float32(j), loop.Version(3 + j)}
		} else {
			want[0] = p.Prompt[i]
		}
		if got := [4]any{s.Tokens[i], s.LossMask[i], s.Logprobs[i], s.Versions[i]}; got != want {
			t.Errorf("token %d: %v, want %v", i, got, want)
		}
	}
	broken := errors.New("engine gone")
	if _, err := e.Play(context.Background(), port.RolloutRequest{ID: id}, script{err: broken}); !errors.Is(err, broken) {
		t.Errorf("a failed generation gives %v, never a reward", err)
	}
}

// TestServiceTimeWaits runs on fake time: the wait is the draw, the draw is
// the simulator's, and the context ends it.
func TestServiceTimeWaits(t *testing.T) {
	spec := workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 0.5, Tailness: 60}
	service, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	task := mustTask(t, "reverse")
	distinct := map[time.Duration]bool{}
	synctest.Test(t, func(t *testing.T) {
		e := NewSingleTurn(task, 5, service, Pruning{})
		g := port.Generation{Tokens: []int32{End}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}
		for sample := range int32(20) {
			id := port.RolloutID{Group: 3, Sample: sample, Attempt: 1}
			want := time.Duration(service.Draw(workload.NewSource(5, workload.StreamEnvironment), 3, uint32(sample), 1))
			distinct[want] = true
			began := time.Now()
			if _, err := e.Play(t.Context(), port.RolloutRequest{ID: id}, script{generation: g}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != want {
				t.Errorf("sample %d waited %v, want %v", sample, waited, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := e.Play(ctx, port.RolloutRequest{ID: port.RolloutID{Group: 3}}, script{generation: g}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a done context gives %v", err)
		}
	})
	if len(distinct) != 20 {
		t.Errorf("%d distinct times of 20", len(distinct))
	}
}

func TestEvaluate(t *testing.T) {
	task := mustTask(t, "sort")
	problems, err := HeldOutProblems(task, 10)
	if err != nil {
		t.Fatal(err)
	}
	halfRight := func(_ context.Context, prompts [][]int32, _ int) ([][]int32, error) {
		answers := make([][]int32, len(prompts))
		for i := range prompts {
			answers[i] = problems[i].Answer
			if i%2 == 1 {
				answers[i] = nil
			}
		}
		return answers, nil
	}
	e, err := Evaluate(t.Context(), task, Look(task), problems, halfRight)
	if err != nil || e.Accuracy() != 0.5 || e.Exact != 5 || e.Reward < 0.499 || e.Reward > 0.501 {
		t.Errorf("half right evaluates to %+v, %v", e, err)
	}
	short := func(context.Context, [][]int32, int) ([][]int32, error) { return nil, nil }
	if _, err := Evaluate(t.Context(), task, Look(task), problems, short); err == nil {
		t.Error("missing answers were accepted")
	}
}

// asked remembers what was asked for, and answers it.
type asked struct {
	script
	req *port.SampleRequest
}

func (a asked) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	*a.req = req
	return a.script.Sample(ctx, req)
}

// TestDrift runs on fake time: by a group's start version the wait is so many times the draw, and
// prompt and response grow by just that factor, whatever Limits a grown task has.
func TestDrift(t *testing.T) {
	change, err := workload.ChangeSpec{Begin: 10, Steps: 10, LengthFactor: 3, EnvironmentFactor: 2}.Build(0)
	if err != nil {
		t.Fatal(err)
	}
	service, err := workload.TimesSpec{Kind: workload.KindFixed, MeanS: 0.5}.Build()
	if err != nil {
		t.Fatal(err)
	}
	task, err := New("reverse", Options{LettersMin: 4, LettersMax: 4, Growth: 3})
	if err != nil {
		t.Fatal(err)
	}
	if l := task.Limits(); l.PromptTokens != 16 || l.ResponseTokens != 15 {
		t.Errorf("limits %+v, want those of words of 14 letters", l)
	}
	synctest.Test(t, func(t *testing.T) {
		e := NewSingleTurn(task, 5, service, Pruning{}).WithDrift(change)
		g := port.Generation{Tokens: []int32{End}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}
		for _, at := range []struct {
			version loop.Version
			tokens  int
			waits   time.Duration
		}{{0, 5, 500 * time.Millisecond}, {10, 5, 500 * time.Millisecond}, {15, 10, 750 * time.Millisecond}, {40, 15, time.Second}} {
			var req port.SampleRequest
			began := time.Now()
			s, err := e.Play(t.Context(), port.RolloutRequest{ID: port.RolloutID{Group: 3, Attempt: 1}, Version: at.version}, asked{script{generation: g}, &req})
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != at.waits || req.MaxTokens != at.tokens || len(req.Prompt) != at.tokens+1 || len(s.Answer) != at.tokens {
				t.Errorf("v%d: waited %v for at most %d tokens on a prompt of %d, answer %q; want %v and %d", at.version, waited, req.MaxTokens, len(req.Prompt), s.Answer, at.waits, at.tokens)
			}
			if SplitOf(req.Prompt) != Training {
				t.Errorf("v%d: %q is held out", at.version, s.Prompt)
			}
		}
	})
	held, err := HeldOutProblems(task, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range held {
		if len(p.Answer) != 5 {
			t.Fatalf("a held-out answer has %d tokens, want it as long as before any drift", len(p.Answer))
		}
	}
	if p, q := TrainingProblem(task, 5, 3, 0), GrownProblem(task.(Grower), 5, 3, 0, 1); task.Vocabulary().Decode(p.Prompt) != task.Vocabulary().Decode(q.Prompt) {
		t.Error("a factor of 1 changes the problem")
	}
}
