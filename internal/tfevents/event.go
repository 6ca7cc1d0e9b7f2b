package tfevents

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/headway-rl/headway/internal/wire"
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
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
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
	return wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldWallTime:
			event.WallTime = math.Float64frombits(f.Bits)
		case fieldStep:
			event.Step = int64(f.Bits)
		case fieldFileVersion:
			event.FileVersion = string(f.Bytes)
		case fieldSummary:
			return wire.Fields(f.Bytes, func(f wire.Field) error {
				if f.Number != fieldValue {
					return nil
				}
				return decodeValue(f.Bytes, event)
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
	err := wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldTag:
			tag = string(f.Bytes)
		case fieldSimple:
			number, found = float64(math.Float32frombits(uint32(f.Bits))), true
		case fieldTensor:
			tensor = f.Bytes
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
