package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// probe limits: how many train steps it times, and for how long it may go on.
const (
	probeSteps = 3
	probeS     = 8
)

// errProbeSlow is wrapped by the error of a probe that had to end before it knew anything.
var errProbeSlow = errors.New("no prediction: the probe was too short for this run")

// probeRollout is one rollout of the probe.
type probeRollout struct {
	sample port.Sample
	ns     int64
}

// Prober keeps every slot of the engines busy with real rollouts of version 0.
type Prober struct {
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
const ProbeGroups loop.GroupID = 1 << 40

// measure runs the engines for a moment while a scratch trainer makes a few
// steps, as they will run together. The engines serve version 0.
func measure(ctx context.Context, cfg loop.Config, engines []port.Engine, environment port.Environment, scratch port.Trainer, now func() time.Time) (experiment.Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeS*time.Second)
	defer cancel()
	p := NewProber(cfg, engines, environment)
	began := now()
	wait := p.Begin(ctx, now)
	c, err := p.timeSteps(ctx, scratch, began, now)
	cancel()
	wait()
	if err == nil {
		err = p.err
	}
	return c, err
}

// NewProber plays nothing yet: [Prober.Begin] does.
func NewProber(cfg loop.Config, engines []port.Engine, environment port.Environment) *Prober {
	return &Prober{cfg: cfg, env: environment, engines: engines, done: make(map[loop.GroupID][]probeRollout), Full: make(chan []port.Group, 1)}
}

// Begin has every slot play rollouts until the context ends. It returns what waits for that.
func (p *Prober) Begin(ctx context.Context, now func() time.Time) (wait func()) {
	var wg sync.WaitGroup
	for e, slots := range p.cfg.EngineSlots {
		for range slots {
			wg.Go(func() { p.play(ctx, p.engines[e], now) })
		}
	}
	return wg.Wait
}

// play plays rollouts until the probe ends.
func (p *Prober) play(ctx context.Context, engine port.Engine, now func() time.Time) {
	for ctx.Err() == nil {
		n := p.next.Add(1) - 1
		s := int64(p.cfg.GroupSize)
		id := port.RolloutID{Group: ProbeGroups + loop.GroupID(n/s), Sample: int32(n % s), Attempt: 1}
		began := now()
		sample, err := p.env.Play(ctx, port.RolloutRequest{ID: id}, ProbeSampler{engine, id})
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
func (p *Prober) finish(id port.RolloutID, r probeRollout, err error) {
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
func (p *Prober) Played() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.err
}

// timeSteps waits for a batch, times train steps on it beside the rollouts, and
// reads the rates of that time.
func (p *Prober) timeSteps(ctx context.Context, scratch port.Trainer, began time.Time, now func() time.Time) (experiment.Probe, error) {
	var groups []port.Group
	select {
	case groups = <-p.Full:
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			return experiment.Probe{}, p.err
		}
		return experiment.Probe{}, fmt.Errorf("%w: it finished %s in %d s, fewer than a batch", errProbeSlow, report.Counted(p.count, "rollout"), probeS)
	}
	p.mu.Lock()
	before := p.count
	p.mu.Unlock()
	from := now()
	var steps []float64
	for i := range probeSteps {
		at := now()
		if _, err := scratch.Train(ctx, port.Batch{Lease: loop.LeaseID(i + 1), Attempt: 1, Version: loop.Version(i), Groups: groups}); err != nil {
			if ctx.Err() != nil && len(steps) > 0 {
				break // slow, but timed
			}
			if ctx.Err() != nil {
				return experiment.Probe{}, fmt.Errorf("%w: no train step ended in %d s", errProbeSlow, probeS)
			}
			return experiment.Probe{}, err
		}
		steps = append(steps, now().Sub(at).Seconds())
	}
	for now().Sub(from) < 500*time.Millisecond && ctx.Err() == nil {
		select { // short steps leave too few rollouts to count
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := experiment.Probe{Rollouts: p.count - before, WindowS: now().Sub(from).Seconds()}
	if c.Rollouts < p.cfg.Concurrency() { // slow rollouts: their start counts as well
		c.Rollouts, c.WindowS = p.count, now().Sub(began).Seconds()
	}
	slices.Sort(steps)
	c.StepS = steps[len(steps)/2]
	c.RolloutsPerS = float64(c.Rollouts) / c.WindowS
	c.Utilization = c.RolloutsPerS * c.StepS / float64(p.cfg.BatchGroups*p.cfg.GroupSize)
	c.TailMultiplier = p.tail()
	return c, nil
}

// tail is the mean longest duration of complete groups over their mean duration.
func (p *Prober) tail() float64 {
	var longest, sum, n float64
	groups := 0.0
	for _, rollouts := range p.done {
		if len(rollouts) < p.cfg.GroupSize {
			continue
		}
		most := int64(0)
		for _, r := range rollouts {
			most = max(most, r.ns)
			sum += float64(r.ns)
			n++
		}
		longest += float64(most)
		groups++
	}
	if sum == 0 {
		return 1
	}
	return min(max(longest/groups/(sum/n), 1), float64(p.cfg.GroupSize))
}

// ProbeSampler is an engine bound to a rollout of the probe.
type ProbeSampler struct {
	Engine port.Engine
	Id     port.RolloutID
}

// Sample implements port.Sampler.
func (s ProbeSampler) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	return s.Engine.Generate(ctx, port.GenerateRequest{Rollout: s.Id, Prompt: req.Prompt, MaxTokens: req.MaxTokens, Check: req.Check})
}
