package remote

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/loop/port"
)

// Sample implements api.Rollouts: it samples a response with the rollout's slot and
// returns when it is complete. The same turn asked again gets the same response, or
// joins the call that is sampling it, so that a dropped connection loses nothing.
func (e *Dispatcher) Sample(ctx context.Context, id string, req protocol.SampleRequest) (protocol.SampleReply, error) {
	if err := e.checkPrompt(&req); err != nil {
		return protocol.SampleReply{}, err
	}
	if err := e.awaitRestored(ctx, id); err != nil {
		return protocol.SampleReply{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _, err := e.enter(id, req.Worker)
	if err != nil {
		return protocol.SampleReply{}, err
	}
	defer e.leave(s)
	t, err := e.turn(s, &req)
	if err != nil {
		return protocol.SampleReply{}, err
	}
	e.mu.Unlock()
	select {
	case <-t.done:
	case <-s.done:
	case <-e.over:
	case <-ctx.Done():
	}
	e.mu.Lock()
	switch {
	case t.end > 0:
		return t.reply(), nil
	case s.state == stateEnded:
		return protocol.SampleReply{}, e.refusal(&s.outcome, id)
	case e.overErr != nil:
		return protocol.SampleReply{}, e.overErr
	}
	return protocol.SampleReply{}, ctx.Err()
}

// turn finds the turn that a call asks for, or begins it.
func (e *Dispatcher) turn(s *session, req *protocol.SampleRequest) (*turn, error) {
	r := &s.record
	agent, err := agentOf(req.Agent, req.Train)
	if err != nil {
		return nil, err
	}
	if req.Turn < len(r.turns) {
		t := r.turns[req.Turn]
		if t.maxTokens != req.MaxTokens || t.agent != agent || !slices.Equal(t.prompt, req.Prompt) {
			return nil, protocol.Refuse(protocol.CodeConflict, "turn %d of %s was asked for with another prompt, agent or max_tokens: repeat the same call, or begin the next turn", req.Turn, s.id)
		}
		return t, nil
	}
	history := r.history(agent)
	switch {
	case s.state != stateClaimed:
		return nil, protocol.Refuse(protocol.CodeConflict, "rollout %s is finished: it samples no more", s.id)
	case r.others > 0 || len(r.turns) == 0 && s.sampling():
		return nil, protocol.Refuse(protocol.CodeConflict, "rollout %s is sampled by an agent, whose calls have no numbers: go on under /v1, or claim another to call sample", s.id)
	case req.Turn > len(r.turns) || s.sampling():
		return nil, protocol.Refuse(protocol.CodeConflict, "turn %d of %s comes too early: the next is %d, once the one before it is answered", req.Turn, s.id, len(r.turns))
	case len(req.Prompt) < len(history) || !slices.Equal(req.Prompt[:len(history)], history):
		return nil, protocol.Refuse(protocol.CodeConflict, "turn %d of %s has a changed history: its prompt must begin with the %d sampled tokens of prompt and response so far", req.Turn, s.id, len(history)).With("tokens", len(history))
	}
	if err := s.checkAgent(agent); err != nil {
		return nil, err
	}
	if err := e.admit(s, agent, req.Prompt, nil); err != nil {
		return nil, err
	}
	t := newTurn(len(r.turns), req.Prompt, req.MaxTokens, e.opt.Sampling)
	t.agent = agent
	r.turns = append(r.turns, t)
	s.pending += promptBytes(t.asked)
	e.count(s)
	s.queue = append(s.queue, t)
	s.signal()
	return t, nil
}

// Touch implements api.Rollouts: it keeps a claim and says whether the rollout is still wanted.
func (e *Dispatcher) Touch(ctx context.Context, id string, req protocol.TouchRequest) (protocol.TouchReply, error) {
	if err := e.awaitRestored(ctx, id); err != nil {
		return protocol.TouchReply{}, err
	}
	e.mu.Lock()
	s, was, err := e.enter(id, req.Worker)
	if err == nil {
		e.leave(s)
	}
	own := was != nil && was.worker == req.Worker
	finishing := own && was.kind == outcomeFinished && e.unlogged[id] != nil && e.overErr == nil // whose caller waits for its answer
	unwanted := own && was.kind != outcomeExpired && !e.stops(was)
	e.mu.Unlock()
	switch {
	case finishing:
	case unwanted:
		return protocol.TouchReply{}, e.goesOn(ctx, id)
	case err != nil:
		return protocol.TouchReply{}, err
	}
	return protocol.TouchReply{DeadlineS: e.opt.ClaimTTL.Seconds(), Wanted: true}, nil
}

// Finish implements api.Rollouts: it ends a rollout and returns when the runtime says that it is
// logged. A repeated call waits with the first, or gets its answer. A call refused as invalid
// leaves the claim as it was.
func (e *Dispatcher) Finish(ctx context.Context, id string, req protocol.FinishRequest) (protocol.FinishReply, error) {
	req.Failed = printable.Text(req.Failed, failedBytesMax) // it goes into logs, terminals and status
	if err := checkFinish(&req); err != nil {
		return protocol.FinishReply{}, err
	}
	if err := e.awaitRestored(ctx, id); err != nil {
		return protocol.FinishReply{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, was, err := e.enter(id, req.Worker)
	if was != nil && was.kind == outcomeFinished && was.worker == req.Worker {
		return e.finished(ctx, was, id, answerOf(&req))
	}
	if err != nil {
		return protocol.FinishReply{}, err
	}
	defer e.leave(s)
	if s.state == stateClaimed {
		if err := e.accept(s, &req); err != nil {
			return protocol.FinishReply{}, err
		}
	}
	if s.state != stateEnded {
		e.mu.Unlock()
		select {
		case <-s.done:
		case <-e.over:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
	switch {
	case s.state == stateEnded && s.outcome.kind == outcomeFinished:
		return e.finished(ctx, &s.outcome, id, answerOf(&req))
	case s.state == stateEnded:
		return protocol.FinishReply{}, e.refusal(&s.outcome, id)
	case e.overErr != nil:
		return protocol.FinishReply{}, e.overErr
	}
	return protocol.FinishReply{}, ctx.Err()
}

func answerOf(req *protocol.FinishRequest) answer {
	a := answer{exact: req.Exact, failed: req.Failed, sampled: sampledHash(req)}
	if req.Reward != nil {
		a.reward = *req.Reward
	}
	return a
}

// sampledHash is a hash of the sequence that a worker sampled itself, zero without one.
func sampledHash(req *protocol.FinishRequest) (sum [sha256.Size]byte) {
	if len(req.Tokens) == 0 {
		return sum
	}
	hash := sha256.New()
	for _, list := range []any{req.Tokens, req.LossMask, req.Logprobs, req.Versions} { // each of one length by now
		_ = binary.Write(hash, binary.LittleEndian, list)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// finished answers a call to finish with what the first one was answered with. e.mu must be held, and is.
func (e *Dispatcher) finished(ctx context.Context, o *outcome, id string, again answer) (protocol.FinishReply, error) {
	if o.answer != again {
		return protocol.FinishReply{}, protocol.Refuse(protocol.CodeConflict, "rollout %s was finished before, with other words: send the same reward and tokens again, or nothing", id)
	}
	logged := e.unlogged[id]
	e.mu.Unlock()
	err := e.awaitLogged(ctx, logged)
	e.mu.Lock()
	return protocol.FinishReply{Counted: o.counted}, err
}

// failedBytesMax bounds what is kept of a worker's words for a failure.
const failedBytesMax = 4 << 10

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func checkFinish(req *protocol.FinishRequest) error {
	switch {
	case req.Failed == "" && req.Reward == nil:
		return protocol.Refuse(protocol.CodeInvalid, "reward is missing or null: want a finite number, or failed for a rollout that came to none").With("field", "reward")
	case req.Reward != nil && !finite(float64(*req.Reward)):
		return protocol.Refuse(protocol.CodeInvalid, "reward is %g: want a finite number", *req.Reward)
	case req.Reason != "" && req.Failed == "":
		return protocol.Refuse(protocol.CodeInvalid, "reason is %q without failed: say in failed what happened, or leave both out", req.Reason)
	case req.Class != "" && req.Failed == "":
		return protocol.Refuse(protocol.CodeInvalid, "class is %.40q without failed: say in failed what happened, or leave both out", req.Class)
	case protocol.CheckClass(req.Class) != nil:
		return protocol.Refuse(protocol.CodeInvalid, "class is %.40q: %v", req.Class, protocol.CheckClass(req.Class))
	case !slices.Contains([]string{"", protocol.ReasonEnvironment, protocol.ReasonTimeout, protocol.ReasonData}, req.Reason):
		return protocol.Refuse(protocol.CodeInvalid, "reason is %.40q: want %s, %s or %s", req.Reason, protocol.ReasonEnvironment, protocol.ReasonTimeout, protocol.ReasonData)
	case len(req.Tokens) == 0 && len(req.LossMask)+len(req.Logprobs)+len(req.Versions) > 0:
		return protocol.Refuse(protocol.CodeInvalid, "loss_mask, logprobs or versions stand without tokens: want one entry a token in each")
	}
	return nil
}

// accept takes a worker's reward, or its failure, and lets Play return.
func (e *Dispatcher) accept(s *session, req *protocol.FinishRequest) error {
	if req.Failed != "" {
		s.err = fmt.Errorf("env/remote: worker %s failed %s: %w", s.worker, s.id, failure(req))
		s.answer = answerOf(req)
		e.fail(s, outcome{kind: outcomeFinished})
		return nil
	}
	r := s.record
	switch {
	case s.sampling() && len(r.turns) > 0:
		return protocol.Refuse(protocol.CodeConflict, "a turn of %s is still being sampled: wait for its answer before finish", s.id)
	case len(req.Tokens) > 0 && !r.empty():
		return protocol.Refuse(protocol.CodeInvalid, "tokens: %s was sampled here, and its recorded tokens are trained on: send no tokens", s.id)
	case len(req.Tokens) > 0:
		var err error
		if r, err = e.recordOf(req); err != nil {
			return err
		}
	case r.empty():
		return protocol.Refuse(protocol.CodeInvalid, "nothing was sampled for %s, so it can have no reward. Sample first (an agent under /v1, a worker by sample), or send tokens with loss_mask, logprobs and versions. A rollout that cannot be played ends by failed, with reason %s, %s or %s", s.id, protocol.ReasonEnvironment, protocol.ReasonTimeout, protocol.ReasonData)
	}
	if err := r.checkTrained(s.id); err != nil {
		return err
	}
	s.dropAll()
	e.release(s)
	s.state, s.answer = stateAccepted, answerOf(req)
	s.sample = r.sample()
	s.sample.ID, s.sample.Reward, s.sample.Exact = s.task.ID, *req.Reward, req.Exact
	s.sample.Prompt, s.sample.Response, s.sample.Answer = req.PromptText, req.ResponseText, req.AnswerText
	s.pending += int64(len(req.Tokens))*tokenBytes + int64(len(req.PromptText)+len(req.ResponseText)+len(req.AnswerText))
	e.count(s)
	s.signal()
	return nil
}

// failure is a worker's failure as the runtime tells failures apart.
func failure(req *protocol.FinishRequest) error {
	text := req.Failed
	if req.Class != "" && !strings.HasPrefix(text, req.Class+":") {
		text = req.Class + ": " + text
	}
	switch req.Reason {
	case protocol.ReasonTimeout:
		return timeout(text)
	case protocol.ReasonData:
		return fmt.Errorf("%w: %s", port.ErrData, text)
	}
	return errors.New(text)
}
