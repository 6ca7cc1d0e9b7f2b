package main

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
)

// A control plane that is started on a full disk says so and waits, as one that runs does, and goes on by itself
// when there is room: for a run that begins and for one that is there.
func TestServeStartsOnAFullDisk(t *testing.T) {
	dir, fill, free := fillable(t, 128)
	for _, steps := range []string{"a run that begins", "a run that is there"} {
		fill()
		cmd := exec.CommandContext(t.Context(), program(t), "serve", "--dir", dir, "--name", "r", "--listen", "127.0.0.1:0", "--steps", "2", "--set", "trainer.kind=embedded")
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said, url := "", ""
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			said += lines.Text() + "\n"
			if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
				url = at
			}
			if strings.Contains(lines.Text(), "waiting for room: the disk of "+dir) {
				code, out, stderr := headway(t, "status", "--full", url)
				if code != 0 || !strings.Contains(out, "room on the disk") {
					t.Errorf("%s: the status is %d\n%s%s", steps, code, out, stderr)
				}
				free()
			}
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(said, "the start goes on\n") {
			t.Fatalf("%s: %v\n%s", steps, err, said)
		}
	}
}
