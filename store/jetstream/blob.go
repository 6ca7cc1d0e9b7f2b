package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

const (
	// headerBlob is on a message of the payload stream that holds a chunk of a blob: see chunkOf.
	headerBlob = "Headway-Blob"
	// blobChunkBytes is the most that a chunk has. A read asks for the chunks that it touches.
	blobChunkBytes = 1 << 20
	// blobWindow is how many chunks of a blob are on their way at once, to the server or from it, and blobPuts how many
	// blobs are on their way to it. The server holds what it has not stored in memory.
	blobWindow, blobPuts = 4, 4
	// blobChunksMax bounds what a header may say, so that one that is none cannot exhaust memory.
	blobChunksMax = 1 << 24
)

// chunkOf says of which blob a message holds which chunk. As text it is the numbers in their order here, between spaces.
type chunkOf struct {
	epoch, put uint64 // put tells apart what one writer puts
	id         port.RolloutID
	number     int32
	size       int64 // of the blob
	limit      int64 // of a chunk: all but the last have as much
	chunk      int64
	sum        uint32
}

const chunkFormat = "%d %d %d %d %d %d %d %d %d %d"

func (c chunkOf) String() string {
	return fmt.Sprintf(chunkFormat, c.epoch, c.put, c.id.Group, c.id.Sample, c.id.Attempt, c.number, c.size, c.limit, c.chunk, c.sum)
}

func parseChunk(text string) (c chunkOf, err error) {
	if strings.Count(text, " ") != strings.Count(chunkFormat, " ") {
		return c, fmt.Errorf("the header %q is not one of blobs", text)
	}
	_, err = fmt.Sscanf(text, chunkFormat, &c.epoch, &c.put, &c.id.Group, &c.id.Sample, &c.id.Attempt, &c.number, &c.size, &c.limit, &c.chunk, &c.sum)
	if err != nil {
		return c, fmt.Errorf("the header %q is not one of blobs: %w", text, err)
	}
	if c.size < 0 || c.limit < 1 || c.size/c.limit >= blobChunksMax || c.chunk < 0 || c.chunk >= chunksOf(c.size, c.limit) {
		return c, fmt.Errorf("the header %q is not one of blobs: no such chunk", text)
	}
	return c, nil
}

// chunksOf is in how many chunks a blob lies, at least one.
func chunksOf(size, limit int64) int64 { return max(1, (size+limit-1)/limit) }

// blob is one in the index. It is there from the beginning of its put on.
type blob struct {
	chunkOf           // of the first chunk
	seqs     []uint64 // of its chunks; 0 for one that the server lost
	missing  int      // while it is put, or read into the index: chunks without one
	unwanted bool     // it was dropped
}

func newBlob(c chunkOf) *blob {
	n := int(chunksOf(c.size, c.limit))
	return &blob{chunkOf: c, seqs: make([]uint64, n), missing: n}
}

func (b *blob) says() string {
	if b.ofTurn() {
		return fmt.Sprintf("turn %d of g%d/%d, attempt %d", turnOf(b.number), b.id.Group, b.id.Sample, b.id.Attempt)
	}
	return fmt.Sprintf("blob %d of g%d/%d, attempt %d", b.number, b.id.Group, b.id.Sample, b.id.Attempt)
}

// blobs is the index of all blobs. The mutex of payloads guards it: both are in one stream.
type blobs struct {
	groups map[loop.GroupID][]*blob
	puts   uint64
	slots  chan struct{} // of those that are on their way
}

// PutBlob makes a blob durable, in messages of the payload stream. One over PayloadBytesMax less an eighth, which stays for
// payloads, or over the disk, is an error that wraps port.ErrNoSpace; it may be tried again.
func (s *Store) PutBlob(id port.RolloutID, number int32, data []byte) error {
	w, err := s.writer()
	if err != nil {
		return err
	}
	p := &s.payloads
	b := newBlob(chunkOf{epoch: w.epoch, id: id, number: number, size: int64(len(data)), limit: int64(min(blobChunkBytes, s.chunkBytes()))})
	x := &put{id: id, room: b.size + int64(len(b.seqs))*int64(messageOverhead+len(b.String())+20)}
	if err := p.admit(x, payload.BlobsMost(s.options.PayloadBytesMax)); err != nil {
		return err
	}
	defer p.release(x)
	select {
	case p.blobs.slots <- struct{}{}:
		defer func() { <-p.blobs.slots }()
	case <-s.ctx.Done():
		return ErrClosed
	}
	if err := p.begin(b); err != nil {
		return err
	}
	for first := 0; first < len(b.seqs) && err == nil; first += blobWindow {
		err = p.sendChunks(w, x, b, data, first, min(first+blobWindow, len(b.seqs)))
	}
	if err != nil {
		p.dropBlobs(id.Group, func(other *blob) bool { return other == b })
		return fmt.Errorf("%s: %w", b.says(), err)
	}
	return nil
}

// begin puts a blob into the index, whose chunks are still to be sent.
func (p *payloads) begin(b *blob) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.find(b.id, b.number) != nil {
		return fmt.Errorf("store: %s was put before", b.says())
	}
	p.blobs.puts++
	b.put = p.blobs.puts
	p.blobs.groups[b.id.Group] = append(p.blobs.groups[b.id.Group], b)
	return nil
}

// sendChunks stores chunks of a blob, and accounts for them: one that was forgotten meanwhile is no longer needed.
func (p *payloads) sendChunks(w *lease, x *put, b *blob, data []byte, first, end int) error {
	messages, seqs := make([]*nats.Msg, end-first), make([]uint64, end-first)
	for i := range messages {
		c := b.chunkOf
		c.chunk = int64(first + i)
		messages[i] = p.store.chunkMessage(c, data)
	}
	p.mutex.Lock()
	p.flying += len(messages)
	p.mutex.Unlock()
	err := p.send(w, messages, seqs)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.flying -= len(messages)
	for i, seq := range seqs {
		if seq == 0 {
			continue
		}
		size := stored(messages[i].Header.Get(headerBlob), len(messages[i].Data))
		p.room.note(seq, size, 1)
		p.room.reserved -= int64(size)
		x.room -= int64(size)
		b.seqs[first+i] = seq
		b.missing--
		if b.unwanted {
			p.room.forget(seq)
		}
	}
	return err
}

// chunkMessage is the message of a chunk of a blob that has these bytes.
func (s *Store) chunkMessage(c chunkOf, data []byte) *nats.Msg {
	from := c.chunk * c.limit
	m := nats.NewMsg(s.names.dataSubject)
	m.Data = data[from:min(from+c.limit, c.size)]
	c.sum = crc32.Checksum(m.Data, castagnoli)
	m.Header[headerBlob] = []string{c.String()}
	return m
}

// find returns a blob of the index, nil for none.
func (p *payloads) find(id port.RolloutID, number int32) *blob {
	for _, b := range p.blobs.groups[id.Group] {
		if b.id == id && b.number == number {
			return b
		}
	}
	return nil
}

// takeChunk accounts for a message that was found in the stream; a blob counts with its last chunk.
func (p *payloads) takeChunk(seq uint64, c chunkOf, size int, parts map[chunkOf]*blob) {
	p.room.note(seq, size, 1)
	if c.number < 0 && p.before.late(c.epoch, seq) {
		p.room.forget(seq)
		return
	}
	key := c
	key.chunk, key.sum = 0, 0
	b := parts[key]
	if b == nil {
		b = newBlob(key)
		parts[key] = b
	}
	if b.seqs[c.chunk] != 0 {
		p.twice(seq, c.epoch)
		return
	}
	b.seqs[c.chunk] = seq
	if b.missing--; b.missing > 0 {
		return
	}
	delete(parts, key)
	if other := p.find(b.id, b.number); other != nil {
		older := other
		if other.epoch > b.epoch || other.epoch == b.epoch && other.put > b.put {
			older = b
		}
		p.unneeded(older)
		if older == b {
			return
		}
		p.blobs.groups[b.id.Group] = slices.DeleteFunc(p.blobs.groups[b.id.Group], func(x *blob) bool { return x == other })
	}
	p.blobs.groups[b.id.Group] = append(p.blobs.groups[b.id.Group], b)
}

// takeTorn decides of blobs that lack chunks. Beside a payload, which was put after them, the server lost those: the others
// still read. Else the process died, or was refused room, in the middle. A cell may go on with its own.
func (p *payloads) takeTorn(parts map[chunkOf]*blob) {
	for _, b := range parts {
		b.missing = 0
		switch kept := p.keeps(b); {
		case b.epoch == 0 && (!kept || b.id.OfGroup()):
			for _, seq := range b.seqs {
				if seq != 0 {
					p.room.doubt(seq)
				}
			}
		case kept && p.find(b.id, b.number) == nil:
			p.blobs.groups[b.id.Group] = append(p.blobs.groups[b.id.Group], b)
		default:
			p.unneeded(b)
		}
	}
}

// keeps reports whether the payload of a blob's attempt is the one kept of its sample; of a group's own blob, whether the
// group has a payload.
func (p *payloads) keeps(b *blob) bool {
	if b.id.OfGroup() {
		return len(p.groups[b.id.Group]) > 0
	}
	return slices.ContainsFunc(p.groups[b.id.Group], func(at place) bool { return at.sample == b.id.Sample && at.attempt == b.id.Attempt })
}

// unneeded says that the messages of a blob are no longer needed.
func (p *payloads) unneeded(b *blob) {
	b.unwanted = true
	for _, seq := range b.seqs {
		if seq != 0 {
			p.room.forget(seq)
		}
	}
	if p.room.due() {
		poke(p.wake)
	}
}

// dropBlobs takes a group's blobs that are unwanted out of the index.
func (p *payloads) dropBlobs(group loop.GroupID, unwanted func(b *blob) bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.drops(group, unwanted)
}

// drops is dropBlobs for who holds the mutex.
func (p *payloads) drops(group loop.GroupID, unwanted func(b *blob) bool) {
	if len(p.blobs.groups[group]) == 0 {
		return
	}
	kept := slices.DeleteFunc(p.blobs.groups[group], func(b *blob) bool {
		if !unwanted(b) {
			return false
		}
		p.unneeded(b)
		return true
	})
	if p.blobs.groups[group] = kept; len(kept) == 0 {
		delete(p.blobs.groups, group)
	}
}

// retainBlobs drops the blobs of every attempt whose payload is not kept. One that never had a payload is of a process
// that died before its put. A cell may still put its own, of an attempt that counts. Of turns, and of attempts that have any,
// RetainTurns decides.
func (p *payloads) retainBlobs(counts func(port.RolloutID) bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for group := range p.blobs.groups {
		turns := p.turnsOf(group)
		p.drops(group, func(b *blob) bool {
			return !b.ofTurn() && !p.keeps(b) && (b.epoch > 0 || !counts(b.id)) && turns[b.id] == 0
		})
	}
}

// ReadBlob fills dst with the bytes of a blob from an offset on. It fetches and verifies the chunks that they are in, and
// no others.
func (s *Store) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	p := &s.payloads
	p.mutex.Lock()
	b := p.find(id, number)
	there := b != nil && b.missing == 0
	p.mutex.Unlock()
	if !there {
		return fmt.Errorf("store: %s: %w", newBlob(chunkOf{id: id, number: number, limit: 1}).says(), port.ErrNoBlob)
	}
	if offset < 0 || offset > b.size-int64(len(dst)) {
		return fmt.Errorf("store: %s has %d bytes, asked for %d from byte %d on: %w", b.says(), b.size, len(dst), offset, port.ErrNoBlob)
	}
	if len(dst) == 0 {
		return nil
	}
	err := s.readChunksOf(b, offset, dst)
	if errors.Is(err, errNoMessage) || errors.Is(err, errDamaged) {
		p.mutex.Lock()
		gone := b.unwanted
		p.mutex.Unlock()
		if err = fmt.Errorf("%w: %w", port.ErrBlobDamaged, err); gone {
			err = fmt.Errorf("forgotten meanwhile: %w", port.ErrNoBlob)
		}
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", b.says(), err)
	}
	return nil
}

// readChunksOf fills dst from a blob's chunks, several at the same time.
func (s *Store) readChunksOf(b *blob, offset int64, dst []byte) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var once sync.Once
	var failed error
	var wait sync.WaitGroup
	slots := make(chan struct{}, blobWindow)
	end := offset + int64(len(dst))
	for k := offset / b.limit; k <= (end-1)/b.limit && ctx.Err() == nil; k++ {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			chunk, err := s.chunkOfBlob(b, k)
			if err != nil {
				once.Do(func() { failed = err; cancel() })
				return
			}
			from := k * b.limit
			copy(dst[max(from, offset)-offset:], chunk[max(from, offset)-from:min(from+int64(len(chunk)), end)-from])
		})
	}
	wait.Wait()
	return failed
}

// chunkOfBlob fetches a chunk and verifies it.
func (s *Store) chunkOfBlob(b *blob, k int64) ([]byte, error) {
	if b.seqs[k] == 0 {
		return nil, fmt.Errorf("%w: chunk %d is gone", port.ErrBlobDamaged, k)
	}
	m, err := s.fetchMessage(b.seqs[k])
	if err != nil {
		return nil, err
	}
	want := b.chunkOf
	want.chunk, want.sum = k, crc32.Checksum(m.data, castagnoli)
	if m.header.Get(headerBlob) != want.String() || int64(len(m.data)) != min(b.limit, b.size-k*b.limit) {
		return nil, fmt.Errorf("%w: chunk %d, message %d of %s", port.ErrBlobDamaged, k, b.seqs[k], s.names.data)
	}
	return m.data, nil
}
