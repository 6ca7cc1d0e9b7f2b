package remote

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop/media"
)

// medium is the bytes of a medium that stands in the record, nil for others.
func (r *record) medium(hash media.Hash) []byte {
	for _, b := range r.branches {
		for i := range b.media {
			if b.media[i].Hash == hash {
				return b.media[i].Data
			}
		}
	}
	return nil
}

// withoutKnown returns media without the bytes of those that stand in the record.
func (r *record) withoutKnown(items []media.Item) []media.Item {
	out := slices.Clone(items)
	for i := range out {
		if r.medium(out[i].Hash) != nil {
			out[i].Data = nil
		}
	}
	return out
}

// withBytes gives media the bytes that withoutKnown has left out.
func (r *record) withBytes(items []media.Item) error {
	for i := range items {
		m := &items[i]
		if m.Data == nil {
			m.Data = r.medium(m.Hash)
		}
		if m.Data == nil {
			return fmt.Errorf("a turn names %s %v, and no turn has its bytes", m.Modality, m.Hash)
		}
	}
	return nil
}

// begins reports whether the first so many tokens of a branch, with the media among them, are the prompt of a turn.
func (b *branch) begins(tokens int, t *turn) bool {
	return slices.Equal(b.tokens[:tokens], t.prompt) && media.Begins(b.media, t.media, tokens)
}
