package plane

import (
	"os/exec"
	"syscall"
)

// Own has the kernel kill a program that is about to start when this process ends, however it does.
func Own(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
