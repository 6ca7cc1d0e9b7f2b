//go:build unix && !linux

package program

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a program: this process then ends it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// bound limits nothing: the call is Linux's.
func bound(int) {}

// free finds no file system in memory.
func free(string) int64 { return 0 }
