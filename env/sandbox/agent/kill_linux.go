package agent

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// killAll sends SIGKILL to every process of the box but the agent.
func (a *agent) killAll() {
	if a.first {
		// The kernel holds its list of processes while it does, and a fork that it meets fails: none escapes.
		_ = syscall.Kill(-1, syscall.SIGKILL)
		return
	}
	for _, pid := range stopDescendants() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// stopDescendants stops all processes below this one, which orphans come to as well, and returns
// them. It looks until it finds no new one: what is stopped does not fork.
func stopDescendants() []int {
	var all []int
	known := map[int]bool{}
	for {
		before := len(all)
		queue := []int{os.Getpid()}
		for len(queue) > 0 {
			parent := queue[0]
			queue = queue[1:]
			for _, pid := range childrenOf(parent) {
				queue = append(queue, pid)
				if !known[pid] {
					known[pid] = true
					all = append(all, pid)
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
		}
		if len(all) == before {
			return all
		}
	}
}

// childrenOf are the children of all threads of a process.
func childrenOf(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, _ := os.ReadDir(dir)
	var children []int
	for _, thread := range threads {
		text, _ := os.ReadFile(dir + "/" + thread.Name() + "/children")
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
