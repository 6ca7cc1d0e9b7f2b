package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Scale says how many elements share the scale of an FP8 tensor.
type Scale string

const (
	// ScaleTensor: one scale, of shape [1], beside NAME as NAME_scale.
	ScaleTensor Scale = "tensor"
	// ScaleChannel: one for each row (output channel), of shape [rows, 1], as NAME_scale.
	ScaleChannel Scale = "channel"
	// ScaleBlock: one for each block of 128 × 128, as NAME_scale_inv. It multiplies as the others do,
	// in spite of its name.
	ScaleBlock Scale = "block"
)

// scaleBlock is the side of a block.
const scaleBlock = 128

// Cast says what the floats of a version are cast to. A value is its element times its
// scale, which is the largest magnitude it has to hold divided by 448.
type Cast struct {
	// DType is BF16, or F8E4M3 for tensors of two dimensions and BF16 for the others.
	DType DType `json:"dtype"`
	// Scale of F8E4M3; "" otherwise.
	Scale Scale `json:"scale,omitempty"`
	// Keep has parts of the names of tensors that stay BF16 under F8E4M3; nil for KeepDefault.
	Keep []string `json:"keep,omitempty"`
}

// KeepDefault are parts of the names of what engines do not run in FP8.
var KeepDefault = []string{"embed", "lm_head", "norm", "router", "mlp.gate."}

// check refuses casts that there are not.
func (c Cast) check() error {
	switch {
	case c.DType == BF16 && c.Scale == "":
		return nil
	case c.DType == F8E4M3 && slices.Contains([]Scale{ScaleTensor, ScaleChannel, ScaleBlock}, c.Scale):
		return nil
	}
	return fmt.Errorf("a cast to %q with scale %q, want %s without one, or %s with %s, %s or %s", c.DType, c.Scale, BF16, F8E4M3, ScaleTensor, ScaleChannel, ScaleBlock)
}

// artefact names it among what was derived from a version. What to keep is in the name, as
// another choice is another artefact.
func (c Cast) artefact() string {
	name := "cast-" + strings.ToLower(string(c.DType))
	if c.Scale != "" {
		name += "-" + string(c.Scale)
	}
	if c.Keep != nil {
		name += "-" + strings.TrimPrefix(sumText([]byte(strings.Join(c.Keep, "\x00"))), "sha256:")[:12]
	}
	return name
}

// Cast finds or makes a version's model tensors in another type, kept beside it. Integers
// stay what they are. A tensor of a float type that is not F32, F16 or BF16 is an error.
func (s *Store) Cast(ctx context.Context, version loop.Version, c Cast) (Derived, error) {
	if err := c.check(); err != nil {
		return Derived{}, fmt.Errorf("weights: version %d: %w", version, err)
	}
	return s.derive(ctx, version, c.artefact(), func(m *Manifest, d *Derived, create creator) error {
		if m.Kind != KindFull {
			return ErrNoWeights
		}
		d.Kind, d.Cast = KindCast, &c
		base := s.base(m)
		for _, f := range m.Files {
			if !isModel(f.Name) {
				continue
			}
			err := create(f.Name, func(w io.Writer) error { return c.file(ctx, w, base, f.Name, d) })
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		return nil
	})
}

// file casts one file.
func (c Cast) file(ctx context.Context, w io.Writer, base Base, name string, d *Derived) error {
	var x tensorIndex
	defer x.close()
	if err := x.add(base, name); err != nil {
		return err
	}
	f := x.files[name]
	var entries []Entry
	for i := range f.header.Entries {
		made, err := c.entries(&f.header.Entries[i])
		if err != nil {
			return err
		}
		entries = append(entries, made...)
	}
	header, err := AppendHeader(nil, entries)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, e := range entries {
		d.Tensors = append(d.Tensors, TensorInfo{Name: e.Name, DType: e.DType, Shape: e.Shape, File: name})
	}
	var raw, out []byte
	var values []float32
	for i := range f.header.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := &f.header.Entries[i]
		if raw, err = (indexedTensor{f, e}).read(raw); err != nil {
			return err
		}
		out, values = c.tensor(e, raw, out[:0], values)
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}

// entries are what a tensor becomes: itself, and its scale where it has one.
func (c Cast) entries(e *Entry) ([]Entry, error) {
	switch {
	case e.DType != F32 && e.DType != F16 && e.DType != BF16 && (floatFormats[e.DType].bytes > 0 || strings.HasPrefix(string(e.DType), "F")):
		return nil, fmt.Errorf("tensor %q is %s, want %s, %s or %s to cast from", e.Name, e.DType, F32, F16, BF16)
	case floatFormats[e.DType].bytes == 0:
		return []Entry{{Name: e.Name, DType: e.DType, Shape: e.Shape}}, nil
	case !c.quantises(e):
		return []Entry{{Name: e.Name, DType: BF16, Shape: e.Shape}}, nil
	}
	scale := Entry{Name: e.Name + "_scale", DType: F32, Shape: []int{1}}
	switch c.Scale {
	case ScaleChannel:
		scale.Shape = []int{e.Shape[0], 1}
	case ScaleBlock:
		scale.Name += "_inv"
		scale.Shape = []int{blocks(e.Shape[0]), blocks(e.Shape[1])}
	}
	return []Entry{{Name: e.Name, DType: F8E4M3, Shape: e.Shape}, scale}, nil
}

func blocks(n int) int { return (n + scaleBlock - 1) / scaleBlock }

// quantises reports whether a tensor becomes FP8.
func (c Cast) quantises(e *Entry) bool {
	keep := c.Keep
	if keep == nil {
		keep = KeepDefault
	}
	return c.DType == F8E4M3 && len(e.Shape) == 2 && e.End > e.Begin &&
		!slices.ContainsFunc(keep, func(part string) bool { return strings.Contains(e.Name, part) })
}

// tensor appends what a tensor becomes; values is a buffer that is kept.
func (c Cast) tensor(e *Entry, raw, out []byte, values []float32) ([]byte, []float32) {
	if floatFormats[e.DType].bytes == 0 || !c.quantises(e) && e.DType == BF16 {
		return append(out, raw...), values
	}
	n := len(raw) / floatFormats[e.DType].bytes
	values = slices.Grow(values[:0], n)[:n]
	switch e.DType {
	case F32:
		decodeLittle(values, raw)
	case F16:
		decodeF16(values, raw)
	default:
		decodeBF16(values, raw)
	}
	if !c.quantises(e) {
		return appendBF16(out, values), values
	}
	return c.quantise(out, values, e.Shape[0], e.Shape[1]), values
}

// quantise appends a matrix in FP8 and its scales.
func (c Cast) quantise(out []byte, values []float32, rows, columns int) []byte {
	start := len(out)
	out = slices.Grow(out, len(values))[:start+len(values)]
	elements := out[start:]
	var scales []float32
	switch c.Scale {
	case ScaleTensor:
		scales = []float32{scaleOf(largest(values))}
		encodeE4M3(elements, values, scales[0])
	case ScaleChannel:
		for r := range rows {
			row := values[r*columns : (r+1)*columns]
			scales = append(scales, scaleOf(largest(row)))
			encodeE4M3(elements[r*columns:], row, scales[r])
		}
	case ScaleBlock:
		for top := 0; top < rows; top += scaleBlock {
			for left := 0; left < columns; left += scaleBlock {
				amax, right := float32(0), min(left+scaleBlock, columns)
				bottom := min(top+scaleBlock, rows)
				for r := top; r < bottom; r++ {
					amax = max(amax, largest(values[r*columns+left:r*columns+right]))
				}
				scales = append(scales, scaleOf(amax))
				for r := top; r < bottom; r++ {
					encodeE4M3(elements[r*columns+left:], values[r*columns+left:r*columns+right], scales[len(scales)-1])
				}
			}
		}
	}
	return appendLittle(out, scales)
}

// appendBF16 appends floats as BF16.
func appendBF16(out []byte, values []float32) []byte {
	start := len(out)
	out = slices.Grow(out, 2*len(values))[:start+2*len(values)]
	for i, v := range values {
		binary.LittleEndian.PutUint16(out[start+2*i:], bf16Bits(v))
	}
	return out
}

// largest is the largest magnitude. NaN is none.
func largest(values []float32) float32 {
	most := uint32(0)
	for _, v := range values {
		if b := math.Float32bits(v) & 0x7fffffff; b <= 0x7f800000 {
			most = max(most, b)
		}
	}
	return math.Float32frombits(most)
}

// e4m3Max is the largest finite E4M3.
const e4m3Max = 448

// scaleOf is the scale that takes a magnitude to the largest E4M3; 1 where there is nothing
// to scale.
func scaleOf(amax float32) float32 {
	if scale := amax / e4m3Max; scale > 0 {
		return scale
	}
	return 1
}

// encodeE4M3 writes values divided by a scale.
func encodeE4M3(out []byte, values []float32, scale float32) {
	out = out[:len(values)]
	for i, v := range values {
		out[i] = e4m3Bits(v / scale)
	}
}

// e4m3Bits rounds to the nearest E4M3, ties to even. What is too large becomes the largest,
// as engines do it; a NaN stays one.
func e4m3Bits(v float32) byte {
	b := math.Float32bits(v)
	sign, b := byte(b>>24)&0x80, b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7f
	case b >= 0x43e00000: // 448
		return sign | 0x7e
	case b < 0x3c800000: // 2^-6: subnormals count units of 2^-9, which the sum leaves in its last bits
		const shift = 0x1p14
		return sign | byte(math.Float32bits(math.Float32frombits(b)+shift)-math.Float32bits(shift))
	}
	return sign | byte((b+0x7ffff+b>>20&1)>>20-(127-7)<<3)
}
