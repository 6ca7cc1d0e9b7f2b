package remote

import (
	"context"
	"slices"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
)

// Turn implements gateway.Rollouts: it samples one response for a claimed rollout and returns
// when it is complete. Tokens that arrive meanwhile are given to onTokens, if it is not nil, by one
// goroutine at a time and never after Turn has returned. It must not block, and must not keep the
// slices. Where ctx ends before the response is complete, nothing of the turn is recorded.
func (e *Dispatcher) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	t, overridden, err := e.turnOf(&req)
	if err != nil {
		return protocol.TurnReply{}, err
	}
	if onTokens != nil {
		t.flow = &flow{onTokens: onTokens}
	}
	if err := e.awaitRestored(ctx, id); err != nil {
		return protocol.TurnReply{}, err
	}
	s, err := e.enqueue(id, t)
	if err != nil {
		return protocol.TurnReply{}, err
	}
	defer e.depart(s, t)
	reply, err := e.settle(ctx, s, t, e.follow(ctx, s, t))
	if err != nil {
		if t.flow != nil {
			t.flow.end(nil)
		}
		return protocol.TurnReply{}, err
	}
	if t.flow != nil {
		t.flow.end(&reply)
	}
	reply.Overridden = overridden
	return reply, nil
}

// Hold implements gateway.Rollouts.
func (e *Dispatcher) Hold(ctx context.Context, id string) (release func()) {
	restored := e.awaitRestored(ctx, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.claimedBy(id)
	if restored != nil || err != nil || s.state != stateClaimed {
		return func() {}
	}
	e.open(s)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leave(s)
	}
}

// Ended implements gateway.Rollouts: the channel is closed when the claim has ended.
func (e *Dispatcher) Ended(id string) (<-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.claimedBy(id)
	if err != nil {
		return nil, err
	}
	return s.done, nil
}

// turnOf checks a request and makes a turn of it.
func (e *Dispatcher) turnOf(req *protocol.TurnRequest) (*turn, []string, error) {
	if limit := e.opt.Limits.ResponseTokens; limit > 0 && req.MaxTokens > limit {
		req.MaxTokens = limit
	}
	if limit := e.opt.Limits.PromptTokens; limit > 0 && len(req.Prompt) > limit { // in the word that agents look for
		return nil, nil, protocol.ContextExceeded(len(req.Prompt), limit)
	}
	ask := protocol.SampleRequest{Prompt: req.Prompt, MaxTokens: req.MaxTokens}
	if err := e.checkPrompt(&ask); err != nil {
		return nil, nil, err
	}
	sampling, overridden, err := e.samplingOf(&req.Sampling)
	if err != nil {
		return nil, nil, err
	}
	if err := media.Check(req.Media, len(req.Prompt)); err != nil {
		return nil, nil, protocol.Refuse(protocol.CodeInvalid, "media: %v", err)
	}
	t := newTurn(-1, req.Prompt, ask.MaxTokens, sampling)
	t.media = req.Media
	t.agent, err = agentOf(req.Agent, req.Train)
	return t, overridden, err
}

// claimedBy finds a claimed rollout, whoever holds it. e.mu must be held.
func (e *Dispatcher) claimedBy(id string) (*session, error) {
	s, was, err := e.find(id)
	if was != nil {
		return nil, e.refusal(was, id)
	}
	return s, err
}

// enqueue puts a turn behind those of its rollout and notes that a call is open; depart must follow.
func (e *Dispatcher) enqueue(id string, t *turn) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.claimedBy(id)
	switch {
	case err != nil:
		return nil, err
	case s.state != stateClaimed:
		return nil, finished(id)
	case len(s.record.turns) > 0:
		return nil, protocol.Refuse(protocol.CodeConflict, "rollout %s is sampled by its worker's numbered calls: go on with those, or claim another for an agent", id)
	}
	if err := s.checkAgent(t.agent); err != nil {
		return nil, err
	}
	if !e.playsAgain(s) { // which adds nothing
		if err := e.admit(s, t.agent, t.prompt, t.media); err != nil {
			return nil, err
		}
	}
	s.queue = append(s.queue, t)
	s.pending += promptBytes(t.asked)
	e.count(s)
	s.signal()
	e.open(s)
	return s, nil
}

func finished(id string) error {
	return protocol.Refuse(protocol.CodeConflict, "rollout %s is finished: it samples no more", id)
}

// depart ends the call that enqueue began.
func (e *Dispatcher) depart(s *session, t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.pending -= promptBytes(t.asked)
	e.count(s)
	e.leave(s)
}

// follow waits until there is something to settle. It reports whether the turn has waited too
// long for its first token.
func (e *Dispatcher) follow(ctx context.Context, s *session, t *turn) (late bool) {
	var patience <-chan time.Time
	if e.opt.TurnWait > 0 {
		timer := time.NewTimer(e.opt.TurnWait)
		defer timer.Stop()
		patience = timer.C
	}
	for {
		select {
		case <-patience:
			if t.begun.Load() {
				patience = nil
				continue
			}
			return true
		case <-t.done:
		case <-t.dropped:
		case <-s.done:
		case <-e.over:
		case <-ctx.Done():
		}
		return false
	}
}

// settle says what became of a turn that is no longer followed, and takes it back unless it is complete.
func (e *Dispatcher) settle(ctx context.Context, s *session, t *turn, late bool) (protocol.TurnReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.end > 0 {
		sampled := t.reply()
		return protocol.TurnReply{Tokens: sampled.Tokens, Logprobs: sampled.Logprobs, Versions: sampled.Versions,
			Text: t.text, Finish: t.finish, Branch: t.place, Branches: len(s.record.branches)}, nil
	}
	behind := s.takeBack(t)
	switch {
	case s.state == stateEnded:
		return protocol.TurnReply{}, e.refusal(&s.outcome, s.id)
	case e.overErr != nil:
		return protocol.TurnReply{}, e.overErr
	case s.state != stateClaimed:
		return protocol.TurnReply{}, finished(s.id)
	case late && behind:
		return protocol.TurnReply{}, protocol.Refuse(protocol.CodeBusy, "rollout %s has sampled an earlier call for %v: wait for one call before the next, or raise gateway.wait_s", s.id, e.opt.TurnWait)
	case late:
		return protocol.TurnReply{}, protocol.Refuse(protocol.CodeUnavailable, "rollout %s has had no token for %v: its engines are busy, held or gone; nothing of the call was recorded, send it again", s.id, e.opt.TurnWait)
	}
	return protocol.TurnReply{}, context.Cause(ctx)
}

// takeBack makes as if a turn had never been asked for. It reports whether it stood behind
// another that somebody waits for.
func (s *session) takeBack(t *turn) (behind bool) {
	t.drop()
	if i := slices.Index(s.queue, t); i >= 0 {
		behind = i > 0 || s.running != nil && !s.running.isDropped()
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return behind
}

// dropAll drops the calls that are open when the rollout is finished: the reward is not for
// what they would have brought, and who left in the middle of one is not always noticed before.
func (s *session) dropAll() {
	if s.running != nil {
		s.running.drop()
	}
	for _, t := range s.queue {
		t.drop()
	}
	s.queue = nil
}

// sampling reports whether somebody waits for a response.
func (s *session) sampling() bool {
	return len(s.queue) > 0 || s.running != nil && !s.running.isDropped()
}
