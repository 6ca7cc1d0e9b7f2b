package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// kept is what is kept of a rollout at a time: that a worker has claimed it, or a turn, with the note of a player here. Or it is that
// a player plays it again. Seen is a turn with media. A release that keeps none takes it for no turn: it would leave them out.
type kept struct {
	Worker string          `json:"worker,omitempty"`
	Turn   *keptTurn       `json:"turn,omitempty"`
	Seen   *keptTurn       `json:"seen,omitempty"`
	Note   json.RawMessage `json:"note,omitempty"`
	Again  bool            `json:"again,omitempty"`
}

// keptTurn is a turn that has ended. Number is that of a worker's call, -1 for an agent's. Branch is the place of the
// sequence that it goes on with, Added is what its prompt adds to that. So does Media, whose bytes are those of an earlier turn where
// it has none.
type keptTurn struct {
	Number    int             `json:"number"`
	Agent     port.Agent      `json:"agent"`
	Branch    int             `json:"branch"`
	Added     []int32         `json:"added"`
	Media     []media.Item    `json:"media,omitempty"`
	MaxTokens int             `json:"max_tokens"`
	Response  port.Generation `json:"response"`
}

// keepClaims makes claims durable before their worker is told of them. One that cannot be kept may be given out once nothing is
// kept of its rollout, which ends with this process then. With an error none may be. No claim runs out meanwhile. e.mu must be
// held, and is.
func (e *Dispatcher) keepClaims(got []*session) error {
	if e.opt.Turns == nil {
		return nil
	}
	errs := make([]error, len(got))
	var wg sync.WaitGroup
	for i, s := range got {
		e.open(s)
		if e.plays(s.worker) { // which ends with the process
			continue
		}
		if number, keeps := s.nextKept(); keeps {
			data, _ := json.Marshal(kept{Worker: s.worker})
			wg.Go(func() {
				if e.opt.Turns.KeepTurn(s.task.ID, number, data) == nil {
					return
				}
				if errs[i] = e.opt.Turns.UnkeepTurns(s.task.ID); errs[i] == nil { // it may be there all the same
					e.unkeep(s)
				}
			})
		}
	}
	e.mu.Unlock()
	wg.Wait()
	e.mu.Lock()
	for _, s := range got {
		e.leave(s)
	}
	return errors.Join(errs...)
}

// nextKept is the number of what is kept next of a rollout; keeps is false where nothing more is. e.mu must be held.
func (s *session) nextKept() (number int32, keeps bool) {
	if s.unkept || s.task.ID.Group < 0 { // an evaluation begins anew
		return 0, false
	}
	s.kept++
	return s.kept - 1, true
}

// keepTurn makes a response durable before anybody is told of its end. From then on it is recorded, even if nobody waits for
// it any more. One that cannot be kept is told once nothing is kept of its rollout. Where the store takes nothing more, another
// process goes on with the rollout, perhaps without the response: then nobody is told, and the error comes once this process
// ends.
func (e *Dispatcher) keepTurn(ctx context.Context, s *session, t *turn, g *port.Generation) (err error) {
	number, k, keeps := e.turnToKeep(s, t, g)
	if !keeps {
		return nil
	}
	data, unsaid := json.Marshal(k)
	if unsaid == nil {
		err = e.opt.Turns.KeepTurn(s.task.ID, number, data)
	}
	if unsaid != nil || errors.Is(err, port.ErrNoSpace) {
		err = e.opt.Turns.UnkeepTurns(s.task.ID)
		e.unkeep(s)
	}
	if err == nil {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-s.done:
	}
	return err
}

// unkeep has nothing more be kept of a rollout.
func (e *Dispatcher) unkeep(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.unkept = true
}

// turnToKeep is a turn as it is to be kept, with its number. Keeps is false where nothing is kept.
func (e *Dispatcher) turnToKeep(s *session, t *turn, g *port.Generation) (number int32, k kept, keeps bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opt.Turns == nil || s.state != stateClaimed || t.isDropped() {
		return 0, k, false
	}
	if number, t.keeps = s.nextKept(); !t.keeps {
		return 0, k, false
	}
	b, place := s.record.goesOn(t.agent, t.prompt, t.media)
	response := *g
	response.Resumes = append(slices.Clone(s.record.carried), g.Resumes...)
	added := s.record.withoutKnown(t.media[len(b.media):])
	k = kept{Turn: &keptTurn{t.number, t.agent, place, t.prompt[len(b.tokens):], added, t.maxTokens, response}, Note: s.note}
	if len(t.media) > 0 {
		k.Turn, k.Seen = nil, k.Turn
	}
	s.note = nil
	return number, k, true
}

// Restoring implements port.Restorer: calls for the rollout wait until Restore has its worker and its turns.
func (e *Dispatcher) Restoring(task port.RolloutRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := newSession(task)
	s.state, s.restored = stateRestoring, make(chan struct{})
	e.sessions[s.id], e.latest[keyOf(task.ID)], e.started[task.ID] = s, s, s
	e.restoring.begin()
}

// Restore implements port.Restorer.
func (e *Dispatcher) Restore(task port.RolloutRequest) (p port.Progress) {
	entries, err := e.restoring.read(e.opt.Turns, task.ID)
	defer e.restoring.end()
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
	switch {
	case err != nil:
		err = fmt.Errorf("its turns cannot be read: %w", err)
	case s.worker == "" && (e.opt.Player == "" || len(s.untold) == 0):
		err = errors.New("no claim is among its turns")
	case e.plays(s.worker):
		err = errors.New("a release that notes nothing played it")
	case s.agains >= againsMax:
		err = fmt.Errorf("it was played again %d times, and came no further", s.agains)
	}
	if err != nil {
		s.worker = ""
		e.forsake(s, err)
		return p
	}
	if s.kept = int32(len(entries)); s.worker == "" {
		e.offerSession(s)
	} else {
		e.workers.enter(s.worker, e.opt.Clock())
		e.workers.leave(s.worker, e.opt.Clock())
		e.grant(s, s.worker)
	}
	e.count(s)
	for _, b := range s.record.branches {
		for _, m := range b.mask {
			p.Sampled += int(m)
		}
		for i := range b.channels {
			for _, part := range b.channels[i].Parts {
				p.Blobs = max(p.Blobs, part.Blob+1)
			}
		}
	}
	p.Turns = s.record.others + len(s.record.turns)
	return p
}

// take takes what was kept of a rollout, in its order. Of a worker's, the last turn may be asked for again; of a player's, which
// keeps no claim, all are.
func (s *session) take(k kept) error {
	switch {
	case k.Again:
		s.agains++
		return nil
	case k.Turn == nil:
		s.worker = k.Worker
		return nil
	case len(k.Note) > 0: // a player's, whoever was given the rollout before
		s.worker = ""
	}
	s.agains = 0
	x, r := k.Turn, &s.record
	if x.Branch < 0 || x.Branch > len(r.branches) {
		return fmt.Errorf("a turn goes on with sequence %d of %d", x.Branch, len(r.branches))
	}
	var before branch
	if x.Branch < len(r.branches) {
		before = *r.branches[x.Branch]
	}
	t := newTurn(x.Number, append(slices.Clone(before.tokens), x.Added...), x.MaxTokens, nil)
	t.agent, t.media = x.Agent, append(slices.Clone(before.media), x.Media...)
	if err := r.withBytes(t.media); err != nil {
		return err
	}
	if err := media.Check(t.media, len(t.prompt)); err != nil {
		return err
	}
	if _, place := r.goesOn(t.agent, t.prompt, t.media); place != x.Branch {
		return fmt.Errorf("a turn goes on with sequence %d, and was kept as one of sequence %d", place, x.Branch)
	}
	if g := &x.Response; len(g.Tokens) != len(g.Logprobs) || len(g.Tokens) != len(g.Versions) {
		return fmt.Errorf("a turn has %d tokens, %d log-probs and %d versions", len(g.Tokens), len(g.Logprobs), len(g.Versions))
	}
	r.sampled(t, &x.Response)
	close(t.done)
	switch {
	case s.worker == "":
		s.untold, s.notes = append(s.untold, t), append(s.notes, k.Note)
	case t.numbered():
		r.turns, s.untold = append(r.turns, t), nil
	default:
		s.untold = []*turn{t}
	}
	return nil
}

// answers answers a turn by one that was recorded and whose end nobody may have been told, if it asks for the same. Such a
// call is a repeated one.
func (s *session) answers(t *turn) bool {
	if len(s.untold) == 0 {
		return false
	}
	u := s.untold[0]
	s.untold = s.untold[1:]
	if t.numbered() || u.agent != t.agent || u.maxTokens != t.maxTokens || !u.branch.begins(u.first, t) {
		s.untold = nil
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
