package parts

import (
	"context"
	"errors"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
)

// Probe makes parts like these in a directory of their own, which is there. They begin with the same version 0, and
// never finish by themselves. Prompts and tokens are others: no draw of the run is used twice. Sandboxes are shared. The caller closes them, before these.
func (p *Parts) Probe(ctx context.Context, dir string) (*Parts, error) {
	cfg, rules := p.Cfg, p.Rules
	cfg.Seed, cfg.Sinks = loop.Mix(cfg.Seed+probeSeed), config.Sinks{}
	rules.Seed, rules.TrainSteps = cfg.Seed, 0
	q, err := New(cfg, dir, rules, nil)
	if err == nil {
		err = q.Build(Host{})
	}
	if err == nil {
		err = p.copyVersion(ctx, q.Weights)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	if q.CodeTask != nil {
		q.CodeTask.Pool = p.CodeTask.Pool
	}
	return q, nil
}

// probeSeed keeps the seed of a probe apart from its run's.
const probeSeed = 0x70726f6265
