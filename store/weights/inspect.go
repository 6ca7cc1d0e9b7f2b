package weights

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// publishedHeaderBytesMax bounds the header of a file that is published, and publishedNamesMax its tensors and the
	// names of its metadata. What is kept of a header takes several times its bytes.
	publishedHeaderBytesMax = 32 << 20
	publishedNamesMax       = 200_000
)

// inspector reads a safetensors file as it comes by, in pieces of any size: its
// header, and whether its floats are finite. It keeps no more than the header.
type inspector struct {
	// scan: NaN and infinity are refused.
	scan bool
	// names bounds the tensors, and the names of the metadata, of a file that is published. Its header's bytes are
	// bounded, too. Zero leaves both to the format.
	names int
	// header is complete once parsed is set.
	parsed bool
	head   []byte
	header Header
	// size of the whole file where it is known beforehand, else -1.
	size int64
	// at is the next byte of the data, entry the tensor it is in.
	at    int64
	entry int
	// part is the beginning of an element whose rest has not come yet.
	part []byte
	// wrong is what Write refused.
	wrong error
}

// Write takes the next piece of the file and refuses it where it is wrong.
func (in *inspector) Write(p []byte) (int, error) {
	rest := p
	if !in.parsed {
		rest, in.wrong = in.readHeader(p)
	}
	if in.wrong == nil {
		in.wrong = in.readData(rest)
	}
	if in.wrong != nil {
		return 0, in.wrong
	}
	return len(p), nil
}

// readHeader gathers the header and returns what comes after it.
func (in *inspector) readHeader(p []byte) ([]byte, error) {
	if need := lengthBytes - len(in.head); need > 0 {
		need = min(need, len(p))
		in.head, p = append(in.head, p[:need]...), p[need:]
		if len(in.head) < lengthBytes {
			return nil, nil
		}
	}
	size := in.size
	if size < 0 {
		size = math.MaxInt64
	}
	length, err := headerLength(in.head, size)
	if err != nil {
		return nil, err
	}
	if in.names > 0 && length > publishedHeaderBytesMax {
		return nil, fmt.Errorf("header of %d bytes, want at most %d in a version", length, publishedHeaderBytesMax)
	}
	need := min(int(lengthBytes+length)-len(in.head), len(p))
	in.head, p = append(in.head, p[:need]...), p[need:]
	if int64(len(in.head)) < lengthBytes+length {
		return nil, nil
	}
	if in.header, err = parseWhole(in.head, in.size, cmp.Or(in.names, math.MaxInt)); err != nil {
		return nil, err
	}
	in.parsed, in.head = true, nil
	return p, nil
}

// readData goes through the tensors that p has bytes of.
func (in *inspector) readData(p []byte) error {
	entries := in.header.Entries
	for len(p) > 0 {
		for in.entry < len(entries) && entries[in.entry].End <= in.at {
			in.entry++
		}
		if in.entry == len(entries) {
			return fmt.Errorf("tensors end at byte %d of the data, but the file goes on", in.at)
		}
		e := &entries[in.entry]
		n := min(int64(len(p)), e.End-in.at)
		if err := in.check(e, p[:n]); err != nil {
			return err
		}
		in.at, p = in.at+n, p[n:]
	}
	return nil
}

// check looks at bytes of one tensor, which begin at in.at.
func (in *inspector) check(e *Entry, p []byte) error {
	f, ok := floatFormats[e.DType]
	if !in.scan || !ok {
		return nil
	}
	at := in.at - int64(len(in.part))
	if len(in.part) > 0 {
		need := min(f.bytes-len(in.part), len(p))
		in.part, p = append(in.part, p[:need]...), p[need:]
		if len(in.part) < f.bytes {
			return nil
		}
		if f.firstBroken(in.part) >= 0 {
			return f.refuse(e, at, in.part)
		}
		in.part, at = in.part[:0], at+int64(f.bytes)
	}
	whole := len(p) / f.bytes * f.bytes
	if i := f.firstBroken(p[:whole]); i >= 0 {
		return f.refuse(e, at+int64(i*f.bytes), p[i*f.bytes:])
	}
	in.part = append(in.part, p[whole:]...)
	return nil
}

// end says what is missing from a file that has come to its end.
func (in *inspector) end() error {
	if !in.parsed {
		return fmt.Errorf("the file ends inside its header, after %d bytes", len(in.head))
	}
	if n := len(in.header.Entries); n > 0 && in.at != in.header.Entries[n-1].End {
		return fmt.Errorf("the file ends at byte %d of its data, want the %d of its tensors", in.at, in.header.Entries[n-1].End)
	}
	return nil
}

// floatFormat says how the elements of a float type that are not finite look: all
// bits of the exponent are set.
type floatFormat struct {
	bytes int
	// magnitude has all bits but the sign, one the lowest of the exponent, sign the
	// sign, in every lane of eight bytes.
	magnitude, one, sign uint64
	value                func([]byte) float64
}

// floatFormats are the types that can be scanned.
var floatFormats = map[DType]floatFormat{
	F32: {4, 0x7fffffff_7fffffff, 0x00800000_00800000, 0x80000000_80000000, func(p []byte) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	}},
	BF16: {2, 0x7fff7fff_7fff7fff, 0x00800080_00800080, 0x80008000_80008000, func(p []byte) float64 {
		return float64(bf16Value(binary.LittleEndian.Uint16(p)))
	}},
	F16: {2, 0x7fff7fff_7fff7fff, 0x04000400_04000400, 0x80008000_80008000, func(p []byte) float64 {
		return float64(f16Value(binary.LittleEndian.Uint16(p)))
	}},
	F64: {8, math.MaxInt64, 1 << 52, 1 << 63, func(p []byte) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	}},
}

// refuse names the element at a byte of a tensor's data.
func (f floatFormat) refuse(e *Entry, at int64, p []byte) error {
	return fmt.Errorf("tensor %q: value %d (row-major) is %v, want every value finite", e.Name, (at-e.Begin)/int64(f.bytes), f.value(p))
}

// firstBroken returns the index of the first element that is not finite, -1 if
// there is none. The bytes are whole elements.
func (f floatFormat) firstBroken(raw []byte) int {
	const block = 16 << 10
	for start := 0; start < len(raw); start += block {
		part := raw[start:min(start+block, len(raw))]
		if !f.suspect(part) {
			continue
		}
		for i := 0; i < len(part); i += f.bytes {
			if v := f.value(part[i:]); v-v != 0 { // NaN for both
				return (start + i) / f.bytes
			}
		}
	}
	return -1
}

// suspect reports whether an exponent is all ones, without a branch an element:
// adding one to such an exponent carries into the cleared sign bit.
func (f floatFormat) suspect(raw []byte) bool {
	carry := uint64(0)
	magnitude, one := f.magnitude, f.one
	for ; len(raw) >= 32; raw = raw[32:] {
		carry |= binary.LittleEndian.Uint64(raw)&magnitude + one
		carry |= binary.LittleEndian.Uint64(raw[8:])&magnitude + one
		carry |= binary.LittleEndian.Uint64(raw[16:])&magnitude + one
		carry |= binary.LittleEndian.Uint64(raw[24:])&magnitude + one
	}
	for ; len(raw) >= 8; raw = raw[8:] {
		carry |= binary.LittleEndian.Uint64(raw)&magnitude + one
	}
	if len(raw) > 0 {
		var last [8]byte
		copy(last[:], raw)
		carry |= binary.LittleEndian.Uint64(last[:])&magnitude + one
	}
	return carry&f.sign != 0
}
