package wandb

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headway-rl/headway/internal/wire"
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

// Record is a record of a run file; records of other kinds are passed over. It is
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
	err := wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldHistory:
			known = true
			return r.history(f.Bytes)
		case fieldConfig:
			known = true
			return r.config(f.Bytes)
		case fieldRun:
			known = true
			return wire.Fields(f.Bytes, func(f wire.Field) error {
				if f.Number == fieldRunConfig {
					return r.config(f.Bytes)
				}
				return nil
			})
		}
		return nil
	})
	if errors.Is(err, wire.ErrForm) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return known, err
}

func (r *Reader) history(data []byte) error {
	return wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldItem:
			item, err := decodeItem(f.Bytes)
			if len(r.record.History) >= ItemsMax {
				return ErrMany
			}
			r.record.History = append(r.record.History, item)
			return err
		case fieldStep:
			r.record.HasStep = true // of which a zero is not written
			return wire.Fields(f.Bytes, func(f wire.Field) error {
				if f.Number == fieldStepNum {
					r.record.Step = int64(f.Bits)
				}
				return nil
			})
		}
		return nil
	})
}

func (r *Reader) config(data []byte) error {
	return wire.Fields(data, func(f wire.Field) error {
		if f.Number != fieldUpdate {
			return nil
		}
		item, err := decodeItem(f.Bytes)
		if len(r.record.Config) >= ItemsMax {
			return ErrMany
		}
		r.record.Config = append(r.record.Config, item)
		return err
	})
}

// decodeItem reads a key with its value, which newer versions of the library write in binary.
func decodeItem(data []byte) (item Item, err error) {
	err = wire.Fields(data, func(f wire.Field) error {
		switch f.Number {
		case fieldKey:
			item.Key = string(f.Bytes[:min(len(f.Bytes), KeyMax+1)])
		case fieldNested:
			if len(item.Key) > KeyMax {
				return nil // or each of many parts would copy all before it
			}
			if item.Key != "" {
				item.Key += "."
			}
			item.Key += string(f.Bytes[:min(len(f.Bytes), KeyMax+1)])
		case fieldNone:
			item.JSON = []byte("null")
		case fieldBool:
			item.JSON = strconv.AppendBool(nil, f.Bits != 0)
		case fieldInt:
			item.JSON = strconv.AppendInt(nil, protowire.DecodeZigZag(f.Bits), 10)
		case fieldReal:
			item.JSON = appendReal(math.Float64frombits(f.Bits))
		case fieldText:
			item.JSON = strconv.AppendQuote(nil, string(f.Bytes))
		case fieldJSON, fieldValueJSON:
			item.JSON = f.Bytes
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
