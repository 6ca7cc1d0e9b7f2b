package loop

import "encoding/json"

// waiting are samples that wait for a slot, the longest waiting first. The zero value is empty. Taking the first moves none of
// the others: as many may wait as there are slots, and all of them after every batch.
type waiting struct {
	entries []retry
	head    int // entries before it are gone
}

func (w *waiting) len() int { return len(w.entries) - w.head }

// all is good until the next change.
func (w *waiting) all() []retry { return w.entries[w.head:] }

// push appends one. It makes use again of what is gone at the front once that is half, so that each is moved once at most.
func (w *waiting) push(r retry) {
	if len(w.entries) == cap(w.entries) && w.head > len(w.entries)/2 {
		w.entries, w.head = append(w.entries[:0], w.all()...), 0
	}
	w.entries = append(w.entries, r)
}

// pop removes the first of those that are there.
func (w *waiting) pop() retry {
	r := w.entries[w.head]
	if w.head++; w.head == len(w.entries) {
		w.entries, w.head = w.entries[:0], 0
	}
	return r
}

// remove takes out one of those that are there.
func (w *waiting) remove(i int) {
	all := w.all()
	copy(all[1:i+1], all[:i])
	w.pop()
}

// cut takes out those of a cell.
func (w *waiting) cut(cell int32) (gone []retry) {
	kept := w.entries[:w.head]
	for _, r := range w.all() {
		if r.Cell != cell {
			kept = append(kept, r)
		} else {
			gone = append(gone, r)
		}
	}
	w.entries = kept
	return gone
}

// drop removes a group's samples.
func (w *waiting) drop(gi int32) {
	kept := w.entries[:w.head]
	for _, r := range w.all() {
		if r.Group != gi {
			kept = append(kept, r)
		}
	}
	w.entries = kept
}

// MarshalJSON writes the list of those that are there.
func (w waiting) MarshalJSON() ([]byte, error) { return json.Marshal(w.all()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (w *waiting) UnmarshalJSON(data []byte) error {
	w.head = 0
	return json.Unmarshal(data, &w.entries)
}
