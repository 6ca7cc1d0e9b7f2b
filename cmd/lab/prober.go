package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// probeRollout is one rollout of the probe.
type probeRollout struct {
	sample port.Sample
	ns     int64
}

// prober keeps every slot of the engines busy with real rollouts of version 0.
type prober struct {
	cfg     loop.Config
	env     port.Environment
	engines []port.Engine
	next    atomic.Int64
	mu      sync.Mutex
	done    map[loop.GroupID][]probeRollout
	ready   []port.Group
	count   int
	err     error
	sent    bool // the batch has been handed over
	Full    chan []port.Group
}

// Probe rollouts get group numbers far above a run's, so that no draw is used twice.
const probeGroups loop.GroupID = 1 << 40

// newProber plays nothing yet: [prober.Begin] does.
func newProber(cfg loop.Config, engines []port.Engine, environment port.Environment) *prober {
	return &prober{cfg: cfg, env: environment, engines: engines, done: make(map[loop.GroupID][]probeRollout), Full: make(chan []port.Group, 1)}
}

// Begin has every slot play rollouts until the context ends. It returns what waits for that.
func (p *prober) Begin(ctx context.Context, now func() time.Time) (wait func()) {
	var wg sync.WaitGroup
	for e, slots := range p.cfg.EngineSlots {
		for range slots {
			wg.Go(func() { p.play(ctx, p.engines[e], now) })
		}
	}
	return wg.Wait
}

// play plays rollouts until the probe ends.
func (p *prober) play(ctx context.Context, engine port.Engine, now func() time.Time) {
	for ctx.Err() == nil {
		n := p.next.Add(1) - 1
		s := int64(p.cfg.GroupSize)
		id := port.RolloutID{Group: probeGroups + loop.GroupID(n/s), Sample: int32(n % s), Attempt: 1}
		began := now()
		sample, err := p.env.Play(ctx, port.RolloutRequest{ID: id}, probeSampler{Engine: engine, ID: id})
		if ctx.Err() != nil {
			return
		}
		p.finish(id, probeRollout{sample, now().Sub(began).Nanoseconds()}, err)
		if err != nil {
			return
		}
	}
}

// finish files a rollout, and hands the first full batch to the trainer. What was
// pruned is in no batch.
func (p *prober) finish(id port.RolloutID, r probeRollout, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	p.count++
	p.done[id.Group] = append(p.done[id.Group], r)
	if p.sent || len(p.done[id.Group]) < p.cfg.GroupSize {
		return
	}
	group := port.Group{ID: id.Group}
	for _, r := range p.done[id.Group] {
		if !r.sample.Pruned {
			group.Samples = append(group.Samples, r.sample)
		}
	}
	if len(group.Samples) == 0 {
		return
	}
	p.ready = append(p.ready, group)
	if len(p.ready) == p.cfg.BatchGroups {
		p.sent = true
		p.Full <- p.ready
	}
}

// Played counts the finished rollouts. The error joins those of rollouts that failed.
func (p *prober) Played() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.err
}

// probeSampler is an engine bound to a rollout of the probe.
type probeSampler struct {
	Engine port.Engine
	ID     port.RolloutID
}

// Sample implements port.Sampler.
func (s probeSampler) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	return s.Engine.Generate(ctx, port.GenerateRequest{Rollout: s.ID, Prompt: req.Prompt, MaxTokens: req.MaxTokens, Check: req.Check})
}

// Gap is the mean time that rollouts took beyond the decode steps of their tokens, in seconds, and how many there were.
func (p *prober) Gap(tokenS float64) (float64, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, n := 0.0, 0
	for _, rollouts := range p.done {
		for _, r := range rollouts {
			sum += float64(r.ns)/1e9 - tokenS*float64(r.sample.ResponseTokens())
			n++
		}
	}
	return max(sum/float64(max(n, 1)), 0), n
}
