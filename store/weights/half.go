package weights

import (
	"encoding/binary"
	"math"
)

// bf16Value is the value of a BF16, bit for bit.
func bf16Value(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// bf16Bits rounds to the nearest BF16, ties to even. A NaN stays one, with its sign.
func bf16Bits(v float32) uint16 {
	b := math.Float32bits(v)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x0040 // quiet, so that no payload bits lost make it an infinity
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// f16Value is the value of an F16. Every one of them is a float32.
func f16Value(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, mantissa := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	case 0:
		// The mantissa counts units of 2^-24, exactly.
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*0x1p-24))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}

// decodeBF16 fills floats from BF16 elements.
func decodeBF16(values []float32, data []byte) {
	for i := range values {
		values[i] = bf16Value(binary.LittleEndian.Uint16(data[2*i:]))
	}
}

// decodeF16 fills floats from F16 elements.
func decodeF16(values []float32, data []byte) {
	for i := range values {
		values[i] = f16Value(binary.LittleEndian.Uint16(data[2*i:]))
	}
}
