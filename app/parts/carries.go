package parts

import (
	"fmt"

	"github.com/headway-rl/headway/internal/connections"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/internal/transformer"
)

const (
	// rolloutBytes is what a rollout under way takes before it has a token, measured: its goroutines with
	// their stacks, its place in the loop and its claim.
	rolloutBytes = 16 << 10
	// ownDescriptors are the files and connections of a run that has no rollout.
	ownDescriptors = 128
	// clientsLeast is how many connections of clients a server has by default on the smallest machine.
	clientsLeast = 64
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

// carriesPolicy refuses a policy whose weights alone are more than the memory, in bytes: the trainer has five
// vectors of its size (weights, gradient, two moments of Adam, the next version), one more for each of its
// threads, and each engine has one.
func (p *Parts) carriesPolicy(memory int64) error {
	count := int64(PolicyShape(p.Cfg, p.Task).ParameterCount())
	need := 4 * count * int64(5+max(p.Cfg.Trainer.Threads, 1)+len(p.Cfg.Engines))
	if need <= memory {
		return nil
	}
	return p.Cfg.Refuse("model.width",
		fmt.Sprintf("makes a policy that is more than this machine carries: %d million parameters take at least %d MiB in the trainer and the embedded engines, and this process may have %d MiB of memory", count/1e6, need>>20, memory>>20),
		"a smaller width, or fewer model.layers")
}

// ConnectionsMax is how many connections of clients the server of a cell may have, "" for the control plane's own. The document
// says so. By default it is as many as the process carries beside those to its engines. It refuses more than there are descriptors
// for.
func (p *Parts) ConnectionsMax(cell string, descriptors int) (int, error) {
	given, free := p.Cfg.Server.ConnectionsMax, descriptors-ownDescriptors
	if given > max(free, clientsLeast) {
		return 0, p.Cfg.Refuse("server.connections_max",
			fmt.Sprintf("is more than this machine carries: this process may have %d descriptors open", descriptors),
			fmt.Sprintf("at most %d, or a higher limit of descriptors (ulimit -n)", max(free, clientsLeast)))
	}
	if given > 0 {
		return given, nil
	}
	if p.Cfg.External() && !p.Cfg.Tinker() {
		free -= p.rolloutsOf(cell)
	}
	return max(min(connections.Most(descriptors, machine.Memory()), free), clientsLeast), nil
}

// rolloutsOf is how many rollouts the engines of a cell play at once, "" for the control plane's own.
func (p *Parts) rolloutsOf(cell string) int {
	if len(p.Cfg.Cells()) == 0 {
		return p.Cfg.Rollout.Concurrency
	}
	sum := 0
	for _, e := range p.Cfg.Engines {
		if e.Cell == cell {
			sum += e.Slots
		}
	}
	return sum
}

// carriesConnections refuses more rollouts at once than this process may have connections to engines
// that are servers: each response has one.
func (p *Parts) carriesConnections(descriptors int) error {
	most := max(descriptors-ownDescriptors-p.Cfg.Server.ConnectionsMax, 1)
	if p.Cfg.Tinker() || p.Cfg.Rollout.Concurrency <= most || len(p.Cfg.Cells()) > 0 { // each process has its own share
		return nil
	}
	return p.Cfg.Refuse("rollout.concurrency",
		fmt.Sprintf("is more than this machine carries: each response under way has a connection to its engine, and this process may have %d descriptors open", descriptors),
		fmt.Sprintf("at most %d, or a higher limit of descriptors (ulimit -n)", most))
}
