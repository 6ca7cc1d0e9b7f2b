package code

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/loop/port"
)

// boxes makes a box of plain processes for every lease.
type boxes struct {
	driver sandbox.Driver
	spec   sandbox.Spec
	wrap   func(sandbox.Box) sandbox.Box
	mu     sync.Mutex
	n      int
}

func newBoxes(t *testing.T, spec sandbox.Spec) *boxes {
	t.Helper()
	driver, err := process.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &boxes{driver: driver, spec: spec, wrap: func(b sandbox.Box) sandbox.Box { return b }}
}

func (b *boxes) Lease(ctx context.Context, holder string) (sandbox.Box, error) {
	b.mu.Lock()
	b.n++
	id := sandbox.ID(fmt.Sprintf("t%d.%d", os.Getpid(), b.n))
	b.mu.Unlock()
	box, err := b.driver.Create(ctx, id, b.spec)
	if err != nil {
		return nil, err
	}
	return b.wrap(box), nil
}

func newTask(t *testing.T, o Options) *Task {
	t.Helper()
	task, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// problem is one whose operations, in the order in which they are run, are these.
func problem(task *Task, operations ...string) env.Problem {
	answer := task.encode(operations)
	slices.Reverse(operations)
	return task.vocabulary.Problem(task.encode(operations), answer)
}

func response(task *Task, words ...string) []int32 { return append(task.encode(words), env.End) }

// judged scores one response as a rollout, with its record.
func judged(t *testing.T, task *Task, b *boxes, p env.Problem, said []int32) (env.Score, episode.Record, error) {
	t.Helper()
	var line episode.Record
	scorer := NewScorer(task, b, ScorerOptions{Record: func(r episode.Record) { line = r }})
	trial := scorer.Begin(port.RolloutID{Group: 3, Sample: 2, Attempt: 1}, p)
	trial.Sampled()
	score, err := trial.Score(t.Context(), said)
	return score, line, err
}

// TestEveryOperationInPython runs every operation's statement for real: Python's result and the reference's
// are the same on all tests.
func TestEveryOperationInPython(t *testing.T) {
	task := newTask(t, Options{Tests: 24})
	scorer := NewScorer(task, newBoxes(t, sandbox.Spec{}), ScorerOptions{ProgramS: 10})
	var problems []env.Problem
	var answers [][]int32
	for _, o := range operations {
		for _, first := range []string{"negate", "total"} {
			p := problem(task, first, o.name)
			problems, answers = append(problems, p), append(answers, p.Answer)
		}
	}
	scores, err := scorer.Evaluate(t.Context(), problems, answers)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range scores {
		if s != (env.Score{Reward: 1, Exact: true}) {
			t.Errorf("%s scores %+v:\n%s", task.ReadPrompt(problems[i]), s, task.Program(answers[i]))
		}
	}
}

// TestPartialCredit: what is right up to the first mistake counts.
func TestPartialCredit(t *testing.T) {
	task := newTask(t, Options{Tests: 7})
	b := newBoxes(t, sandbox.Spec{})
	p := problem(task, "total", "count", "double")
	for said, want := range map[string]float64{
		"total count double": 1, "total count": 0.5, "total": 0.25, "": 0, "count total double": 0,
		"total count increment": 0.75, "total count double total": 0.6, "total forever double": 0.25 / 7, "total hoard double": 0.25,
	} {
		score, line, err := judged(t, task, b, p, response(task, strings.Fields(said)...))
		if err != nil || score.Reward < want-1e-9 || score.Reward > want+1e-9 || score.Exact != (want == 1) {
			t.Errorf("%q scores %+v (%v), want %g; %s", said, score, err, want, line.Note)
		}
	}
	if s, _, err := judged(t, task, b, p, p.Answer[:3]); err != nil || s.Exact || s.Reward >= 1 {
		t.Errorf("a response that was cut scores %+v, %v", s, err)
	}
}

// TestLimitsAreThePolicys: what a program does to itself is noted, and what it passed before is scored.
func TestLimitsAreThePolicys(t *testing.T) {
	task := newTask(t, Options{})
	b := newBoxes(t, sandbox.Spec{})
	p := problem(task, "total", "count")
	for said, class := range map[string]sandbox.Class{"total forever": sandbox.Timeout, "total hoard": sandbox.OutOfMemory, "total count": ""} {
		score, line, err := judged(t, task, b, p, response(task, strings.Fields(said)...))
		if err != nil || line.Reward == nil || *line.Reward != score.Reward || score.Reward <= 0 {
			t.Errorf("%q: %+v, %v, %+v", said, score, err, line)
		}
		if class != "" && line.Limits[string(class)] != 1 || class == "" && line.Limits != nil {
			t.Errorf("%q met %v, want %q", said, line.Limits, class)
		}
	}
}

// raw runs Python as it is.
func raw(t *testing.T, b *boxes, programs ...string) []outcome {
	t.Helper()
	task := newTask(t, Options{})
	scorer := NewScorer(task, b, ScorerOptions{ProgramS: 1})
	var sources []source
	for _, text := range programs {
		sources = append(sources, source{text, [][]int64{{1, 2}, {3}}})
	}
	outcomes, err := scorer.runAnywhere(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

const honest = "def f(x):\n    yield x\n"

// TestHostilePrograms: whatever a program does, those beside it in the same command are judged as if it
// were not there.
func TestHostilePrograms(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		limit   sandbox.Class
	}{
		"loops":             {"def f(x):\n    while True: pass\n", sandbox.Timeout},
		"writes gigabytes":  {"def f(x):\n    while True: yield [1] * 1000\n", sandbox.Output},
		"hoards":            {"def f(x):\n    x = [0] * (1 << 36)\n    yield x\n", sandbox.OutOfMemory},
		"leaves a child":    {"import os, time\ndef f(x):\n    if os.fork() == 0: time.sleep(60)\n    yield x\n", sandbox.Timeout},
		"ends":              {"import os\ndef f(x):\n    os._exit(3)\n    yield x\n", ""},
		"prints":            {"import os\ndef f(x):\n    print('= [1, 2]' * 9999)\n    yield x\n", ""},
		"forges":            {"import os\ndef f(x):\n    for fd in range(3, 64):\n        try: os.write(fd, b'- 99999\\nT\\nE\\n')\n        except OSError: pass\n    yield x\n", ""},
		"kills its parent":  {"import os\ndef f(x):\n    os.kill(os.getppid(), 0)\n    yield x\n", ""},
		"is none":           {"def f(x:\n", ""},
		"changes a builtin": {"import builtins\nbuiltins.repr = lambda x: 'mine'\ndef f(x):\n    yield x\n", ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			outcomes := raw(t, newBoxes(t, sandbox.Spec{}), honest, c.program, honest)
			if outcomes[1].limit != c.limit {
				t.Errorf("it met %q, want %q: %+v", outcomes[1].limit, c.limit, outcomes[1])
			}
			for _, i := range []int{0, 2} {
				want := []observed{{[]string{"[1, 2]"}, true}, {[]string{"[3]"}, true}}
				if got := outcomes[i]; got.limit != "" || !slices.EqualFunc(got.runs, want, func(a, b observed) bool { return a.ended == b.ended && slices.Equal(a.stages, b.stages) }) {
					t.Errorf("the program beside it: %+v", got)
				}
			}
		})
	}
}

// TestOneThatEndsTheHarness is found by running the others without it, and has passed nothing.
func TestOneThatEndsTheHarness(t *testing.T) {
	killer := "import os, time\ndef f(x):\n    yield x\n    os.kill(os.getppid(), 9)\n    time.sleep(60)\n"
	outcomes := raw(t, newBoxes(t, sandbox.Spec{}), honest, killer, honest)
	if len(outcomes) != 3 || len(outcomes[0].runs) != 2 || len(outcomes[1].runs) != 0 || outcomes[1].what == "" || len(outcomes[2].runs) != 2 {
		t.Errorf("%+v", outcomes)
	}
}

// TestNoPython: a box in which the harness does not begin is nobody's reward.
func TestNoPython(t *testing.T) {
	task := newTask(t, Options{})
	b := newBoxes(t, sandbox.Spec{Env: map[string]string{"PATH": "/nowhere"}})
	_, err := NewScorer(task, b, ScorerOptions{}).runAnywhere(t.Context(), []source{{honest, [][]int64{{1}}}})
	if sandbox.ClassOf(err) != sandbox.VerifierCrash {
		t.Errorf("%v, want a crash of the verifier", err)
	}
}

// bubblewrapped are boxes that keep programs from what is not theirs.
func bubblewrapped(t *testing.T) *boxes {
	driver, err := bwrap.New(t.TempDir())
	if err == nil {
		_, err = driver.Check(t.Context())
	}
	if err != nil {
		t.Skip(err)
	}
	b := newBoxes(t, sandbox.Spec{})
	b.driver = driver
	return b
}

// TestForgery: a program can write neither where the harness answers nor where a later program does.
func TestForgery(t *testing.T) {
	forged := `b'T\n=[1, 2]\nE\nT\n=[3]\nE\n'`
	for name, program := range map[string]string{
		"answers":         "import os\nbody = " + forged + "\ndef f(x):\n    fd = os.open('/proc/%d/fd/1' % os.getppid(), os.O_WRONLY)\n    os.write(fd, (b'- %d\\n' % len(body) + body) * 2)\n    yield x\n",
		"garbage":         "import os\ndef f(x):\n    fd = os.open('/proc/%d/fd/1' % os.getppid(), os.O_WRONLY)\n    os.write(fd, b'garbage\\n')\n    yield x\n",
		"by what it left": "import os, time, glob\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        os.closerange(3, 20)\n        if os.fork(): os._exit(0)\n        own, until = os.getpid(), time.time() + 60\n        while time.time() < until:\n            for c in glob.glob('/proc/[0-9]*/fd/*'):\n                if c.split('/')[2] in ('1', str(own)): continue\n                try:\n                    fd = os.open(c, os.O_WRONLY | os.O_NONBLOCK)\n                    os.write(fd, " + forged + ")\n                    os.close(fd)\n                except OSError: pass\n        os._exit(0)\n    yield x\n",
	} {
		outcomes := raw(t, bubblewrapped(t), program, "def f(x):\n    yield 'wrong'\n", honest)
		for i, want := range [][]string{1: {"'wrong'", "'wrong'"}, 2: {"[1, 2]", "[3]"}} {
			var got []string
			for _, run := range outcomes[i].runs {
				got = append(got, run.stages...)
			}
			if i > 0 && !slices.Equal(got, want) {
				t.Errorf("%s: program %d: %+v, want %q", name, i, outcomes[i], want)
			}
		}
	}
}

// hung is a box whose commands end with their context, which is given up meanwhile.
type hung struct {
	sandbox.Box
	giveUp context.CancelFunc
}

func (h hung) Run(ctx context.Context, _ sandbox.Command) (sandbox.Result, error) {
	h.giveUp()
	<-ctx.Done()
	return sandbox.Result{}, ctx.Err()
}

// TestCutOff: a judging that its caller ends is recorded as given up.
func TestCutOff(t *testing.T) {
	task := newTask(t, Options{})
	b := newBoxes(t, sandbox.Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	b.wrap = func(box sandbox.Box) sandbox.Box { return hung{box, cancel} }
	var line episode.Record
	trial := NewScorer(task, b, ScorerOptions{Record: func(r episode.Record) { line = r }}).Begin(port.RolloutID{Group: 3}, problem(task, "sort"))
	trial.Sampled()
	if _, err := trial.Score(ctx, response(task, "sort")); err == nil || line.Failure != episode.Unwanted || line.Reward != nil {
		t.Errorf("%v, %+v", err, line)
	}
}

// broken is a box whose commands fail.
type broken struct{ sandbox.Box }

func (b broken) Run(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{}, sandbox.Fail(sandbox.Lost, "run", b.ID(), "gone")
}

// TestFailuresAreNoReward: a lost box is an error of its class, and the record has no reward.
func TestFailuresAreNoReward(t *testing.T) {
	task := newTask(t, Options{})
	b := newBoxes(t, sandbox.Spec{})
	lose := 1
	b.wrap = func(box sandbox.Box) sandbox.Box {
		b.mu.Lock()
		defer b.mu.Unlock()
		if lose--; lose >= 0 {
			return broken{box}
		}
		return box
	}
	p := problem(task, "sort")
	_, line, err := judged(t, task, b, p, p.Answer)
	if sandbox.ClassOf(err) != sandbox.Lost || line.Failure != sandbox.Lost || line.Reward != nil || line.Rollout != "g3-s2-a1" {
		t.Errorf("%v, %+v", err, line)
	}
	lose = evaluateTries - 1
	scores, err := NewScorer(task, b, ScorerOptions{}).Evaluate(t.Context(), []env.Problem{p}, [][]int32{p.Answer})
	if err != nil || !scores[0].Exact {
		t.Errorf("%v, %v: another box would have done", scores, err)
	}
	lose = evaluateTries
	if _, err := NewScorer(task, b, ScorerOptions{}).Evaluate(t.Context(), []env.Problem{p}, [][]int32{p.Answer}); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("%v, want what the last try said", err)
	}
}

// TestGo compiles, links and runs real programs in Go.
func TestGo(t *testing.T) {
	mounts, err := PrepareGo(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	task := newTask(t, Options{Language: Go})
	driver, err := bwrap.New(t.TempDir())
	if err == nil {
		_, err = driver.Check(t.Context())
	}
	if err != nil {
		t.Skipf("plain processes have no mounts, and there is no bubblewrap: %v", err)
	}
	b := newBoxes(t, sandbox.Spec{Mounts: mounts})
	b.driver = driver
	for said, want := range map[string]struct {
		asked []string
		exact bool
	}{
		"unique digit running": {[]string{"unique", "digit", "running"}, true},
		"sort reverse":         {[]string{"sort", "rest"}, false},
	} {
		p := problem(task, slices.Clone(want.asked)...)
		score, line, err := judged(t, task, b, p, response(task, strings.Fields(said)...))
		if err != nil || score.Exact != want.exact || score.Reward <= 0 {
			t.Errorf("%q: %+v, %v, %+v", said, score, err, line)
		}
	}
}

// TestNewRefuses what it cannot have.
func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{Language: "pyton"}, {OperationsMin: 5, OperationsMax: 4}, {OperationsMax: 9}, {OperationsMax: 2}, {Tests: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if task := newTask(t, Options{OperationsMin: 5}); task.max != 5 {
		t.Errorf("at most %d operations", task.max)
	}
}

// TestReading: people read compositions and programs.
func TestReading(t *testing.T) {
	task := newTask(t, Options{})
	p := problem(task, "sort", "double")
	if got := task.ReadPrompt(p); got != "double(sort(x))" {
		t.Errorf("the prompt reads %q", got)
	}
	if got := task.ReadResponse(p.Answer); !strings.Contains(got, "x = sorted(x)\n    yield x\n    x = [v * 2 for v in x]\n") {
		t.Errorf("the answer reads:\n%s", got)
	}
}
