package agent

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
)

// watch is that a command keeps the limits of a box with a kernel of its own (Setup.OwnKernel).
// It notes a limit that is passed, and reports whether all is to be killed for it.
func (a *agent) watch(c *running) (kill bool) {
	if !a.setup.OwnKernel {
		return false
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return false
	}
	own, _ := os.ReadDir("/proc/self/task")
	if int(info.Procs)-len(own) > a.setup.Limits.Processes {
		c.met(sandbox.Processes)
	}
	used := int64(info.Totalram-info.Freeram) * int64(max(info.Unit, 1))
	c.memory = max(c.memory, used)
	if used <= a.setup.Limits.Memory {
		return false
	}
	c.limit = sandbox.OutOfMemory // whatever else was met: this is what ends it
	return true
}
