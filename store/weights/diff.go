package weights

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/klauspost/compress/zstd"
)

// Change says how two versions differ.
type Change struct {
	// Tensors of the model, and how many of them differ.
	Tensors, TensorsChanged int
	// Elements of the model, and how many of them differ in a bit.
	Elements, ElementsChanged int64
	// Bytes of the model's files, DeltaBytes of the delta.
	Bytes, DeltaBytes int64
	// Changed are the tensors that differ.
	Changed []TensorChange
}

// TensorChange says how one tensor differs.
type TensorChange struct {
	Name  string
	DType DType
	Shape []int
	// Elements, and how many of them differ in a bit; all where it is new or of another shape.
	Elements, ElementsChanged int64
	// DeltaMax is the largest difference of a value; NaN where values cannot be compared.
	DeltaMax float64
}

// note counts a tensor that differs.
func (c *Change) note(e *Entry, changed int64, deltaMax float64) {
	elements := (e.End - e.Begin) / int64(unit(e.DType))
	c.TensorsChanged++
	c.ElementsChanged += changed
	c.Changed = append(c.Changed, TensorChange{e.Name, e.DType, e.Shape, elements, changed, deltaMax})
}

// deltaMax is the largest difference among the elements that differ.
func deltaMax(d DType, old, made []byte, gaps []uint64) float64 {
	f, ok := floatFormats[d]
	if !ok {
		return math.NaN()
	}
	largest, at := 0.0, 0
	for _, gap := range gaps {
		at += int(gap) * f.bytes
		largest = max(largest, math.Abs(f.value(made[at:])-f.value(old[at:])))
	}
	return largest
}

// differ makes deltas. Its payloads are kept in memory until all are known: as much as
// the delta is large.
type differ struct {
	delta    Delta
	entries  []Entry
	payloads [][]byte
	change   Change
	encoder  *zstd.Encoder
	packed   []byte
}

// makeDelta writes the delta that makes the files of to out of those of from.
func makeDelta(ctx context.Context, w io.Writer, from, to Base, files []File, d Delta) (Change, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return Change{}, err
	}
	df := &differ{delta: d, encoder: encoder}
	defer func() { _ = encoder.Close() }()
	var a, b tensorIndex
	defer a.close()
	defer b.close()
	for _, name := range from.Names() {
		if !isOptimizer(name) {
			if err := a.add(from, name); err != nil {
				return Change{}, err
			}
		}
	}
	for _, f := range files {
		if isOptimizer(f.Name) {
			continue
		}
		if err := b.add(to, f.Name); err != nil {
			return Change{}, err
		}
		if err := df.file(ctx, f, &a, b.files[f.Name]); err != nil {
			return Change{}, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return df.change, df.write(w)
}

// add keeps a payload.
func (df *differ) add(name string, payload []byte) {
	df.entries = append(df.entries, Entry{Name: name, DType: "U8", Shape: []int{len(payload)}})
	df.payloads = append(df.payloads, bytes.Clone(payload))
}

// file says one file of the result.
func (df *differ) file(ctx context.Context, f File, base *tensorIndex, to *indexedFile) error {
	i := len(df.delta.Files)
	there := base.files[f.Name]
	if !isModel(f.Name) {
		content, err := readAll(to)
		if err != nil {
			return err
		}
		from := FromDelta
		if there != nil && there.size == to.size {
			old, err := readAll(there)
			if err != nil {
				return err
			}
			if bytes.Equal(old, content) {
				from = FromBase
			}
		}
		if from == FromDelta {
			df.add(fmt.Sprintf("file.%d", i), content)
		}
		df.delta.Files = append(df.delta.Files, DeltaFile{f, from})
		return nil
	}
	if there == nil || !bytes.Equal(there.raw, to.raw) {
		df.add(fmt.Sprintf("header.%d", i), to.raw)
	}
	df.delta.Files = append(df.delta.Files, DeltaFile{f, FromTensors})
	df.change.Bytes += f.Size
	var old, made []byte
	for j := range to.header.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if old, made, err = df.tensor(indexedTensor{to, &to.header.Entries[j]}, base, old, made); err != nil {
			return fmt.Errorf("tensor %q: %w", to.header.Entries[j].Name, err)
		}
	}
	return nil
}

// readAll reads a small file.
func readAll(f *indexedFile) ([]byte, error) {
	if _, err := f.content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f.content)
}

// tensor says one tensor; the buffers are kept for the next.
func (df *differ) tensor(to indexedTensor, base *tensorIndex, old, made []byte) ([]byte, []byte, error) {
	made, err := to.read(made)
	if err != nil {
		return old, made, err
	}
	size := unit(to.entry.DType)
	df.change.Tensors++
	df.change.Elements += int64(len(made) / size)
	there, ok := base.tensor[to.entry.Name]
	if !ok || there.entry.DType != to.entry.DType || there.entry.End-there.entry.Begin != int64(len(made)) {
		df.change.note(to.entry, int64(len(made)/size), math.NaN())
		df.whole(to.entry.Name, "", made)
		return old, made, nil
	}
	if old, err = there.read(old); err != nil || bytes.Equal(old, made) {
		return old, made, err
	}
	baseHash := sumText(old)
	gaps, values := changes(old, made, size)
	df.change.note(to.entry, int64(len(gaps)), deltaMax(to.entry.DType, old, made, gaps))
	if df.delta.Encoding == Overwrite {
		df.sparse(to.entry.Name, baseHash, made, gaps, values)
		return old, made, nil
	}
	hash := sumText(made)
	xorBytes(made, old)
	i := len(df.delta.Tensors)
	payload, codec := df.pack(made)
	df.delta.Tensors = append(df.delta.Tensors, DeltaTensor{Name: to.entry.Name, BaseHash: baseHash, Hash: hash, How: HowXOR, Codec: codec})
	df.add(fmt.Sprintf("%d.xor", i), payload)
	return old, made, nil
}

// whole says a tensor by all its bytes.
func (df *differ) whole(name, baseHash string, made []byte) {
	i := len(df.delta.Tensors)
	payload, codec := df.pack(made)
	df.delta.Tensors = append(df.delta.Tensors, DeltaTensor{Name: name, BaseHash: baseHash, Hash: sumText(made), How: HowWhole, Codec: codec})
	df.add(fmt.Sprintf("%d.whole", i), payload)
}

// sparse says the elements that changed, or all where that is less.
func (df *differ) sparse(name, baseHash string, made []byte, gaps []uint64, values []byte) {
	width := gapBytes(gaps)
	if len(gaps)*width+len(values) >= len(made) {
		df.whole(name, baseHash, made)
		return
	}
	raw := make([]byte, 0, len(gaps)*width+8)
	for _, g := range gaps {
		raw = binary.LittleEndian.AppendUint64(raw, g)[:len(raw)+width]
	}
	i := len(df.delta.Tensors)
	t := DeltaTensor{Name: name, BaseHash: baseHash, Hash: sumText(made), How: HowSparse, Codec: CodecZstd, Changed: int64(len(gaps)), GapBytes: width}
	packedGaps := df.encoder.EncodeAll(raw, nil)
	packedValues := df.encoder.EncodeAll(values, nil)
	if len(packedGaps)+len(packedValues) >= len(raw)+len(values) {
		t.Codec, packedGaps, packedValues = CodecRaw, raw, values
	}
	df.delta.Tensors = append(df.delta.Tensors, t)
	df.add(fmt.Sprintf("%d.gap", i), packedGaps)
	df.add(fmt.Sprintf("%d.value", i), packedValues)
}

// pack compresses, where that helps. What it returns is good until the next call.
func (df *differ) pack(p []byte) ([]byte, string) {
	df.packed = df.encoder.EncodeAll(p, df.packed[:0])
	if len(df.packed) < len(p) {
		return df.packed, CodecZstd
	}
	return p, CodecRaw
}

// gapBytes is the smallest size that holds all gaps.
func gapBytes(gaps []uint64) int {
	switch widest := slices.Max(gaps); {
	case widest < 1<<8:
		return 1
	case widest < 1<<16:
		return 2
	case widest < 1<<32:
		return 4
	}
	return 8
}

// changes finds the elements that differ: how far each is from the one before, and their
// new values.
func changes(old, made []byte, size int) (gaps []uint64, values []byte) {
	last := 0
	note := func(element int) {
		gaps = append(gaps, uint64(element-last))
		values = append(values, made[element*size:(element+1)*size]...)
		last = element
	}
	const block = 8 // every size divides it
	at := 0
	for ; at+block <= len(made); at += block {
		if binary.NativeEndian.Uint64(old[at:]) == binary.NativeEndian.Uint64(made[at:]) {
			continue
		}
		for i := at; i < at+block; i += size {
			if !bytes.Equal(old[i:i+size], made[i:i+size]) {
				note(i / size)
			}
		}
	}
	for ; at+size <= len(made); at += size {
		if !bytes.Equal(old[at:at+size], made[at:at+size]) {
			note(at / size)
		}
	}
	return gaps, values
}

// write writes the delta's file.
func (df *differ) write(w io.Writer) error {
	text, err := json.Marshal(&df.delta)
	if err != nil {
		return err
	}
	header, err := appendHeaderWith(df.entries, map[string]string{deltaFormatKey: deltaFormat, deltaKey: string(text)})
	if err != nil {
		return err
	}
	df.change.DeltaBytes = int64(len(header))
	_, err = w.Write(header)
	for _, p := range df.payloads {
		df.change.DeltaBytes += int64(len(p))
		if err == nil {
			_, err = w.Write(p)
		}
	}
	return err
}

// appendHeaderWith makes a header with metadata, in the order of its names.
func appendHeaderWith(entries []Entry, metadata map[string]string) ([]byte, error) {
	plain, err := AppendHeader(nil, entries)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	rest := bytes.TrimRight(plain[lengthBytes+1:], " ")
	header := append(plain[:lengthBytes:lengthBytes], `{"`+metadataName+`":`...)
	header = append(header, text...)
	if len(entries) > 0 {
		header = append(header, ',')
	}
	header = append(header, rest...)
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	length := len(header) - lengthBytes
	if length > HeaderBytesMax {
		return nil, fmt.Errorf("weights: a header of %d bytes, want at most %d", length, HeaderBytesMax)
	}
	binary.LittleEndian.PutUint64(header, uint64(length))
	return header, nil
}

// DeltaArtefact names the delta from a base among what was derived from a version.
func DeltaArtefact(base loop.Version, encoding Encoding) string {
	return fmt.Sprintf("delta-%s-%s", encoding, versionName(base))
}

// Diff finds or makes the delta from one stored version to a later one, kept beside the
// later one as DeltaArtefact. It covers what engines load: optimizer files are left out.
func (s *Store) Diff(ctx context.Context, base, version loop.Version, encoding Encoding) (Derived, error) {
	if encoding != Overwrite && encoding != XOR || base < 0 || base >= version {
		return Derived{}, fmt.Errorf("weights: a delta from version %d to %d with encoding %q, want an earlier version, and %s or %s", base, version, encoding, Overwrite, XOR)
	}
	return s.derive(ctx, version, DeltaArtefact(base, encoding), func(to *Manifest, d *Derived, create creator) error {
		from, err := s.Manifest(base)
		if err != nil {
			return err
		}
		if from.Kind != KindFull || to.Kind != KindFull {
			return fmt.Errorf("weights: a delta from version %d to %d: %w", base, version, ErrNoWeights)
		}
		d.Kind, d.BaseVersion, d.Encoding = KindDelta, base, encoding
		return create(DeltaName, func(w io.Writer) error {
			_, err := makeDelta(ctx, w, s.base(&from), s.base(to), to.Files, Delta{Version: version, BaseVersion: base, Encoding: encoding})
			return err
		})
	})
}

// Compare says how two stored versions differ and how large the delta between them would
// be. It writes nothing.
func (s *Store) Compare(ctx context.Context, base, version loop.Version, encoding Encoding) (Change, error) {
	from, err := s.Manifest(base)
	to, err2 := s.Manifest(version)
	if err := errors.Join(err, err2); err != nil {
		return Change{}, err
	}
	if from.Kind != KindFull || to.Kind != KindFull {
		return Change{}, fmt.Errorf("weights: versions %d and %d: %w", base, version, ErrNoWeights)
	}
	return makeDelta(ctx, io.Discard, s.base(&from), s.base(&to), to.Files, Delta{Version: version, BaseVersion: base, Encoding: encoding})
}

// base lets a delta be applied to a stored version.
func (s *Store) base(m *Manifest) Base { return storedBase{s, m} }

type storedBase struct {
	s *Store
	m *Manifest
}

func (b storedBase) Names() []string {
	names := make([]string, len(b.m.Files))
	for i, f := range b.m.Files {
		names[i] = f.Name
	}
	return names
}

func (b storedBase) Open(name string) (io.ReadSeekCloser, int64, error) {
	content, size, err := b.s.OpenFile(context.Background(), b.m.Version, name, 0)
	if err != nil {
		return nil, 0, err
	}
	return content.(io.ReadSeekCloser), size, nil
}
