package sim

import (
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// drift models what a train step measures of each of its groups: see
// Config.DriftPerVersion.
type drift struct {
	on     bool
	source workload.Source
	groups []measuredGroup // of the batch at the trainer
}

type measuredGroup struct {
	id  loop.GroupID
	lag loop.Version
}

func newDrift(cfg *Config) drift {
	return drift{
		on:     cfg.Loop.Policy == loop.PolicyReplay && cfg.Loop.Evict == loop.EvictDrift,
		source: workload.NewSource(cfg.Loop.Seed, workload.StreamDrift),
	}
}

// leased takes a group of the batch that is being named.
func (d *drift) leased(a *loop.Action) {
	if d.on {
		d.groups = append(d.groups, measuredGroup{a.Group, a.Version - a.StartVersion})
	}
}

// deliver reports the batch's groups, just before its step ends.
func (d *drift) deliver(r *runner) {
	if !d.on {
		return
	}
	slices.SortFunc(d.groups, func(a, b measuredGroup) int { return int(a.id - b.id) })
	for _, g := range d.groups {
		factor := workload.LognormalFactor(d.source, uint64(g.id), r.cfg.DriftSpread)
		r.deliver(loop.Event{Time: r.now, Kind: loop.GroupMeasured, Group: g.id, Drift: float32(float64(g.lag) * r.cfg.DriftPerVersion * factor)}, 0, metrics.Measured{})
	}
	d.groups = d.groups[:0]
}
