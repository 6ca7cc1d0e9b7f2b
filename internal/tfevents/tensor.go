package tfevents

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headway-rl/headway/internal/wire"
)

// Kinds of tensors, as in types.proto.
const (
	kindFloat, kindDouble, kindInt32, kindString = 1, 2, 3, 7
	kindInt64, kindBool, kindHalf, kindBfloat16  = 9, 10, 19, 14
)

// decodeTensor reads a tensor of one element. Found is false for more elements or other kinds.
func decodeTensor(data []byte) (number float64, found bool, text string, isText bool, err error) {
	kind, elements := uint64(0), 0
	var content []byte
	err = wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldKind:
			kind = f.Bits
		case fieldContent:
			content = f.Bytes
		case fieldStrings:
			text, isText = string(f.Bytes), true
		case fieldFloats, fieldDoubles, fieldInts, fieldLongs, fieldBools, fieldHalves, fieldUint32s, fieldUint64s:
			var one float64
			var count int
			one, count = numbers(f)
			if elements == 0 && count > 0 {
				number = one
			}
			elements += count
		}
		return nil
	})
	if err == nil && content != nil && elements == 0 {
		number, elements = inContent(kind, content)
	}
	return number, elements == 1, text, isText && kind == kindString, err
}

// numbers reads a field of numbers, packed or single: the first, and how many there are.
func numbers(f wire.Field) (first float64, count int) {
	if f.Type != protowire.BytesType {
		return fromBits(f.Number, f.Bits), 1
	}
	data := f.Bytes
	size := map[protowire.Number]int{fieldFloats: 4, fieldDoubles: 8}[f.Number]
	if size > 0 {
		if len(data) < size {
			return 0, 0
		}
		if size == 4 {
			return fromBits(f.Number, uint64(binary.LittleEndian.Uint32(data))), len(data) / size
		}
		return fromBits(f.Number, binary.LittleEndian.Uint64(data)), len(data) / size
	}
	for len(data) > 0 {
		bits, used := binary.Uvarint(data)
		if used <= 0 {
			return 0, 0
		}
		if count == 0 {
			first = fromBits(f.Number, bits)
		}
		count++
		data = data[used:]
	}
	return first, count
}

func fromBits(n protowire.Number, bits uint64) float64 {
	switch n {
	case fieldFloats:
		return float64(math.Float32frombits(uint32(bits)))
	case fieldDoubles:
		return math.Float64frombits(bits)
	case fieldHalves:
		return half(uint16(bits))
	case fieldUint32s, fieldUint64s:
		return float64(bits)
	default:
		return float64(int64(bits))
	}
}

// inContent reads raw bytes: the first element, and how many there are.
func inContent(kind uint64, content []byte) (first float64, count int) {
	switch {
	case kind == kindFloat && len(content) >= 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(content))), len(content) / 4
	case kind == kindDouble && len(content) >= 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(content)), len(content) / 8
	case kind == kindInt32 && len(content) >= 4:
		return float64(int32(binary.LittleEndian.Uint32(content))), len(content) / 4
	case kind == kindInt64 && len(content) >= 8:
		return float64(int64(binary.LittleEndian.Uint64(content))), len(content) / 8
	case kind == kindBool && len(content) >= 1:
		return float64(content[0]), len(content)
	case kind == kindHalf && len(content) >= 2:
		return half(binary.LittleEndian.Uint16(content)), len(content) / 2
	case kind == kindBfloat16 && len(content) >= 2:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(content)) << 16)), len(content) / 2
	}
	return 0, 0
}

// half is a float of 16 bits.
func half(bits uint16) float64 {
	sign := 1.0
	if bits>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
