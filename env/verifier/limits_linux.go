package verifier

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/internal/machine"
)

// limitMemory lets this process take so many bytes more than it has. The limit is on addresses: the Go runtime
// reserves those of its heap before it maps them, and the kernel counts what is mapped over a reservation as no more
// data. What the runtime has reserved at its start stands beside the limit.
func limitMemory(bytes uint64) error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, after, found := strings.Cut(string(text), "\nVmSize:")
	var kib uint64
	if _, err := fmt.Sscan(after, &kib); !found || err != nil {
		return fmt.Errorf("/proc/self/status says no VmSize: %w", err)
	}
	most := kib<<10 + bytes
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: most, Max: most})
}

// processorTime is what this process has taken so far.
func processorTime() time.Duration { return machine.ProcessorTime() }
