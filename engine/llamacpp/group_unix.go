//go:build unix

package llamacpp

import (
	"os/exec"
	"syscall"
)

// group has a program lead a process group, so that what it starts ends with it.
func group(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(command.SysProcAttr)
}

// terminate asks a group to end; kill ends it. One that is gone is no error.
func terminate(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }

func kill(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
