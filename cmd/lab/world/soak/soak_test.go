package soak_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/outcome"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
)

// worlds are runs of seeds that count how often each was run.
type worlds struct {
	mu   sync.Mutex
	runs map[uint64]int
	// after is called after a number of runs.
	at    int
	after func()
}

func (w *worlds) run(ctx context.Context, seed uint64) (program.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return program.Result{}, err
	}
	w.runs[seed]++
	if w.at--; w.at == 0 {
		w.after()
	}
	r := program.Result{Answered: true, Wall: time.Second}
	r.Outcome = outcome.Outcome{
		Seed: seed, Steps: 20 + int(seed%3), Events: int64(seed), Faults: map[string]int64{"kill": 3, "cut": 1, "freeze": int64(seed % 2), "mute": 1},
		Pairs: map[string]int64{"claim/kill": 1, "claim/cut": 0}, WorldS: 2, AllocMB: float64(seed % 7),
		Plan: plan.Plan{Seed: seed, Steps: 24, Planes: 1, Workers: 1, Engines: []plan.Engine{{Slots: 1}}},
	}
	if seed%50 == 7 {
		r.Steps = 3
	}
	if seed%100 == 0 {
		r.Rule, r.Text = "once", "rollout 7 ended twice"
	}
	return r, nil
}

func clock() func() time.Time {
	var mu sync.Mutex
	now := time.Unix(0, 0)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// A soak that is interrupted, in a process that is then gone, goes on where it was: every seed is run, all but a few
// once, and the sums are those of a soak that nothing interrupted.
func TestResume(t *testing.T) {
	seeds, err := soak.Parse("1-400")
	if err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context, w *worlds, dir string) *soak.Ledger {
		path := filepath.Join(dir, "ledger.json")
		l, err := soak.Open(path, "sum")
		if err != nil {
			t.Fatal(err)
		}
		err = soak.Soak{Run: w.run, Seeds: seeds, Jobs: 4, FailuresMax: 100, Ledger: l, Path: path, Folder: dir, Now: clock()}.Start(ctx)
		if !errors.Is(err, ctx.Err()) {
			t.Fatal(err)
		}
		return l
	}
	whole := start(context.Background(), &worlds{runs: map[uint64]int{}}, t.TempDir())

	dir := t.TempDir()
	w := &worlds{runs: map[uint64]int{}}
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		w.at, w.after = 90, cancel
		start(ctx, w, dir)
		if ctx.Err() == nil {
			t.Fatal("it was not interrupted")
		}
	}
	l := start(context.Background(), w, dir)
	for seed := range seeds.Without(nil) {
		if w.runs[seed] == 0 {
			t.Errorf("seed %d was never run", seed)
		}
	}
	again := 0
	for _, runs := range w.runs {
		again += runs - 1
	}
	if again > 0 {
		t.Errorf("%d seeds were run again, although the ledger was written", again)
	}
	l.Totals.WallS = whole.Totals.WallS
	if !reflect.DeepEqual(l.Totals, whole.Totals) || l.Done.String() != "1-400" {
		t.Errorf("%+v\nwant %+v", l.Totals, whole.Totals)
	}
	if l.Totals.Counting != 388 || l.Totals.Failed() != 4 || l.Totals.Short["fewer than 20 steps"] != 8 {
		t.Errorf("%+v: want 388 seeds that count, 4 that failed, and 8 that are short", l.Totals)
	}
}

// A ledger that was not written since a crash makes its last seeds run again, and no other.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.json")
	seeds, err := soak.Parse("1-50")
	if err != nil {
		t.Fatal(err)
	}
	w := &worlds{runs: map[uint64]int{}}
	var copied []byte
	l := &soak.Ledger{Program: "sum"}
	s := soak.Soak{Run: w.run, Seeds: seeds, Jobs: 1, FailuresMax: 100, Ledger: l, Path: path, Folder: dir, Now: clock()}
	s.Progress = func(p soak.Progress) {
		if p.Ran == 30 {
			copied, _ = os.ReadFile(path)
		}
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, copied, 0o644); err != nil {
		t.Fatal(err)
	}
	if s.Ledger, err = soak.Open(path, "sum"); err != nil {
		t.Fatal(err)
	}
	done := s.Ledger.Done.Len()
	if done < 25 || done > 30 {
		t.Fatalf("the ledger has %d seeds of 30 that were run, and is written every 2 s", done)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	for seed, runs := range w.runs {
		if want := 1 + min(max(int(seed)-int(done), 0), 1); runs != want {
			t.Errorf("seed %d was run %d times, want %d", seed, runs, want)
		}
	}
}

func TestLedgerRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.json")
	if err := (&soak.Ledger{Program: "one"}).Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := soak.Open(path, "another"); err == nil {
		t.Error("the ledger of another build is taken")
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := soak.Open(path, "one"); err == nil {
		t.Error("half a ledger is taken")
	}
}

// No seed begins after the time is over, or after too many failures.
func TestEnds(t *testing.T) {
	seeds, err := soak.Parse("1-1000")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]soak.Soak{"time": {For: 50 * time.Second, FailuresMax: 100}, "failures": {FailuresMax: 2}} {
		w := &worlds{runs: map[uint64]int{}}
		s.Run, s.Seeds, s.Jobs, s.Ledger, s.Folder, s.Now = w.run, seeds, 2, &soak.Ledger{}, t.TempDir(), clock()
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := s.Ledger.Done.Len(); n < 40 || n > 210 {
			t.Errorf("%s: %d seeds were run", name, n)
		}
	}
}

// The first error ends all.
func TestTrouble(t *testing.T) {
	seeds, err := soak.Parse("1-1000")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no room")
	s := soak.Soak{Seeds: seeds, Jobs: 3, FailuresMax: 1, Ledger: &soak.Ledger{}, Now: clock()}
	s.Run = func(ctx context.Context, seed uint64) (program.Result, error) {
		if seed == 5 {
			return program.Result{}, broken
		}
		return program.Result{}, ctx.Err()
	}
	if err := s.Start(context.Background()); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

// A failure is kept as a script that can be read, and run, again.
func TestScripts(t *testing.T) {
	w := &worlds{runs: map[uint64]int{}}
	dir := t.TempDir()
	l := &soak.Ledger{}
	if err := (soak.Soak{Run: w.run, Seeds: soak.Ranges{{100, 100}}, FailuresMax: 9, Ledger: l, Folder: dir, Now: clock()}).Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []soak.Failure{{Seed: 100, Rule: "once", Text: "rollout 7 ended twice", Script: filepath.Join(dir, "seed-100.json")}}
	if !reflect.DeepEqual(l.Failures, want) {
		t.Fatalf("%+v", l.Failures)
	}
	s, err := soak.ReadScript(want[0].Script)
	if err != nil || s.Seed != 100 || s.Rule != "once" || s.Comment == "" {
		t.Errorf("%+v, %v", s, err)
	}
	for name, text := range map[string]string{"no JSON": "{", "unknown field": `{"steps": 1, "planes": 1, "workers": 1, "engines": [{}], "hosts": 3}`, "no steps": `{"planes": 1, "workers": 1, "engines": [{}]}`} {
		path := filepath.Join(dir, "bad.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err := soak.ReadScript(path); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if _, err := soak.ReadScript(filepath.Join(dir, "missing.json")); err == nil {
		t.Error("a script that is not there is read")
	}
}
