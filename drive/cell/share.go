package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Bounds on what is said of held-out prompts at once, so that it fits into a word or an answer.
const (
	handMost         = 1024
	endedMost        = 128
	endedErrorsBytes = 256
)

// Reasons of a failed Outcome. The infrastructure's are tried again.
const (
	FailedData  = "data"
	FailedInfra = "infra"
)

// Try is an attempt at a held-out prompt. Prompts count from 1, as attempts do.
type Try struct {
	Prompt  int32 `json:"prompt"`
	Attempt int32 `json:"attempt"`
}

// Outcome is how an attempt has ended.
type Outcome struct {
	Try
	Reward float32 `json:"reward,omitempty"`
	Exact  bool    `json:"exact,omitempty"`
	// Oldest and Newest are the versions that sampled.
	Oldest loop.Version `json:"oldest,omitempty"`
	Newest loop.Version `json:"newest,omitempty"`
	// Failed is empty where there is a reward.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Ask is what a player says that asks for held-out prompts.
type Ask struct {
	// Number rises with each ask of a process. The answer names it.
	Number int64 `json:"number"`
	// Slots is how many attempts it can play at once.
	Slots int `json:"slots,omitempty"`
	// Ended are attempts of the evaluation of Version that it has not been told to forget.
	Version loop.Version `json:"version,omitempty"`
	Ended   []Outcome    `json:"ended,omitempty"`
}

// Deal answers an Ask. Hand is all that the player is to have in hand. It begins new attempts, ends others that it plays, and
// forgets their outcomes. Without an evaluation the version is 0.
type Deal struct {
	Number  int64        `json:"number"`
	Version loop.Version `json:"version,omitempty"`
	Hand    []Try        `json:"hand,omitempty"`
}

// ShareOptions say where a process plays held-out prompts. An engine plays them from its first switch on, until it is lost or
// given back.
type ShareOptions struct {
	// Engines are the run's, nil for those of another process. Slots are those of each that the loop does not know of.
	Engines []port.Engine
	Slots   []int
	// Environment plays held-out prompts as it plays others. Its rollouts have a group below 0, which is the
	// version evaluated with its sign changed.
	Environment port.Environment
	// Levels is the number of difficulties that prompts go through, 0 for none.
	Levels int
}

// Share is the part of a process in evaluations. It asks for held-out prompts, and plays what it is dealt. All methods are
// safe for concurrent use.
type Share struct {
	opt     ShareOptions
	ctx     context.Context
	engines []*sharedEngine // nil for those of another process
	most    int
	// fresh has room for one: that there is something to say.
	fresh   chan struct{}
	playing sync.WaitGroup

	mu sync.Mutex
	// asked is the number of the newest ask, which waits for an answer or not.
	asked  int64
	awaits bool
	// untold: slots have changed since.
	untold bool
	// version is the one under evaluation, 0 for none. Hand has what ends each attempt, ended those that have ended.
	version loop.Version
	hand    map[Try]context.CancelFunc
	ended   []Outcome
	// freed is closed when a slot becomes free, or an engine is there or lost.
	freed chan struct{}
}

// NewShare prepares the part of a process in evaluations. The process is to use Engines, so that no evaluation runs while
// one switches. Attempts end with ctx.
func NewShare(ctx context.Context, opt ShareOptions) (*Share, error) {
	s := &Share{opt: opt, ctx: ctx, fresh: make(chan struct{}, 1), hand: make(map[Try]context.CancelFunc), freed: make(chan struct{})}
	if len(opt.Slots) != len(opt.Engines) {
		return nil, fmt.Errorf("cell: %d engines and %d numbers of slots to evaluate in", len(opt.Engines), len(opt.Slots))
	}
	for i, engine := range opt.Engines {
		var shared *sharedEngine
		if engine != nil {
			shared = &sharedEngine{Engine: engine, stop: make(chan struct{}), slots: opt.Slots[i], changed: s.slotsChanged}
			s.most += opt.Slots[i]
		}
		s.engines = append(s.engines, shared)
	}
	return s, nil
}

// Engines are the engines of the options, to be used instead of those.
func (s *Share) Engines() []port.Engine {
	engines := make([]port.Engine, len(s.engines))
	for i, one := range s.engines {
		if one != nil {
			engines[i] = one
		}
	}
	return engines
}

// Look has the share ask soon: an evaluation may have begun. A nil share does nothing.
func (s *Share) Look() {
	if s != nil {
		s.news()
	}
}

// News has an element when the share is to ask. A share that is not answered asks again now and then besides. That of a nil
// share has none.
func (s *Share) News() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.fresh
}

func (s *Share) news() {
	select {
	case s.fresh <- struct{}{}:
	default: // it has been said
	}
}

// Wait returns when nothing plays any more. Its context is to have ended before, or the evaluation. A nil share plays nothing.
func (s *Share) Wait() {
	if s != nil {
		s.playing.Wait()
	}
}

// Ask is what the share says now.
func (s *Share) Ask() Ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.awaits, s.untold = true, false
	a := Ask{Number: s.asked, Version: s.version, Ended: slices.Clone(s.ended[:min(len(s.ended), endedMost)])}
	for _, e := range s.engines {
		if e != nil && e.isServing() {
			a.Slots += e.slots
		}
	}
	return a
}

// Take takes the answer to the newest ask. One to an earlier ask says nothing.
func (s *Share) Take(d Deal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Number != s.asked {
		return
	}
	s.awaits = false
	if d.Version != s.version {
		s.forget(func(Try) bool { return true })
		s.version = d.Version
	}
	dealt := make(map[Try]bool, len(d.Hand))
	for _, t := range d.Hand {
		dealt[t] = d.Version > 0 && t.Prompt > 0 && t.Attempt > 0
	}
	s.forget(func(t Try) bool { return !dealt[t] })
	for _, t := range d.Hand {
		if s.hand[t] == nil && dealt[t] {
			s.begin(t)
		}
	}
	if len(s.ended) > 0 || s.untold {
		s.news()
	}
}

// forget ends attempts, and forgets those that have ended. s.mu is held.
func (s *Share) forget(which func(Try) bool) {
	for t, end := range s.hand {
		if which(t) {
			end()
			delete(s.hand, t)
		}
	}
	s.ended = slices.DeleteFunc(s.ended, func(o Outcome) bool { return which(o.Try) })
}

// begin begins an attempt. s.mu is held.
func (s *Share) begin(t Try) {
	ctx, end := context.WithCancel(s.ctx)
	s.hand[t] = end
	version := s.version
	s.playing.Go(func() {
		o := s.play(ctx, version, t)
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() != nil { // it is in hand no more
			return
		}
		end()
		s.ended = append(s.ended, o)
		if !s.awaits {
			s.news()
		}
	})
}

// slotsChanged says that an engine is there, or is lost.
func (s *Share) slotsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeWaiting()
	if s.untold = true; !s.awaits {
		s.news()
	}
}

// wakeWaiting has those look again that wait for a slot. s.mu is held.
func (s *Share) wakeWaiting() {
	close(s.freed)
	s.freed = make(chan struct{})
}

// play plays one attempt to its outcome.
func (s *Share) play(ctx context.Context, version loop.Version, t Try) Outcome {
	o := Outcome{Try: t, Oldest: loop.NoVersion, Newest: loop.NoVersion}
	sample, err := s.sample(ctx, version, t)
	switch {
	case err == nil:
		o.Reward, o.Exact = sample.Reward, sample.Exact
		o.span(&sample)
		return o
	case errors.Is(err, port.ErrData):
		o.Failed = FailedData
	default:
		o.Failed = FailedInfra
	}
	o.Error = err.Error()
	if len(o.Error) > endedErrorsBytes {
		o.Error = strings.ToValidUTF8(o.Error[:endedErrorsBytes], "")
	}
	return o
}

// span takes the versions of a sample in.
func (o *Outcome) span(s *port.Sample) {
	for i, version := range s.Versions {
		if s.LossMask[i] != 1 {
			continue
		}
		if o.Oldest == loop.NoVersion || version < o.Oldest {
			o.Oldest = version
		}
		o.Newest = max(o.Newest, version)
	}
}

// sample plays one attempt in a slot of an engine, the first that has one free from a place on. Another attempt at a prompt
// looks at another engine first.
func (s *Share) sample(ctx context.Context, version loop.Version, t Try) (port.Sample, error) {
	id := port.RolloutID{Group: -loop.GroupID(version), Sample: t.Prompt - 1, Attempt: t.Attempt}
	task := port.RolloutRequest{ID: id, Prompt: int64(t.Prompt), Version: version}
	if s.opt.Levels > 0 {
		task.Level = int32(1 + (int(t.Prompt)-1)%s.opt.Levels)
	}
	engine, err := s.acquire(ctx, int(t.Prompt)+int(t.Attempt))
	if err != nil {
		return port.Sample{}, err
	}
	defer s.release(engine)
	got, err := s.opt.Environment.Play(ctx, task, &besideSampler{engine: engine, id: id})
	if acks, ok := port.As[port.Acknowledger](s.opt.Environment); ok { // an evaluation's attempts are not in the log
		acks.Logged(id, err == nil)
	}
	if err != nil {
		return got, err
	}
	return got, checkSample(&got, id)
}

// acquire waits for a slot of an engine that serves. It fails where none does.
func (s *Share) acquire(ctx context.Context, from int) (*sharedEngine, error) {
	for {
		s.mu.Lock()
		serving, freed := false, s.freed
		for i := range s.engines {
			e := s.engines[(from+i)%len(s.engines)]
			if e == nil || e.slots == 0 || !e.isServing() {
				continue
			}
			if serving = true; e.taken < e.slots {
				e.taken++
				s.mu.Unlock()
				return e, nil
			}
		}
		s.mu.Unlock()
		if !serving {
			return nil, errors.New("cell: no engine with slots to evaluate in is there")
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Share) release(e *sharedEngine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.taken--
	s.wakeWaiting()
}
