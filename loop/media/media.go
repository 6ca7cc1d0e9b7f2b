// Package media says which images, and other media, stand among the tokens of a prompt, and where.
//
// An engine reads an image in the place of a run of token ids, its placeholder. Ids are expanded here: a placeholder has
// one id for every embedding of its medium, as the engine itself reports it. A trainer then counts as the engine did,
// and rows of side channels, masks and log-probs lie where the ids say.
package media

import (
	"encoding/hex"
	"fmt"
	"slices"
)

// Image is the modality of images, the only one that is served.
const Image = "image"

// Hash is the SHA-256 of a medium's bytes.
type Hash [32]byte

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String has written; ok is false for anything else.
func ParseHash(text string) (h Hash, ok bool) {
	if len(text) != hex.EncodedLen(len(h)) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(text))
	return h, err == nil && h.String() == text
}

// Processor is what made the placeholder, as far as the engine tells; fields are empty where it does not.
type Processor struct {
	// Name and Revision are of the model whose processor it is. Settings are its keyword arguments, as JSON.
	Name     string `json:"name,omitempty"`
	Revision string `json:"revision,omitempty"`
	Settings string `json:"settings,omitempty"`
}

// Item is a medium among tokens.
type Item struct {
	// Modality is [Image].
	Modality string
	Hash     Hash
	// Type is the media type of the bytes, such as image/png, and Size their number.
	Type string
	Size int64
	// Offset is the place of its placeholder among the expanded ids, Length the number of ids, at least 1.
	Offset, Length int32
	Processor      Processor
	// Data are the bytes, and never change. Data is nil where they lie in a store, under the number Blob of the group.
	Data []byte
	Blob int32
}

// End is the place after the placeholder.
func (m *Item) End() int32 { return m.Offset + m.Length }

// Same reports whether both are the same bytes at the same place.
func (m *Item) Same(o *Item) bool {
	return m.Modality == o.Modality && m.Hash == o.Hash && m.Offset == o.Offset && m.Length == o.Length
}

// Check refuses a list that does not lie among so many tokens: placeholders are in order and share no id.
func Check(items []Item, tokens int) error {
	end := int32(0)
	for i := range items {
		m := &items[i]
		if m.Length < 1 || m.Offset < end || int64(m.Offset)+int64(m.Length) > int64(tokens) {
			return fmt.Errorf("%s %d has the placeholder [%d, %d): want at least one id, after %d and among %d tokens", m.Modality, i, m.Offset, int64(m.Offset)+int64(m.Length), end, tokens)
		}
		end = m.End()
	}
	return nil
}

// Within returns the items whose placeholders end at most at a place.
func Within(items []Item, end int) []Item {
	n := 0
	for n < len(items) && int(items[n].End()) <= end {
		n++
	}
	return items[:n]
}

// Begins reports whether the list of a longer sequence begins with that of its first so many tokens.
func Begins(longer, items []Item, tokens int) bool {
	return slices.EqualFunc(Within(longer, tokens), items, func(a, b Item) bool { return a.Same(&b) })
}

// Common is how many of their first n tokens two sequences have in common whose ids are equal so far. A medium that the
// other has not, or not there, ends it.
func Common(a, b []Item, n int) int {
	for i := range max(len(a), len(b)) {
		switch {
		case i < len(a) && i < len(b) && a[i].Same(&b[i]):
			continue
		case i < len(a) && i < len(b):
			return min(n, int(a[i].Offset), int(b[i].Offset))
		case i < len(a):
			return min(n, int(a[i].Offset))
		}
		return min(n, int(b[i].Offset))
	}
	return n
}

// Moved appends a copy of the items, so many places further on.
func Moved(dst, items []Item, by int32) []Item {
	for _, m := range items {
		m.Offset += by
		dst = append(dst, m)
	}
	return dst
}

// Find places media in ids that begin at a place of a prompt: every run of the id pad is a placeholder. An error says
// that there are more runs or fewer than media.
func Find(items []Item, ids []int32, pad, at int32) ([]Item, error) {
	out := make([]Item, 0, len(items))
	for i := 0; i < len(ids); i++ {
		if ids[i] != pad {
			continue
		}
		first := i
		for i < len(ids) && ids[i] == pad {
			i++
		}
		if len(out) == len(items) {
			return nil, fmt.Errorf("%d media were sent, and the rendered chat has more placeholders: a text has the word of one, or the template repeats some", len(items))
		}
		m := items[len(out)]
		m.Offset, m.Length = at+int32(first), int32(i-first)
		out = append(out, m)
	}
	if len(out) != len(items) {
		return nil, fmt.Errorf("%d media were sent, and the rendered chat has %d placeholders: the chat template leaves some out, or lets two touch", len(items), len(out))
	}
	return out, nil
}

// Collapse returns ids with one id in the place of each placeholder, as an engine takes them that expands them itself.
func Collapse(ids []int32, items []Item) []int32 {
	if len(items) == 0 {
		return ids
	}
	out := make([]int32, 0, len(ids))
	from := int32(0)
	for i := range items {
		out = append(out, ids[from:items[i].Offset+1]...)
		from = items[i].End()
	}
	return append(out, ids[from:]...)
}
