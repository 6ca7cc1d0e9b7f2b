package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	environment "github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

// host is what parts are told of the control plane that they are of; the zero value is of a run in one process.
type host struct {
	// name is the run's; clock, in nanoseconds, counts how long a trainer holds a batch.
	name  string
	clock func() int64
	// epoch is the writer's, which versions are committed under; fence refuses to commit one once this process is not
	// the run's writer any more.
	epoch uint64
	fence func() error
	// sender is whom engines take their tensors from that take them over a collective, groups remembers which ones
	// their servers are in, and confirm says whether a version is with the sender.
	sender  upstream.Sender
	groups  upstream.GroupBook
	confirm func(ctx context.Context, name string, version loop.Version) error
	// traceparent tells a server whose call it is; nil where no spans are sent.
	traceparent func(port.RolloutID) string
	// rarely is logf for what would say the same at every try.
	rarely func(format string, args ...any)
	// staged has an engine hold a version when its stages on other nodes do; nil for none.
	staged func(port.Engine) port.Engine
	// ready and restored are told of a trainer in another process that came, and of the version that it goes on from.
	ready    func()
	restored func(loop.Version)
}

// build opens the weights, and makes engines, trainer and environment.
func (p *parts) build(h host) error {
	p.host = h
	for _, open := range []func() error{p.openWeights, p.openEngines, p.openTrainer, p.openEnvironment} {
		if err := open(); err != nil {
			return err
		}
	}
	return nil
}

// openEngines makes the engines of the document.
func (p *parts) openEngines() error {
	if p.hosted != nil { // whose versions no stage elsewhere could have
		return p.buildServiceEngine()
	}
	make := p.buildEngines
	if p.policy != nil {
		make = p.buildServers
	}
	if err := make(); err != nil {
		return err
	}
	if p.host.staged != nil {
		for i, e := range p.engines {
			p.engines[i] = p.host.staged(e)
		}
	}
	return nil
}

// openWeights opens the run's versions, where they are files.
func (p *parts) openWeights() (err error) {
	if p.hosted != nil {
		return nil
	}
	p.weights, err = weights.Open(filepath.Join(p.dir, "weights"), weights.Options{Always: p.cfg.Store.Sync == "always", Directories: p.cfg.Server.Directories,
		Epoch: p.host.epoch, Fence: p.host.fence, Logf: p.logf})
	return err
}

// openTrainer makes the trainer: inside this process, at a service, or one that other processes come as.
func (p *parts) openTrainer() (err error) {
	if p.hosted != nil {
		return p.buildServiceTrainer()
	}
	if p.policy == nil && p.cfg.Trainer.Kind == "embedded" {
		return p.buildTrainer()
	}
	opt := remote.Options{
		Weights: p.weights, Clock: p.host.clock, Lease: lasting(p.cfg.Server.LeaseS), SyncEvery: p.rules.SyncEvery,
		Steps: p.cfg.Trainer.Steps, Run: p.host.name, Config: p.documentJSON(), NormalizeStd: p.cfg.Trainer.NormalizeStd, Vocabulary: p.vocabulary(),
		OnReady: p.host.ready, OnRestored: p.host.restored,
		Validation: p.validation, Fence: p.host.fence, Logf: p.logf,
	}
	opt.Collective = p.host.confirm
	if p.policy != nil {
		opt.Initial = p.initialVersion()
	} else {
		embedded, err := newTrainer(p.cfg, p.task, p.change, p.weights)
		if err != nil {
			return err
		}
		opt.Initial = embedded.Initialize // the engines' own model, untrained
	}
	if p.remote, err = remote.New(opt); err != nil {
		return err
	}
	p.trainer = p.remote
	p.onClose(p.remote.Close)
	return nil
}

// openEnvironment makes the environment of workers in other processes; the embedded one was made before.
func (p *parts) openEnvironment() (err error) {
	if p.cfg.Environment.Kind == "embedded" {
		return nil
	}
	g := p.cfg.Gateway
	p.workers, err = environment.New(environment.Options{
		Name: p.cfg.EnvironmentName(), Seed: p.cfg.Seed, ClaimTTL: lasting(p.cfg.Server.ClaimS), Vocabulary: p.vocabulary(), Limits: p.limits(),
		Sampling: p.sampling(), ClientSampling: g.ClientSampling, PolicyOnly: p.policy == nil, TurnWait: lasting(g.WaitS), Newest: p.newestServed,
	})
	if err != nil {
		return err
	}
	p.environment = p.workers
	p.onClose(func() error {
		p.workers.Close()
		return nil
	})
	return nil
}

// newestServed is the newest version that an engine may have sampled with. One that went over a
// collective has no weights in the store.
func (p *parts) newestServed() loop.Version {
	if p.hosted != nil {
		return p.hosted.saved.Newest()
	}
	if !slices.ContainsFunc(p.cfg.Engines, byCollective) {
		return p.weights.Newest()
	}
	versions, err := p.weights.Versions()
	if err != nil || len(versions) == 0 {
		return loop.NoVersion
	}
	return versions[len(versions)-1]
}

// documentJSON is the run's document as JSON, for clients without a YAML parser.
func (p *parts) documentJSON() string {
	text, err := json.Marshal(p.cfg.Public())
	if err != nil {
		return "{}"
	}
	return string(text)
}

// validation answers held-out prompts greedily with the newest version that has weights.
func (p *parts) validation(ctx context.Context, prompts int) ([]port.Sample, error) {
	if p.greedy == nil {
		return nil, protocol.Refuse(protocol.CodeNotFound, "this run has no held-out prompts: its engines are servers, and only your environment knows its prompts; evaluate there")
	}
	if prompts <= 0 || prompts > len(p.heldOut) {
		prompts = min(p.cfg.Evaluate.Prompts, len(p.heldOut))
	}
	version := p.weights.Newest()
	questions := make([][]int32, prompts)
	for i := range questions {
		questions[i] = p.heldOut[i].Prompt
	}
	answers, err := p.greedy.Greedy(ctx, version, questions, p.task.Limits().ResponseTokens)
	if err != nil {
		return nil, err
	}
	scores, err := p.verdicts(ctx, p.heldOut[:prompts], answers)
	if err != nil {
		return nil, err
	}
	out := make([]port.Sample, prompts)
	for i, answer := range answers {
		out[i] = env.HeldOutSample(p.task, p.heldOut[i], i, version, answer, scores[i])
	}
	return out, nil
}
