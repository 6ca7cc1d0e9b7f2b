package tfevents

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Scalar is one number under a tag.
type Scalar struct {
	Tag   string
	Value float64
}

// Event is what was logged at one moment.
type Event struct {
	// WallTime is Unix time in seconds.
	WallTime float64
	Step     int64
	// FileVersion is set in a file's first event alone.
	FileVersion string
	// Scalars are valid until the next event is read. Values of other kinds are passed over.
	Scalars []Scalar
	// Texts are values that are texts, by tag, as TensorBoard's hyperparameter and text plugins keep
	// them; nil where there are none.
	Texts map[string]string
}

// Reader reads an event file as a stream.
type Reader struct {
	from   *bufio.Reader
	buffer []byte
	read   int64
	lost   bool
	event  Event
}

// NewReader reads from a file's beginning.
func NewReader(from io.Reader) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, 1<<18)}
}

// Read returns how many bytes of the file have been read.
func (r *Reader) Read() int64 { return r.read }

// Next returns the next event, valid until the one after it; io.EOF at the end. After ErrDamaged it can be
// called again; after ErrTorn and ErrLost it returns io.EOF.
func (r *Reader) Next() (*Event, error) {
	if r.lost {
		return nil, io.EOF
	}
	data, read, err := nextFrame(r.from, r.buffer)
	r.buffer = data[:0]
	r.read += read
	if err != nil {
		r.lost = err == ErrLost || err == ErrTorn
		return nil, err
	}
	r.event = Event{Scalars: r.event.Scalars[:0]}
	if err := decodeEvent(data, &r.event); err != nil {
		return nil, err
	}
	return &r.event, nil
}

// Numbers of fields, as in event.proto, summary.proto and tensor.proto.
const (
	fieldWallTime, fieldStep, fieldFileVersion, fieldSummary = 1, 2, 3, 5
	fieldValue                                               = 1
	fieldTag, fieldSimple, fieldTensor                       = 1, 2, 8
	fieldKind, fieldContent                                  = 1, 4
	fieldFloats, fieldDoubles, fieldInts, fieldStrings       = 5, 6, 7, 8
	fieldLongs, fieldBools, fieldHalves                      = 10, 11, 13
	fieldUint32s, fieldUint64s                               = 16, 17
)

func decodeEvent(data []byte, event *Event) error {
	return fields(data, func(number int, value field) error {
		switch number {
		case fieldWallTime:
			event.WallTime = math.Float64frombits(value.number)
		case fieldStep:
			event.Step = int64(value.number)
		case fieldFileVersion:
			event.FileVersion = string(value.bytes)
		case fieldSummary:
			return fields(value.bytes, func(number int, value field) error {
				if number != fieldValue {
					return nil
				}
				return decodeValue(value.bytes, event)
			})
		}
		return nil
	})
}

// decodeValue reads one tag's value: a simple one, as TensorBoard 1, torch and tensorboardX write, or a tensor of
// one element, as TensorFlow 2 does.
func decodeValue(data []byte, event *Event) error {
	tag, found := "", false
	var number float64
	var tensor []byte
	err := fields(data, func(n int, value field) error {
		switch n {
		case fieldTag:
			tag = string(value.bytes)
		case fieldSimple:
			number, found = float64(math.Float32frombits(uint32(value.number))), true
		case fieldTensor:
			tensor = value.bytes
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !found && tensor != nil {
		var text string
		var isText bool
		number, found, text, isText, err = decodeTensor(tensor)
		if err != nil {
			return err
		}
		if isText {
			if event.Texts == nil {
				event.Texts = map[string]string{}
			}
			event.Texts[tag] = text
		}
	}
	if found {
		event.Scalars = append(event.Scalars, Scalar{tag, number})
	}
	return nil
}

// field is a protobuf field's value: a number, or bytes.
type field struct {
	number uint64
	bytes  []byte
	wire   int
}

// fields hands a message's fields to a function, in order.
func fields(data []byte, take func(number int, value field) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return fmt.Errorf("%w: a field's tag is wrong", ErrDamaged)
		}
		data = data[n:]
		value := field{wire: int(tag & 7)}
		switch value.wire {
		case 0:
			value.number, n = binary.Uvarint(data)
		case 1:
			n = fixed(data, 8)
			if n > 0 {
				value.number = binary.LittleEndian.Uint64(data)
			}
		case 2:
			length, m := binary.Uvarint(data)
			n = -1
			if m > 0 && length <= uint64(len(data)-m) {
				n = m + int(length)
				value.bytes = data[m:n]
			}
		case 5:
			n = fixed(data, 4)
			if n > 0 {
				value.number = uint64(binary.LittleEndian.Uint32(data))
			}
		default:
			n = -1
		}
		if n <= 0 {
			return fmt.Errorf("%w: a field is cut off, or of unknown form", ErrDamaged)
		}
		data = data[n:]
		if err := take(int(tag>>3), value); err != nil {
			return err
		}
	}
	return nil
}

// fixed returns how many bytes a number of n takes, -1 where they are not there.
func fixed(data []byte, n int) int {
	if len(data) < n {
		return -1
	}
	return n
}
