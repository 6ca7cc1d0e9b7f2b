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

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
)

// Model reads the tensors of a version that engines serve, verified. A version
// that is not there is ErrNotFound, one that is damaged a CorruptError. The
// tensors share one block of memory.
func (s *Store) Model(ctx context.Context, version loop.Version) ([]live.Tensor, error) {
	return s.read(ctx, version, ModelName)
}

// Optimizer reads the trainer's tensors of a version; otherwise as Model.
func (s *Store) Optimizer(ctx context.Context, version loop.Version) ([]live.Tensor, error) {
	return s.read(ctx, version, OptimizerName)
}

// Verify reads everything of a version and returns what is wrong with it.
func (s *Store) Verify(ctx context.Context, version loop.Version) error {
	_, err := s.Model(ctx, version)
	if err != nil {
		return err
	}
	_, err = s.Optimizer(ctx, version)
	return err
}

func (s *Store) read(ctx context.Context, version loop.Version, name string) ([]live.Tensor, error) {
	m, err := s.Manifest(version)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.directory(version), name)
	f, _ := m.file(name) // parseManifest has seen it
	words, err := s.readFile(ctx, path, f)
	if errors.Is(err, fs.ErrNotExist) {
		// Pruned after its manifest was read, or really lost?
		if _, err := s.Manifest(version); err != nil {
			return nil, err
		}
		return nil, &CorruptError{Path: path, Expected: fmt.Sprintf("a file of %d bytes", f.Size), Found: "none"}
	}
	if err != nil {
		return nil, err
	}
	tensors, err := decode(words, f.Size, m.tensors(name))
	if err != nil {
		return nil, &CorruptError{Path: path, Expected: "a safetensors file as its manifest says", Found: err.Error()}
	}
	return tensors, nil
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

// decode finds the tensors in a file of float32 tensors that lies in words.
func decode(words []float32, size int64, want []TensorInfo) ([]live.Tensor, error) {
	raw := bytesOf(words)[:size]
	h, err := ParseHeader(raw, size)
	if err != nil {
		return nil, err
	}
	if len(h.Entries) != len(want) {
		return nil, fmt.Errorf("%d tensors instead of %d", len(h.Entries), len(want))
	}
	tensors := make([]live.Tensor, len(h.Entries))
	for i, e := range h.Entries {
		if w := want[i]; e.Name != w.Name || e.DType != w.DType || !slices.Equal(e.Shape, w.Shape) {
			return nil, fmt.Errorf("tensor %q %s %v instead of %q %s %v", e.Name, e.DType, e.Shape, w.Name, w.DType, w.Shape)
		}
		if e.DType != F32 {
			return nil, fmt.Errorf("tensor %q is %s instead of %s", e.Name, e.DType, F32)
		}
		tensors[i] = live.Tensor{Name: e.Name, Shape: e.Shape, Data: floats(words, raw, h.DataStart+e.Begin, h.DataStart+e.End)}
	}
	return tensors, nil
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
