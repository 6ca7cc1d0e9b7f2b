package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
)

// A bundle that cannot be written is said, or the reader would look for a file that is not there.
func TestWriteBroken(t *testing.T) {
	dir := t.TempDir()
	said := writeBroken(dir, []byte("{}"))
	if text, err := os.ReadFile(filepath.Join(dir, BrokenFile)); string(text) != "{}" || !strings.Contains(said, filepath.Join(dir, BrokenFile)) {
		t.Errorf("said %q, wrote %q, %v", said, text, err)
	}
	gone := filepath.Join(dir, "gone")
	if said := writeBroken(gone, []byte("{}")); !strings.Contains(said, "cannot be written") || !strings.Contains(said, "no such file") || !strings.Contains(said, gone) {
		t.Errorf("said %q of a directory that is gone", said)
	}
}

// A line of many metrics is longer than most, and a restart keeps it and those behind it.
func TestLongLinesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	log, err := openStepLog(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for step := range 10 {
		line := steps.Line{Step: loop.Version(step + 1), Metrics: map[string]float64{}}
		for i := 0; step == 3 && i < 1024; i++ {
			line.Metrics[fmt.Sprintf("%0128d", i)] = 1.0 / 3
		}
		log.add(line)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, steps.File))
	if err != nil {
		t.Fatal(err)
	}
	if log, err = openStepLog(dir, 10); err == nil {
		err = log.Close()
	}
	after, readErr := os.ReadFile(filepath.Join(dir, steps.File))
	if err := errors.Join(err, readErr); err != nil || bytes.Count(after, []byte("\n")) != 10 || !bytes.Equal(before, after) {
		t.Errorf("%d of %d bytes are left: %v", len(after), len(before), err)
	}
}
