package program

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// memoryMax is how much memory one world may write to, in bytes: without a collector, one that runs away would take
// all that the machine has.
const memoryMax = 8 << 30

// apart has a program end with this process, and keeps a terminal's Ctrl-C from it: this process then ends it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// bound limits the memory of a process. One that has ended in the meantime needs no limit.
func bound(pid int) {
	_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryMax, Max: memoryMax}, nil)
}

// free says how many bytes are free for this process in a file system; 0 where there is none.
func free(path string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil || unix.Access(path, unix.W_OK) != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize
}
