package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/weights"
)

// ErrClosed is what generations end with when the engine is closed under them.
var ErrClosed = errors.New("the engine is closed")

// Options of an engine.
type Options struct {
	// Name in logs and status.
	Name string
	// Model is the policy's shape, complete (WithDefaults).
	Model transformer.Config
	// PromptTokens is the longest prompt: shorter ones begin at a later position, so
	// that the response always begins at this one. The trainer must use the same.
	PromptTokens int
	// Slots is how many generations run at once, at least 1.
	Slots int
	// End is the token that ends a response.
	End int32
	// Seed of every draw.
	Seed uint64
	// DecodeStepS is the least time of one decode step in seconds. A GPU that its memory bounds has
	// such a time at any load. A faster step waits, and steps that follow one another keep to it in
	// the mean ([port.Pacer]); 0 for none.
	DecodeStepS float64
	// Weights is where versions are loaded from.
	Weights port.Weights
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	if err := o.Model.Validate(); err != nil {
		return err
	}
	switch {
	case o.Slots < 1:
		return fmt.Errorf("engine %s: %d slots, want at least 1", o.Name, o.Slots)
	case o.PromptTokens < 1 || o.PromptTokens >= o.Model.Context:
		return fmt.Errorf("engine %s: prompts of %d tokens leave no room in a context of %d", o.Name, o.PromptTokens, o.Model.Context)
	case o.End < 0 || int(o.End) >= o.Model.Vocabulary:
		return fmt.Errorf("engine %s: the end token is %d, the vocabulary has %d", o.Name, o.End, o.Model.Vocabulary)
	case !(o.DecodeStepS >= 0 && o.DecodeStepS <= 3600):
		return fmt.Errorf("engine %s: a decode step of %g s, want 0 to 3600", o.Name, o.DecodeStepS)
	case o.Weights == nil:
		return fmt.Errorf("engine %s: Weights is missing", o.Name)
	}
	return nil
}

// policy is a set of weights with its version.
type policy struct {
	version    loop.Version
	parameters *transformer.Parameters
}

// Engine implements [port.Engine] and [port.Timed].
type Engine struct {
	opt     Options
	wake    chan struct{} // of one element: something below changed
	stopped chan struct{} // closed when the decoding goroutine has ended
	closing chan struct{} // closed by Close
	once    sync.Once
	busy    atomic.Bool
	times   times
	pacer   port.Pacer

	mu      sync.Mutex
	waiting []*generation // asked for, not in a slot yet
	claimed int           // generations that callers wait for, at most Slots
	loaded  policy        // beside the served one
	change  *change       // asked for by Switch, made between two steps

	// What follows belongs to the decoding goroutine.
	decoder *transformer.Decoder
	served  policy
	slots   []*generation
	active  int
	rows    []transformer.Row
	sampled []int // slot of each row that asks for logits
	end     time.Time
}

// change is a switch of weights under way.
type change struct {
	to   policy
	done chan struct{}
}

var (
	_ port.Engine = (*Engine)(nil)
	_ port.Timed  = (*Engine)(nil)
	_ port.Paced  = (*Engine)(nil)
)

// New starts an engine without weights: Load and Switch come before the first
// Generate. Close stops it.
func New(opt Options) (*Engine, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	// After an interruption every slot may take in a prompt and a response at once.
	decoder, err := transformer.NewDecoder(opt.Model, opt.Slots, opt.Slots*opt.Model.Context)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opt: opt, decoder: decoder, times: newTimes(opt.Slots),
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), closing: make(chan struct{}),
		loaded: policy{version: loop.NoVersion}, served: policy{version: loop.NoVersion},
		slots: make([]*generation, opt.Slots),
	}
	go e.run()
	return e, nil
}

// Name implements [port.Engine].
func (e *Engine) Name() string { return e.opt.Name }

// Slots implements [port.Engine].
func (e *Engine) Slots() int { return e.opt.Slots }

// SetTrainerBusy implements [port.Timed].
func (e *Engine) SetTrainerBusy(busy bool) { e.busy.Store(busy) }

// TakeDecodeTimes implements [port.Timed].
func (e *Engine) TakeDecodeTimes() []trace.ServiceCell { return e.times.take() }

// TakePace implements [port.Paced]: of decode steps, none without DecodeStepS.
func (e *Engine) TakePace() port.Pace { return e.pacer.Take() }

// generation is one response under way. The decoding goroutine writes to it until
// it sends on done. Tokens, log-probs and versions are written once each, before
// made counts them, so that a caller that leaves may read what there is.
type generation struct {
	req      port.GenerateRequest
	draws    source
	tokens   []int32 // of MaxTokens each; the first made are there
	logprobs []float32
	versions []loop.Version
	made     atomic.Int32
	// fed: the slot's cache holds everything but the last token.
	fed                            bool
	truncated, interrupted, pruned bool
	cancelled, halted              atomic.Bool
	first                          chan loop.Version // of one element
	done                           chan error        // of one element
}

func (e *Engine) newGeneration(req port.GenerateRequest) *generation {
	g := &generation{
		req: req, draws: newSource(e.opt.Seed, req.Rollout, req.Turn),
		tokens: make([]int32, req.MaxTokens), logprobs: make([]float32, req.MaxTokens), versions: make([]loop.Version, req.MaxTokens),
		first: make(chan loop.Version, 1), done: make(chan error, 1),
	}
	n := copy(g.tokens, req.Prefix.Tokens)
	copy(g.logprobs, req.Prefix.Logprobs)
	copy(g.versions, req.Prefix.Versions)
	g.made.Store(int32(n))
	return g
}

// sampled returns what there is of the response.
func (g *generation) sampled() port.Generation {
	n := g.made.Load()
	return port.Generation{Tokens: g.tokens[:n:n], Logprobs: g.logprobs[:n:n], Versions: g.versions[:n:n], TextPartial: n > 0}
}

// end completes the generation; only the decoding goroutine may.
func (g *generation) end(err error) { g.done <- err }

// Generate implements [port.Engine]. A prefix is taken in as the prompt is, in one step, by the
// weights served then. Where those sampled it, the rest comes out as if the response had never been
// interrupted.
func (e *Engine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	if err := e.check(req); err != nil {
		return port.Generation{}, err
	}
	g := e.newGeneration(req)
	if err := e.submit(g); err != nil {
		return port.Generation{}, err
	}
	defer e.leave()
	first, interrupt := g.first, req.Interrupt
	report := func(version loop.Version) {
		first = nil
		if req.FirstToken != nil {
			req.FirstToken(version)
		}
	}
	for {
		select {
		case version := <-first:
			report(version)
		case err := <-g.done:
			select { // both may be ready at once: the first token still comes first
			case version := <-first:
				report(version)
			default:
			}
			out := g.sampled()
			out.Truncated, out.Interrupted, out.Pruned = g.truncated, g.interrupted, g.pruned
			return out, err
		case <-interrupt:
			interrupt = nil
			g.halted.Store(true)
			e.nudge()
		case <-ctx.Done():
			g.cancelled.Store(true)
			e.nudge()
			return g.sampled(), ctx.Err()
		}
	}
}

// check refuses what the model cannot hold.
func (e *Engine) check(req port.GenerateRequest) error {
	n := len(req.Prompt)
	if n < 1 || n > e.opt.PromptTokens {
		return fmt.Errorf("engine %s: rollout %v has a prompt of %d tokens, want 1 to %d", e.opt.Name, req.Rollout, n, e.opt.PromptTokens)
	}
	// The last token of a response is sampled and never fed.
	if room := e.opt.Model.Context - e.opt.PromptTokens + 1; req.MaxTokens < 1 || req.MaxTokens > room {
		return fmt.Errorf("engine %s: rollout %v asks for up to %d tokens, want 1 to %d", e.opt.Name, req.Rollout, req.MaxTokens, room)
	}
	p := req.Prefix
	if len(p.Tokens) != len(p.Logprobs) || len(p.Tokens) != len(p.Versions) || len(p.Tokens) >= req.MaxTokens {
		return fmt.Errorf("engine %s: rollout %v goes on from %d tokens, %d log-probs and %d versions, want equal numbers below %d",
			e.opt.Name, req.Rollout, len(p.Tokens), len(p.Logprobs), len(p.Versions), req.MaxTokens)
	}
	for _, part := range [...][]int32{req.Prompt, p.Tokens} {
		for _, token := range part {
			if token < 0 || int(token) >= e.opt.Model.Vocabulary {
				return fmt.Errorf("engine %s: rollout %v has the token %d before what is to be sampled, the vocabulary has %d", e.opt.Name, req.Rollout, token, e.opt.Model.Vocabulary)
			}
		}
	}
	s := req.Sampling
	if s != nil && (!s.Policy() || len(s.Stop) > 0) {
		return fmt.Errorf("engine %s: rollout %v asks for the sampling %+v: an embedded engine draws by the policy, and ends a response at token ids alone", e.opt.Name, req.Rollout, *s)
	}
	for i, token := range p.Tokens {
		if token == e.opt.End || s != nil && slices.Contains(s.StopTokens, token) || p.Versions[i] < 0 {
			return fmt.Errorf("engine %s: rollout %v cannot go on from token %d of version %d at %d: it ended there, or its sampler is unknown", e.opt.Name, req.Rollout, token, p.Versions[i], i)
		}
	}
	return nil
}

// submit queues a generation for the next step.
func (e *Engine) submit(g *generation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.closing:
		return fmt.Errorf("engine %s: %w", e.opt.Name, ErrClosed)
	default:
	}
	if e.claimed == e.opt.Slots {
		return fmt.Errorf("engine %s: rollout %v asks for a slot while all %d are in use", e.opt.Name, g.req.Rollout, e.opt.Slots)
	}
	e.claimed++
	e.waiting = append(e.waiting, g)
	e.nudge()
	return nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	e.claimed--
	e.mu.Unlock()
}

// nudge wakes the decoding goroutine if it is idle.
func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Load implements [port.Engine].
func (e *Engine) Load(ctx context.Context, version loop.Version) error {
	parameters, err := e.parameters(ctx, version)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded = policy{version, parameters}
	return nil
}

// parameters reads and verifies a published version.
func (e *Engine) parameters(ctx context.Context, version loop.Version) (*transformer.Parameters, error) {
	tensors, err := e.opt.Weights.Model(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("engine %s: loading version %d: %w", e.opt.Name, version, err)
	}
	parameters, err := weights.Parameters(e.opt.Model, tensors)
	if err != nil {
		return nil, fmt.Errorf("engine %s: loading version %d: %w", e.opt.Name, version, err)
	}
	return parameters, nil
}

// Switch implements [port.Engine]. The change falls between two steps and takes no time of its own.
// So nothing is sampled while it takes place, under hold and without it.
func (e *Engine) Switch(ctx context.Context, version loop.Version, hold bool) error {
	c, err := e.requestChange(version)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-e.stopped:
		return fmt.Errorf("engine %s: switching to version %d: %w", e.opt.Name, version, ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("engine %s: switching to version %d: %w", e.opt.Name, version, ctx.Err())
	}
}

func (e *Engine) requestChange(version loop.Version) (*change, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded.version != version || e.loaded.parameters == nil {
		return nil, fmt.Errorf("engine %s: cannot switch to version %d, the loaded one is %d", e.opt.Name, version, e.loaded.version)
	}
	if e.change != nil {
		return nil, fmt.Errorf("engine %s: cannot switch to version %d while it switches to %d", e.opt.Name, version, e.change.to.version)
	}
	c := &change{to: e.loaded, done: make(chan struct{})}
	e.change = c
	e.nudge()
	return c, nil
}

// Close implements [port.Engine]. It may be called more than once.
func (e *Engine) Close() error {
	e.once.Do(func() {
		e.mu.Lock()
		close(e.closing)
		e.mu.Unlock()
	})
	<-e.stopped
	return nil
}
