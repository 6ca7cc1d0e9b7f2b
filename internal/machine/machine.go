// Package machine says how much this process may have of the machine that it runs on. Bounds are
// derived from it, so that the same document fits a small machine and a large one.
package machine

import (
	"math"
	"runtime/debug"
	"sync"
)

// memoryUnknown is what is reckoned with where the system does not say.
const memoryUnknown = 4 << 30

// Memory is how many bytes this process may have. It is the least of the machine's memory, the limits
// of its control groups, and GOMEMLIMIT. It is read once.
var Memory = sync.OnceValue(func() int64 {
	return leastOf(systemMemory(), debug.SetMemoryLimit(-1))
})

// leastOf is the memory of a machine under a limit of Go's runtime, which is the largest number where
// there is none.
func leastOf(system, limit int64) int64 {
	if system <= 0 {
		system = memoryUnknown
	}
	if limit > 0 && limit < math.MaxInt64 {
		return min(system, limit)
	}
	return system
}
