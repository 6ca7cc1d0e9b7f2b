package batch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// mediaOf lists the media of a share, in the order of its tokens, and what has made their placeholders.
func mediaOf(p *Batch, groups []int) (out []protocol.Medium, by []media.Processor) {
	sequence := 0
	for _, g := range groups {
		for i := range p.groups[g].Samples {
			s := &p.groups[g].Samples[i]
			next := 0
			eachSequence(s, func(first, end int) {
				for ; next < len(s.Media) && int(s.Media[next].Offset) < end; next++ {
					m := &s.Media[next]
					at := slices.Index(by, m.Processor)
					if at < 0 {
						at, by = len(by), append(by, m.Processor)
					}
					out = append(out, protocol.Medium{Sequence: sequence, Offset: m.Offset - int32(first), Length: m.Length, Modality: m.Modality,
						SHA256: m.Hash.String(), Type: m.Type, Size: m.Size, Processor: at})
				}
				sequence++
			})
		}
	}
	return out, by
}

// MediumBody is the bytes of a medium as they go over the wire. It holds none: they are read from the store as they are
// written, and compared with their hash first. It implements api.Body.
type MediumBody struct {
	blobs port.Blobs
	id    port.RolloutID
	item  media.Item
}

// Medium makes the body of a medium of the share of groups that Share has given a rank.
func (p *Batch) Medium(blobs port.Blobs, named string, rank, worldSize int) (*MediumBody, error) {
	hash, ok := media.ParseHash(named)
	if !ok {
		return nil, protocol.Refuse(protocol.CodeInvalid, "%.80q names no medium: want its SHA-256 in 64 hexadecimal digits", named)
	}
	groups, err := p.plan(max(worldSize, 1))
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= len(groups) {
		return nil, fmt.Errorf("batch: rank %d of %d, want from 0 to %d", rank, len(groups), len(groups)-1)
	}
	for _, g := range groups[rank] {
		for i := range p.groups[g].Samples {
			s := &p.groups[g].Samples[i]
			if at := slices.IndexFunc(s.Media, func(m media.Item) bool { return m.Hash == hash }); at >= 0 {
				return &MediumBody{blobs: blobs, id: port.GroupMedia(s.ID.Group), item: s.Media[at]}, nil
			}
		}
	}
	return nil, protocol.Refuse(protocol.CodeNotFound, "the share has no medium %v", hash)
}

// Size is the number of bytes.
func (b *MediumBody) Size() int64 { return b.item.Size }

// WriteTo writes the bytes.
func (b *MediumBody) WriteTo(w io.Writer) (int64, error) {
	data := make([]byte, b.item.Size)
	if err := b.blobs.ReadBlob(b.id, b.item.Blob, 0, data); err != nil {
		return 0, err
	}
	if sha256.Sum256(data) != [sha256.Size]byte(b.item.Hash) {
		return 0, fmt.Errorf("%s %v: %w", b.item.Modality, b.item.Hash, port.ErrBlobDamaged)
	}
	n, err := w.Write(data)
	return int64(n), err
}

// Close does nothing.
func (b *MediumBody) Close() error { return nil }
