package weights

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Publish stores a version, whole or not at all. After an error of the disk it may
// be either, and publishing it again settles it. Values that are not finite are
// refused. Publishing a version that is there already, with the same lease and the content of its
// manifest, is fine and writes nothing. Anything else under a version that exists is ErrConflict. The
// tensors are read only until it returns.
func (s *Store) Publish(ctx context.Context, p port.Publication) error {
	if s.options.ReadOnly {
		return fmt.Errorf("weights: publish version %d to %s: %w", p.Version, s.dir, ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if err := s.encoder.check(p); err != nil {
		return fmt.Errorf("weights: publish version %d: %w; nothing was published", p.Version, err)
	}
	existing, err := s.Manifest(p.Version)
	if err == nil {
		return s.repeat(p, existing)
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	temporary := s.temporary(p.Version)
	if err := s.write(ctx, temporary, p); err != nil {
		err = s.full(fmt.Errorf("weights: publish version %d: %w", p.Version, err), publishedBytes(p))
		// What cannot be removed now is removed by the next Open.
		_ = s.disk.RemoveAll(temporary)
		return err
	}
	if err := s.syncDir(s.dir); err != nil {
		return fmt.Errorf("weights: publish version %d: %w", p.Version, err)
	}
	s.weighted.Store(int64(p.Version) + 1)
	return nil
}

// repeat accepts a second publish of the same version.
func (s *Store) repeat(p port.Publication, existing Manifest) error {
	if p.Lease != existing.Lease {
		return fmt.Errorf("weights: publish version %d of lease %d: %s has it of lease %d: %w; publish under the next version",
			p.Version, p.Lease, s.dir, existing.Lease, ErrConflict)
	}
	for _, part := range parts(p) {
		f, err := s.encoder.encode(io.Discard, part)
		if err != nil {
			return fmt.Errorf("weights: publish version %d: %w", p.Version, err)
		}
		if there, _ := existing.file(part.name); there != f {
			return fmt.Errorf("weights: publish version %d of lease %d: its %s has %s, %s has %s: %w; publish under the next version",
				p.Version, p.Lease, part.name, f.Hash, s.dir, there.Hash, ErrConflict)
		}
	}
	// The first publish may have failed here, with the version in place.
	return s.syncDir(s.dir)
}

// publishedBytes is the size of a publication's values.
func publishedBytes(p port.Publication) (sum int64) {
	for _, part := range parts(p) {
		for _, t := range part.tensors {
			sum += 4 * int64(len(t.Data))
		}
	}
	return sum
}

// part is one file of a publication.
type part struct {
	name    string
	tensors []port.Tensor
}

func parts(p port.Publication) [2]part {
	return [2]part{{ModelName, p.Model}, {OptimizerName, p.Optimizer}}
}

// write writes a version aside, its manifest last, and renames it into place.
func (s *Store) write(ctx context.Context, temporary string, p port.Publication) error {
	if err := s.disk.Mkdir(temporary); err != nil {
		return err
	}
	m := &s.encoder.manifest
	*m = Manifest{Version: p.Version, BaseVersion: loop.NoVersion, Kind: KindFull, Lease: p.Lease, Epoch: s.options.Epoch, Files: m.Files[:0], Tensors: m.Tensors[:0]}
	for _, part := range parts(p) {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := File{}
		err := s.create(filepath.Join(temporary, part.name), func(w io.Writer) (err error) {
			f, err = s.encoder.encode(w, part)
			return err
		})
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
		for _, t := range part.tensors {
			m.Tensors = append(m.Tensors, TensorInfo{Name: t.Name, DType: F32, Shape: t.Shape, File: part.name})
		}
	}
	s.encoder.text = m.append(s.encoder.text[:0])
	err := s.create(filepath.Join(temporary, ManifestName), func(w io.Writer) error {
		_, err := w.Write(s.encoder.text)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.syncDir(temporary); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.place(temporary, p.Version)
}

// place renames a complete directory to its version. What is in the way and has
// no manifest is no version, and makes room; so does what a deposed writer published.
func (s *Store) place(temporary string, version loop.Version) error {
	if s.options.Fence != nil {
		if err := s.options.Fence(); err != nil {
			return err
		}
	}
	err := s.disk.Rename(temporary, s.directory(version))
	if errors.Is(err, fs.ErrExist) {
		if err = s.makeRoom(version); err == nil {
			err = s.disk.Rename(temporary, s.directory(version))
		}
	}
	if err == nil {
		s.settle(version)
	}
	return err
}

// makeRoom takes what is no version of this run's out of the way of one.
func (s *Store) makeRoom(version loop.Version) error {
	there, err := s.anyManifest(version)
	switch {
	case err == nil && s.foreign(&there) && there.Epoch < s.options.Epoch:
		return s.SetAside(version)
	case errors.Is(err, ErrNotFound):
		return s.remove(version)
	}
	return fmt.Errorf("another process published it meanwhile: %w", errors.Join(ErrConflict, err))
}

// create writes a new file, and syncs it if that is asked for.
func (s *Store) create(path string, fill func(io.Writer) error) error {
	f, err := s.disk.Create(path)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil && s.options.Always {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (s *Store) syncDir(dir string) error {
	if !s.options.Always {
		return nil
	}
	return s.disk.SyncDir(dir)
}

// bufferBytes gathers small tensors into one write; larger ones are written from
// where they lie.
const bufferBytes = 64 << 10

// encoder turns tensors into files. It is kept for its buffers.
type encoder struct {
	names    map[string]struct{}
	entries  []Entry
	header   []byte
	scratch  []byte
	text     []byte
	manifest Manifest
	sink     sink
	buffer   *bufio.Writer
}

// sink hashes what it passes on.
type sink struct {
	hash hash.Hash
	to   io.Writer
	size int64
}

func (s *sink) Write(p []byte) (int, error) {
	s.hash.Write(p) // never fails
	s.size += int64(len(p))
	return s.to.Write(p)
}

// check refuses a publication that must not be served.
func (e *encoder) check(p port.Publication) error {
	if p.Version < 0 || p.Lease < 0 {
		return fmt.Errorf("lease %d, want neither the version nor the lease negative", p.Lease)
	}
	if len(p.Model) == 0 {
		return errors.New("no model tensors, want at least one")
	}
	for _, part := range parts(p) {
		if e.names == nil {
			e.names = make(map[string]struct{})
		}
		clear(e.names)
		for i := range part.tensors {
			t := &part.tensors[i]
			if _, twice := e.names[t.Name]; twice {
				return fmt.Errorf("%s: the tensor %q occurs twice, want each name once", part.name, t.Name)
			}
			e.names[t.Name] = struct{}{}
			if err := checkTensor(t); err != nil {
				return fmt.Errorf("%s: tensor %q: %w", part.name, t.Name, err)
			}
		}
	}
	return nil
}

func checkTensor(t *port.Tensor) error {
	size, err := tensorBytes(F32, t.Shape)
	if err != nil {
		return err
	}
	if size != 4*int64(len(t.Data)) {
		return fmt.Errorf("%d values, want the %d of shape %v", len(t.Data), size/4, t.Shape)
	}
	if i := firstBroken(t.Data); i >= 0 {
		return fmt.Errorf("value %d (row-major) is %v, want every value finite", i, t.Data[i])
	}
	return nil
}

// encode writes one safetensors file and returns what a manifest says of it.
func (e *encoder) encode(w io.Writer, part part) (File, error) {
	e.entries = e.entries[:0]
	for _, t := range part.tensors {
		e.entries = append(e.entries, Entry{Name: t.Name, DType: F32, Shape: t.Shape})
	}
	header, err := AppendHeader(e.header[:0], e.entries)
	if err != nil {
		return File{}, err
	}
	e.header = header
	if e.buffer == nil {
		e.sink.hash = sha256.New()
		e.buffer = bufio.NewWriterSize(&e.sink, bufferBytes)
	}
	e.sink.hash.Reset()
	e.sink.to, e.sink.size = w, 0
	e.buffer.Reset(&e.sink)
	// The buffer keeps the first error until Flush.
	_, _ = e.buffer.Write(header)
	for _, t := range part.tensors {
		e.values(t.Data)
	}
	err = e.buffer.Flush()
	e.sink.to = nil
	return File{Name: part.name, Size: e.sink.size, Hash: hashText(e.sink.hash.Sum(nil))}, err
}

// values writes floats in the file's byte order.
func (e *encoder) values(data []float32) {
	if nativeLittle {
		_, _ = e.buffer.Write(bytesOf(data))
		return
	}
	for len(data) > 0 {
		n := min(len(data), bufferBytes/4)
		e.scratch = appendLittle(e.scratch[:0], data[:n])
		_, _ = e.buffer.Write(e.scratch)
		data = data[n:]
	}
}
