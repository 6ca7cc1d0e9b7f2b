package remote

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Kept is how many ended claims are remembered, for calls that come late or again.
const Kept = 4096

// Options of an environment.
type Options struct {
	// Name is the environment's name in claims; workers may ask for it.
	Name string
	// Seed is the run's; workers make prompts from it.
	Seed uint64
	// ClaimTTL is how long a claim lasts without a call that names it; above 0.
	ClaimTTL time.Duration
	// Vocabulary is the number of token ids; at least 1.
	Vocabulary int
	// Limits bound what is sampled.
	Limits Limits
	// Sampling says how tokens are drawn; nil is by the policy as it is.
	Sampling *port.Sampling
	// ClientSampling is what becomes of what a call of Turn asks for instead: SamplingOverride,
	// which empty stands for, SamplingRefuse or SamplingAllow.
	ClientSampling string
	// PolicyOnly says that the engines draw by the policy as it is and end responses at token ids
	// alone. A call of Turn that asks for stop texts is refused, and under SamplingAllow any that asks
	// for other draws.
	PolicyOnly bool
	// TurnWait is how long a call of Turn waits for its first token; 0 for as long as it takes.
	TurnWait time.Duration
	// RoomBytesMax bounds the memory that all rollouts under way hold, RolloutBytesMax that of one, both
	// in bytes: see room. Defaults 3 GiB and 384 MiB, at most half of the former.
	RoomBytesMax, RolloutBytesMax int64
	// Newest is the newest version that an engine may serve. Nil means that rollouts sampled elsewhere
	// are refused, because a version from the future could not be recognised.
	Newest func() loop.Version
	// Turns keeps claims and turns, so that rollouts go on after a restart; nil keeps none.
	Turns port.Turns
	// Player is the name of players in this process, empty without any. They end with it. Those of the next process claim their
	// rollouts again, and ask for each turn again (Notes).
	Player string
	// Replaced says why another process may be in the place of this one. It may wait for an answer. Nil is for one that stands alone.
	Replaced func(ctx context.Context) error
	// Clock returns nanoseconds, never falling, and may stand still: claims age by it. Nil means the process's
	// monotonic clock.
	Clock func() int64
}

// Limits bound one rollout, in tokens; 0 stands for no limit.
type Limits struct {
	// PromptTokens bounds the prompt of a call to sample, earlier turns included.
	PromptTokens int
	// ResponseTokens bounds one response. Prompt and response limit together bound a
	// rollout that was sampled elsewhere.
	ResponseTokens int
}

// Dispatcher implements port.Environment towards the runtime, api.Rollouts towards
// workers and gateway.Rollouts towards agents. It is safe for concurrent use.
type Dispatcher struct {
	opt Options

	mu sync.Mutex
	// sessions has every rollout being played, by the id of its claim; latest the last
	// attempt of each sample; offers those that nobody has claimed, oldest first.
	sessions map[string]*session
	latest   map[sampleKey]*session
	offers   *list.List
	// started has what Starting has offered and Play has not begun to play.
	started map[port.RolloutID]*session
	waiters *list.List
	past    past
	// unlogged has the failures that the log does not have yet, by the id of the claim; each is closed once it has.
	unlogged map[string]chan struct{}
	workers  workers
	claimed  int
	numbers  int64 // of rollouts that were offered
	room     room
	// restoring has a mutex of its own.
	restoring restoring
	// claimErr, once set, answers every claim; noClaims is closed with it.
	claimErr error
	noClaims chan struct{}
	// over is closed when nothing more is logged; overErr answers those who wait for it.
	over    chan struct{}
	overErr error
}

// New returns an environment without rollouts.
func New(opt Options) (*Dispatcher, error) {
	switch {
	case opt.Name == "":
		return nil, errors.New("env/remote: Name is empty: say what the workers play")
	case opt.ClaimTTL <= 0:
		return nil, fmt.Errorf("env/remote: a claim that lasts %v: want more than 0", opt.ClaimTTL)
	case opt.Vocabulary < 1:
		return nil, fmt.Errorf("env/remote: a vocabulary of %d tokens: want at least 1", opt.Vocabulary)
	case opt.Limits.PromptTokens < 0 || opt.Limits.ResponseTokens < 0:
		return nil, fmt.Errorf("env/remote: limits %+v: want 0, for none, or more", opt.Limits)
	case !slices.Contains([]string{"", SamplingOverride, SamplingRefuse, SamplingAllow}, opt.ClientSampling):
		return nil, fmt.Errorf("env/remote: ClientSampling is %q: want %s, %s or %s", opt.ClientSampling, SamplingOverride, SamplingRefuse, SamplingAllow)
	case opt.RoomBytesMax < 0 || opt.RolloutBytesMax < 0:
		return nil, fmt.Errorf("env/remote: rollouts may hold %d bytes, one of them %d: want 0, for the default, or more", opt.RoomBytesMax, opt.RolloutBytesMax)
	case opt.TurnWait < 0:
		return nil, fmt.Errorf("env/remote: a turn that waits %v: want 0, for as long as it takes, or more", opt.TurnWait)
	}
	if opt.Clock == nil {
		began := time.Now()
		opt.Clock = func() int64 { return int64(time.Since(began)) }
	}
	opt.withRoom()
	return &Dispatcher{
		opt: opt, sessions: make(map[string]*session), latest: make(map[sampleKey]*session), started: make(map[port.RolloutID]*session),
		offers: list.New(), waiters: list.New(), past: newPast(), unlogged: make(map[string]chan struct{}), workers: newWorkers(),
		noClaims: make(chan struct{}), over: make(chan struct{}), restoring: restoring{slots: make(chan struct{}, restoringMost)},
	}, nil
}

// Starting implements port.Starter: it offers the rollout to the workers, so that offers stand in the
// order in which the loop starts rollouts. Play of the same task follows.
func (e *Dispatcher) Starting(task port.RolloutRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started[task.ID] = e.offer(task)
}

// offered is the session of a rollout that is to be played, which is offered now if Starting has not
// done so. It may have ended.
func (e *Dispatcher) offered(task port.RolloutRequest) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.started[task.ID]; s != nil {
		delete(e.started, task.ID)
		return s
	}
	return e.offer(task)
}

// Play implements port.Environment. It has the rollout offered to the workers and returns when one
// has finished it, when its claim has expired, or when ctx ends. The sampler is only ever called by
// this goroutine.
func (e *Dispatcher) Play(ctx context.Context, task port.RolloutRequest, sampler port.Sampler) (port.Sample, error) {
	s := e.offered(task)
	for {
		next := e.next(ctx, s)
		switch {
		case next.over:
			return next.sample, next.err
		case next.turn != nil:
			g, err := sampler.Sample(ctx, next.turn.request())
			if err == nil {
				err = e.keepTurn(ctx, s, next.turn, &g)
			}
			e.sampled(ctx, s, next.turn, &g, err)
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// move is what the goroutine that plays a rollout does next: return, sample a turn, or wait.
type move struct {
	over   bool
	sample port.Sample
	err    error
	turn   *turn
}

func (e *Dispatcher) next(ctx context.Context, s *session) move {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state != stateEnded && ctx.Err() != nil {
		e.giveUp(s, fmt.Errorf("env/remote: %s: %w", s.id, context.Cause(ctx)))
	}
	switch {
	case s.state == stateEnded:
		return move{over: true, err: s.err}
	case s.state == stateAccepted:
		s.state = stateReturned
		e.attend(ctx, s)
		return move{over: true, sample: s.sample}
	}
	for len(s.queue) > 0 {
		t := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		again := e.playsAgain(s)
		switch {
		case s.answers(t):
			continue
		case again:
			e.forsake(s, errors.New("its player asks otherwise than before the restart"))
			return move{over: true, err: s.err}
		}
		goesOn, _ := s.record.goesOn(t.agent, t.prompt, t.media)
		t.known = goesOn.known(len(t.prompt))
		s.running = t
		return move{turn: t}
	}
	return move{}
}

// request is what the sampler is asked for. A response that nobody waits for any more is dropped.
func (t *turn) request() port.SampleRequest {
	req := port.SampleRequest{Prompt: t.prompt, Media: t.media, MaxTokens: t.maxTokens, Sampling: t.sampling, Dropped: t.dropped, Known: t.known}
	req.Check = func([]int32) bool {
		t.begun.Store(true)
		return t.isDropped()
	}
	if t.flow != nil {
		req.OnTokens = func(d port.Delta) {
			t.begun.Store(true)
			t.flow.add(d)
		}
	}
	return req
}

// sampled records a turn's response, or why there is none.
func (e *Dispatcher) sampled(ctx context.Context, s *session, t *turn, g *port.Generation, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.running = nil
	switch {
	case s.state == stateEnded: // its worker fell silent or gave it up meanwhile
	case t.isDropped() && !(t.keeps && s.state == stateClaimed) && (err == nil || errors.Is(err, port.ErrDropped)): // it was taken back
		s.record.left(g)
	case err != nil && ctx.Err() != nil:
		e.giveUp(s, fmt.Errorf("env/remote: %s: %w", s.id, context.Cause(ctx)))
	case err != nil:
		s.err = fmt.Errorf("env/remote: sampling %s: %w", s.id, err)
		e.fail(s, outcome{kind: outcomeBroken, reason: err.Error()})
	default:
		s.record.sampled(t, g)
		if t.numbered() {
			s.pending -= promptBytes(t.asked)
		}
		e.count(s)
		if t.isDropped() {
			s.untold = []*turn{t}
		}
		close(t.done)
	}
}

// Logged implements port.Acknowledger: a rollout's end is in the log. Calls that wait for that are answered now. It does not block.
func (e *Dispatcher) Logged(id port.RolloutID, counted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[claimID(id)]; s != nil && s.state == stateReturned {
		e.end(s, outcome{kind: outcomeFinished, counted: counted})
	}
	if logged := e.unlogged[claimID(id)]; logged != nil {
		close(logged)
		delete(e.unlogged, claimID(id))
	}
	if e.opt.Turns != nil {
		e.opt.Turns.DropTurns(id)
	}
}

// Drain answers claims from now on with CodeUnavailable; rollouts that are claimed may finish.
func (e *Dispatcher) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuseClaims(protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping: claim again, elsewhere or later"))
}

// EndRun says that the run is done. Claims are answered with protocol.ErrRunEnded. Callers that
// wait for a rollout to be logged, which it no longer will be, get CodeUnavailable.
func (e *Dispatcher) EndRun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuseClaims(protocol.ErrRunEnded)
	e.stop(protocol.Refuse(protocol.CodeExpired, "the run has ended before the rollout was logged: it does not count"))
}

// Close says that this process is no longer the run's: every waiting and every new call is answered
// with CodeUnavailable. Rollouts under way are issued again by the process that goes on.
func (e *Dispatcher) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	refusal := protocol.Refuse(protocol.CodeUnavailable, "the control plane has stopped: call again, elsewhere or later")
	e.refuseClaims(refusal)
	e.stop(refusal)
}

// stopping reports whether this process gives out no more rollouts of a run that goes on without it.
// e.mu must be held.
func (e *Dispatcher) stopping() bool {
	return e.claimErr != nil && !e.runEnded()
}

// refuseClaims answers claims from now on with err; that the run has ended stands. e.mu must be held.
func (e *Dispatcher) refuseClaims(err error) {
	if e.claimErr == nil {
		close(e.noClaims)
	}
	if !e.runEnded() {
		e.claimErr = err
	}
}

// stop ends every wait. e.mu must be held.
func (e *Dispatcher) stop(err error) {
	if e.overErr == nil {
		e.overErr = err
		close(e.over)
	}
}
