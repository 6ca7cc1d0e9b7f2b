package jetstream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

// place is where a sample's payload is.
type place struct {
	sample, attempt int32
	epoch           uint64
	sum             uint32 // checksum
	offset, size    int    // within its messages, put together
	seqs            []uint64
	body            []byte // the payload itself, as long as there is room for it; else nil
}

// payloads is the index of the payload stream, and what in it is no longer needed.
type payloads struct {
	store  *Store
	mutex  sync.Mutex
	groups map[loop.GroupID][]place
	room   ledger
	before takeovers // by earlier writers
	wake   chan struct{}
	// flying counts messages that have been sent and not answered.
	flying int
	// cached are the bytes of all bodies in the index.
	cached int64
	batch  batch
	// reclaiming is held by whoever removes messages.
	reclaiming sync.Mutex
	blobs      blobs
	// cells has the newest process of each cell of which a payload was referred, and awaits the messages that cells may still refer to,
	// by their headerCell.
	cells  map[string]int64
	awaits map[uint64]string
	last   uint64 // message that the stream is known to have had
}

func (p *payloads) init(s *Store) {
	p.store, p.groups, p.wake = s, map[loop.GroupID][]place{}, make(chan struct{}, 1)
	p.batch.wake = make(chan struct{}, 1)
	p.blobs.groups, p.blobs.slots = map[loop.GroupID][]*blob{}, make(chan struct{}, blobPuts)
}

func (p *payloads) used() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.room.live + p.room.garbage
}

// index makes a payload the one of its sample, in place of an earlier one.
func (p *payloads) index(group loop.GroupID, at place) {
	places := p.groups[group]
	for i, other := range places {
		if other.sample != at.sample {
			continue
		}
		if newer(at, other) {
			places[i], at = at, other
		}
		p.drop(at)
		return
	}
	p.groups[group] = append(places, at)
}

// remember keeps a payload in memory if there is room: what is put is mostly read soon.
func (p *payloads) remember(at *place, body []byte) {
	if n := int64(cap(body)); p.cached+n <= p.store.options.CacheBytes {
		at.body = body
		p.cached += n
	}
}

// newer says which of two payloads of a sample is the later attempt's, and of one attempt which was put later. Of two writers
// it is the one with the higher epoch: what a deposed one still puts replaces nothing. Cells put theirs in any order.
func newer(a, b place) bool {
	return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.seqs[len(a.seqs)-1], b.seqs[len(b.seqs)-1])) > 0
}

// drop says that the messages of a payload are no longer needed.
func (p *payloads) drop(at place) {
	for _, seq := range at.seqs {
		p.room.forget(seq)
	}
	p.cached -= int64(cap(at.body))
	if p.room.due() || p.tight() {
		poke(p.wake)
	}
}

// Samples returns the payloads of a group, in the order of their sample numbers: of each
// sample the last attempt that was put.
func (s *Store) Samples(group loop.GroupID) ([]port.Sample, error) {
	if _, err := s.writer(); err != nil {
		return nil, err
	}
	p := &s.payloads
	p.mutex.Lock()
	places := slices.Clone(p.groups[group])
	p.mutex.Unlock()
	if len(places) == 0 {
		return nil, fmt.Errorf("store: group %d has no payloads in %s", group, s.options.Run)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.sample, b.sample) })
	bodies, err := s.fetch(places)
	samples := make([]port.Sample, len(places))
	if err == nil {
		err = decode(bodies, samples)
	}
	if err != nil {
		return nil, fmt.Errorf("store: payloads of group %d: %w", group, err)
	}
	return samples, nil
}

// decode reads all bodies, large ones at the same time.
func decode(bodies [][]byte, samples []port.Sample) error {
	errs := make([]error, len(bodies))
	var wait sync.WaitGroup
	for i, body := range bodies {
		if one := func() { samples[i], errs[i] = payload.Decode(body) }; len(body) > smallBytes && i < len(bodies)-1 {
			wait.Go(one)
		} else {
			one()
		}
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Discard drops the blobs of one attempt, and its payload if that is the one kept of its sample.
func (s *Store) Discard(id port.RolloutID) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	s.payloads.discard(id.Group, func(other port.RolloutID) bool { return other == id })
	s.payloads.dropBlobs(id.Group, func(b *blob) bool { return b.id == id })
	return nil
}

// Forget says that a group's payloads and blobs are no longer needed. Unknown groups are no error.
func (s *Store) Forget(group loop.GroupID) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	s.payloads.discard(group, func(port.RolloutID) bool { return true })
	s.payloads.dropBlobs(group, func(*blob) bool { return true })
	s.forgetCells(group)
	return nil
}

// Retain forgets, after a restart and before anything else is put, every payload of an attempt that
// does not count. It returns how many those were. Of blobs it keeps those of attempts whose payload it keeps.
func (s *Store) Retain(counts func(port.RolloutID) bool) (int, error) {
	if _, err := s.writer(); err != nil {
		return 0, err
	}
	p := &s.payloads
	p.mutex.Lock()
	groups := slices.Collect(maps.Keys(p.groups))
	p.mutex.Unlock()
	dropped := 0
	for _, g := range groups {
		dropped += p.discard(g, func(id port.RolloutID) bool { return !counts(id) })
	}
	p.retainBlobs(counts)
	s.retainCells(counts)
	return dropped, nil
}

// discard takes a group's payloads that are unwanted out of the index.
func (p *payloads) discard(group loop.GroupID, unwanted func(port.RolloutID) bool) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	places := p.groups[group]
	var kept []place
	for _, at := range places {
		if unwanted(port.RolloutID{Group: group, Sample: at.sample, Attempt: at.attempt}) {
			p.drop(at)
		} else {
			kept = append(kept, at)
		}
	}
	dropped := len(places) - len(kept)
	switch {
	case len(kept) == 0:
		delete(p.groups, group)
	case dropped > 0:
		p.groups[group] = kept
	}
	return dropped
}
