package payload

import (
	"encoding/binary"

	"github.com/headway-rl/headway/loop/media"
)

// appendMedia appends which media there are and where their placeholders lie. The bytes lie in blobs of the group. Media
// that one processor has made say so once.
func appendMedia(dst []byte, items []media.Item) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(items)))
	last := media.Processor{}
	for i := range items {
		m := &items[i]
		dst = appendText(dst, m.Modality)
		dst = append(dst, m.Hash[:]...)
		dst = appendText(dst, m.Type)
		for _, v := range [...]int64{m.Size, int64(m.Offset), int64(m.Length), int64(m.Blob)} {
			dst = binary.AppendVarint(dst, v)
		}
		dst = append(dst, flag(m.Processor != last))
		if m.Processor != last {
			last = m.Processor
			dst = appendText(appendText(appendText(dst, last.Name), last.Revision), last.Settings)
		}
	}
	return dst
}

// media reads what appendMedia has written.
func (f *fields) media() []media.Item {
	var out []media.Item
	last := media.Processor{}
	for range f.length() {
		m := media.Item{Modality: f.text()}
		copy(m.Hash[:], f.bytes(len(m.Hash)))
		m.Type = f.text()
		m.Size, m.Offset, m.Length, m.Blob = f.varint(), int32(f.varint()), int32(f.varint()), int32(f.varint())
		if other := f.bytes(1); other != nil && other[0] != 0 {
			last = media.Processor{Name: f.text(), Revision: f.text(), Settings: f.text()}
		}
		m.Processor = last
		out = append(out, m)
	}
	return out
}
