package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurmPrograms are what a job's script calls, as far as signals go: srun makes SIGKILL of SIGTERM, and hands SIGINT on with
// --disable-status alone (_srun_signal_mgr and _handle_intr of Slurm's srun_job.c).
var slurmPrograms = map[string]string{
	"srun": `#!/usr/bin/env python3
import os, signal, subprocess, sys
words = sys.argv[1:]
quiet = False
while words[0].startswith("-"):
    quiet |= words.pop(0) == "--disable-status"
task = subprocess.Popen([os.path.join(os.environ["FAKES"], os.path.basename(words[0]))] + words[1:])
signal.signal(signal.SIGTERM, lambda *_: task.kill())
signal.signal(signal.SIGINT, lambda *_: quiet and task.send_signal(signal.SIGINT))
sys.exit(abs(task.wait()))
`,
	"headway": `#!/usr/bin/env python3
import os, signal, sys, time
def say(word): open(os.path.join(os.environ["FAKES"], word), "w").close()
def drain(*_): say("drained"); sys.exit(0)
if sys.argv[1] == "serve":
    signal.signal(signal.SIGINT, drain)
    signal.signal(signal.SIGTERM, drain)
    say("serving")
    while not os.path.exists(os.path.join(os.environ["FAKES"], "die")): time.sleep(.01)
    sys.exit(1)
`,
	"torchrun": "#!/bin/sh\n: > \"$FAKES/training\"\nexec sleep 60\n",
	"python":   "#!/bin/sh\nexec sleep 60\n",
	"scontrol": "#!/bin/sh\necho node1\n",
}

// TestSlurmJobsDrain: a job that is told that its time is up lets its control plane drain. One whose control plane dies ends,
// though its trainer waits.
func TestSlurmJobsDrain(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"headway.sbatch", "headway-pyxis.sbatch", "headway.sbatch dies", "headway-pyxis.sbatch dies"} {
		t.Run(name, func(t *testing.T) {
			name, dies := strings.CutSuffix(name, " dies")
			t.Parallel()
			fakes, runs := t.TempDir(), t.TempDir()
			err := os.WriteFile(filepath.Join(runs, "main.tokens"), []byte("trainer t\nenvironment e\nviewer v\n"), 0o600)
			for program, text := range slurmPrograms {
				err = errors.Join(err, os.WriteFile(filepath.Join(fakes, program), []byte(text), 0o755))
			}
			if err != nil {
				t.Fatal(err)
			}
			job := exec.Command("bash", deployDir+"slurm/"+name)
			job.Env = append(os.Environ(), "PATH="+fakes+":"+os.Getenv("PATH"), "FAKES="+fakes, "HEADWAY_RUNS="+runs, "SLURM_SUBMIT_DIR="+runs, "SLURM_JOB_NODELIST=node1", "SLURM_NNODES=1")
			job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := job.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(-job.Process.Pid, syscall.SIGKILL) }()
			there := func(word string) bool { _, err := os.Stat(filepath.Join(fakes, word)); return err == nil }
			for began := time.Now(); !there("serving") || !there("training"); time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 30*time.Second {
					t.Fatal("the job does not begin")
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- job.Wait() }()
			if dies {
				if err := os.WriteFile(filepath.Join(fakes, "die"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-ended:
					if err == nil {
						t.Error("the job of a control plane that died has ended well")
					}
				case <-time.After(10 * time.Second):
					t.Error("the job goes on without its control plane")
				}
				return
			}
			if err := job.Process.Signal(syscall.SIGTERM); err != nil { // to the script alone, as --signal=B:TERM
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the job: %v", err)
			}
			if !there("drained") {
				t.Error("the control plane was killed")
			}
		})
	}
}
