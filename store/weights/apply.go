package weights

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Base is the files that a delta is applied to.
type Base interface {
	// Open opens a file and tells its size; an error wraps fs.ErrNotExist where there is none.
	Open(name string) (content io.ReadSeekCloser, size int64, err error)
	// Names lists the files.
	Names() []string
}

// Apply gives the files that a delta makes of a base, in their order, each to a writer
// from create, which it closes. The result is verified tensor by tensor and file by file before a
// writer is closed without an error. After an error the bytes written count for nothing. A base that
// is another is ErrBase; one that an XOR delta was applied to already is ErrApplied; an overwrite
// delta gives the same again. The base is only read.
func (d *Delta) Apply(ctx context.Context, base Base, create func(name string) (io.WriteCloser, error)) error {
	a := &applier{delta: d, changed: make(map[string]int, len(d.Tensors))}
	defer a.close()
	for i := range d.Tensors {
		a.changed[d.Tensors[i].Name] = i
	}
	if err := a.index(base); err != nil {
		return fmt.Errorf("weights: the base of the delta from version %d to %d: %w", d.BaseVersion, d.Version, err)
	}
	for i, f := range d.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.file(ctx, i, f, create); err != nil {
			return fmt.Errorf("weights: delta from version %d to %d: %s: %w", d.BaseVersion, d.Version, f.Name, err)
		}
	}
	if len(a.changed) > 0 {
		return fmt.Errorf("weights: delta from version %d to %d: it changes %d tensors that none of its files has", d.BaseVersion, d.Version, len(a.changed))
	}
	return nil
}

// applier applies one delta.
type applier struct {
	delta   *Delta
	changed map[string]int // tensors still to be made, by their place in the delta
	base    tensorIndex
	decoder *zstd.Decoder
}

// tensorIndex finds the tensors of a set of files.
type tensorIndex struct {
	files  map[string]*indexedFile
	tensor map[string]indexedTensor
}

type indexedFile struct {
	content io.ReadSeekCloser
	size    int64
	raw     []byte // the header, with its length
	header  Header
}

type indexedTensor struct {
	file  *indexedFile
	entry *Entry
}

// add opens a file and indexes its tensors.
func (x *tensorIndex) add(base Base, name string) error {
	content, size, err := base.Open(name)
	if err != nil {
		return err
	}
	f := &indexedFile{content: content, size: size}
	if x.files == nil {
		x.files, x.tensor = map[string]*indexedFile{}, map[string]indexedTensor{}
	}
	x.files[name] = f
	if !isModel(name) {
		return nil
	}
	if f.raw, err = readRawHeader(content, size); err == nil {
		f.header, err = ParseHeader(f.raw, size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range f.header.Entries {
		e := &f.header.Entries[i]
		if _, twice := x.tensor[e.Name]; twice {
			return fmt.Errorf("the tensor %q is in two files, one of them %s", e.Name, name)
		}
		x.tensor[e.Name] = indexedTensor{f, e}
	}
	return nil
}

// close closes what was opened; it was only read.
func (x *tensorIndex) close() {
	for _, f := range x.files {
		_ = f.content.Close()
	}
}

// read reads a tensor's bytes into a buffer that may grow.
func (t indexedTensor) read(buffer []byte) ([]byte, error) {
	buffer = slices.Grow(buffer[:0], int(t.entry.End-t.entry.Begin))[:t.entry.End-t.entry.Begin]
	if _, err := t.file.content.Seek(t.file.header.DataStart+t.entry.Begin, io.SeekStart); err != nil {
		return nil, err
	}
	_, err := io.ReadFull(t.file.content, buffer)
	return buffer, err
}

func (a *applier) index(base Base) error {
	for _, name := range base.Names() {
		if isOptimizer(name) {
			continue
		}
		if err := a.base.add(base, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) close() {
	a.base.close()
	if a.decoder != nil {
		a.decoder.Close()
	}
}

// file makes one file and verifies it.
func (a *applier) file(ctx context.Context, i int, f DeltaFile, create func(string) (io.WriteCloser, error)) error {
	w, err := create(f.Name)
	if err != nil {
		return err
	}
	sum := sha256.New()
	counted := &counter{to: io.MultiWriter(w, sum), left: f.Size}
	if err := a.fill(ctx, i, f, counted); err != nil {
		return errors.Join(err, w.Close())
	}
	if found := hashText(sum.Sum(nil)); counted.left != 0 || found != f.Hash {
		return errors.Join(fmt.Errorf("%d bytes with %s came out, want %d with %s: %w", f.Size-counted.left, found, f.Size, f.Hash, ErrBase), w.Close())
	}
	return w.Close()
}

// counter passes on no more than what is expected.
type counter struct {
	to   io.Writer
	left int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, fmt.Errorf("more than the size of the file came out: %w", ErrBase)
	}
	return c.to.Write(p)
}

func (a *applier) fill(ctx context.Context, i int, f DeltaFile, w io.Writer) error {
	switch f.From {
	case FromDelta:
		content, _ := a.payload(fmt.Sprintf("file.%d", i))
		return copyAll(ctx, w, content)
	case FromBase:
		there, ok := a.base.files[f.Name]
		if !ok {
			return fmt.Errorf("the base has no such file: %w", ErrBase)
		}
		if _, err := there.content.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return copyAll(ctx, w, io.LimitReader(there.content, there.size))
	}
	raw, err := a.header(i, f)
	if err != nil {
		return err
	}
	header, err := ParseHeader(raw, f.Size)
	if err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	var base, made []byte
	for j := range header.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if base, made, err = a.tensor(&header.Entries[j], base, made); err != nil {
			return fmt.Errorf("tensor %q: %w", header.Entries[j].Name, err)
		}
		if _, err := w.Write(made); err != nil {
			return err
		}
	}
	return nil
}

// header returns the bytes of a file's header.
func (a *applier) header(i int, f DeltaFile) ([]byte, error) {
	if _, ok := a.delta.payload[fmt.Sprintf("header.%d", i)]; ok {
		content, size := a.payload(fmt.Sprintf("header.%d", i))
		if size > HeaderBytesMax+lengthBytes {
			return nil, fmt.Errorf("a header of %d bytes, want at most %d", size, HeaderBytesMax)
		}
		return io.ReadAll(content)
	}
	if there, ok := a.base.files[f.Name]; ok {
		return there.raw, nil
	}
	return nil, fmt.Errorf("neither the delta nor the base has its header: %w", ErrBase)
}

// tensor makes the bytes of one tensor in made; both buffers are kept for the next.
func (a *applier) tensor(e *Entry, base, made []byte) ([]byte, []byte, error) {
	there, ok := a.base.tensor[e.Name]
	ok = ok && there.entry.DType == e.DType && there.entry.End-there.entry.Begin == e.End-e.Begin
	at, changes := a.changed[e.Name]
	if !changes {
		if !ok {
			return base, made, fmt.Errorf("the base has it not as %s %v: %w", e.DType, e.Shape, ErrBase)
		}
		made, err := there.read(made)
		return base, made, err
	}
	delete(a.changed, e.Name)
	t := &a.delta.Tensors[at]
	if t.How == HowWhole {
		made, err := a.whole(t, fmt.Sprintf("%d.whole", at), e.End-e.Begin, made)
		return base, made, err
	}
	if !ok {
		return base, made, fmt.Errorf("the base has it not as %s %v: %w", e.DType, e.Shape, ErrBase)
	}
	base, err := there.read(base)
	if err != nil {
		return base, made, err
	}
	made = slices.Grow(made[:0], len(base))[:len(base)]
	switch found := sumText(base); {
	case found == t.BaseHash:
	case found == t.Hash && a.delta.Encoding == Overwrite:
		copy(made, base)
		return base, made, nil
	case found == t.Hash:
		return base, made, ErrApplied
	default:
		return base, made, fmt.Errorf("the base has %s, want %s: %w", found, t.BaseHash, ErrBase)
	}
	if t.How == HowXOR {
		if err = a.decode(t, fmt.Sprintf("%d.xor", at), made); err == nil {
			xorBytes(made, base)
		}
	} else {
		copy(made, base)
		err = a.sparse(t, at, made, unit(e.DType))
	}
	if err == nil {
		err = want(made, t.Hash)
	}
	return base, made, err
}

// sparse overwrites the elements that changed.
func (a *applier) sparse(t *DeltaTensor, at int, made []byte, unit int) error {
	elements := int64(len(made) / unit)
	if t.Changed > elements {
		return fmt.Errorf("%d of %d elements change, want no more than there are", t.Changed, elements)
	}
	gaps, values := make([]byte, t.Changed*int64(t.GapBytes)), make([]byte, t.Changed*int64(unit))
	if err := a.decode(t, fmt.Sprintf("%d.gap", at), gaps); err != nil {
		return err
	}
	if err := a.decode(t, fmt.Sprintf("%d.value", at), values); err != nil {
		return err
	}
	next := uint64(0)
	for i := range t.Changed {
		gap := gapAt(gaps, i, t.GapBytes)
		if gap >= uint64(elements)-next || i > 0 && gap == 0 {
			return fmt.Errorf("change %d is %d elements after element %d of %d, want them ascending and inside", i, gap, next, elements)
		}
		next += gap
		copy(made[next*uint64(unit):], values[i*int64(unit):(i+1)*int64(unit)])
	}
	return nil
}

// gapAt reads a gap of 1, 2, 4 or 8 bytes.
func gapAt(gaps []byte, i int64, size int) uint64 {
	switch p := gaps[i*int64(size):]; size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	default:
		return binary.LittleEndian.Uint64(p)
	}
}

// payload reads one of the delta's.
func (a *applier) payload(name string) (io.Reader, int64) {
	d := a.delta
	e := &d.header.Entries[d.payload[name]]
	if _, err := d.content.Seek(d.header.DataStart+e.Begin, io.SeekStart); err != nil {
		return failing{err}, 0
	}
	return io.LimitReader(d.content, e.End-e.Begin), e.End - e.Begin
}

// failing is a reader of nothing but an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// open reads a payload, decompressed.
func (a *applier) open(t *DeltaTensor, name string) (io.Reader, error) {
	content, _ := a.payload(name)
	if t.Codec == CodecRaw {
		return content, nil
	}
	if a.decoder == nil {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindowMax))
		if err != nil {
			return nil, err
		}
		a.decoder = decoder
	}
	if err := a.decoder.Reset(content); err != nil {
		return nil, fmt.Errorf("payload %q: %w", name, err)
	}
	return a.decoder, nil
}

// decode fills into with a payload, which must be exactly that long.
func (a *applier) decode(t *DeltaTensor, name string, into []byte) error {
	content, err := a.open(t, name)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(content, into); err != nil {
		return fmt.Errorf("payload %q ends before its %d bytes: %w", name, len(into), err)
	}
	if n, err := content.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("payload %q goes on after its %d bytes (%v)", name, len(into), err)
	}
	return nil
}

// whole reads a tensor that is said by all its bytes. No base bounds its size, so memory is
// taken as the bytes come.
func (a *applier) whole(t *DeltaTensor, name string, size int64, made []byte) ([]byte, error) {
	content, err := a.open(t, name)
	if err != nil {
		return made, err
	}
	buffer := bytes.NewBuffer(made[:0])
	n, err := io.Copy(buffer, io.LimitReader(content, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("payload %q has %d bytes or more, want %d", name, n, size)
	}
	if err == nil {
		err = want(buffer.Bytes(), t.Hash)
	}
	return buffer.Bytes(), err
}

// zstdWindowMax bounds the memory that a payload can ask for.
const zstdWindowMax = 32 << 20

// want verifies the bytes of a tensor.
func want(made []byte, hash string) error {
	if found := sumText(made); found != hash {
		return fmt.Errorf("%s came out, want %s: the delta is damaged, make it anew or publish a full version", found, hash)
	}
	return nil
}

func sumText(p []byte) string {
	sum := sha256.Sum256(p)
	return hashText(sum[:])
}

// xorBytes changes dst by src, which is as long.
func xorBytes(dst, src []byte) {
	for ; len(dst) >= 8; dst, src = dst[8:], src[8:] {
		binary.NativeEndian.PutUint64(dst, binary.NativeEndian.Uint64(dst)^binary.NativeEndian.Uint64(src))
	}
	for i := range dst {
		dst[i] ^= src[i]
	}
}
