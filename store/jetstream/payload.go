package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/payload"
)

const (
	// publishPendingMax bounds the messages that are on their way to the server.
	publishPendingMax = 4096
	// fetchBytes and fetchMessages are what one Samples call asks for at a time. Many
	// large messages at once would fill the server's buffer for this connection.
	fetchBytes, fetchMessages = 4 << 20, 32
	// headerPayload says of a payload's message what it is: see payloadPlace.
	headerPayload = "Headway-Payload"
	// headerSize is what the server puts in place of a body that was not asked for.
	headerSize = "Nats-Msg-Size"
	// messageOverhead is about what the server stores around a message of payloads.
	messageOverhead = 160
)

// payloadPlace is what headerPayload says, as numbers between spaces.
type payloadPlace struct {
	id            live.RolloutID
	epoch         uint64
	chunk, chunks int
	sum           uint32 // of the whole payload
}

func (p payloadPlace) String() string {
	return fmt.Sprintf("%d %d %d %d %d %d %d", p.id.Group, p.id.Sample, p.id.Attempt, p.epoch, p.chunk, p.chunks, p.sum)
}

func parsePlace(text string) (payloadPlace, error) {
	var p payloadPlace
	_, err := fmt.Sscanf(text, "%d %d %d %d %d %d %d", &p.id.Group, &p.id.Sample, &p.id.Attempt, &p.epoch, &p.chunk, &p.chunks, &p.sum)
	if err == nil && (p.chunks < 1 || p.chunk < 0 || p.chunk >= p.chunks) {
		err = errors.New("no such chunk")
	}
	if err != nil {
		return p, fmt.Errorf("a payload's header %q: %w", text, err)
	}
	return p, nil
}

// place is where a sample's payload is.
type place struct {
	sample, attempt int32
	epoch           uint64
	sum             uint32
	size            int
	seqs            []uint64 // one a chunk
}

// payloads is the index of the payload stream, and what in it is no longer needed.
type payloads struct {
	store  *Store
	mutex  sync.Mutex
	err    error // final
	groups map[loop.GroupID][]place
	room   ledger
	wake   chan struct{}
	// flying counts messages that have been sent and not answered.
	flying int
	buffer sync.Pool
	// reclaiming is held by whoever removes messages.
	reclaiming sync.Mutex
}

func (p *payloads) init(s *Store) {
	p.store, p.groups, p.wake = s, map[loop.GroupID][]place{}, make(chan struct{}, 1)
	p.buffer.New = func() any { return new([]byte) }
}

func (p *payloads) used() int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.room.live + p.room.garbage
}

// PutSample makes a rollout's payload durable. A payload over PayloadBytesMax, or over the
// disk, is an error that wraps live.ErrNoSpace; it may be tried again when groups have
// been forgotten.
func (s *Store) PutSample(sample live.Sample) error {
	if len(sample.Tokens) != len(sample.LossMask) || len(sample.Tokens) != len(sample.Logprobs) || len(sample.Tokens) != len(sample.Versions) {
		return fmt.Errorf("store: g%d/%d: %d tokens with %d mask, %d log-prob and %d version entries, want as many of each",
			sample.ID.Group, sample.ID.Sample, len(sample.Tokens), len(sample.LossMask), len(sample.Logprobs), len(sample.Versions))
	}
	w, err := s.writer()
	if err != nil {
		return err
	}
	p := &s.payloads
	buf := p.buffer.Get().(*[]byte)
	defer p.buffer.Put(buf)
	*buf = payload.Append((*buf)[:0], &sample)
	return p.put(w, sample.ID, *buf)
}

// put stores a body in as many messages as it needs, and indexes it.
func (p *payloads) put(w *lease, id live.RolloutID, body []byte) error {
	limit := p.store.chunkBytes()
	chunks := max(1, (len(body)+limit-1)/limit)
	total := int64(len(body) + chunks*messageOverhead)
	if err := p.admit(id, total, chunks); err != nil {
		return err
	}
	at := place{sample: id.Sample, attempt: id.Attempt, epoch: w.epoch, size: len(body), sum: crc32.Checksum(body, castagnoli), seqs: make([]uint64, chunks)}
	messages := make([]*nats.Msg, chunks)
	for i := range messages {
		m := nats.NewMsg(p.store.names.dataSubject)
		m.Header[headerPayload] = []string{payloadPlace{id, w.epoch, i, chunks, at.sum}.String()}
		m.Data = body[i*limit : min((i+1)*limit, len(body))]
		messages[i] = m
	}
	err := p.send(w, messages, at.seqs)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.flying -= chunks
	p.room.reserved -= total
	for i, seq := range at.seqs {
		if seq != 0 {
			p.room.note(seq, len(messages[i].Data)+messageOverhead, err == nil)
		}
	}
	if err != nil {
		return err
	}
	if p.err != nil {
		return p.err
	}
	p.index(id.Group, at)
	return nil
}

// admit reserves room for a payload, after making some where there is none.
func (p *payloads) admit(id live.RolloutID, total int64, chunks int) error {
	if err := p.store.disk.room(int(total)); err != nil {
		return err
	}
	for tried := false; ; tried = true {
		p.mutex.Lock()
		if p.err != nil {
			defer p.mutex.Unlock()
			return p.err
		}
		most := p.store.options.PayloadBytesMax
		if used := p.room.used(); used+total <= most {
			p.room.reserved += total
			p.flying += chunks
			p.mutex.Unlock()
			return nil
		} else if p.room.garbage == 0 || tried {
			p.mutex.Unlock()
			return fmt.Errorf("store: %w: g%d/%d takes %d bytes, and payloads take %d of at most %d: the groups in flight and queued do not fit; raise store.nats.payload_bytes_max or shrink the queue",
				live.ErrNoSpace, id.Group, id.Sample, total, used, most)
		}
		p.mutex.Unlock()
		p.reclaim(p.store.ctx, true)
	}
}

// send publishes messages at once and waits until all are stored. seqs[i] is 0 where
// that is not known.
func (p *payloads) send(w *lease, messages []*nats.Msg, seqs []uint64) error {
	futures := make([]jetstream.PubAckFuture, len(messages))
	for {
		var failed error
		for i, m := range messages {
			futures[i] = nil
			if seqs[i] == 0 {
				var err error
				if futures[i], err = p.store.putJS.PublishMsgAsync(m); err != nil {
					failed = err
				}
			}
		}
		for i, f := range futures {
			if f == nil {
				continue
			}
			ack, err := waitFor(p.store.ctx, f)
			if err != nil {
				failed = err
				continue
			}
			seqs[i] = ack.Sequence
		}
		switch {
		case failed == nil:
			return nil
		case noSpace(failed):
			p.poke()
			return fmt.Errorf("store: %w: payloads: %w", live.ErrNoSpace, failed)
		case !transient(failed):
			return fmt.Errorf("store: payloads take no more: %w", failed)
		case w.fenced.Load():
			return ErrFenced
		}
		if !p.store.pause(p.store.ctx, retryWait) {
			return ErrClosed
		}
	}
}

// waitFor waits for the server's answer. What is never answered, because the server is
// gone, is sent again: the index knows one of the two, and the other is found and removed.
func waitFor(ctx context.Context, f jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	try, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	select {
	case ack := <-f.Ok():
		return ack, nil
	case err := <-f.Err():
		return nil, err
	case <-try.Done():
		return nil, try.Err()
	}
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

// newer says which of two payloads of a sample was put later. Of two writers it is the one
// with the higher epoch: what a deposed one still puts replaces nothing.
func newer(a, b place) bool {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.seqs[len(a.seqs)-1], b.seqs[len(b.seqs)-1])) > 0
}

// drop says that the messages of a payload are no longer needed.
func (p *payloads) drop(at place) {
	for _, seq := range at.seqs {
		p.room.forget(seq)
	}
	if p.room.due() {
		p.poke()
	}
}

// poke has the reclaimer look.
func (p *payloads) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Samples returns the payloads of a group, in the order of their sample numbers: of each
// sample the last attempt that was put.
func (s *Store) Samples(group loop.GroupID) ([]live.Sample, error) {
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
	samples := make([]live.Sample, len(places))
	err := s.fetch(places, func(i int, body []byte) (err error) {
		if crc32.Checksum(body, castagnoli) != places[i].sum {
			return errDamaged
		}
		samples[i], err = payload.Decode(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: payloads of group %d: %w", group, err)
	}
	return samples, nil
}

// Discard drops the payload of one attempt, if that is the one kept of its sample.
func (s *Store) Discard(id live.RolloutID) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	s.payloads.discard(id.Group, func(other live.RolloutID) bool { return other == id })
	return nil
}

// Forget says that a group's payloads are no longer needed. Unknown groups are no error.
func (s *Store) Forget(group loop.GroupID) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	s.payloads.discard(group, func(live.RolloutID) bool { return true })
	return nil
}

// Retain forgets, after a restart and before anything else is put, every payload of an
// attempt that does not count, and returns how many those were.
func (s *Store) Retain(counts func(live.RolloutID) bool) (int, error) {
	if _, err := s.writer(); err != nil {
		return 0, err
	}
	p := &s.payloads
	p.mutex.Lock()
	groups := make([]loop.GroupID, 0, len(p.groups))
	for g := range p.groups {
		groups = append(groups, g)
	}
	p.mutex.Unlock()
	dropped := 0
	for _, g := range groups {
		dropped += p.discard(g, func(id live.RolloutID) bool { return !counts(id) })
	}
	return dropped, nil
}

// discard takes a group's payloads that are unwanted out of the index.
func (p *payloads) discard(group loop.GroupID, unwanted func(live.RolloutID) bool) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	places := p.groups[group]
	var kept []place
	for _, at := range places {
		if unwanted(live.RolloutID{Group: group, Sample: at.sample, Attempt: at.attempt}) {
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
