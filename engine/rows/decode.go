package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/bits"
	"strconv"
	"sync"

	"github.com/headway-rl/headway/loop/channel"
)

const (
	// pieceText is how much text is decoded at once where numbers change their type.
	pieceText = 32 << 10
	// headText is how much is decoded at once to find the head of a .npy file, headMost the longest head.
	headText = 256
	headMost = 4 << 10
	// spareBytes is what a decoder may write behind the data before it sees the padding.
	spareBytes = 3
)

// pieces are decoded before their numbers change their type.
var pieces = sync.Pool{New: func() any { return new([4 + pieceText/4*3]byte) }}

// decode decodes text of whole groups of four letters.
func (f *Field) decode(ctx context.Context, text []byte) {
	for len(text) > 0 && f.problem == "" {
		switch {
		case f.padded:
			f.fail(Odd)
		case f.number == 0 && f.form.Wire == Numpy:
			n := min(len(text), headText)
			f.readHead(ctx, text[:n])
			text = text[n:]
		case f.number == 0:
			f.number = 4
			f.begin(ctx, f.likely()*f.form.RowBytes())
		case f.number == f.form.DType.Bytes():
			f.decodeSame(text)
			return
		default:
			n := min(len(text), pieceText)
			f.decodePiece(text[:n])
			text = text[n:]
		}
	}
}

// begin makes room for rows.
func (f *Field) begin(ctx context.Context, size int) {
	if size > f.limit() {
		f.fail(Count)
		return
	}
	if why := f.reserve(ctx, size+spareBytes, !f.beside); why != "" {
		f.fail(why)
	}
}

// limit is how many bytes the rows may have.
func (f *Field) limit() int {
	if f.size >= 0 {
		return f.size
	}
	return f.most() * f.form.RowBytes()
}

// extend makes room for more bytes, and says why there is none.
func (f *Field) extend(more int) bool {
	if int64(len(f.data)+more) <= f.held {
		return true
	}
	switch limit := f.limit() + spareBytes; {
	case len(f.data)+more > limit && f.size >= 0:
		f.fail(Odd)
	case len(f.data)+more > limit:
		f.fail(Count)
	case !f.grow(more, limit):
		f.fail(NoRoom)
	}
	return f.problem == ""
}

// decodeSame decodes text of numbers that keep their type.
func (f *Field) decodeSame(text []byte) {
	most := len(text) / 4 * 3
	if !f.extend(most) {
		return
	}
	at := len(f.data)
	n, err := decodeText(f.data[at:at+most], text)
	if err != nil {
		f.fail(Odd)
		return
	}
	f.data, f.padded = f.data[:at+n], n < most
}

// decodePiece decodes text of numbers that change their type.
func (f *Field) decodePiece(text []byte) {
	piece := pieces.Get().(*[4 + pieceText/4*3]byte)
	defer pieces.Put(piece)
	most, before := len(text)/4*3, copy(piece[:], f.rest[:f.rested])
	n, err := decodeText(piece[before:], text)
	if err != nil {
		f.fail(Odd)
		return
	}
	f.padded = n < most
	f.convert(piece[:before+n])
}

// convert adds numbers in the type that is kept. The last bytes may be of a number that goes on.
func (f *Field) convert(from []byte) {
	whole := len(from)
	if f.number != f.form.DType.Bytes() {
		whole -= len(from) % f.number
	}
	f.rested = copy(f.rest[:], from[whole:])
	from = from[:whole]
	width := f.form.DType.Bytes()
	more := whole * width / f.number
	if !f.extend(more) {
		return
	}
	at := len(f.data)
	f.data = f.data[:at+more]
	if why := change(f.data[at:], from, width, f.number); why != "" {
		f.fail(why)
	}
}

// change writes numbers of so many bytes as numbers of another width.
func change(to, from []byte, width, number int) Reason {
	all := uint32(0)
	switch {
	case number == width:
		copy(to, from)
	case number == 1: // to two
		for i, b := range from {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(b))
		}
	case number == 2: // to one
		for i := range to {
			v := binary.LittleEndian.Uint16(from[2*i:])
			all |= uint32(v)
			to[i] = byte(v)
		}
	case width == 1: // four to one
		wide := uint64(0) // two numbers at once
		for len(to) >= 4 && len(from) >= 16 {
			a, b := binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
			wide |= a | b
			binary.LittleEndian.PutUint32(to, uint32(a&0xff|a>>24&0xff00|b<<16&0xff0000|b>>8&0xff000000))
			to, from = to[4:], from[16:]
		}
		all = uint32(wide) | uint32(wide>>32)
		for i := range to {
			v := binary.LittleEndian.Uint32(from[4*i:])
			all |= v
			to[i] = byte(v)
		}
	default: // four to two
		for i := 0; i+2 <= len(to); i += 2 {
			v := binary.LittleEndian.Uint32(from[2*i:])
			all |= v
			binary.LittleEndian.PutUint16(to[i:], uint16(v))
		}
	}
	switch n := bits.Len32(all); {
	case n == 32:
		return Negative
	case n > 8*width && number != width:
		return Beyond
	}
	return ""
}

// readHead decodes the beginning of a .npy file, until its head is whole.
func (f *Field) readHead(ctx context.Context, text []byte) {
	var piece [headText / 4 * 3]byte
	n, err := decodeText(piece[:], text)
	if err != nil {
		f.fail(Odd)
		return
	}
	f.padded = n < len(text)/4*3
	f.head = append(f.head, piece[:n]...)
	head, size, ok := parseHead(f.head)
	switch {
	case !ok, size == 0 && len(f.head) > headMost:
		f.fail(Odd)
		return
	case size == 0:
		return
	}
	row := f.form.Row
	if len(head.shape) != 1+len(row) || len(row) != 2 || head.shape[1] != row[0] || head.shape[2] != row[1] {
		f.fail(Odd)
		return
	}
	if head.shape[0] > f.most() { // before it is multiplied
		f.fail(Count)
		return
	}
	f.number, f.size = head.dtype.Bytes(), head.shape[0]*f.form.RowBytes()
	if f.begin(ctx, f.size); f.problem == "" && len(f.head) > size {
		f.convert(f.head[size:])
	}
}

// head is what a .npy file says of its numbers.
type head struct {
	dtype channel.DType
	shape []int
}

// parseHead reads the head of a .npy file of u8 or u16, in the order of C. size is its length, 0 where it is not
// whole. It is false for what is no such file.
func parseHead(file []byte) (h head, size int, ok bool) {
	const magic = "\x93NUMPY"
	if len(file) < 12 {
		return h, 0, bytes.HasPrefix([]byte(magic), file[:min(len(file), len(magic))])
	}
	begin, length := 10, int(binary.LittleEndian.Uint16(file[8:]))
	if file[6] > 1 {
		begin, length = 12, int(binary.LittleEndian.Uint32(file[8:]))
	}
	if !bytes.HasPrefix(file, []byte(magic)) || length > headMost {
		return h, 0, false
	}
	if len(file) < begin+length {
		return h, 0, true
	}
	words := file[begin : begin+length]
	switch {
	case bytes.Contains(words, []byte(`'descr': '|u1'`)):
		h.dtype = channel.U8
	case bytes.Contains(words, []byte(`'descr': '<u2'`)):
		h.dtype = channel.U16
	default:
		return h, 0, false
	}
	_, shape, found := bytes.Cut(words, []byte(`'shape': (`))
	shape, _, closed := bytes.Cut(shape, []byte(`)`))
	if !found || !closed || !bytes.Contains(words, []byte(`'fortran_order': False`)) {
		return h, 0, false
	}
	for part := range bytes.SplitSeq(shape, []byte(`,`)) {
		if part = bytes.TrimSpace(part); len(part) == 0 {
			continue
		}
		n, err := strconv.ParseUint(string(part), 10, 31)
		if err != nil {
			return h, 0, false
		}
		h.shape = append(h.shape, int(n))
	}
	return h, begin + length, true
}
