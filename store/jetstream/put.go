package jetstream

import (
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

const (
	// publishPendingMax bounds the messages that are on their way to the server.
	publishPendingMax = 4096
	// messageOverhead is about what the server stores around a message.
	messageOverhead = 160
	// smallBytes is up to what size payloads that wait at the same time share a message, so
	// that one write, or one wait for the disk, serves them all: at most batchBytes and
	// batchPayloads. Room is freed by whole messages, which is why they are not larger.
	smallBytes, batchBytes, batchPayloads = 32 << 10, 256 << 10, 64
	// itemBytes is the most that such a message's header says of a payload.
	itemBytes = 80
	// committers is how many such messages are on their way at once.
	committers = 2
)

// put is a payload on its way.
type put struct {
	id   port.RolloutID
	body []byte
	sum  uint32
	room int64 // what was reserved for it
	done chan error
}

// batch are the small payloads that wait to be sent.
type batch struct {
	mutex   sync.Mutex
	waiting []*put
	closed  bool
	wake    chan struct{}
}

// PutSample makes a rollout's payload durable. A payload over PayloadBytesMax, or over the
// disk, is an error that wraps port.ErrNoSpace; it may be tried again when groups have
// been forgotten.
func (s *Store) PutSample(sample port.Sample) error {
	n := len(sample.Tokens)
	if n != len(sample.LossMask) || n != len(sample.Logprobs) || n != len(sample.Versions) {
		return fmt.Errorf("store: g%d/%d: %d tokens with %d mask, %d log-prob and %d version entries, want as many of each",
			sample.ID.Group, sample.ID.Sample, n, len(sample.LossMask), len(sample.Logprobs), len(sample.Versions))
	}
	w, err := s.writer()
	if err != nil {
		return err
	}
	about := 10*n + len(sample.Prompt) + len(sample.Response) + len(sample.Answer) + 64
	body := payload.Append(make([]byte, 0, about), &sample)
	p := &s.payloads
	x := &put{id: sample.ID, body: body, sum: crc32.Checksum(body, castagnoli), done: make(chan error, 1)}
	x.room = int64(len(body) + max(1, (len(body)+s.chunkBytes()-1)/s.chunkBytes())*messageOverhead)
	if err := p.admit(x, s.options.PayloadBytesMax); err != nil {
		return err
	}
	if len(body) > min(smallBytes, s.chunkBytes()) {
		return p.commitLarge(w, x)
	}
	if !p.batch.add(x) {
		p.release(x)
		return ErrClosed
	}
	return <-x.done
}

// admit reserves room for a payload or blob, of most bytes for all, after making some where there is none.
func (p *payloads) admit(x *put, most int64) error {
	if err := p.store.disk.room(int(x.room)); err != nil {
		return err
	}
	for tried := false; ; tried = true {
		p.mutex.Lock()
		used := p.room.used()
		fits, garbage := used+x.room <= most, p.room.garbage
		if fits {
			p.room.reserved += x.room
		}
		p.mutex.Unlock()
		if fits {
			return nil
		}
		if garbage == 0 || tried {
			return fmt.Errorf("store: %w: g%d/%d takes %d bytes, and payloads take %d of at most %d: raise store.nats.payload_bytes_max or shrink the queue",
				port.ErrNoSpace, x.id.Group, x.id.Sample, x.room, used, most)
		}
		p.reclaim(p.store.ctx, true)
	}
}

// release gives back what admit reserved.
func (p *payloads) release(x *put) {
	p.mutex.Lock()
	p.room.reserved -= x.room
	p.mutex.Unlock()
}

// add has a payload wait for the next message; it reports whether there will be one.
func (b *batch) add(x *put) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, x)
	poke(b.wake)
	return true
}

// next takes what goes into one message, nothing if nobody waits.
func (b *batch) next(limit int) []*put {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	n, size := 0, 0
	for n < len(b.waiting) && n < batchPayloads && (n == 0 || size+len(b.waiting[n].body) <= limit) {
		size += len(b.waiting[n].body)
		n++
	}
	out := append([]*put(nil), b.waiting[:n]...)
	clear(b.waiting[:n])
	b.waiting = append(b.waiting[:0], b.waiting[n:]...)
	if len(b.waiting) > 0 {
		poke(b.wake)
	}
	return out
}

// commitSmall sends small payloads together until the store is closed.
func (p *payloads) commitSmall(w *lease) {
	defer p.store.wait.Done()
	whole := p.store.chunkBytes()
	limit := min(batchBytes, max(whole-batchPayloads*itemBytes, whole/2))
	for {
		select {
		case <-p.batch.wake:
		case <-p.store.ctx.Done():
			p.batch.mutex.Lock()
			p.batch.closed = true
			p.batch.mutex.Unlock()
			for _, x := range p.batch.next(1 << 30) {
				p.release(x)
				x.done <- ErrClosed
			}
			p.batch.mutex.Lock()
			rest := len(p.batch.waiting)
			p.batch.mutex.Unlock()
			if rest == 0 {
				return
			}
			poke(p.batch.wake)
			continue
		}
		if puts := p.batch.next(limit); len(puts) > 0 {
			err := p.commitTogether(w, puts)
			for _, x := range puts {
				x.done <- err
			}
		}
	}
}

// commitTogether stores payloads in one message.
func (p *payloads) commitTogether(w *lease, puts []*put) error {
	c := contents{epoch: w.epoch, chunks: 1, items: make([]item, len(puts))}
	m := nats.NewMsg(p.store.names.dataSubject)
	size := 0
	for _, x := range puts {
		size += len(x.body)
	}
	m.Data = make([]byte, 0, size)
	for i, x := range puts {
		c.items[i] = item{id: x.id, offset: len(m.Data), size: len(x.body), sum: x.sum}
		m.Data = append(m.Data, x.body...)
	}
	m.Header[headerPayload] = []string{c.String()}
	seqs := make([]uint64, 1)
	return p.commit(w, puts, []*nats.Msg{m}, seqs, c)
}

// commitLarge stores one payload in as many messages as it needs.
func (p *payloads) commitLarge(w *lease, x *put) error {
	limit := p.store.chunkBytes()
	c := contents{epoch: w.epoch, chunks: max(1, (len(x.body)+limit-1)/limit), items: []item{{id: x.id, size: len(x.body), sum: x.sum}}}
	messages := make([]*nats.Msg, c.chunks)
	for i := range messages {
		m := nats.NewMsg(p.store.names.dataSubject)
		c.chunk = i
		m.Header[headerPayload] = []string{c.String()}
		m.Data = x.body[i*limit : min((i+1)*limit, len(x.body))]
		messages[i] = m
	}
	return p.commit(w, []*put{x}, messages, make([]uint64, c.chunks), c)
}

// commit sends the messages that hold payloads, and indexes these when they are stored.
func (p *payloads) commit(w *lease, puts []*put, messages []*nats.Msg, seqs []uint64, c contents) error {
	p.mutex.Lock()
	p.flying += len(messages)
	p.mutex.Unlock()
	err := p.send(w, messages, seqs)
	needs := len(puts)
	if err != nil {
		needs = 0
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.flying -= len(messages)
	for i, seq := range seqs {
		if seq != 0 {
			p.room.note(seq, stored(messages[i].Header.Get(headerPayload), len(messages[i].Data)), needs)
		}
	}
	for i, x := range puts {
		p.room.reserved -= x.room
		if err == nil {
			at := place{sample: x.id.Sample, attempt: x.id.Attempt, epoch: c.epoch, sum: x.sum, offset: c.items[i].offset, size: len(x.body), seqs: seqs}
			p.remember(&at, x.body)
			p.index(x.id.Group, at)
			p.drops(x.id.Group, func(b *blob) bool { return b.id.Sample == x.id.Sample && b.id.Attempt < x.id.Attempt })
		}
	}
	return err
}

// stored is about what a message takes in the stream.
func stored(header string, size int) int { return len(header) + size + messageOverhead }

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
			ack, err := p.answer(f)
			if err != nil {
				failed = err
				continue
			}
			seqs[i] = ack.Sequence
		}
		lost := p.store.gone(p.store.ctx, p.store.names.dataSubject, failed)
		switch {
		case failed == nil:
			return nil
		case noSpace(failed):
			poke(p.wake)
			return fmt.Errorf("store: %w: payloads: %w", port.ErrNoSpace, failed)
		case !transient(failed):
			return fmt.Errorf("store: payloads take no more: %w", failed)
		case lost != nil:
			return fmt.Errorf("store: payloads take no more, because NATS has lost their stream %s: %w", p.store.names.data, lost)
		case w.fenced.Load():
			return ErrFenced
		}
		// What was sent and not answered is nobody's, should it have been stored after all.
		if err := p.store.disk.refusal(); err != nil {
			return err
		}
		if !p.store.pause(p.store.ctx, retryWait) {
			return ErrClosed
		}
	}
}

// answer waits for the server's answer. What is never answered, because the server is gone,
// is sent again: the index knows one of the two, and the other is found and removed.
func (p *payloads) answer(f jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	timer := time.NewTimer(apiTimeout)
	defer timer.Stop()
	select {
	case ack := <-f.Ok():
		return ack, nil
	case err := <-f.Err():
		return nil, err
	case <-timer.C:
		return nil, nats.ErrTimeout
	case <-p.store.disk.failing():
		return nil, nats.ErrTimeout
	case <-p.store.ctx.Done():
		return nil, nats.ErrTimeout
	}
}
