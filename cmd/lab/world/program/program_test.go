package program_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/program/programtest"
)

func TestMain(m *testing.M) {
	programtest.Main()
	os.Exit(m.Run())
}

func open(t *testing.T) *program.Program {
	t.Helper()
	p, err := programtest.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Every way in which a world's process can end has its rule.
func TestRun(t *testing.T) {
	p := open(t)
	for _, test := range []struct {
		seed       uint64
		rule, text string
	}{
		{7, "", ""},
		{programtest.Violated, "once", "rollout 7 ended twice"},
		{programtest.Stuck, program.Stuck, "no step for 10 minutes"},
		{programtest.Panicked, program.Panic, "panic: index out of range"},
		{programtest.Killed, program.Crash, "a signal ended the program: killed"},
		{programtest.Rubbish, program.Answer, `the program printed "{nonsense"`},
		{programtest.Talkative, program.Answer, "more than one line"},
		{programtest.Silent, program.Answer, "the program printed nothing"},
		{programtest.Broken, program.Answer, `the exit code is 1, and the answer names the broken rule ""`},
		{programtest.Contradictory, program.Answer, `the exit code is 0, and the answer names the broken rule "once"`},
		{programtest.Odd, program.Crash, "exit code 3"},
		{programtest.Harness, program.Harness, "world: no room"},
		{programtest.Raced, program.Race, "the race detector"},
	} {
		r, err := p.Run(context.Background(), program.Job{Seed: test.seed})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rule != test.rule || !strings.Contains(r.Text, test.text) || r.Seed != test.seed {
			t.Errorf("seed %d: seed %d, %q, %q; want %q, %q", test.seed, r.Seed, r.Rule, r.Text, test.rule, test.text)
		}
	}
	left, err := filepath.Glob(filepath.Join(p.Folder(), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the worlds have left %q, %v; want the program alone", left, err)
	}
}

// A world that hangs is ended, and the list of its goroutines is kept.
func TestHang(t *testing.T) {
	p := open(t)
	for p.Limit = time.Second; ; p.Limit *= 2 {
		r, err := p.Run(context.Background(), program.Job{Seed: programtest.Hanging})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rule != program.Hang {
			t.Fatalf("%q, %q; want a hang", r.Rule, r.Text)
		}
		if strings.Contains(r.Stderr, "SIGQUIT") && strings.Contains(r.Stderr, "goroutine 1") {
			return
		}
		if p.Limit > time.Minute {
			t.Fatalf("%q has no goroutines", r.Stderr)
		}
	}
}

// A run that is interrupted says nothing of its world.
func TestInterrupted(t *testing.T) {
	p := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := p.Run(ctx, program.Job{Seed: programtest.Hanging}); err == nil {
		t.Errorf("an interrupted run ends with %+v", r)
	}
}

func TestPlan(t *testing.T) {
	p := open(t)
	drawn := programtest.Plan(7)
	r, err := p.Run(context.Background(), program.Job{Plan: &drawn})
	if err != nil || !r.Breaks("shrinks") || r.Plan.Workers != drawn.Workers {
		t.Errorf("%+v, %v", r, err)
	}
	drawn = programtest.Plan(programtest.Panicked)
	drawn.Workers = 5
	r, err = p.Run(context.Background(), program.Job{Plan: &drawn})
	if err != nil || r.Rule != program.Panic || r.Plan.Workers != 5 || r.Seed != programtest.Panicked {
		t.Errorf("without an answer, the plan is %+v, %v", r.Plan, err)
	}
	r, err = p.Run(context.Background(), program.Job{Seed: programtest.Panicked})
	if err != nil || !reflect.DeepEqual(r.Plan, plan.Draw(programtest.Panicked)) {
		t.Errorf("without an answer, the plan of a seed is %+v, %v", r.Plan, err)
	}
}

func TestKeep(t *testing.T) {
	p := open(t)
	dir := t.TempDir()
	if _, err := p.Run(context.Background(), program.Job{Seed: 7, Keep: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "left")); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if p, err := program.Open(filepath.Join(t.TempDir(), "missing"), false); err == nil {
		t.Errorf("%+v", p)
	}
}
