//go:build !unix

package llamacpp

import "os/exec"

// group has no counterpart here: only the program itself is ended.
func group(*exec.Cmd) {}

// terminate is kill, as there is no way to ask.
func terminate(command *exec.Cmd) { kill(command) }

func kill(command *exec.Cmd) { _ = command.Process.Kill() }
