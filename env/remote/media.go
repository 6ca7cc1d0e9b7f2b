package remote

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// restoringMost is how many rollouts are read at once that a process before this one played.
const restoringMost = 32

// restoring reads what was kept of rollouts. Those that are restored at a time share the bytes of their media.
type restoring struct {
	// slots has an element for each whose turns are read.
	slots chan struct{}

	mu sync.Mutex
	// underWay is how many were begun and have not ended. Bytes are of their media.
	underWay int
	bytes    map[media.Hash][]byte
}

// begin says that a rollout is to be restored. End follows.
func (r *restoring) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay++; r.bytes == nil {
		r.bytes = make(map[media.Hash][]byte)
	}
}

func (r *restoring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay--; r.underWay == 0 {
		r.bytes = nil
	}
}

// read reads what was kept of a rollout.
func (r *restoring) read(turns port.Turns, id port.RolloutID) ([]kept, error) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	entries, err := turns.ReadTurns(id)
	if err != nil {
		return nil, err
	}
	all := make([]kept, len(entries))
	for i, data := range entries {
		k := &all[i]
		if err := json.Unmarshal(data, k); err != nil {
			return nil, err
		}
		if k.Seen != nil {
			k.Turn = k.Seen
			r.share(k.Turn.Media)
		}
		entries[i] = nil
	}
	return all, nil
}

// share gives media the bytes that another rollout has read.
func (r *restoring) share(items []media.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range items {
		switch m := &items[i]; {
		case m.Data == nil:
		case r.bytes[m.Hash] != nil:
			m.Data = r.bytes[m.Hash]
		default:
			r.bytes[m.Hash] = m.Data
		}
	}
}

// medium is the bytes of a medium that stands among earlier ones of a turn, or in the record, nil for others.
func (r *record) medium(earlier []media.Item, hash media.Hash) []byte {
	if data := bytesOf(earlier, hash); data != nil {
		return data
	}
	for _, b := range r.branches {
		if data := bytesOf(b.media, hash); data != nil {
			return data
		}
	}
	return nil
}

// bytesOf is the bytes of a medium among others, nil where none has them.
func bytesOf(items []media.Item, hash media.Hash) []byte {
	for i := range items {
		if items[i].Hash == hash && items[i].Data != nil {
			return items[i].Data
		}
	}
	return nil
}

// withoutKnown returns media, each with its bytes once, and without those that stand in the record.
func (r *record) withoutKnown(items []media.Item) []media.Item {
	out := slices.Clone(items)
	for i := range out {
		if r.medium(out[:i], out[i].Hash) != nil {
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
			m.Data = r.medium(items[:i], m.Hash)
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
