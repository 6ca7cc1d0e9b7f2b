//go:build unix

package sink

import (
	"os/exec"
	"syscall"
)

// apart puts a program in a process group of its own: Ctrl-C at the terminal ends the run, and the run ends the program.
func apart(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// kill ends a program's group. One that is gone is no error.
func kill(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
