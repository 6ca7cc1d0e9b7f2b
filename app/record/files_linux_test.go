package record

import (
	"encoding/json"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStepLogWithoutRoom: lines that there is no room for are written when there is, whole and in order.
func TestStepLogWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	log, err := openStepLog(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	log.add(steps.Line{Step: 1})
	real := log.file
	log.file = full
	for step := range loop.Version(64) {
		log.add(steps.Line{Step: step + 2})
	}
	if err := log.flush(); !NoRoom(err) {
		t.Fatalf("no room, and: %v", err)
	}
	log.file = real
	log.add(steps.Line{Step: 66})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, steps.File))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var got steps.Line
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Step != loop.Version(i+1) {
			t.Fatalf("line %d is %s: %v", i+1, line, err)
		}
	}
}
