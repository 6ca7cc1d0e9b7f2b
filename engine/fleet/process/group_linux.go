package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// lead has a program lead a process group, and the kernel kill it when this process ends, however it does.
func lead(command *exec.Cmd) {
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}

// terminate asks a group to end; kill ends it. One that is gone is no error.
func terminate(command *exec.Cmd) { _ = unix.Kill(-command.Process.Pid, unix.SIGTERM) }

func kill(command *exec.Cmd) { _ = unix.Kill(-command.Process.Pid, unix.SIGKILL) }

// sweep kills every process that has the mark in its environment, and says how many it had to.
func sweep(mark string) (killed int) {
	seen := map[int]bool{}
	for range 3 { // what starts others while it is looked for
		before := len(seen)
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			env, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(append([]byte{0}, env...), append(append([]byte{0}, mark...), 0)) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || pid == os.Getpid() {
				continue
			}
			if unix.Kill(pid, unix.SIGKILL) == nil {
				seen[pid] = true
			}
		}
		if len(seen) == before {
			break
		}
	}
	return len(seen)
}
