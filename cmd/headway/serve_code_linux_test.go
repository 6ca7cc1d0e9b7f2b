package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A control plane judges the programs of the task code in sandboxes of its own, and leaves none behind.
func TestServeCode(t *testing.T) {
	driver, dir := sandboxDriver(t, "bwrap"), t.TempDir()
	s := startServe(t, dir, "environment: {task: code, held_out: 8}\nsandbox: {reuse: reset}\nrollout: {group_size: 4, concurrency: 8}\ntrain: {batch: 8}\ntrainer: {kind: embedded, steps: 2}\n")
	<-s.ended
	if left := sandboxesLeft(t, driver, dir); len(left) > 0 {
		t.Errorf("the run left the sandboxes %v\n%s", left, s.text())
	}
	scored := 0
	for _, r := range playedRecords(t, dir) {
		if r.Reward != nil {
			scored++
		}
	}
	if scored < 16 {
		t.Errorf("%d records of programs that were judged, want 16\n%s", scored, s.text())
	}
	if _, err := os.Stat(filepath.Join(dir, "runs", "r", "weights")); err != nil {
		t.Error(err)
	}
}
