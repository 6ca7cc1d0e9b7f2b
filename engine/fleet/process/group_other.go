//go:build unix && !linux

package process

import (
	"os/exec"

	"golang.org/x/sys/unix"
)

// lead has a program lead a process group. Nothing here ends it with this process.
func lead(command *exec.Cmd) { command.SysProcAttr = &unix.SysProcAttr{Setpgid: true} }

// terminate asks a group to end; kill ends it. One that is gone is no error.
func terminate(command *exec.Cmd) { _ = unix.Kill(-command.Process.Pid, unix.SIGTERM) }

func kill(command *exec.Cmd) { _ = unix.Kill(-command.Process.Pid, unix.SIGKILL) }

// sweep finds nothing: what other processes have in their environment is not to be read here.
func sweep(string) (killed int) { return 0 }
