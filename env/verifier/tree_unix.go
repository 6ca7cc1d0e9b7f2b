//go:build unix && !linux

package verifier

import (
	"os/exec"
	"syscall"
)

// ownTree has a program lead a process group.
func ownTree(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killTree ends a program's group. One that is gone is no error.
func killTree(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
