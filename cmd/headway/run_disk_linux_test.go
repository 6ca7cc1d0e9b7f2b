package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/internal/failure"
)

// fillable is a file system of so many MiB of its own that can be filled and freed; it takes the right to mount one.
func fillable(t *testing.T, size int) (dir string, fill, free func()) {
	dir = t.TempDir()
	if err := syscall.Mount("headway-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Skipf("a file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	return dir,
		func() {
			if err := os.WriteFile(ballast, make([]byte, size<<20+1), 0o644); !record.NoRoom(err) {
				t.Fatalf("filling the disk: %v", err)
			}
		},
		func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
}

// TestRunOnAFullDisk: a run says at once that its disk is full, and when it goes on, and its first
// interrupt ends it, with the cause, while nothing can be written.
func TestRunOnAFullDisk(t *testing.T) {
	dir, fill, free := fillable(t, 32)
	cmd := exec.CommandContext(t.Context(), program(t), "run", "--no-dashboard", "--dir", dir, "--name", "r", "--steps", "100000")
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(errs)
	until := func(words string) string {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("it ended without %q", words)
			}
			if strings.Contains(line, words) {
				return line
			}
		}
	}
	until("step ")
	fill()
	if line := until("the run waits for room in "); !strings.Contains(line, dir) || !strings.Contains(line, " free): write ") || !strings.Contains(line, "Make room there") {
		t.Errorf("it says %q", line)
	}
	free()
	until("there is room again in ")
	fill()
	until("the run waits for room in ")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	until("stopping: nothing can be written")
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	// A version that was pruned may leave room for the end of the log, and none for the report.
	waited := strings.Contains(string(rest), "no space left on device; stopped waiting for room") || strings.Contains(string(rest), "report.html.new: no space left on device")
	if cmd.Wait(); cmd.ProcessState.ExitCode() != failure.ExitFailure || !waited ||
		!strings.Contains(string(rest), "make room in "+filepath.Join(dir, "r")) || strings.Contains(string(rest), "there is room again") {
		t.Errorf("it ended with %d: %s", cmd.ProcessState.ExitCode(), rest)
	}
}
