package weights

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Model reads the tensors of a version that engines serve, verified, as float32. F32 is read as it
// lies, BF16 and F16 by value; another type is an error. A version that is not there is ErrNotFound,
// one without weights ErrNoWeights, one that is damaged a CorruptError. The tensors of a file share
// one block of memory; the files come in the manifest's order.
func (s *Store) Model(ctx context.Context, version loop.Version) ([]port.Tensor, error) {
	return s.read(ctx, version, isModel)
}

// Optimizer reads the trainer's tensors of a version; otherwise as Model. A version that
// came without optimizer.*.safetensors is ErrNoWeights.
func (s *Store) Optimizer(ctx context.Context, version loop.Version) ([]port.Tensor, error) {
	return s.read(ctx, version, func(name string) bool { return isOptimizer(name) && isTensors(name) })
}

// read reads the files of a version that are wanted.
func (s *Store) read(ctx context.Context, version loop.Version, wanted func(name string) bool) ([]port.Tensor, error) {
	m, err := s.Manifest(version)
	if err != nil {
		return nil, err
	}
	var tensors []port.Tensor
	found := false
	for _, f := range m.Files {
		if !wanted(f.Name) {
			continue
		}
		read, err := s.readTensors(ctx, &m, f)
		if err != nil {
			return nil, err
		}
		if !found {
			tensors, found = read, true // as is: most versions have one such file
			continue
		}
		tensors = append(tensors, read...)
	}
	if !found {
		return nil, fmt.Errorf("weights: version %d in %s, of kind %s with %s: %w", version, s.dir, m.Kind, nameList(m.Files), ErrNoWeights)
	}
	return tensors, nil
}

// readTensors reads one file.
func (s *Store) readTensors(ctx context.Context, m *Manifest, f File) ([]port.Tensor, error) {
	path := filepath.Join(s.directory(m.Version), f.Name)
	words, err := s.readFile(ctx, path, f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.lost(m.Version, path, f)
	}
	if err != nil {
		return nil, err
	}
	tensors, err := decode(words, f.Size, m.tensors(f.Name))
	if unreadable := new(dtypeError); errors.As(err, &unreadable) {
		return nil, fmt.Errorf("weights: %s: %w", path, err)
	}
	if err != nil {
		return nil, &CorruptError{Path: path, Expected: "a safetensors file as its manifest says", Found: err.Error()}
	}
	return tensors, nil
}

// lost says why a file is not there: pruned after its manifest was read, or really lost.
func (s *Store) lost(version loop.Version, path string, f File) error {
	if _, err := s.Manifest(version); err != nil {
		return err
	}
	return &CorruptError{Path: path, Expected: fmt.Sprintf("a file of %d bytes", f.Size), Found: "none"}
}

// tensors returns what the manifest says is in a file.
func (m *Manifest) tensors(name string) []TensorInfo {
	var infos []TensorInfo
	for _, t := range m.Tensors {
		if t.File == name {
			infos = append(infos, t)
		}
	}
	return infos
}

// readFile reads a file into memory that is aligned for floats, and verifies its
// size and hash.
func (s *Store) readFile(ctx context.Context, path string, want File) ([]float32, error) {
	file, err := s.disk.Open(path)
	if err != nil {
		return nil, fmt.Errorf("weights: read: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("weights: read: %w", err)
	}
	if info.Size() != want.Size {
		return nil, &CorruptError{Path: path, Expected: fmt.Sprintf("%d bytes", want.Size), Found: fmt.Sprintf("%d", info.Size())}
	}
	words := make([]float32, (want.Size+3)/4)
	raw := bytesOf(words)[:want.Size]
	const chunk = 16 << 20 // between two looks at the context
	for at := int64(0); at < want.Size; at += chunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(file, raw[at:min(at+chunk, want.Size)]); err != nil {
			return nil, fmt.Errorf("weights: read %s at byte %d of %d: %w", path, at, want.Size, err)
		}
	}
	sum := sha256.Sum256(raw)
	if found := hashText(sum[:]); found != want.Hash {
		return nil, &CorruptError{Path: path, Expected: want.Hash, Found: found}
	}
	return words, nil
}

// dtypeError says that a tensor is sound but cannot be read as float32.
type dtypeError struct {
	name  string
	dtype DType
}

func (e *dtypeError) Error() string {
	return fmt.Sprintf("tensor %q is %s; this engine reads %s, %s and %s, so publish one of these", e.name, e.dtype, F32, BF16, F16)
}

// decode finds the tensors in a file that lies in words.
func decode(words []float32, size int64, want []TensorInfo) ([]port.Tensor, error) {
	raw := bytesOf(words)[:size]
	h, err := ParseHeader(raw, size)
	if err != nil {
		return nil, err
	}
	if err := agree(h.Entries, want); err != nil {
		return nil, err
	}
	tensors := make([]port.Tensor, len(h.Entries))
	for i, e := range h.Entries {
		data, err := decodeEntry(words, raw, h.DataStart, &e)
		if err != nil {
			return nil, err
		}
		tensors[i] = port.Tensor{Name: e.Name, Shape: e.Shape, Data: data}
	}
	return tensors, nil
}

// agree compares a file's tensors with what its manifest says.
func agree(entries []Entry, want []TensorInfo) error {
	if len(entries) != len(want) {
		return fmt.Errorf("%d tensors instead of %d", len(entries), len(want))
	}
	for i := range entries {
		e, w := &entries[i], &want[i]
		if e.Name != w.Name || e.DType != w.DType || !slices.Equal(e.Shape, w.Shape) {
			return fmt.Errorf("tensor %q %s %v instead of %q %s %v", e.Name, e.DType, e.Shape, w.Name, w.DType, w.Shape)
		}
	}
	return nil
}

// decodeEntry returns a tensor's values as float32.
func decodeEntry(words []float32, raw []byte, start int64, e *Entry) ([]float32, error) {
	if e.DType == F32 {
		return floats(words, raw, start+e.Begin, start+e.End), nil
	}
	data := raw[start+e.Begin : start+e.End]
	switch e.DType {
	case BF16:
		values := make([]float32, len(data)/2)
		decodeBF16(values, data)
		return values, nil
	case F16:
		values := make([]float32, len(data)/2)
		decodeF16(values, data)
		return values, nil
	}
	return nil, &dtypeError{e.Name, e.DType}
}

// floats returns the values in the bytes from begin to end: where they lie, if
// that is possible.
func floats(words []float32, raw []byte, begin, end int64) []float32 {
	if nativeLittle && begin%4 == 0 {
		return words[begin/4 : end/4 : end/4]
	}
	values := make([]float32, (end-begin)/4)
	decodeLittle(values, raw[begin:end])
	return values
}
