package tinker

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headway-rl/headway/internal/wire"
)

// Numbers of the messages' fields, from the descriptor in Tinker's client. What is not named is not needed.
const (
	requestModel, requestSeq, requestData, requestLoss     = 1, 2, 3, 4
	requestConfig, requestForwardOnly, requestConfigV2     = 5, 6, 7
	configNumber                                           = 1
	datumInput, datumLossInputs                            = 1, 2
	chunkText, textTokens                                  = 1, 1
	tensorDense, tensorType, tensorShape                   = 1, 3, 4
	mapKey, mapValue                                       = 1, 2
	outputRecords, outputMetrics                           = 2, 3
	recordFields, recordCount                              = 2, 3
	batchedData, batchedOffsets, batchedType               = 1, 2, 3
	responseSequences                                      = 1
	sequenceStop, sequenceTokens, sequenceLogprobs         = 1, 2, 3
	typeFloat32, typeInt64, typeBfloat16                   = 1, 2, 4
	stopByStop, stopByLength                               = 0, 1
	nameTargets, nameWeights, nameLogprobs, nameAdvantages = "target_tokens", "weights", "logprobs", "advantages"
)

// pass is one request of forward_backward.
type pass struct {
	model       string
	seq         int
	data        []Datum
	loss        Loss
	forwardOnly bool
}

// protobuf is the request as ForwardBackwardRequest.
func (p pass) protobuf() []byte {
	b := wire.AppendText(nil, requestModel, p.model)
	b = wire.AppendNumber(b, requestSeq, uint64(p.seq))
	for _, d := range p.data {
		b = wire.AppendBytes(b, requestData, d.protobuf())
	}
	b = wire.AppendText(b, requestLoss, p.loss.Name)
	names := slices.Sorted(maps.Keys(p.loss.Config))
	for _, name := range names {
		b = appendEntry(b, requestConfig, name, func(b []byte) []byte { return wire.AppendDouble(b, mapValue, p.loss.Config[name]) })
	}
	if p.forwardOnly {
		b = wire.AppendNumber(b, requestForwardOnly, 1)
	}
	// The same once more in the form that newer servers read, as Tinker's own client does.
	for _, name := range names {
		number := wire.AppendDouble(nil, configNumber, p.loss.Config[name])
		b = appendEntry(b, requestConfigV2, name, func(b []byte) []byte { return wire.AppendBytes(b, mapValue, number) })
	}
	return b
}

func (d Datum) protobuf() []byte {
	text := wire.AppendBytes(nil, textTokens, int32s(d.Tokens))
	b := wire.AppendBytes(nil, datumInput, wire.AppendBytes(nil, chunkText, text))
	tensor := func(name string, values []byte, kind uint64, n int) {
		t := wire.AppendBytes(nil, tensorDense, values)
		t = wire.AppendNumber(t, tensorType, kind)
		t = wire.AppendBytes(t, tensorShape, protowire.AppendVarint(nil, uint64(n)))
		b = appendEntry(b, datumLossInputs, name, func(b []byte) []byte { return wire.AppendBytes(b, mapValue, t) })
	}
	for _, f := range []struct { // in the order of their names
		name   string
		values []float32
	}{{nameAdvantages, d.Advantages}, {nameLogprobs, d.Logprobs}} {
		if f.values != nil {
			tensor(f.name, float32s(f.values), typeFloat32, len(f.values))
		}
	}
	tensor(nameTargets, int64s(d.Targets), typeInt64, len(d.Targets))
	if d.Weights != nil {
		tensor(nameWeights, float32s(d.Weights), typeFloat32, len(d.Weights))
	}
	return b
}

func appendEntry(b []byte, field protowire.Number, key string, value func([]byte) []byte) []byte {
	return wire.AppendBytes(b, field, value(wire.AppendText(nil, mapKey, key)))
}

func int32s(values []int32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func int64s(values []int32) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
	}
	return b
}

func float32s(values []float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// entry reads a map's entry: its key, and the field that is its value.
func entry(f wire.Field) (key string, value wire.Field, err error) {
	err = wire.Fields(f.Bytes, func(part wire.Field) error {
		switch {
		case part.Is(mapKey, protowire.BytesType):
			key = string(part.Bytes)
		case part.Number == mapValue:
			value = part
		}
		return nil
	})
	return key, value, err
}

// outputFromProtobuf reads a ForwardBackwardOutput.
func outputFromProtobuf(message []byte) (Output, error) {
	o := Output{Metrics: map[string]float64{}}
	err := wire.Fields(message, func(f wire.Field) error {
		switch {
		case f.Is(outputRecords, protowire.BytesType):
			logprobs, err := recordFromProtobuf(f.Bytes)
			o.Logprobs = append(o.Logprobs, logprobs...)
			return err
		case f.Is(outputMetrics, protowire.BytesType):
			name, value, err := entry(f)
			if value.Type == protowire.Fixed64Type || value.Number == 0 { // an absent value is 0
				o.Metrics[name] = math.Float64frombits(value.Bits)
			}
			return err
		}
		return nil
	})
	return o, err
}

// recordFromProtobuf reads the log-probs of an ArrayRecord, one entry a datum, nil where it has none.
func recordFromProtobuf(message []byte) (logprobs [][]float32, err error) {
	var count uint64
	err = wire.Fields(message, func(f wire.Field) error {
		switch {
		case f.Is(recordFields, protowire.BytesType):
			name, value, err := entry(f)
			if err != nil || name != nameLogprobs {
				return err
			}
			logprobs, err = batchedFromProtobuf(value.Bytes)
			return err
		case f.Is(recordCount, protowire.VarintType):
			count = f.Bits
		}
		return nil
	})
	if err == nil && logprobs != nil && count != 0 && uint64(len(logprobs)) != count {
		err = fmt.Errorf("a record of %d data has log-probs of %d", count, len(logprobs))
	}
	return logprobs, err
}

// batchedFromProtobuf reads a BatchedTensor of floats, divided by its offsets, which count bytes.
func batchedFromProtobuf(message []byte) ([][]float32, error) {
	var data, offsets []byte
	var kind uint64
	err := wire.Fields(message, func(f wire.Field) error {
		switch {
		case f.Is(batchedData, protowire.BytesType):
			data = f.Bytes
		case f.Is(batchedOffsets, protowire.BytesType):
			offsets = f.Bytes
		case f.Is(batchedType, protowire.VarintType):
			kind = f.Bits
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	width := 4
	if kind == typeBfloat16 {
		width = 2
	} else if kind != typeFloat32 {
		return nil, fmt.Errorf("log-probs of type %d: want float32 (%d) or bfloat16 (%d)", kind, typeFloat32, typeBfloat16)
	}
	if len(offsets) < 8 || len(offsets)%8 != 0 {
		return nil, fmt.Errorf("%d bytes of offsets: want 8 a datum and 8 more", len(offsets))
	}
	parts := make([][]float32, 0, len(offsets)/8-1)
	from := binary.LittleEndian.Uint64(offsets)
	for at := 8; at < len(offsets); at += 8 {
		to := binary.LittleEndian.Uint64(offsets[at:])
		if from > to || to > uint64(len(data)) || (to-from)%uint64(width) != 0 {
			return nil, fmt.Errorf("offsets %d to %d in %d bytes of %d each", from, to, len(data), width)
		}
		parts = append(parts, floatsFromBytes(data[from:to], width))
		from = to
	}
	return parts, nil
}

// floatsFromBytes reads numbers of 4 bytes, or of the upper 2 of the 4.
func floatsFromBytes(b []byte, width int) []float32 {
	values := make([]float32, 0, len(b)/width)
	for ; len(b) >= width; b = b[width:] {
		if width == 2 {
			values = append(values, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
		} else {
			values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return values
}

// sequencesFromProtobuf reads a SampleResponse.
func sequencesFromProtobuf(message []byte) (sequences []Sequence, err error) {
	err = wire.Fields(message, func(f wire.Field) error {
		if !f.Is(responseSequences, protowire.BytesType) {
			return nil
		}
		s, err := sequenceFromProtobuf(f.Bytes)
		sequences = append(sequences, s)
		return err
	})
	return sequences, err
}

func sequenceFromProtobuf(message []byte) (Sequence, error) {
	s := Sequence{Stopped: true} // the first of the reasons is the one that is not written
	err := wire.Fields(message, func(f wire.Field) error {
		switch {
		case f.Is(sequenceStop, protowire.VarintType):
			if f.Bits != stopByStop && f.Bits != stopByLength {
				return fmt.Errorf("reason %d to stop: want %d or %d", f.Bits, stopByStop, stopByLength)
			}
			s.Stopped = f.Bits == stopByStop
		case f.Is(sequenceTokens, protowire.BytesType):
			if len(f.Bytes)%4 != 0 {
				return fmt.Errorf("%d bytes of tokens: want 4 each", len(f.Bytes))
			}
			s.Tokens = nil
			for b := f.Bytes; len(b) > 0; b = b[4:] {
				s.Tokens = append(s.Tokens, int32(binary.LittleEndian.Uint32(b)))
			}
		case f.Is(sequenceLogprobs, protowire.BytesType):
			if len(f.Bytes)%4 != 0 {
				return fmt.Errorf("%d bytes of log-probs: want 4 each", len(f.Bytes))
			}
			s.Logprobs = floatsFromBytes(f.Bytes, 4)
		}
		return nil
	})
	return s, err
}
