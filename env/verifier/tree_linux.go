package verifier

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ownTree has a program lead a process group, and end when this process does, however that ends.
func ownTree(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killTree ends a program's group and what it has started outside of it. One that is gone is no error.
func killTree(command *exec.Cmd) {
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGSTOP) // nothing is started while it is looked through
	below := descendants(command.Process.Pid, nil)
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	for _, pid := range below {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// descendants are the processes below one, as the kernel tells them: thread by thread.
func descendants(pid int, found []int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // it has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = descendants(child, append(found, child))
			}
		}
	}
	return found
}
