//go:build unix

package command

import (
	"syscall"
	"time"
)

// processor is the processor time of this process.
func processor() time.Duration {
	var spent syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &spent) != nil {
		return 0
	}
	return time.Duration(spent.Utime.Nano() + spent.Stime.Nano())
}
