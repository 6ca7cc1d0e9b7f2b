package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// EvaluatorOptions say what an Evaluator plays, and where.
type EvaluatorOptions struct {
	// Engines are the run's. Slots are those of each that the loop does not know of, at least one in all.
	Engines []port.Engine
	Slots   []int
	// Environment plays held-out prompts as it plays others. Its rollouts have a group below 0, which is the
	// version evaluated with its sign changed.
	Environment port.Environment
	// Attempts is how often a prompt is tried that the infrastructure fails; 0 means 3.
	Attempts int
	// Levels is the number of difficulties that prompts go through, 0 for none.
	Levels int
}

// Evaluator plays held-out prompts beside a run. They are not the loop's: none of them is in its ledger, its staleness
// or its batches. They have slots of their own.
type Evaluator struct {
	opt     EvaluatorOptions
	engines []*sharedEngine
}

// Evaluation is what came of held-out prompts.
type Evaluation struct {
	// Scored prompts have a reward. The others failed, Infra of them in their last attempt, Data by their task.
	Scored, Infra, Data int
	// Reward is the mean of scored prompts, Accuracy the share of them that were wholly right.
	Reward, Accuracy float64
	// Oldest and Newest are the versions that sampled: engines may switch meanwhile.
	Oldest, Newest loop.Version
}

// NewEvaluator prepares evaluations. The run is to be given Engines, so that no evaluation runs while one switches.
func NewEvaluator(opt EvaluatorOptions) (*Evaluator, error) {
	opt.Attempts = cmp.Or(opt.Attempts, 3)
	e, all := &Evaluator{opt: opt}, 0
	if len(opt.Slots) != len(opt.Engines) {
		return nil, fmt.Errorf("cell: %d engines and %d numbers of slots to evaluate in", len(opt.Engines), len(opt.Slots))
	}
	for i, engine := range opt.Engines {
		e.engines = append(e.engines, &sharedEngine{Engine: engine, free: make(chan struct{}, opt.Slots[i]), stop: make(chan struct{})})
		all += opt.Slots[i]
	}
	if all < 1 {
		return nil, errors.New("cell: no slot to evaluate in")
	}
	return e, nil
}

// Engines are the run's engines, to be used instead of those of the options.
func (e *Evaluator) Engines() []port.Engine {
	engines := make([]port.Engine, len(e.engines))
	for i, one := range e.engines {
		engines[i] = one
	}
	return engines
}

// Evaluate plays that many held-out prompts, from 1, beginning while engines serve version. It returns when all are
// scored or have failed. An error says that none could be scored, or that the context ended.
func (e *Evaluator) Evaluate(ctx context.Context, version loop.Version, prompts int) (Evaluation, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	out, sum, exact := Evaluation{Oldest: loop.NoVersion, Newest: loop.NoVersion}, 0.0, 0
	var last error
	slots := 0
	for _, engine := range e.engines {
		slots += cap(engine.free)
	}
	going := make(chan struct{}, slots)
	for prompt := 1; prompt <= prompts && ctx.Err() == nil; prompt++ {
		going <- struct{}{}
		all.Go(func() {
			defer func() { <-going }()
			s, err := e.prompt(ctx, version, prompt)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out.Scored++
				sum += float64(s.Reward)
				if s.Exact {
					exact++
				}
				out.span(&s)
			case errors.Is(err, port.ErrData):
				out.Data, last = out.Data+1, err
			default:
				out.Infra, last = out.Infra+1, err
			}
		})
	}
	all.Wait()
	switch {
	case ctx.Err() != nil:
		return Evaluation{}, ctx.Err()
	case out.Scored == 0:
		return Evaluation{}, fmt.Errorf("cell: none of %d held-out prompts could be scored: %w", prompts, last)
	}
	out.Reward, out.Accuracy = sum/float64(out.Scored), float64(exact)/float64(out.Scored)
	return out, nil
}

// span takes the versions of a sample in.
func (v *Evaluation) span(s *port.Sample) {
	for i, version := range s.Versions {
		if s.LossMask[i] != 1 {
			continue
		}
		if v.Oldest == loop.NoVersion || version < v.Oldest {
			v.Oldest = version
		}
		v.Newest = max(v.Newest, version)
	}
}

// prompt plays one prompt to its reward, again after failures of the infrastructure, and on another engine then.
func (e *Evaluator) prompt(ctx context.Context, version loop.Version, prompt int) (s port.Sample, err error) {
	for attempt := 1; attempt <= e.opt.Attempts; attempt++ {
		id := port.RolloutID{Group: -loop.GroupID(version), Sample: int32(prompt - 1), Attempt: int32(attempt)}
		task := port.RolloutRequest{ID: id, Prompt: int64(prompt), Version: version}
		if e.opt.Levels > 0 {
			task.Level = int32(1 + (prompt-1)%e.opt.Levels)
		}
		if s, err = e.play(ctx, task, prompt+attempt); err == nil || ctx.Err() != nil || errors.Is(err, port.ErrData) {
			return s, err
		}
	}
	return s, err
}

// play plays one attempt in a slot of an engine, the first that has one free from a place on.
func (e *Evaluator) play(ctx context.Context, task port.RolloutRequest, from int) (port.Sample, error) {
	engine, err := e.acquire(ctx, from)
	if err != nil {
		return port.Sample{}, err
	}
	defer func() { <-engine.free }()
	playing, end := context.WithCancel(ctx)
	defer end()
	s, err := e.opt.Environment.Play(playing, task, &besideSampler{engine: engine, id: task.ID})
	if err != nil {
		return s, err
	}
	if acks, ok := port.As[port.Acknowledger](e.opt.Environment); ok {
		acks.Logged(task.ID, true)
	}
	return s, checkSample(&s, task.ID)
}

// acquire takes a slot. At most as many prompts are under way as there are slots.
func (e *Evaluator) acquire(ctx context.Context, from int) (*sharedEngine, error) {
	for i := range e.engines {
		engine := e.engines[(from+i)%len(e.engines)]
		select {
		case engine.free <- struct{}{}:
			return engine, ctx.Err()
		default:
		}
	}
	return nil, errors.New("cell: no slot to evaluate in is free, though there is one for each prompt under way")
}

// besideSampler samples in a slot that is not the loop's.
type besideSampler struct {
	engine *sharedEngine
	id     port.RolloutID
	turn   int
}

// Sample implements port.Sampler.
func (b *besideSampler) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	r := port.GenerateRequest{Rollout: b.id, Turn: b.turn, Prompt: req.Prompt, Media: req.Media, MaxTokens: req.MaxTokens, Check: req.Check, Sampling: req.Sampling, OnTokens: req.OnTokens}
	b.turn++
	wanted, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.Dropped != nil {
		go func() {
			select {
			case <-req.Dropped:
				cancel()
			case <-wanted.Done():
			}
		}()
	}
	g, err := b.engine.beside(wanted, r)
	if (err != nil || g.Pruned) && req.Dropped != nil && isClosed(req.Dropped) && ctx.Err() == nil {
		return port.Generation{}, port.ErrDropped
	}
	return g, err
}

// sharedEngine is an engine of the run that evaluates beside it. What it evaluates stands still while it switches,
// and goes on with the tokens it has: engines that are to be empty then are.
type sharedEngine struct {
	port.Engine
	// free has an element for each slot that is taken.
	free chan struct{}

	switching sync.Mutex // one switch at a time

	mu sync.Mutex
	// stop interrupts what runs; switched ends the wait of what may not run, nil while it may. Running counts the former,
	// and idle is closed when there is none any more.
	stop, switched, idle chan struct{}
	running              int
}

// Inner implements port.Wrapper.
func (e *sharedEngine) Inner() any { return e.Engine }

// Switch implements port.Engine.
func (e *sharedEngine) Switch(ctx context.Context, version loop.Version, hold bool) error {
	e.switching.Lock()
	defer e.switching.Unlock()
	e.mu.Lock()
	e.switched = make(chan struct{})
	close(e.stop)
	idle := make(chan struct{})
	if e.idle = idle; e.running == 0 {
		close(idle)
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(e.switched)
		e.switched, e.idle, e.stop = nil, nil, make(chan struct{})
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.Engine.Switch(ctx, version, hold)
}

// beside generates a response, with as many interruptions as the engine switches.
func (e *sharedEngine) beside(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	for {
		stop, err := e.begin(ctx)
		if err != nil {
			return port.Generation{}, err
		}
		r.Interrupt = stop
		g, err := generate(ctx, e.Engine, r)
		e.end()
		if err == nil {
			err = checkGeneration(e.Name(), r, g)
		}
		if err != nil || !g.Interrupted {
			return g, err
		}
		r.Prefix = g.Prefix()
	}
}

// begin waits until the engine does not switch.
func (e *sharedEngine) begin(ctx context.Context) (stop <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.switched != nil {
		switched := e.switched
		e.mu.Unlock()
		select {
		case <-switched:
		case <-ctx.Done():
		}
		e.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	e.running++
	return e.stop, nil
}

func (e *sharedEngine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running--; e.running == 0 && e.idle != nil {
		close(e.idle)
	}
}
