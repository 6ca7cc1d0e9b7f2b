package sandboxtest

import (
	"bytes"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// testTimeLimit: whoever does not end in time is ended, with all that it started, whatever it does
// about signals.
func testTimeLimit(t *testing.T, s *suite) {
	box := s.box(t)
	for name, script := range map[string]string{
		"waits":              "echo begun; exec sleep 1000",
		"deaf":               `trap "" TERM INT HUP; echo begun; while :; do sleep 1; done`,
		"holds its output":   "echo begun; sleep 1000 & sleep 1000",
		"stopped":            "echo begun; kill -STOP $$",
		"prints all the way": "echo begun; while :; do sleep 0.05; echo more >&2; done",
	} {
		command := shell(script)
		command.Time = 300 * time.Millisecond
		result := run(t, box, command)
		if result.Limit != sandbox.Timeout || result.Exit != 137 || result.Signal != "SIGKILL" || result.Wall < command.Time {
			t.Errorf("%s: %s", name, described(result))
		}
	}
	works(t, box)
	short := s.box(t, func(spec *sandbox.Spec) { spec.Limits.Time = 300 * time.Millisecond })
	if result := run(t, short, shell("sleep 1000")); result.Limit != sandbox.Timeout {
		t.Errorf("the box's own limit: %s", described(result))
	}
	longer := shell("sleep 1000")
	longer.Time = 100 * time.Hour
	if result, err := short.Run(bounded(t), longer); err == nil && result.Limit != sandbox.Timeout {
		t.Errorf("a command lengthened its time: %s", described(result))
	}
}

func testOutputLimit(t *testing.T, s *suite) {
	box := s.box(t, func(spec *sandbox.Spec) { spec.Limits.Output = 4096 })
	zeros := bytes.Repeat([]byte{0}, 4096)
	exact := run(t, box, shell("head -c 4096 /dev/zero; head -c 4096 /dev/zero >&2"))
	if !bytes.Equal(exact.Stdout, zeros) || !bytes.Equal(exact.Stderr, zeros) || exact.StdoutCut || exact.StderrCut || exact.Limit != "" {
		t.Errorf("exactly what is kept: %s", described(exact))
	}
	more := run(t, box, shell("head -c 40000 /dev/zero; echo end >&2; exit 7"))
	if !bytes.Equal(more.Stdout, zeros) || !more.StdoutCut || string(more.Stderr) != "end\n" || more.StderrCut || more.Exit != 7 {
		t.Errorf("more than is kept: %s", described(more))
	}
	for name, script := range map[string]string{"stdout": "cat /dev/zero", "stderr": "cat /dev/zero >&2", "deaf": `trap "" PIPE TERM; x=$(head -c 2000 /dev/zero | tr "\0" x); while :; do echo $x; done`} {
		endless := run(t, box, shell(script))
		if endless.Limit != sandbox.Output || endless.Exit == 0 || !endless.StdoutCut && !endless.StderrCut {
			t.Errorf("without end to %s: %s", name, described(endless))
		}
		if len(endless.Stdout) > 4096 || len(endless.Stderr) > 4096 {
			t.Errorf("%s: %d and %d bytes were kept", name, len(endless.Stdout), len(endless.Stderr))
		}
	}
	works(t, box)
}

// limitOf runs what exhausts something, until the box is gone or works again.
func limitOf(t *testing.T, box sandbox.Box, script string, want sandbox.Class) {
	t.Helper()
	result := run(t, box, shell(script))
	if result.Limit != want {
		t.Errorf("%s\nended with %s, want limit %s", script, described(result), want)
	}
}

// testMemoryLimit: tail keeps the last line, and the line of /dev/zero has no end.
func testMemoryLimit(t *testing.T, s *suite) {
	if !s.boundary.Memory {
		t.Skip("memory is not limited: " + s.boundary.Why)
	}
	box := s.box(t)
	if result := run(t, box, shell("head -c 20000000 /dev/zero | tail | wc -c")); result.Exit != 0 || result.Limit != "" || string(bytes.TrimSpace(result.Stdout)) != "20000000" {
		t.Errorf("20 MB of 128 MiB: %s", described(result))
	}
	limitOf(t, box, "exec tail /dev/zero", sandbox.OutOfMemory)
	limitOf(t, s.box(t), "tail /dev/zero; exit 3", sandbox.OutOfMemory)
	// Shared among many, none of which is large: each holds 30 MB, which nobody reads, once the next begins.
	limitOf(t, s.box(t), `for i in 1 2 3 4 5 6 7 8; do
		head -c 30000000 /dev/zero | tail -c 30000000 | { head -c 1 > held$i.; mv held$i. held$i; exec sleep 1000; } &
		while [ ! -e held$i ] && kill -0 $! 2>/dev/null; do sleep 0.02; done
	done`, sandbox.OutOfMemory)
}

func testProcessLimit(t *testing.T, s *suite) {
	if !s.boundary.ProcessCount {
		t.Skip("processes are not limited: " + s.boundary.Why)
	}
	box := s.box(t)
	if got := says(t, box, "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo started"); got != "started\n" {
		t.Errorf("8 processes of 40: %q", got)
	}
	limitOf(t, box, "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; exit 0", sandbox.Processes)
	works(t, box)
}

func testDiskLimit(t *testing.T, s *suite) {
	if !s.boundary.Disk {
		t.Skip("the disk is not limited: " + s.boundary.Why)
	}
	box := s.box(t)
	if got := says(t, box, "head -c 4000000 /dev/zero > small && wc -c < small && rm small"); got != "4000000\n" {
		t.Errorf("4 MB of 16 MiB: %q", got)
	}
	limitOf(t, box, "head -c 40000000 /dev/zero > large", sandbox.Disk)
	full := shell("exec sleep 1000") // in a box that is full already
	full.Time = 400 * time.Millisecond
	if result := run(t, box, full); result.Limit != sandbox.Timeout {
		t.Errorf("a command that hangs in a full box ended with %s, want limit %s", described(result), sandbox.Timeout)
	}
	limitOf(t, box, "echo x >> small", sandbox.Disk)
	emptied(t, box, "rm -f large")
	if s.boundary.Files {
		limitOf(t, s.box(t), "head -c 40000000 /dev/zero > /tmp/large", sandbox.Disk)
	}
	works(t, box)
}

// emptied makes room in a box that was full, which it still is as the command begins.
func emptied(t *testing.T, box sandbox.Box, script string) {
	t.Helper()
	if result := run(t, box, shell(script)); result.Exit != 0 {
		t.Errorf("%s: %s", script, described(result))
	}
	says(t, box, "echo x > again")
}

func testFileLimit(t *testing.T, s *suite) {
	if !s.boundary.FileCount {
		t.Skip("files are not counted: " + s.boundary.Why)
	}
	box := s.box(t)
	limitOf(t, box, "i=0; while [ $i -lt 3000 ]; do : > f$i || exit 1; i=$((i+1)); done", sandbox.Disk)
	emptied(t, box, "rm -f f*")
}

// testCPULimit: whatever else the machine does can only make it less.
func testCPULimit(t *testing.T, s *suite) {
	if !s.boundary.CPU {
		t.Skip("processor time is not limited: " + s.boundary.Why)
	}
	box := s.box(t, func(spec *sandbox.Spec) { spec.Limits.CPUs = 0.2 })
	busy := shell("while :; do :; done & while :; do :; done")
	busy.Time = 2 * time.Second
	result := run(t, box, busy)
	if result.Limit != sandbox.Timeout {
		t.Errorf("%s", described(result))
	}
	if most := result.Wall/2 + 100*time.Millisecond; result.CPU > most {
		t.Errorf("%s of processor time in %s with 0.2 CPUs", result.CPU, result.Wall)
	}
}
