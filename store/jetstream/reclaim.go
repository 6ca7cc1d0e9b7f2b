package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// reclaimStep is how many bytes of forgotten payloads a purge waits for.
	reclaimStep = 32 << 20
	// readerGone is how long the server keeps what it has of a reader that is gone. Of all readers it takes a thousand a
	// stream, and a process that cannot go on is started again every second.
	readerGone = 30 * time.Second
	// retryWait is between two tries of something that the server could not do.
	retryWait = 50 * time.Millisecond
	// deletions is how many messages are deleted one by one at a time.
	deletions = 16
)

// load reads what payloads the stream has, and returns up to which message. Turns that are late by the takeovers before are none.
func (p *payloads) load(ctx context.Context, before takeovers) (last uint64, err error) {
	info, err := p.store.streamInfo(ctx, p.store.data)
	if err == nil && info.Msgs > 0 { // a turn may be its last that nothing has synced: see Link.putMessage
		if err = p.store.syncPayloads(ctx); err == nil {
			info, err = p.store.streamInfo(ctx, p.store.data)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("store: payloads: %w", err)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.before, p.last = before, info.LastSeq
	p.room = ledger{base: max(info.FirstSeq, 1), step: min(reclaimStep, max(p.store.options.PayloadBytesMax/8, 1))}
	p.room.purged = p.room.base
	if info.Msgs == 0 {
		p.room.base = info.LastSeq + 1
		p.room.purged = p.room.base
		return info.LastSeq, nil
	}
	if err := p.scan(ctx, info.FirstSeq, info.LastSeq); err != nil {
		return 0, fmt.Errorf("store: reading the index of payloads: %w", err)
	}
	return info.LastSeq, nil
}

// syncPayloads has the server sync all payloads, unless there is no room for a message behind them.
func (s *Store) syncPayloads(ctx context.Context) error {
	if s.disk.room(0) != nil {
		return nil
	}
	return s.again(ctx, func(ctx context.Context) error {
		_, err := s.js.PublishMsg(ctx, s.behind())
		if noSpace(err) { // which again would ask for ever
			return nil
		}
		if gone := s.gone(ctx, s.names.dataSubject, err); gone != nil {
			return gone
		}
		return err
	})
}

// scan reads the headers of all messages between two sequences into the index.
func (p *payloads) scan(ctx context.Context, first, last uint64) error {
	it, err := p.store.consume(ctx, p.store.data, first, true, 4096)
	if err != nil {
		return err
	}
	defer it.Stop()
	parts, torn := map[string]*place{}, map[chunkOf]*blob{}
	at := first
	for at <= last {
		m, err := next(ctx, it)
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		for seq := meta.Sequence.Stream; at < seq; at++ {
			p.room.gap(at)
		}
		at++
		size, _ := strconv.Atoi(m.Headers().Get(headerSize))
		if err := p.takeMessage(meta.Sequence.Stream, m.Headers(), size, parts, torn); err != nil {
			return fmt.Errorf("message %d: %w", meta.Sequence.Stream, err)
		}
		if meta.NumPending == 0 { // those behind it have been deleted
			break
		}
	}
	for ; at <= last; at++ {
		p.room.gap(at)
	}
	for _, at := range parts { // whose writer died in the middle, or whose cell has not sent the rest
		for _, seq := range at.seqs {
			switch {
			case seq == 0:
			case at.epoch == 0:
				p.room.doubt(seq)
			default:
				p.room.forget(seq)
			}
		}
	}
	p.takeTorn(torn)
	return nil
}

// takeMessage takes in what a message of the stream holds: payloads, or a chunk of a blob.
func (p *payloads) takeMessage(seq uint64, header nats.Header, size int, parts map[string]*place, torn map[chunkOf]*blob) error {
	if text := header.Get(headerBlob); text != "" {
		c, err := parseChunk(text)
		if err == nil {
			p.takeChunk(seq, c, stored(text, size), torn)
		}
		return err
	}
	text := header.Get(headerPayload)
	c, err := parseContents(text)
	if err == nil {
		p.take(seq, c, stored(text, size), parts)
	}
	return err
}

// epochOf returns which writer put a message, and the header that says so.
func epochOf(header nats.Header) (epoch uint64, text string, err error) {
	if text = header.Get(headerBlob); text != "" {
		c, err := parseChunk(text)
		return c.epoch, text, err
	}
	text = header.Get(headerPayload)
	c, err := parseContents(text)
	return c.epoch, text, err
}

// take indexes what one message holds; a payload in chunks counts with the last of them.
func (p *payloads) take(seq uint64, c contents, size int, parts map[string]*place) {
	p.room.note(seq, size, len(c.items))
	if c.chunks == 1 {
		for _, i := range c.items {
			p.index(i.id.Group, place{sample: i.id.Sample, attempt: i.id.Attempt, epoch: c.epoch, sum: i.sum, offset: i.offset, size: i.size, seqs: []uint64{seq}})
		}
		return
	}
	i := c.items[0]
	key := fmt.Sprint(i.id, c.epoch, c.chunks, i.sum)
	whole := parts[key]
	if whole == nil {
		whole = &place{sample: i.id.Sample, attempt: i.id.Attempt, epoch: c.epoch, sum: i.sum, size: i.size, seqs: make([]uint64, c.chunks)}
		parts[key] = whole
	}
	if whole.seqs[c.chunk] != 0 {
		p.twice(seq, c.epoch)
		return
	}
	whole.seqs[c.chunk] = seq
	if slices.Contains(whole.seqs, 0) {
		return
	}
	delete(parts, key)
	p.index(i.id.Group, *whole)
}

// twice accounts for a message that was sent twice, because its first answer was lost. Of a cell's, the reference may name this one.
func (p *payloads) twice(seq, epoch uint64) {
	if epoch == 0 {
		p.room.doubt(seq)
	} else {
		p.room.forget(seq)
	}
}

func (s *Store) streamInfo(ctx context.Context, stream jetstream.Stream) (state jetstream.StreamState, err error) {
	err = s.again(ctx, func(ctx context.Context) error {
		info, err := stream.Info(ctx)
		if err == nil {
			state = info.State
		}
		return err
	})
	return state, err
}

// consume opens a consumer of a stream from a message on.
func (s *Store) consume(ctx context.Context, stream jetstream.Stream, first uint64, headersOnly bool, atOnce int) (it jetstream.MessagesContext, err error) {
	err = s.again(ctx, func(try context.Context) error {
		consumer, err := stream.OrderedConsumer(try, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, HeadersOnly: headersOnly, MaxResetAttempts: -1, InactiveThreshold: readerGone,
		})
		if err == nil {
			it, err = consumer.Messages(jetstream.PullMaxMessages(atOnce))
		}
		return err
	})
	return it, err
}

// start sends small payloads, and removes forgotten ones, in the background until the store
// is closed.
func (p *payloads) start(w *lease) {
	for range committers {
		p.store.wait.Add(1)
		go p.commitSmall(w)
	}
	p.store.wait.Go(func() {
		for {
			select {
			case <-p.wake:
				p.reclaim(p.store.ctx, false)
			case <-p.store.ctx.Done():
				return
			}
		}
	})
}

// reclaim removes what is no longer needed: all that lies before the first message that is,
// by one purge, which costs the server next to nothing; and what lies behind it one by
// one, where the purge leaves much, or all must go.
func (p *payloads) reclaim(ctx context.Context, all bool) {
	p.reclaiming.Lock()
	defer p.reclaiming.Unlock()
	w, err := p.store.writer()
	if err != nil {
		return
	}
	if err := p.account(ctx, w); err != nil {
		p.store.options.Logf("%v", err)
		return
	}
	p.mutex.Lock()
	all = all || p.tight()
	p.room.advance()
	base, below, purged := p.room.base, p.room.below, p.room.purged
	p.mutex.Unlock()
	if base > purged && (below > 0 || all) {
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		err := p.store.data.Purge(try, jetstream.WithPurgeSequence(base))
		cancel()
		if err != nil {
			p.store.options.Logf("store: removing forgotten payloads: %v", err)
			return
		}
		p.mutex.Lock()
		p.room.purged = base
		p.room.below -= below
		p.room.garbage -= below
		p.mutex.Unlock()
	}
	p.mutex.Lock()
	var holes []uint64
	if p.room.garbage > 0 && (all || p.room.garbage > p.store.options.PayloadBytesMax/4) {
		holes = p.room.holes()
	}
	p.mutex.Unlock()
	p.deleteEach(ctx, holes)
}

// deleteEach deletes messages one by one, several at a time.
func (p *payloads) deleteEach(ctx context.Context, seqs []uint64) {
	next := make(chan uint64)
	var wait sync.WaitGroup
	for range min(deletions, len(seqs)) {
		wait.Go(func() {
			for seq := range next {
				try, cancel := context.WithTimeout(ctx, apiTimeout)
				err := p.store.deleteMessage(try, p.store.names.data, seq)
				cancel()
				if err != nil {
					continue
				}
				p.mutex.Lock()
				p.room.removed(seq)
				p.mutex.Unlock()
			}
		})
	}
	for _, seq := range seqs {
		next <- seq
	}
	close(next)
	wait.Wait()
}

// account looks up the messages that this process sent and got no answer for, once nothing
// is on its way. One of another writer means that this one has been deposed. One of a cell may be referred to later.
func (p *payloads) account(ctx context.Context, w *lease) error {
	p.mutex.Lock()
	var unknown []uint64
	if p.flying == 0 {
		unknown = p.room.unknown()
	}
	looked := p.awaits
	p.awaits = make(map[uint64]string, len(looked))
	unknown = slices.DeleteFunc(unknown, func(seq uint64) bool {
		by, known := looked[seq]
		if known && p.awaited(by) {
			p.awaits[seq] = by
			return true
		}
		return false
	})
	p.mutex.Unlock()
	end := uint64(0) // of the stream, as of before it is asked for them
	if len(unknown) > 0 {
		info, err := p.store.streamInfo(ctx, p.store.data)
		if err != nil {
			return fmt.Errorf("store: payloads: %w", err)
		}
		end = info.LastSeq
	}
	for _, seq := range unknown {
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		m, err := p.store.leaderGet(try, p.store.names.data, seq)
		cancel()
		if errors.Is(err, errNoMessage) || errors.Is(err, errDamaged) { // nobody finds what it was
			if seq <= end { // else it is still to come
				p.mutex.Lock()
				p.room.gap(seq)
				p.mutex.Unlock()
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("store: payload message %d: %w", seq, err)
		}
		epoch, header, err := epochOf(m.header)
		if err != nil {
			return fmt.Errorf("store: payload message %d: %w", seq, err)
		}
		if epoch > w.epoch {
			w.fence()
			return ErrFenced
		}
		p.mutex.Lock()
		if by := m.header.Get(headerCell); p.awaited(by) {
			p.awaits[seq] = by
		} else {
			p.room.note(seq, stored(header, len(m.data)), 0)
		}
		p.mutex.Unlock()
	}
	return nil
}
