package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/payload"
)

// Blobs of a cell lie in the payload stream as those of the writer do, under epoch 0. They come just before the payload that names
// them, whose reference says where they are. So nothing is sent of a rollout that ends without one.

// sentBlob is a blob that a cell has put, or begun to put. As text it is the sample, the put, number, size and limit, and the
// sequences with pluses between them, in this order between spaces.
type sentBlob struct {
	chunkOf          // of the first chunk
	seqs    []uint64 // of the chunks that are there, in their order
}

const sentFormat = "%d %d %d %d %d"

func (b sentBlob) String() string {
	return fmt.Sprintf(sentFormat, b.id.Sample, b.put, b.number, b.size, b.limit) + " " + joined(b.seqs, "+")
}

// parseSentBlob reads a blob of an attempt, or of its group.
func parseSentBlob(id port.RolloutID, text string) (b sentBlob, err error) {
	at := strings.LastIndexByte(text, ' ')
	if at < 0 || strings.Count(text, " ") != strings.Count(sentFormat, " ")+1 {
		return b, fmt.Errorf("%.100q is no blob", text)
	}
	if _, err = fmt.Sscanf(text[:at], sentFormat, &b.id.Sample, &b.put, &b.number, &b.size, &b.limit); err == nil {
		b.seqs, err = parseSeqs(text[at+1:], "+")
	}
	if of := b.id; err == nil {
		if b.id = id; of.Sample != id.Sample {
			b.id = port.GroupMedia(id.Group)
		}
		if of.Sample != b.id.Sample || b.size < 0 || b.limit < 1 || b.limit > math.MaxInt32 || b.size/b.limit >= blobChunksMax || int64(len(b.seqs)) > chunksOf(b.size, b.limit) {
			err = errors.New("no such blob")
		}
	}
	if err != nil {
		return b, fmt.Errorf("%.100q is no blob: %w", text, err)
	}
	return b, nil
}

// whole reports whether all chunks are there.
func (b *sentBlob) whole() bool { return int64(len(b.seqs)) == chunksOf(b.size, b.limit) }

// outgoing is a blob that one at a time sends.
type outgoing struct {
	sending sync.Mutex
	sentBlob
}

// sentBlobs are those of attempts that have no payload yet, and of groups that live.
type sentBlobs struct {
	mutex    sync.Mutex
	attempts map[port.RolloutID][]*outgoing
	puts     uint64
}

// of returns the blobs that a sample's reference names: all of the attempt, and the media of its group that the sample has.
func (s *sentBlobs) of(sample *port.Sample) (all []sentBlob) {
	all = slices.DeleteFunc(s.all(sample.ID), func(b sentBlob) bool { return b.number == payloadNumber })
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, b := range s.attempts[port.GroupMedia(sample.ID.Group)] {
		for i := range sample.Media {
			if sample.Media[i].Blob == b.number {
				all = append(all, b.sentBlob)
				break
			}
		}
	}
	return all
}

// all returns what was sent of an attempt, its payload too.
func (s *sentBlobs) all(id port.RolloutID) (all []sentBlob) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, b := range s.attempts[id] {
		if len(b.seqs) > 0 { // else there was no room for it
			all = append(all, b.sentBlob)
		}
	}
	return all
}

// givenUp returns what was sent of an attempt's payload while it had other bytes, for the writer to remove.
func (s *sentBlobs) givenUp(id port.RolloutID, but *outgoing) (all []sentBlob) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, b := range s.attempts[id] {
		if b.number == payloadNumber && b != but && len(b.seqs) > 0 {
			all = append(all, b.sentBlob)
		}
	}
	return all
}

func (s *sentBlobs) forget(id port.RolloutID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.attempts, id)
}

func (s *sentBlobs) forgetGroup(group loop.GroupID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	maps.DeleteFunc(s.attempts, func(id port.RolloutID, _ []*outgoing) bool { return id.Group == group })
}

// begin returns a blob, or a payload of the same bytes, as far as it was sent.
func (s *sentBlobs) begin(id port.RolloutID, c chunkOf) *outgoing {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if at := slices.IndexFunc(s.attempts[id], func(b *outgoing) bool {
		return b.number == c.number && b.size == c.size && b.limit == c.limit && b.sum == c.sum
	}); at >= 0 {
		return s.attempts[id][at]
	}
	if s.attempts == nil {
		s.attempts = map[port.RolloutID][]*outgoing{}
	}
	s.puts++
	c.put += s.puts
	b := &outgoing{sentBlob: sentBlob{chunkOf: c}}
	s.attempts[id] = append(s.attempts[id], b)
	return b
}

// add notes the message of a blob's next chunk.
func (s *sentBlobs) add(b *outgoing, seq uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	b.seqs = append(b.seqs, seq)
}

// newPut begins the number of a put, which tells apart what processes of a cell put.
func (l *Link) newPut() uint64 { return uint64(l.incarnation.Load()) << 32 }

// PutBlob makes a blob durable for the run's writer, which finds it by the reference of a payload that is put later. A blob may be put
// again with the same bytes, and no chunk is sent twice. One over PayloadBytesMax less an eighth is an error that wraps
// port.ErrNoSpace. Incarnate comes first.
func (l *Link) PutBlob(id port.RolloutID, number int32, data []byte) error {
	limit := int64(min(blobChunkBytes, l.chunkBytes()))
	b := l.blobs.begin(id, chunkOf{put: l.newPut(), id: id, number: number, size: int64(len(data)), limit: limit})
	b.sending.Lock()
	defer b.sending.Unlock()
	if b.whole() {
		return nil
	}
	if err := l.roomFor(b.size); err != nil {
		return fmt.Errorf("store: blob %d of %v: %w", number, id, err)
	}
	for !b.whole() {
		if err := l.sendChunk(b, data); err != nil {
			return fmt.Errorf("store: blob %d of %v: %w", number, id, err)
		}
	}
	return nil
}

// sendChunk sends the next chunk of a blob.
func (l *Link) sendChunk(b *outgoing, data []byte) error {
	c := b.chunkOf
	c.chunk = int64(len(b.seqs))
	m := l.store.chunkMessage(c, data)
	l.sign(m, m.Header.Get(headerBlob))
	seq, err := l.putMessage(m)
	if err != nil {
		return err
	}
	l.blobs.add(b, seq)
	return nil
}

// Sent reports whether a blob was put whole, of an attempt that has no payload yet or a group that lives.
func (l *Link) Sent(id port.RolloutID, number int32) bool {
	s := &l.blobs
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.ContainsFunc(s.attempts[id], func(b *outgoing) bool { return b.number == number && b.whole() })
}

// roomFor reports whether a blob may be put. The stream keeps an eighth of its bound for payloads: cells that hold blobs alone
// could wait for one another.
func (l *Link) roomFor(size int64) error {
	s := l.store
	var used, bound int64
	err := s.again(s.ctx, func(ctx context.Context) (err error) {
		stream, err := s.js.Stream(ctx, s.names.data)
		if err == nil {
			info := stream.CachedInfo() // as of this call
			used, bound = int64(info.State.Bytes), info.Config.MaxBytes
		}
		return err
	})
	if err != nil {
		return err
	}
	if most := payload.BlobsMost(bound); bound > 0 && used+size > most {
		return fmt.Errorf("%w: it takes %d bytes, and the stream of payloads has %d of at most %d for them: raise store.nats.payload_bytes_max, or shrink the queue",
			port.ErrNoSpace, size, used, most)
	}
	return nil
}

// Unreferred is the reference of what an attempt has put without a payload, for the writer to remove; empty for nothing.
func (l *Link) Unreferred(id port.RolloutID) string {
	sent := l.blobs.all(id)
	if len(sent) == 0 {
		return ""
	}
	return reference{cell: l.cell, incarnation: l.incarnation.Load(), blobs: sent}.String()
}

// refer takes a blob that a cell has put into the index, unless it is there. One that the cell has not put whole is to be removed,
// as is another cell's copy of a medium. p.mutex must be held, and is.
func (p *payloads) refer(sent *sentBlob) {
	other := p.find(sent.id, sent.number)
	if other != nil && other.epoch == 0 && other.put == sent.put {
		return // it was there when this process began to write, or is said again
	}
	needs := 0
	if sent.whole() && other == nil {
		needs = 1
		p.blobs.groups[sent.id.Group] = append(p.blobs.groups[sent.id.Group], &blob{chunkOf: sent.chunkOf, seqs: sent.seqs})
	}
	for k, seq := range sent.seqs {
		c := sent.chunkOf
		c.chunk = int64(k)
		p.room.note(seq, stored(c.String(), int(min(c.limit, c.size-c.chunk*c.limit))), needs)
	}
	if p.room.due() {
		poke(p.wake)
	}
}
