package payload

import (
	"encoding/binary"

	"github.com/headway-rl/headway/loop/channel"
)

// appendChannels appends the forms of side channels and the places of their rows. The rows lie in blobs of their own.
func appendChannels(dst []byte, channels []channel.Channel) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(channels)))
	for i := range channels {
		c := &channels[i]
		dst = appendText(dst, c.Name)
		dst = appendText(dst, string(c.DType))
		dst = appendText(dst, string(c.Align))
		dst = append(dst, flag(c.Ragged))
		dst = binary.AppendVarint(dst, int64(c.Sequence))
		dst = binary.AppendUvarint(dst, uint64(len(c.Row)))
		for _, d := range c.Row {
			dst = binary.AppendVarint(dst, int64(d))
		}
		dst = binary.AppendUvarint(dst, uint64(len(c.Parts)))
		for _, p := range c.Parts {
			for _, v := range [...]int32{p.Start, p.Rows, p.Blob, p.Skip} {
				dst = binary.AppendVarint(dst, int64(v))
			}
		}
	}
	return dst
}

// channels reads what appendChannels has written.
func (f *fields) channels() []channel.Channel {
	var out []channel.Channel
	for range f.length() {
		c := channel.Channel{Header: channel.Header{Name: f.text(), DType: channel.DType(f.text()), Align: channel.Align(f.text())}}
		if ragged := f.bytes(1); ragged != nil {
			c.Ragged = ragged[0] != 0
		}
		c.Sequence = int32(f.varint())
		for range f.length() {
			c.Row = append(c.Row, int(f.varint()))
		}
		for range f.length() {
			c.Parts = append(c.Parts, channel.Part{Start: int32(f.varint()), Rows: int32(f.varint()), Blob: int32(f.varint()), Skip: int32(f.varint())})
		}
		out = append(out, c)
	}
	return out
}
