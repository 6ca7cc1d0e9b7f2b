package track

import (
	"encoding/json"

	"github.com/headway-rl/headway/loop"
)

// Parked is an attempt that stands interrupted.
type Parked struct {
	Group          loop.GroupID
	Sample, Number int32
	// First is what Attempt.First was.
	First int32
	// Cell is that of the engine that it was interrupted on.
	Cell int32 `json:",omitempty"`
	Past
}

// Past is the history of an attempt until it was interrupted last.
type Past struct {
	// Interruptions counts those with more tokens than before, and Tokens how many there were at the last.
	Interruptions, Tokens int32
	// Version is the one that its engine served when it came into its slot.
	Version int32
	// SlotNS is its time in slots until then.
	SlotNS int64
}

// Backlog holds interrupted attempts in the order in which they were interrupted, which is most often the order in which
// they are resumed. The zero value is empty.
type Backlog struct {
	entries []Parked
	head    int // entries before it are gone
}

// BacklogOf returns a backlog of these attempts, the longest waiting first.
func BacklogOf(entries []Parked) Backlog { return Backlog{entries: entries} }

// Len is how many there are.
func (b *Backlog) Len() int { return len(b.entries) - b.head }

// Entries are all, the longest waiting first; good until the next step.
func (b *Backlog) Entries() []Parked { return b.entries[b.head:] }

// Find returns the attempt that an action names, nil if it is not there.
func (b *Backlog) Find(a *loop.Action) *Parked {
	if i := b.index(a); i >= 0 {
		return &b.entries[i]
	}
	return nil
}

func (b *Backlog) index(a *loop.Action) int {
	for i := b.head; i < len(b.entries); i++ {
		if p := &b.entries[i]; p.Group == a.Group && p.Sample == a.Sample && p.Number == a.Attempt {
			return i
		}
	}
	return -1
}

func (b *Backlog) push(p Parked) {
	if b.head > len(b.entries)/2 && len(b.entries) == cap(b.entries) { // else each push would move them all
		b.entries = append(b.entries[:0], b.entries[b.head:]...)
		b.head = 0
	}
	b.entries = append(b.entries, p)
}

// take removes the attempt that an action names; ok is false if it is not there.
func (b *Backlog) take(a *loop.Action) (p Parked, ok bool) {
	i := b.index(a)
	if i < 0 {
		return Parked{}, false
	}
	p = b.entries[i]
	copy(b.entries[b.head+1:i+1], b.entries[b.head:i])
	if b.head++; b.head == len(b.entries) {
		b.clear()
	}
	return p, true
}

func (b *Backlog) clear() { b.entries, b.head = b.entries[:0], 0 }

// drop removes those of a cell, and returns the list with them added.
func (b *Backlog) drop(cell int32, to []Parked) []Parked {
	rest := b.entries[:0]
	for _, p := range b.Entries() {
		if p.Cell == cell {
			to = append(to, p)
		} else {
			rest = append(rest, p)
		}
	}
	b.entries, b.head = rest, 0
	return to
}

// MarshalJSON writes the list of attempts.
func (b Backlog) MarshalJSON() ([]byte, error) { return json.Marshal(b.Entries()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Backlog) UnmarshalJSON(data []byte) error {
	b.head = 0
	return json.Unmarshal(data, &b.entries)
}
