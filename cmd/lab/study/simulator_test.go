package study

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// loopText writes a config without its seed, to compare rules.
func loopText(c loop.Config) string {
	c.Seed = 0
	return fmt.Sprintf("%+v", c)
}

func trialsOf(n int) []Trial {
	var trials []Trial
	for i := range n {
		trials = append(trials, Trial{Cell: cellAt(1.5, 50, 4, 0), Rule: Drop(1 + i%2), Seed: uint64(1 + i/2), Warmup: 5, Measured: 20})
	}
	return trials
}

// A study that is broken off goes on from what it has finished, and comes to the same.
func TestStudyGoesOn(t *testing.T) {
	trials := trialsOf(6)
	want, err := Simulator{}.Run(t.Context(), trials)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trials.jsonl")
	kept, err := OpenKept(path, "test 1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Simulator{Kept: kept, Progress: func(done, _ int) {
		if done == 2 {
			cancel()
		}
	}}.Run(ctx, trials)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want the context's", err)
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	// The program's end tore the line it was writing.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.Count(text, []byte("\n"))
	if err := os.WriteFile(path, append(text, `{"trial":"torn`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err = OpenKept(path, "test 1"); err != nil {
		t.Fatal(err)
	}
	if len(kept.done) != whole-1 || whole < 3 {
		t.Errorf("%d trials kept of %d lines", len(kept.done), whole)
	}
	got, err := Simulator{Kept: kept}.Run(t.Context(), trials)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKept(path, "test 2"); !errors.Is(err, ErrOtherProgram) {
		t.Errorf("error %v for another program's trials", err)
	}
}

// What is kept is not simulated again.
func TestKeptIsTaken(t *testing.T) {
	kept, err := OpenKept(filepath.Join(t.TempDir(), "trials.jsonl"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	trial := trialsOf(1)[0]
	if err := kept.put(trial.key(), Figures{Staleness: 42}); err != nil {
		t.Fatal(err)
	}
	if got, err := (Simulator{Kept: kept}).Run(t.Context(), []Trial{trial}); err != nil || got[0].Staleness != 42 {
		t.Errorf("%v %v", got, err)
	}
}

// A trial that cannot be simulated ends the study and is named.
func TestImpossibleTrial(t *testing.T) {
	bad := Drop(1).with("impossible", func(c *loop.Config, _ Cell) { c.QueueGroups = 0 })
	_, err := Simulator{}.Run(t.Context(), []Trial{{Cell: cellAt(1, 50, 4, 0), Rule: bad, Seed: 1, Measured: 1}})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("impossible")) {
		t.Errorf("error %v, want one that names the rule", err)
	}
}

// A run that stalls is a result.
func TestStallIsAResult(t *testing.T) {
	stalls := Rule{"nothing teaches", func(c *loop.Config, _ Cell) { c.FilterZeroAdvantage = true }} // all rewards are 0
	f, err := Trial{Cell: Cell{Rho: 1.5, Tailness: 50, Load: 2, GroupSize: 8, Concurrency: 16}, Rule: stalls, Seed: 1, Measured: 50}.Run()
	if err != nil || f.Failed == "" {
		t.Errorf("%+v %v, want a stall", f, err)
	}
	if e := (point{f, {Staleness: 3}}).mean(staleness); e.Mean != 3 {
		t.Errorf("mean %v, want that of the run that did not stall", e)
	}
}
