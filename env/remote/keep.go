package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop/port"
)

// kept is what is kept of a rollout at a time: that a worker has claimed it, or a turn.
type kept struct {
	Worker string    `json:"worker,omitempty"`
	Turn   *keptTurn `json:"turn,omitempty"`
}

// keptTurn is a turn that has ended. Number is that of a worker's call, -1 for an agent's. Branch is the place of the
// sequence that it goes on with, Added is what its prompt adds to that.
type keptTurn struct {
	Number    int             `json:"number"`
	Agent     port.Agent      `json:"agent"`
	Branch    int             `json:"branch"`
	Added     []int32         `json:"added"`
	MaxTokens int             `json:"max_tokens"`
	Response  port.Generation `json:"response"`
}

// keepClaims makes claims durable before their worker is told of them. One that cannot be kept is given out all the same, and
// ends with this process. e.mu must be held, and is.
func (e *Dispatcher) keepClaims(got []*session) {
	if e.opt.Turns == nil {
		return
	}
	var wg sync.WaitGroup
	for _, s := range got {
		if number, keeps := s.nextKept(); keeps {
			data, _ := json.Marshal(kept{Worker: s.worker})
			wg.Go(func() { _ = e.keep(s, number, data) })
		}
	}
	e.mu.Unlock()
	wg.Wait()
	e.mu.Lock()
}

// nextKept is the number of what is kept next of a rollout; keeps is false where nothing more is. e.mu must be held.
func (s *session) nextKept() (number int32, keeps bool) {
	if s.unkept || s.task.ID.Group < 0 { // an evaluation begins anew
		return 0, false
	}
	s.kept++
	return s.kept - 1, true
}

// keep makes something durable. Behind what could not be kept nothing is: there would be a gap.
func (e *Dispatcher) keep(s *session, number int32, data []byte) error {
	err := e.opt.Turns.KeepTurn(s.task.ID, number, data)
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.unkept = true
	}
	return err
}

// keepTurn makes a response durable before anybody is told of its end. From then on it is recorded, even if nobody waits for
// it any more. Where the store takes nothing more, another process goes on with the rollout, perhaps without the response:
// then nobody is told, and the error comes once this process ends.
func (e *Dispatcher) keepTurn(ctx context.Context, s *session, t *turn, g *port.Generation) error {
	number, data := e.turnToKeep(s, t, g)
	if data == nil {
		return nil
	}
	err := e.keep(s, number, data)
	if err == nil || errors.Is(err, port.ErrNoSpace) {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-s.done:
	}
	return err
}

// turnToKeep is a turn as it is to be kept, with its number; no data for one that is not kept.
func (e *Dispatcher) turnToKeep(s *session, t *turn, g *port.Generation) (number int32, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opt.Turns == nil || s.state != stateClaimed || t.isDropped() {
		return 0, nil
	}
	number, t.keeps = s.nextKept()
	if !t.keeps {
		return 0, nil
	}
	b, place := s.record.goesOn(t.agent, t.prompt, t.media)
	response := *g
	response.Resumes = append(slices.Clone(s.record.carried), g.Resumes...)
	data, err := json.Marshal(kept{Turn: &keptTurn{t.number, t.agent, place, t.prompt[len(b.tokens):], t.maxTokens, response}})
	if err != nil || len(t.media) > 0 { // media are kept with the payload alone
		s.unkept, t.keeps, data = true, false, nil
	}
	return number, data
}

// Restoring implements port.Restorer: calls for the rollout wait until Restore has its worker and its turns.
func (e *Dispatcher) Restoring(task port.RolloutRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := newSession(task)
	s.state, s.restored = stateRestoring, make(chan struct{})
	e.sessions[s.id], e.latest[keyOf(task.ID)], e.started[task.ID] = s, s, s
}

// Restore implements port.Restorer.
func (e *Dispatcher) Restore(task port.RolloutRequest) (p port.Progress) {
	entries, err := e.opt.Turns.ReadTurns(task.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.started[task.ID]
	defer close(s.restored)
	if s.state == stateEnded {
		return p
	}
	for i := 0; i < len(entries) && err == nil; i++ {
		err = s.take(entries[i])
	}
	if err == nil && s.worker == "" {
		err = errors.New("no claim is among them")
	}
	if err != nil {
		s.worker, s.err = "", fmt.Errorf("env/remote: the turns of %s that were kept: %w", s.id, err)
		e.end(s, outcome{kind: outcomeBroken, reason: "its turns could not be read after a restart"})
		return p
	}
	s.kept = int32(len(entries))
	e.workers.enter(s.worker, e.opt.Clock())
	e.workers.leave(s.worker, e.opt.Clock())
	e.grant(s, s.worker)
	e.count(s)
	for _, b := range s.record.branches {
		for _, m := range b.mask {
			p.Sampled += int(m)
		}
	}
	p.Turns = s.record.others + len(s.record.turns)
	return p
}

// take takes what was kept of a rollout, in its order.
func (s *session) take(data []byte) error {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return err
	}
	if k.Turn == nil {
		s.worker = k.Worker
		return nil
	}
	x, r := k.Turn, &s.record
	if x.Branch < 0 || x.Branch > len(r.branches) {
		return fmt.Errorf("a turn goes on with sequence %d of %d", x.Branch, len(r.branches))
	}
	var prompt []int32
	if x.Branch < len(r.branches) {
		prompt = r.branches[x.Branch].tokens
	}
	t := newTurn(x.Number, append(slices.Clone(prompt), x.Added...), x.MaxTokens, nil)
	t.agent = x.Agent
	if _, place := r.goesOn(t.agent, t.prompt, nil); place != x.Branch {
		return fmt.Errorf("a turn goes on with sequence %d, and was kept as one of sequence %d", place, x.Branch)
	}
	if g := &x.Response; len(g.Tokens) != len(g.Logprobs) || len(g.Tokens) != len(g.Versions) {
		return fmt.Errorf("a turn has %d tokens, %d log-probs and %d versions", len(g.Tokens), len(g.Logprobs), len(g.Versions))
	}
	r.sampled(t, &x.Response)
	close(t.done)
	if s.untold = nil; t.numbered() {
		r.turns = append(r.turns, t)
	} else {
		s.untold = t
	}
	return nil
}

// answers answers a turn by one that was recorded and whose end nobody may have been told, if it asks for the same. Such a
// call is a repeated one.
func (s *session) answers(t *turn) bool {
	u := s.untold
	s.untold = nil
	if u == nil || t.numbered() || u.agent != t.agent || u.maxTokens != t.maxTokens || len(t.media) > 0 || u.end != len(u.branch.tokens) || !slices.Equal(u.branch.tokens[:u.first], t.prompt) {
		return false
	}
	t.branch, t.place, t.first, t.end, t.text, t.finish = u.branch, u.place, u.first, u.end, u.text, u.finish
	close(t.done)
	return true
}

// awaitRestored waits until the rollout of a call is what it was before a restart, where that is under way.
func (e *Dispatcher) awaitRestored(ctx context.Context, id string) error {
	e.mu.Lock()
	s := e.sessions[id]
	e.mu.Unlock()
	if s == nil || s.restored == nil {
		return nil
	}
	select {
	case <-s.restored:
	case <-e.over: // the call is refused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
