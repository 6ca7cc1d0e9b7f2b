//go:build unix

package machine

import (
	"syscall"
	"time"
)

// ProcessorTime is what this process has taken so far, of all its threads. It is nil on systems that do not tell.
func ProcessorTime() time.Duration {
	var spent syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &spent) != nil {
		return 0
	}
	return time.Duration(spent.Utime.Nano() + spent.Stime.Nano())
}
