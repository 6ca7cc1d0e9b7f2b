package record

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
)

// stepsOf reads which steps metrics.jsonl has, in order.
func stepsOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, steps.File))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		var step int
		if _, err := fmt.Sscanf(line, `{"step":%d,`, &step); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		found = append(found, fmt.Sprint(step))
	}
	return strings.Join(found, " ")
}

// write adds lines of steps to a log that goes on from a version, and closes it.
func write(t *testing.T, dir string, upTo loop.Version, made ...loop.Version) {
	t.Helper()
	log, err := openStepLog(dir, upTo)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range made {
		log.add(steps.Line{Step: step})
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStepLogGoesOn: a start alone changes nothing. With its first line, lines of later steps and a torn one are cut off.
func TestStepLogGoesOn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, steps.File)
	write(t, dir, 0, 1, 2, 3, 4)
	write(t, dir, 2)
	if got := stepsOf(t, dir); got != "1 2 3 4" {
		t.Errorf("after a start without a step: %s", got)
	}
	write(t, dir, 4, 5)
	write(t, dir, 3, 4, 5)
	if got := stepsOf(t, dir); got != "1 2 3 4 5" {
		t.Errorf("after steps that were made again: %s", got)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 40} { // the end of the last line alone, and a part of it
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		write(t, dir, 5, 6)
		if got, want := stepsOf(t, dir), map[int]string{1: "1 2 3 4 5 6", 40: "1 2 3 4 6"}[cut]; got != want {
			t.Errorf("%d bytes cut: %s, want %s", cut, got, want)
		}
	}
}

// TestALateStartTakesNoLines: a process that stood still as it began does not take the file of its successor.
func TestALateStartTakesNoLines(t *testing.T) {
	dir := t.TempDir()
	successor, err := openStepLog(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	successor.add(steps.Line{Step: 1})
	write(t, dir, 0)
	successor.add(steps.Line{Step: 2})
	if err := successor.Close(); err != nil {
		t.Fatal(err)
	}
	if got := stepsOf(t, dir); got != "1 2" {
		t.Errorf("steps %s, want 1 2", got)
	}
}

// TestALongLogTakesNoMemory: the lines of a long run do not stay in memory for as long as it goes on.
func TestALongLogTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	log, err := openStepLog(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]float64{}
	for i := range 20 {
		metrics[fmt.Sprintf("metric/%d", i)] = float64(i) / 3
	}
	const all = 40_000
	for step := range all {
		log.add(steps.Line{Step: loop.Version(step + 1), Metrics: metrics})
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	if log, err = openStepLog(dir, all); err != nil {
		t.Fatal(err)
	}
	log.add(steps.Line{Step: all + 1})
	if took := int64(heap()) - int64(before); len(log.Lines) > 2*live.SeriesSteps || took > 40<<20 {
		t.Errorf("%d lines and %d MiB stay", len(log.Lines), took>>20)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
