//go:build !unix

package sink

import "os/exec"

func apart(*exec.Cmd) {}

func kill(command *exec.Cmd) { _ = command.Process.Kill() }
