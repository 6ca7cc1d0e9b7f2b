package batch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// Channels are the side channels of the whole batch.
func (p *Batch) Channels() []protocol.ChannelSummary {
	groups := make([]int, len(p.groups))
	for i := range groups {
		groups[i] = i
	}
	return summaries(p, groups)
}

// summaries are the side channels of a share. They are those of the whole batch, so that all ranks ask for the same ones,
// those without a row too: by name in the order of their first rows, then those of Options.Channels. Rows of another form than the batch's first, which an
// engine with another model has said, are absent.
func summaries(p *Batch, groups []int) []protocol.ChannelSummary {
	out := p.forms()
	for i := range out {
		all := 0
		for _, g := range groups {
			for k := range p.groups[g].Samples {
				s := &p.groups[g].Samples[k]
				eachSequence(s, func(first, end int) { all += out[i].Align.Rows(s.LossMask[first:end]) })
				for c := range s.Channels {
					if s.Channels[c].Same(out[i].Header) {
						out[i].Rows += p.present(s.ID, &s.Channels[c])
					}
				}
			}
		}
		out[i].Absent = all - out[i].Rows
	}
	return out
}

// forms are the side channels of the whole batch, without their numbers. Behind those that have rows stand those that
// were asked for in vain.
func (p *Batch) forms() (out []protocol.ChannelSummary) {
	for g := range p.groups {
		for i := range p.groups[g].Samples {
			for _, c := range p.groups[g].Samples[i].Channels {
				if find(out, c.Name) < 0 {
					out = append(out, protocol.ChannelSummary{Header: c.Header})
				}
			}
		}
	}
	for _, h := range p.asked {
		if find(out, h.Name) < 0 {
			out = append(out, protocol.ChannelSummary{Header: h})
		}
	}
	return out
}

func find(list []protocol.ChannelSummary, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i
		}
	}
	return -1
}

// piece is a part of a channel of one sequence of a share.
type piece struct {
	channel.Part
	id       port.RolloutID
	sequence int
	// first is the place of its first value in its blob, values their number; of a ragged channel alone.
	first, values int64
}

// ChannelBody is a side channel of a share as it goes over the wire. Its tensors are:
//
//   - parts, I64 [K, 3]: the sequence of the share, the first row and the number of rows of every stretch of rows;
//   - rows [P, row...]: the rows of all parts, one part after the other; or of a ragged channel
//   - offsets, I64 [P+1], and values [V]: row i is values[offsets[i]:offsets[i+1]].
//
// It holds no rows: they are read from the store as they are written. It implements api.Body.
type ChannelBody struct {
	batch  *Batch
	blobs  port.Blobs
	head   channel.Header
	pieces []piece
	counts []uint32 // of a ragged channel: the length of every row
	header []byte
	size   int64
}

// Channel makes the body of one channel of the share of groups that Share has given a rank. Rows that the store has lost
// are absent. A blob that is found not to verify while the body is written breaks it off. The next body goes without it.
func (p *Batch) Channel(blobs port.Blobs, named string, rank, worldSize int) (*ChannelBody, error) {
	groups, err := p.plan(max(worldSize, 1))
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= len(groups) {
		return nil, fmt.Errorf("batch: rank %d of %d, want from 0 to %d", rank, len(groups), len(groups)-1)
	}
	list := p.forms()
	at := find(list, named)
	if at < 0 {
		return nil, protocol.Refuse(protocol.CodeNotFound, "the batch has no channel %.80q, it has %s: name it in rollout.channels, and have engines that say it", named, names(list))
	}
	b := &ChannelBody{batch: p, blobs: blobs, head: list[at].Header}
	for _, one := range p.pieces(b.head, groups[rank]) {
		if err := b.add(one); err != nil {
			return nil, err
		}
	}
	return b, b.frame(summaries(p, groups[rank])[at])
}

// pieces are the parts of a channel in a share.
func (p *Batch) pieces(head channel.Header, groups []int) (out []piece) {
	sequence := 0
	for _, g := range groups {
		for i := range p.groups[g].Samples {
			s := &p.groups[g].Samples[i]
			for k := range s.Channels {
				if c := &s.Channels[k]; c.Same(head) {
					for _, part := range c.Parts {
						out = append(out, piece{Part: part, id: s.ID, sequence: sequence + int(c.Sequence)})
					}
				}
			}
			sequence += s.Sequences()
		}
	}
	return out
}

func names(list []protocol.ChannelSummary) string {
	if len(list) == 0 {
		return "none"
	}
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].Name
	}
	return strings.Join(all, ", ")
}

// add takes a piece into the body, if the store has it. A body that has begun could only break off.
func (b *ChannelBody) add(p piece) error {
	if b.batch.isLost(&p) {
		return nil
	}
	counts, err := b.measure(&p)
	if err == nil {
		from, size := b.span(&p)
		err = b.blobs.ReadBlob(p.id, p.Blob, from+size, nil)
	}
	switch {
	case lost(err):
		b.batch.lose(b.head.Name, &p, err)
		return nil
	case err != nil:
		return b.failed(&p, err)
	}
	b.pieces, b.counts = append(b.pieces, p), append(b.counts, counts...)
	return nil
}

// measure reads the lengths of ragged rows, which stand before the values in their blobs: see channel.AppendLengths.
func (b *ChannelBody) measure(p *piece) (counts []uint32, err error) {
	if !b.head.Ragged {
		return nil, nil
	}
	head := make([]byte, 4+4*(p.Skip+p.Rows))
	if err := b.blobs.ReadBlob(p.id, p.Blob, 0, head); err != nil {
		return nil, err
	}
	p.first = 4 + 4*int64(binary.LittleEndian.Uint32(head))
	for row := range p.Skip + p.Rows {
		n := binary.LittleEndian.Uint32(head[4+4*row:])
		if row < p.Skip {
			p.first += int64(n) * int64(b.head.RowBytes())
			continue
		}
		p.values += int64(n)
		counts = append(counts, n)
	}
	return counts, nil
}

func (b *ChannelBody) failed(p *piece, err error) error {
	return fmt.Errorf("batch: channel %s of %s, blob %d: %w", b.head.Name, name(p.id), p.Blob, err)
}

// frame makes the header of the body.
func (b *ChannelBody) frame(summary protocol.ChannelSummary) error {
	rows, values := 0, int64(0)
	for i := range b.pieces {
		rows += int(b.pieces[i].Rows)
		values += b.pieces[i].values
	}
	dtype := weights.DType(strings.ToUpper(string(b.head.DType)))
	entries := []weights.Entry{{Name: "parts", DType: "I64", Shape: []int{len(b.pieces), 3}}}
	if b.head.Ragged {
		entries = append(entries, weights.Entry{Name: "offsets", DType: "I64", Shape: []int{rows + 1}}, weights.Entry{Name: "values", DType: dtype, Shape: []int{int(values)}})
	} else {
		entries = append(entries, weights.Entry{Name: "rows", DType: dtype, Shape: append([]int{rows}, b.head.Row...)})
	}
	text, err := json.Marshal(summary)
	if err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	if b.header, err = framed(string(text), entries); err != nil {
		return err
	}
	b.size = int64(len(b.header)) + entries[len(entries)-1].End
	return nil
}

// Size is the body's, in bytes.
func (b *ChannelBody) Size() int64 { return b.size }

// Close does nothing: a body holds nothing that must be freed.
func (b *ChannelBody) Close() error { return nil }

// readBytes is how much is read from the store at once. Reads begin at its multiples, where a store's chunks begin that
// divide it: a store reads a chunk as a whole, whatever is asked for of it, and several at the same time.
const readBytes = 4 << 20

// WriteTo writes the body. It may be called more than once.
func (b *ChannelBody) WriteTo(w io.Writer) (int64, error) {
	o := outputs.Get().(*output)
	o.w, o.n, o.total, o.err = w, 0, 0, nil
	o.bytes(b.header)
	for i := range b.pieces {
		p := &b.pieces[i]
		o.int64(int64(p.sequence))
		o.int64(int64(p.Start))
		o.int64(int64(p.Rows))
	}
	if b.head.Ragged {
		at := int64(0)
		o.int64(at)
		for _, n := range b.counts {
			at += int64(n)
			o.int64(at)
		}
	}
	err := b.rows(o)
	o.flush()
	total := o.total
	if err == nil {
		err = o.err
	}
	o.w, o.err = nil, nil
	outputs.Put(o)
	return total, err
}

// rows copies the rows of all pieces from the store.
func (b *ChannelBody) rows(o *output) error {
	buffer := make([]byte, readBytes)
	for i := range b.pieces {
		p := &b.pieces[i]
		err := b.read(p, buffer, func(data []byte) bool { o.bytes(data); return o.err == nil })
		if lost(err) {
			b.look(b.pieces[i:], buffer)
		}
		if err != nil {
			return b.failed(p, err)
		}
	}
	return nil
}

// look finds out which of the pieces are lost, so that the next body goes without all of them.
func (b *ChannelBody) look(pieces []piece, buffer []byte) {
	for i := range pieces {
		if err := b.read(&pieces[i], buffer, func([]byte) bool { return true }); lost(err) {
			b.batch.lose(b.head.Name, &pieces[i], err)
		}
	}
}

// read hands on the bytes of a piece, until f wants no more.
func (b *ChannelBody) read(p *piece, buffer []byte, f func(data []byte) bool) error {
	for from, left := b.span(p); left > 0; {
		n := min(left, readBytes-from%readBytes)
		if err := b.blobs.ReadBlob(p.id, p.Blob, from, buffer[:n]); err != nil {
			return err
		}
		if !f(buffer[:n]) {
			return nil
		}
		from, left = from+n, left-n
	}
	return nil
}

// span is where the bytes of a piece begin in its blob, and how many they are.
func (b *ChannelBody) span(p *piece) (from, size int64) {
	if b.head.Ragged {
		return p.first, p.values * int64(b.head.RowBytes())
	}
	return int64(p.Skip) * int64(b.head.RowBytes()), int64(p.Rows) * int64(b.head.RowBytes())
}
