package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordedRunGoesOn goes on with a run of the program that made the recordings, from its snapshot or, where a later
// program keeps more in one, from the beginning of its log. The run's document has
// every key that has another name since. Replay of the whole log then holds the stored state to the loop's rules.
func TestRecordedRunGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-stopped")
	unpack(t, filepath.Join(recordedDir, "unfinished", "run-stopped"+archiveSuffix), dir)
	code, _, stderr := headway(t, "run", "--resume", dir, "--no-dashboard")
	if code != 0 {
		t.Fatalf("run --resume ends with %d:\n%s", code, stderr)
	}
	for _, want := range []string{"recovered from ", "going on from version 14"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("run --resume does not say %q:\n%s", want, stderr)
		}
	}
	if other := "is not what the run began with"; strings.Contains(stderr, other) {
		t.Errorf("run --resume says of an unchanged document: %s", stderr)
	}
	code, stdout, stderr := headway(t, "replay", dir)
	if code != 0 || !strings.HasPrefix(stdout, "identical: ") || !strings.Contains(stdout, "up to version 22") {
		t.Errorf("replay of both parts ends with %d:\n%s%s", code, stdout, stderr)
	}
}
