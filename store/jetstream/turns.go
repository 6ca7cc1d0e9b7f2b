package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Turns of an attempt are blobs of it with numbers below 0.

// turnOf is the number of the blob that holds a turn, and the other way round.
func turnOf(number int32) int32 { return -1 - number }

// KeepTurn implements port.Turns. It finds room and fails as PutBlob does. It returns while the writer's lease holds: a
// successor has then not yet read which turns there are.
func (s *Store) KeepTurn(id port.RolloutID, number int32, data []byte) error {
	err := s.PutBlob(id, turnOf(number), data)
	if errors.Is(err, port.ErrNoSpace) {
		s.sayNoTurns(err)
	}
	if err != nil {
		return err
	}
	return s.awaitHolding()
}

// awaitHolding returns while the writer's lease holds.
func (s *Store) awaitHolding() error {
	for s.Holding() != nil {
		w, lost := s.writer()
		switch {
		case lost != nil:
			return lost
		case w.fenced.Load():
			return ErrFenced
		case !s.pause(s.ctx, retryWait):
			return ErrClosed
		}
	}
	return nil
}

// sayNoTurns says once that turns find no room.
func (s *Store) sayNoTurns(err error) {
	s.noTurns.Do(func() {
		s.options.Logf("turns of rollouts find no room, and are not kept: a restart has such rollouts tried again, at a turn's cost before (said once): %v", err)
	})
}

// UnkeepTurns implements port.Turns: it removes the first turn, without which there is none.
func (s *Store) UnkeepTurns(id port.RolloutID) error {
	if err := s.awaitHolding(); err != nil { // another writer may go on with them
		return err
	}
	p := &s.payloads
	p.mutex.Lock()
	var seqs []uint64
	if b := p.find(id, turnOf(0)); b != nil {
		seqs = slices.Clone(b.seqs)
	}
	p.mutex.Unlock()
	for _, seq := range seqs {
		if seq > 0 { // else the server lost it
			if err := s.again(s.ctx, func(ctx context.Context) error { return s.deleteMessage(ctx, s.names.data, seq) }); err != nil {
				return fmt.Errorf("store: the turns of %v: %w", id, err)
			}
		}
	}
	s.DropTurns(id)
	return s.awaitHolding()
}

// turns are the blobs of an attempt's turns in their order, up to the first that is missing.
func (p *payloads) turns(id port.RolloutID) []*blob {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.whole(id)
}

// whole is turns for who holds the mutex.
func (p *payloads) whole(id port.RolloutID) (all []*blob) {
	for _, b := range p.blobs.groups[id.Group] {
		if b.id == id && b.ofTurn() && b.missing == 0 {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *blob) int { return int(b.number - a.number) })
	for i, b := range all {
		if turnOf(b.number) != int32(i) {
			return all[:i]
		}
	}
	return all
}

// turnsOf is how many turns each attempt of a group has, up to the first that is missing. p.mutex must be held.
func (p *payloads) turnsOf(group loop.GroupID) map[port.RolloutID]int {
	turns := map[port.RolloutID]int{}
	for _, b := range p.blobs.groups[group] {
		if _, counted := turns[b.id]; b.ofTurn() && !counted {
			turns[b.id] = len(p.whole(b.id))
		}
	}
	return turns
}

// ofTurn reports whether the blob holds a turn.
func (b *blob) ofTurn() bool { return b.number < 0 }

// KeptTurns implements port.Turns.
func (s *Store) KeptTurns(id port.RolloutID) int { return len(s.payloads.turns(id)) }

// KeptBlobs implements port.Turns.
func (s *Store) KeptBlobs(id port.RolloutID) (all []int32) {
	p := &s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, b := range p.blobs.groups[id.Group] {
		if b.id == id && !b.ofTurn() {
			all = append(all, b.number)
		}
	}
	return all
}

// ReadTurns implements port.Turns. The error is that of ReadBlob.
func (s *Store) ReadTurns(id port.RolloutID) (all [][]byte, err error) {
	for _, b := range s.payloads.turns(id) {
		data := make([]byte, b.size)
		if err := s.ReadBlob(id, b.number, 0, data); err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// DropTurns implements port.Turns.
func (s *Store) DropTurns(id port.RolloutID) {
	s.payloads.dropBlobs(id.Group, func(b *blob) bool { return b.id == id && b.ofTurn() })
}

// RetainTurns implements port.Turns. It drops turns behind a missing one too: their numbers are used again. A blob of a cell
// stays, as in retainBlobs.
func (s *Store) RetainTurns(stands func(port.RolloutID) bool) {
	p := &s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for group := range p.blobs.groups {
		turns := p.turnsOf(group)
		maps.DeleteFunc(turns, func(id port.RolloutID, _ int) bool { return !stands(id) })
		p.drops(group, func(b *blob) bool {
			if b.ofTurn() {
				return int(turnOf(b.number)) >= turns[b.id]
			}
			return b.epoch > 0 && turns[b.id] == 0 && !p.keeps(b)
		})
	}
}
