// Package wire reads and writes messages of Protocol Buffers field by field, where a handful of
// messages does not pay for generated code.
package wire

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrForm is of bytes that are no message.
var ErrForm = errors.New("a field is cut off, or of unknown form")

// Field is one field of a message: Bytes holds what has a length, Bits everything else.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// Bytes are part of the message.
	Bytes []byte
	Bits  uint64
}

// Is reports whether a field has a number and the type that its message gives it.
func (f Field) Is(number protowire.Number, kind protowire.Type) bool {
	return f.Number == number && f.Type == kind
}

// Fields calls see for every field of a message, in order. It ends with see's error, or ErrForm.
func Fields(message []byte, see func(Field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ErrForm
		}
		message = message[n:]
		f := Field{Number: number, Type: kind}
		switch kind {
		case protowire.VarintType:
			f.Bits, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			f.Bits, n = protowire.ConsumeFixed64(message)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(message)
			f.Bits = uint64(bits)
		case protowire.BytesType:
			f.Bytes, n = protowire.ConsumeBytes(message)
		default:
			n = -1
		}
		if n < 0 {
			return ErrForm
		}
		message = message[n:]
		if err := see(f); err != nil {
			return err
		}
	}
	return nil
}

// AppendBytes adds a field of bytes, or of a message.
func AppendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// AppendText adds a field of text.
func AppendText(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// AppendNumber adds a whole number of 0 or more, or a truth.
func AppendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// AppendDouble adds a real number.
func AppendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}
