package agent

import "syscall"

// errBrokenPipe is the error of writing to an agent that has ended.
const errBrokenPipe = syscall.EPIPE
