package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// headerMost is the bound of safetensors on a header, in bytes.
const headerMost = 100_000_000

var widths = map[string]int{
	"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1,
	"BOOL": 1,
}

// Tensor is a tensor of a safetensors file, with its little-endian bytes.
type Tensor struct {
	Name  string
	Type  string
	Shape []int
	Data  []byte
}

// span is an entry of a safetensors header.
type span struct {
	Type    string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// encode makes a safetensors file of tensors, in their order.
func encode(tensors []Tensor, metadata map[string]string) []byte {
	var header bytes.Buffer
	header.WriteByte('{')
	entry := func(name string, value any) {
		if header.Len() > 1 {
			header.WriteByte(',')
		}
		key, _ := json.Marshal(name)
		text, _ := json.Marshal(value)
		header.Write(key)
		header.WriteByte(':')
		header.Write(text)
	}
	if len(metadata) > 0 {
		entry("__metadata__", metadata)
	}
	var at int64
	for _, tensor := range tensors {
		end := at + int64(len(tensor.Data))
		entry(tensor.Name, span{tensor.Type, append([]int{}, tensor.Shape...), [2]int64{at, end}})
		at = end
	}
	header.WriteByte('}')
	header.WriteString(strings.Repeat(" ", (8-header.Len()%8)%8))
	file := binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))
	file = append(file, header.Bytes()...)
	for _, tensor := range tensors {
		file = append(file, tensor.Data...)
	}
	return file
}

// decode reads a safetensors file, its tensors in the order of their bytes. A file that does not hold is Invalid.
func decode(file []byte, name string) ([]Tensor, map[string]string, error) {
	wrong := func(format string, values ...any) error {
		return refuse(Invalid, "%s is not a whole safetensors file: %s", name, fmt.Sprintf(format, values...))
	}
	if len(file) < 8 {
		return nil, nil, wrong("it has %d bytes", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if length > uint64(min(len(file)-8, headerMost)) {
		return nil, nil, wrong("its header would have %d bytes", length)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+length], &entries); err != nil {
		return nil, nil, wrong("%v", err)
	}
	var metadata map[string]string
	if said, found := entries["__metadata__"]; found {
		if err := json.Unmarshal(said, &metadata); err != nil {
			return nil, nil, wrong("%v", err)
		}
		delete(entries, "__metadata__")
	}
	content := file[8+length:]
	spans := make(map[string]span, len(entries))
	names := make([]string, 0, len(entries))
	for key, said := range entries {
		var one span
		if err := json.Unmarshal(said, &one); err != nil {
			return nil, nil, wrong("%v", err)
		}
		spans[key], names = one, append(names, key)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := spans[a].Offsets, spans[b].Offsets
		if byPlace := slices.Compare(x[:], y[:]); byPlace != 0 {
			return byPlace
		}
		return strings.Compare(a, b)
	})
	var at int64
	tensors := make([]Tensor, 0, len(names))
	for _, key := range names {
		one := spans[key]
		first, end := one.Offsets[0], one.Offsets[1]
		if first != at || end < first || end > int64(len(content)) {
			return nil, nil, wrong("tensor %q lies at %d to %d, want it to begin at %d", key, first, end, at)
		}
		if size, known := extent(one); !known || size != end-first {
			return nil, nil, refuse(Invalid, "%s: tensor %q of %d bytes is no %s of shape %v", name, key, end-first, one.Type, one.Shape)
		}
		tensors = append(tensors, Tensor{key, one.Type, one.Shape, content[first:end]})
		at = end
	}
	if at != int64(len(content)) {
		return nil, nil, wrong("it has %d bytes of tensors, and its header says %d", len(content), at)
	}
	return tensors, metadata, nil
}

// extent is the size of a tensor in bytes; false for a type or a shape that cannot be.
func extent(one span) (int64, bool) {
	width, known := widths[one.Type]
	size := int64(width)
	for _, side := range one.Shape {
		if side < 0 || (side > 0 && size > math.MaxInt64/int64(side)) {
			return 0, false
		}
		size *= int64(side)
	}
	return size, known
}

// digest is "sha256:" and the digits of a file.
func digest(file []byte) string {
	sum := sha256.Sum256(file)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// trained returns a copy of a model in which a step has moved one number of every tensor of floats. No two steps make
// the same model.
func trained(model []Tensor, draw *rand.Rand) []Tensor {
	changed := make([]Tensor, len(model))
	for at, tensor := range model {
		tensor.Data = bytes.Clone(tensor.Data)
		changed[at] = tensor
		step := float32(draw.NormFloat64()) / 1024
		switch {
		case tensor.Type == "F32" && len(tensor.Data) >= 4:
			place := tensor.Data[4*draw.IntN(len(tensor.Data)/4):]
			moved := math.Float32frombits(binary.LittleEndian.Uint32(place)) + step
			binary.LittleEndian.PutUint32(place, math.Float32bits(moved))
		case tensor.Type == "BF16" && len(tensor.Data) >= 2:
			place := tensor.Data[2*draw.IntN(len(tensor.Data)/2):]
			moved := math.Float32frombits(uint32(binary.LittleEndian.Uint16(place))<<16) + step
			binary.LittleEndian.PutUint16(place, uint16(math.Float32bits(moved)>>16))
		}
	}
	return changed
}

// Floats makes a tensor of float32 numbers of one dimension.
func Floats(name string, numbers ...float32) Tensor {
	tensor := Tensor{Name: name, Type: "F32", Shape: []int{len(numbers)}}
	for _, number := range numbers {
		tensor.Data = binary.LittleEndian.AppendUint32(tensor.Data, math.Float32bits(number))
	}
	return tensor
}
