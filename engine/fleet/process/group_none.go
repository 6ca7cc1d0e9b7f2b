//go:build !unix

package process

import "os/exec"

// lead does nothing: there are no process groups here.
func lead(*exec.Cmd) {}

// terminate and kill end the program alone.
func terminate(command *exec.Cmd) { _ = command.Process.Kill() }

func kill(command *exec.Cmd) { _ = command.Process.Kill() }

// sweep finds nothing: what other processes have in their environment is not to be read here.
func sweep(string) (killed int) { return 0 }
