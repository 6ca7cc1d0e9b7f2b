package wandb

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Item is one key with its value as JSON, in which NaN and Infinity may stand.
type Item struct {
	// Key has nested keys joined by dots.
	Key string
	// JSON is valid until the next record is read.
	JSON []byte
}

// KeyMax is beyond how many bytes a key is cut off; a key of more than these was longer.
const KeyMax = 4096

// ItemsMax is how many items a record has at most.
const ItemsMax = 1 << 16

// Record is a record of a run file; what is not of these kinds is passed over. It is
// valid until the next one is read.
type Record struct {
	// Config are settings, those that a run begins with or that were set later.
	Config []Item
	// History is a row of logged values, Step its number where HasStep.
	History []Item
	Step    int64
	HasStep bool
}

// Reader reads a run file as a stream.
type Reader struct {
	frames *frames
	record Record
}

// NewReader checks a file's header.
func NewReader(from io.Reader) (*Reader, error) {
	f, err := newFrames(from)
	if err != nil {
		return nil, err
	}
	return &Reader{frames: f}, nil
}

// Read returns how many bytes of the file have been read.
func (r *Reader) Read() int64 { return r.frames.at }

// Next returns the next record of the kinds that Record has; io.EOF at the end. After
// ErrDamaged, ErrLong and ErrTorn it can be called again.
func (r *Reader) Next() (*Record, error) {
	for {
		data, err := r.frames.next()
		if err != nil {
			return nil, err
		}
		known, err := r.decode(data)
		if err != nil {
			return nil, err
		}
		if known {
			return &r.record, nil
		}
	}
}

// Numbers of fields, as in wandb_internal.proto.
const (
	fieldHistory, fieldConfig, fieldRun       = 2, 5, 17 // of Record
	fieldRunConfig                            = 4        // of RunRecord
	fieldItem, fieldStep, fieldStepNum        = 1, 2, 1  // of HistoryRecord; of HistoryStep
	fieldUpdate                               = 1        // of ConfigRecord
	fieldKey, fieldNested                     = 1, 2     // of items
	fieldNone, fieldBool, fieldInt, fieldReal = 3, 4, 5, 6
	fieldText, fieldJSON, fieldValueJSON      = 7, 8, 16
)

// decode reports whether a record is of a kind that Record has.
func (r *Reader) decode(data []byte) (bool, error) {
	r.record = Record{Config: r.record.Config[:0], History: r.record.History[:0]}
	known := false
	err := fields(data, func(number int, value field) error {
		switch number {
		case fieldHistory:
			known = true
			return r.history(value.bytes)
		case fieldConfig:
			known = true
			return r.config(value.bytes)
		case fieldRun:
			known = true
			return fields(value.bytes, func(number int, value field) error {
				if number == fieldRunConfig {
					return r.config(value.bytes)
				}
				return nil
			})
		}
		return nil
	})
	return known, err
}

func (r *Reader) history(data []byte) error {
	return fields(data, func(number int, value field) error {
		switch number {
		case fieldItem:
			item, err := decodeItem(value.bytes)
			if len(r.record.History) >= ItemsMax {
				return ErrMany
			}
			r.record.History = append(r.record.History, item)
			return err
		case fieldStep:
			r.record.HasStep = true // of which a zero is not written
			return fields(value.bytes, func(number int, value field) error {
				if number == fieldStepNum {
					r.record.Step = int64(value.number)
				}
				return nil
			})
		}
		return nil
	})
}

func (r *Reader) config(data []byte) error {
	return fields(data, func(number int, value field) error {
		if number != fieldUpdate {
			return nil
		}
		item, err := decodeItem(value.bytes)
		if len(r.record.Config) >= ItemsMax {
			return ErrMany
		}
		r.record.Config = append(r.record.Config, item)
		return err
	})
}

// decodeItem reads a key with its value, which newer versions of the library write in binary.
func decodeItem(data []byte) (item Item, err error) {
	err = fields(data, func(number int, value field) error {
		switch number {
		case fieldKey:
			item.Key = string(value.bytes[:min(len(value.bytes), KeyMax+1)])
		case fieldNested:
			if len(item.Key) > KeyMax {
				return nil // or each of many parts would copy all before it
			}
			if item.Key != "" {
				item.Key += "."
			}
			item.Key += string(value.bytes[:min(len(value.bytes), KeyMax+1)])
		case fieldNone:
			item.JSON = []byte("null")
		case fieldBool:
			item.JSON = strconv.AppendBool(nil, value.number != 0)
		case fieldInt:
			item.JSON = strconv.AppendInt(nil, int64(value.number>>1)^-int64(value.number&1), 10)
		case fieldReal:
			item.JSON = appendReal(math.Float64frombits(value.number))
		case fieldText:
			item.JSON = strconv.AppendQuote(nil, string(value.bytes))
		case fieldJSON, fieldValueJSON:
			item.JSON = value.bytes
		}
		return nil
	})
	return item, err
}

func appendReal(x float64) []byte {
	switch {
	case math.IsNaN(x):
		return []byte("NaN")
	case math.IsInf(x, 1):
		return []byte("Infinity")
	case math.IsInf(x, -1):
		return []byte("-Infinity")
	}
	return strconv.AppendFloat(nil, x, 'g', -1, 64)
}

// field is a protobuf field's value: a number, or bytes.
type field struct {
	number uint64
	bytes  []byte
}

// fields hands a message's fields to a function, in order.
func fields(data []byte, take func(number int, value field) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return fmt.Errorf("%w: a field's tag is wrong", ErrDamaged)
		}
		data = data[n:]
		var value field
		switch tag & 7 {
		case 0:
			value.number, n = binary.Uvarint(data)
			if n <= 0 {
				return fmt.Errorf("%w: a number is cut off", ErrDamaged)
			}
		case 1:
			n = 8
			if len(data) < n {
				return fmt.Errorf("%w: a number is cut off", ErrDamaged)
			}
			value.number = binary.LittleEndian.Uint64(data)
		case 2:
			length, m := binary.Uvarint(data)
			if m <= 0 || length > uint64(len(data)-m) {
				return fmt.Errorf("%w: a field is cut off", ErrDamaged)
			}
			n = m + int(length)
			value.bytes = data[m:n]
		case 5:
			n = 4
			if len(data) < n {
				return fmt.Errorf("%w: a number is cut off", ErrDamaged)
			}
			value.number = uint64(binary.LittleEndian.Uint32(data))
		default:
			return fmt.Errorf("%w: a field of unknown form", ErrDamaged)
		}
		data = data[n:]
		if err := take(int(tag>>3), value); err != nil {
			return err
		}
	}
	return nil
}
