package llamacpp

import "syscall"

// dieWithParent has the kernel kill the program when this process ends, however it does. What the
// program has started itself is not covered: a command that is a shell script should exec the server.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
