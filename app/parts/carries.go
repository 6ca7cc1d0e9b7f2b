package parts

import (
	"fmt"

	"github.com/headway-rl/headway/internal/transformer"
)

const (
	// rolloutBytes is what a rollout under way takes before it has a token, measured: its goroutines with
	// their stacks, its place in the loop and its claim.
	rolloutBytes = 16 << 10
	// ownDescriptors are the files and connections of a run that has no rollout.
	ownDescriptors = 128
)

// carriesSlots refuses more rollouts at once than embedded engines find memory for, in bytes: Go's
// runtime would end the process in the middle of its start.
func (p *Parts) carriesSlots(memory int64) error {
	shape := PolicyShape(p.Cfg, p.Task)
	slot, row := transformer.DecoderBytes(shape)
	each := slot + int64(shape.Context)*row + rolloutBytes
	most := memory / 4 * 3 / each // the rest is for weights, batches and queues
	if int64(p.Cfg.Rollout.Concurrency) <= most {
		return nil
	}
	return p.Cfg.Refuse("rollout.concurrency",
		fmt.Sprintf("is more than this machine carries: each of them takes %d KiB in an embedded engine, and this process may have %d MiB of memory", each>>10, memory>>20),
		fmt.Sprintf("at most %d, or a smaller model", most))
}

// carriesConnections refuses more rollouts at once than this process may have connections to engines
// that are servers: each response has one.
func (p *Parts) carriesConnections(descriptors int) error {
	most := max(descriptors-ownDescriptors, 1)
	if p.Cfg.Tinker() || p.Cfg.Rollout.Concurrency <= most {
		return nil
	}
	return p.Cfg.Refuse("rollout.concurrency",
		fmt.Sprintf("is more than this machine carries: each response under way has a connection to its engine, and this process may have %d descriptors open", descriptors),
		fmt.Sprintf("at most %d, or a higher limit of descriptors (ulimit -n)", most))
}
