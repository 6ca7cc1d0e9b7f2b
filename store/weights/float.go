package weights

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// nativeLittle says whether this machine's floats lie in memory as they do in a
// file; then tensors are written and read without a copy.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// bytesOf views floats as the bytes they are made of, in the machine's order.
func bytesOf(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}

// appendLittle appends floats as a file has them, on any machine.
func appendLittle(dst []byte, values []float32) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// decodeLittle fills floats from the bytes of a file, on any machine. The two may
// be the same memory.
func decodeLittle(values []float32, data []byte) {
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}

// firstBroken returns the index of the first NaN or infinity, -1 if there is none.
func firstBroken(values []float32) int {
	const block = 1 << 12
	for start := 0; start < len(values); start += block {
		part := values[start:min(start+block, len(values))]
		if !suspect(part) {
			continue
		}
		for i, v := range part {
			if v-v != 0 { // NaN for both
				return start + i
			}
		}
	}
	return -1
}

// suspect reports whether an exponent in part is all ones, without a branch an
// element: adding one to such an exponent carries into the cleared sign bit.
func suspect(part []float32) bool {
	const magnitude, one = 0x7fffffff_7fffffff, 0x00800000_00800000
	raw, carry := bytesOf(part), uint64(0)
	for ; len(raw) >= 32; raw = raw[32:] {
		carry |= binary.NativeEndian.Uint64(raw)&magnitude + one
		carry |= binary.NativeEndian.Uint64(raw[8:])&magnitude + one
		carry |= binary.NativeEndian.Uint64(raw[16:])&magnitude + one
		carry |= binary.NativeEndian.Uint64(raw[24:])&magnitude + one
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		carry |= uint64(binary.NativeEndian.Uint32(raw))&magnitude + 0x00800000
	}
	return carry&0x80000000_80000000 != 0
}
