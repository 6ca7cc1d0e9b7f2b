package run

import (
	"runtime"

	"github.com/headway-rl/headway/app"
)

// GiveHelpersAThread lets the short work between engine and trainer (the loop,
// weight loads, verdicts) run at once, unless GOMAXPROCS is set. Engine and trainer
// compute without a pause. With no more threads than processors, other work waits for
// Go's preemption, ten milliseconds a hop: syncs took several train steps. The kernel
// wakes a thread of its own within microseconds.
func GiveHelpersAThread(a *app.Process) {
	if a.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+2))
	}
}
