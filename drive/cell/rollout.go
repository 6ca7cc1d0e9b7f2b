package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// rolloutState says who has to act next on a rollout.
type rolloutState uint8

const (
	// rolloutRunning holds a slot.
	rolloutRunning rolloutState = iota
	// rolloutParked has been interrupted and given its slot back.
	rolloutParked
	// rolloutEnded has its last completion under way.
	rolloutEnded
)

// resume is a moment at which a rollout went on: how many tokens had been
// sampled, and what the engine served that it went on with.
type resume struct {
	sampled int
	version loop.Version
}

// rollout is one attempt at a rollout, from its start to its end, through every
// slot that it runs in. It is the environment's Sampler. From a start or a resume
// to the completion that answers it, it holds a slot, and posts exactly one
// completion: the rollout's end, or that it was interrupted.
//
// A rollout that is interrupted while it samples is answered by its engine. One
// that is in its environment is answered at once: nothing of it runs at an
// engine. Its environment goes on; what it has to say, the reward included,
// waits until the rollout has a slot again.
type rollout struct {
	task   port.RolloutRequest
	ctx    context.Context // ends with the rollout (once its end is in the log) or the run
	cancel context.CancelFunc
	clock  func() int64
	out    *outbox
	// resumesLost: the cell says that the engine it runs on is gone, and it waits to be interrupted, instead of failing.
	resumesLost bool
	// isScored: a scorer says something of it before it ends.
	isScored bool

	mu sync.Mutex
	// slot, engine and its index, of the present span, or of the last one.
	slot, at int32
	engine   port.Engine
	state    rolloutState
	// restoring: how far it had come before a restart is being read.
	restoring bool
	// sampling: the engine is at work. asked: the present span is to be interrupted.
	sampling, asked bool
	// unwanted: it was aborted; nothing of it is answered that is not owed.
	unwanted bool
	// stop interrupts the present generation, going ends the wait of a parked rollout; both by being closed.
	stop, going chan struct{}
	// sampled counts tokens, resumes where it went on.
	sampled int
	resumes []resume

	// What follows belongs to the goroutine that plays.
	turn                 int
	sampleNS, generateNS int64
	generateErr          error
	firstPosted          bool
	// oldestTold is the lowest version that the loop was told of by this process, loop.NoVersion for none.
	oldestTold            loop.Version
	sampledInEarlierTurns int
	// told is how many of the resumes came with a response.
	told int
	side sideRows
	// scores are the channels that the scorer has said.
	scores []string
	// stored: the payload is in the store.
	stored bool
}

func newRollout(ctx context.Context, task port.RolloutRequest, clock func() int64, out *outbox) *rollout {
	p := &rollout{task: task, clock: clock, out: out, stop: make(chan struct{}), oldestTold: loop.NoVersion}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// event is an event about this attempt in its present slot. p.mu must be held.
func (p *rollout) event(kind loop.EventKind) loop.Event {
	id := p.task.ID
	return loop.Event{Time: p.clock(), Kind: kind, Slot: p.slot, Group: id.Group, Sample: id.Sample, Attempt: id.Attempt, Tokens: int32(p.sampled)}
}

// park gives the slot back. p.mu must be held.
func (p *rollout) park() {
	p.state, p.going = rolloutParked, make(chan struct{})
	p.out.say(&Event{Event: p.event(loop.RolloutInterrupted)})
}

// interrupt asks for the slot back. An end that is under way answers as well.
func (p *rollout) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state != rolloutRunning || p.asked || p.unwanted:
	case p.sampling:
		p.asked = true
		close(p.stop)
	default:
		p.park()
	}
}

// resumeIn gives a parked rollout a slot of an engine, of an index, that serves version.
// It reports whether the rollout was parked.
func (p *rollout) resumeIn(engine port.Engine, at, slot int32, version loop.Version) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != rolloutParked || p.unwanted {
		return false
	}
	p.engine, p.at, p.slot = engine, at, slot
	p.state, p.asked, p.stop = rolloutRunning, false, make(chan struct{})
	if p.sampled > 0 || p.restoring {
		p.resumes = append(p.resumes, resume{p.sampled, version})
	}
	close(p.going)
	return true
}

// abort ends the rollout. If it holds a slot a completion follows, else nothing does.
func (p *rollout) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = true
	p.cancel()
}

// playsOn reports whether the rollout is in a slot of an engine, from which it has not been interrupted.
func (p *rollout) playsOn(engine int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at == engine && p.state != rolloutParked
}

// await waits until the rollout holds a slot; p.mu must be held, and is.
func (p *rollout) await(ctx context.Context) error {
	for p.state == rolloutParked {
		going := p.going
		p.mu.Unlock()
		var err error
		select {
		case <-going:
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.mu.Lock()
		if err != nil && p.state == rolloutParked { // else it was resumed before it was aborted
			return err
		}
	}
	return nil
}

// Sample implements Sampler.
func (p *rollout) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	began := p.clock()
	defer func() { p.sampleNS += p.clock() - began }()
	r := port.GenerateRequest{Rollout: p.task.ID, Turn: p.turn, Prompt: req.Prompt, Media: req.Media, MaxTokens: req.MaxTokens, Check: req.Check, Sampling: req.Sampling, OnTokens: req.OnTokens}
	p.turn++
	p.side.begin(len(req.Prompt), req.Known)
	wanted := ctx
	if req.Dropped != nil {
		var cancel context.CancelFunc
		wanted, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-req.Dropped:
				cancel()
			case <-wanted.Done():
			}
		}()
	}
	for {
		p.side.ask(&r)
		g, err := p.span(wanted, r, req.Final)
		p.side.settle(len(g.Tokens))
		switch {
		case (err != nil || g.Pruned) && isClosed(req.Dropped) && ctx.Err() == nil: // also where Check saw it first
			p.drop()
			return port.Generation{}, port.ErrDropped
		case err != nil || !g.Interrupted:
			g.Resumes, g.Channels = p.tell(), p.side.channels
			p.sampledInEarlierTurns += len(g.Tokens)
			return g, err
		}
		r.Prefix = g.Prefix()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drop makes as if the present turn had not been asked for. An interruption that waits for it is
// answered: nothing of the rollout runs at an engine.
func (p *rollout) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sampled, p.generateErr = p.sampledInEarlierTurns, nil
	for i := range p.resumes {
		p.resumes[i].sampled = min(p.resumes[i].sampled, p.sampled)
	}
	if p.state == rolloutRunning && p.asked && !p.unwanted {
		p.park()
	}
}

// tell returns the resumes that no response has come with yet, as places in the present one.
func (p *rollout) tell() []port.ResumePoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []port.ResumePoint
	for _, r := range p.resumes[p.told:] {
		out = append(out, port.ResumePoint{At: int32(r.sampled - p.sampledInEarlierTurns), Version: r.version})
	}
	p.told = len(p.resumes)
	return out
}

// span generates in one slot, until the response is complete or interrupted. A
// response that was complete before the interruption goes on to its environment
// without the slot, unless the rollout ends there.
func (p *rollout) span(ctx context.Context, r port.GenerateRequest, final bool) (port.Generation, error) {
	p.out.room(ctx) // engines wait while nobody hears what comes of it
	p.mu.Lock()
	if err := p.await(ctx); err != nil {
		p.mu.Unlock()
		return port.Generation{}, err
	}
	p.sampling, r.Interrupt = true, p.stop
	engine, at, slot := p.engine, p.at, p.slot
	p.mu.Unlock()
	if !p.firstPosted {
		r.FirstToken = func(v loop.Version) {
			p.firstPosted = true
			p.sayFirst(slot, v)
		}
	}
	began := p.clock()
	g, err := generate(ctx, engine, r)
	p.generateNS += p.clock() - began
	if p.resumesLost && errors.Is(err, port.ErrEngineDown) {
		p.sayLost(at, err)
		g, err = cutOff(ctx, r, g)
	}
	if err == nil {
		err = checkGeneration(engine.Name(), r, g)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sampling = false
	p.sampled = p.sampledInEarlierTurns + max(len(g.Tokens), len(r.Prefix.Tokens))
	if err != nil {
		p.generateErr = err
		return g, err
	}
	switch {
	case p.unwanted && g.Interrupted:
		return g, context.Canceled
	case !p.unwanted && (g.Interrupted || p.asked && !g.Pruned && (!final || p.isScored)):
		p.park()
	}
	return g, nil
}

// sayFirst says that the first token was made.
func (p *rollout) sayFirst(slot int32, v loop.Version) {
	id := p.task.ID
	p.oldestTold = v
	p.out.sayInTurn(p.ctx, &Event{Event: loop.Event{Time: p.clock(), Kind: loop.FirstToken, Slot: slot, Group: id.Group, Sample: id.Sample, Attempt: id.Attempt, Version: v}})
}

// sayLost says that an engine does not answer any more.
func (p *rollout) sayLost(engine int32, err error) {
	p.out.sayInTurn(p.ctx, &Event{Event: loop.Event{Time: p.clock(), Kind: loop.EngineLost, Engine: engine, Reason: loop.ReasonEngine}, Error: err.Error()})
}

// generate has an engine answer. One that takes no media is not asked where there are some: it would leave them out.
func generate(ctx context.Context, engine port.Engine, r port.GenerateRequest) (port.Generation, error) {
	for i := range r.Media {
		seer, ok := port.As[port.Seer](engine)
		if !ok {
			return port.Generation{}, fmt.Errorf("cell: engine %s: %w, and the prompt of %v has %d", engine.Name(), port.ErrMedia, r.Rollout, len(r.Media))
		}
		if err := seer.Sees(r.Media[i].Modality); err != nil {
			return port.Generation{}, fmt.Errorf("cell: engine %s: the prompt of %v has media: %w", engine.Name(), r.Rollout, err)
		}
	}
	return engine.Generate(ctx, r)
}

// cutOff waits until the loop knows that the engine of a response is gone, and has the
// rollout interrupted or gives it up; what was sampled so far is what there is.
func cutOff(ctx context.Context, r port.GenerateRequest, g port.Generation) (port.Generation, error) {
	select {
	case <-r.Interrupt:
	case <-ctx.Done():
		return g, ctx.Err()
	}
	if len(g.Tokens) < len(r.Prefix.Tokens) {
		p := r.Prefix
		g = port.Generation{Tokens: p.Tokens, Logprobs: p.Logprobs, Versions: p.Versions, Text: p.Text, TextPartial: p.TextPartial, Derived: p.Derived}
	}
	g.Interrupted, g.Truncated, g.Pruned = true, false, false
	return g, nil
}

// checkGeneration refuses what no engine may return.
func checkGeneration(engine string, r port.GenerateRequest, g port.Generation) error {
	n, before := len(g.Tokens), len(r.Prefix.Tokens)
	switch {
	case n != len(g.Logprobs) || n != len(g.Versions), n == 0 && !g.Interrupted:
		return fmt.Errorf("cell: engine %s returned %d tokens, %d log-probs and %d versions for %v", engine, n, len(g.Logprobs), len(g.Versions), r.Rollout)
	case n < before || !slices.Equal(g.Tokens[:before], r.Prefix.Tokens):
		return fmt.Errorf("cell: engine %s was to go on from %d tokens of %v and returned %d that do not begin with them", engine, before, r.Rollout, n)
	}
	return nil
}

// end waits until the rollout holds a slot to end in. It returns false when there
// is nobody to tell: it was aborted, or the run has ended, while it stood parked.
func (p *rollout) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.await(p.ctx); err != nil {
		return false
	}
	p.state = rolloutEnded
	return true
}
