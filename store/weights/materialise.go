package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// apply makes the draft of a delta whole: every version of a Store stands on its own, so
// none is lost with its base.
func (d *Draft) apply(ctx context.Context) error {
	i := slices.IndexFunc(d.files, func(f File) bool { return f.Name == DeltaName })
	if i < 0 {
		return refused(d.d.Version, "a delta in %s, want it in %s", nameList(d.files), DeltaName)
	}
	came := d.files[i]
	for _, f := range d.files {
		if f.Name != DeltaName && !isOptimizer(f.Name) {
			return refused(d.d.Version, "the file %s beside %s, want only the trainer's own, %s*", f.Name, DeltaName, optimizerPrefix)
		}
	}
	base, err := d.s.Manifest(d.d.BaseVersion)
	if err != nil {
		return fmt.Errorf("weights: the base of version %d: %w; publish a full version", d.d.Version, err)
	}
	file, err := d.s.disk.Open(filepath.Join(d.dir, DeltaName))
	if err != nil {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	delta, err := d.parse(file, came.Size)
	if err != nil {
		return err
	}
	d.files = slices.Delete(d.files, i, i+1)
	delete(d.tensors, DeltaName)
	sum := int64(0)
	for _, f := range delta.Files {
		sum += f.Size
	}
	if err := d.s.room(sum); err != nil {
		return err
	}
	if err := delta.Apply(ctx, d.s.base(&base), d.create); err != nil {
		return d.blame(err)
	}
	d.delta = &Derived{Name: DeltaArtefact(d.d.BaseVersion, d.d.Encoding), Version: d.d.Version, Kind: KindDelta,
		BaseVersion: d.d.BaseVersion, Encoding: d.d.Encoding, Files: []File{came}}
	return nil
}

// parse reads the delta, and compares it with the description.
func (d *Draft) parse(file io.ReadSeeker, size int64) (*Delta, error) {
	delta, err := ParseDelta(file, size)
	if err != nil {
		return nil, refused(d.d.Version, "%s: %v", DeltaName, err)
	}
	if delta.Version != d.d.Version || delta.BaseVersion != d.d.BaseVersion || delta.Encoding != d.d.Encoding {
		return nil, refused(d.d.Version, "%s leads by %s from version %d to %d, want by %s from %d to %d",
			DeltaName, delta.Encoding, delta.BaseVersion, delta.Version, d.d.Encoding, d.d.BaseVersion, d.d.Version)
	}
	for _, f := range delta.Files {
		if isOptimizer(f.Name) || slices.ContainsFunc(d.files, func(g File) bool { return g.Name == f.Name }) {
			return nil, refused(d.d.Version, "%s gives %s, want only what engines load, each file once", DeltaName, f.Name)
		}
	}
	return delta, nil
}

// diskError marks an error of writing, which is not the delta's fault.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// blame says whose fault it is that a delta did not apply.
func (d *Draft) blame(err error) error {
	disk, corrupt := new(diskError), new(CorruptError)
	if errors.As(err, &disk) || errors.As(err, &corrupt) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotFound) {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	return refused(d.d.Version, "%v", err)
}

// create starts a file that a delta gives; what it becomes is checked as by Add.
func (d *Draft) create(name string) (io.WriteCloser, error) {
	out, err := d.s.disk.Create(filepath.Join(d.dir, name))
	if err != nil {
		return nil, &diskError{err}
	}
	w := &made{d: d, name: name, out: out}
	w.begin(out)
	if isTensors(name) {
		w.in = &inspector{size: -1, names: publishedNamesMax, scan: isModel(name) && !d.s.options.AcceptNonFinite}
	}
	return w, nil
}

// made is a file of a draft that a delta gives.
type made struct {
	hashed
	d    *Draft
	name string
	out  output
	in   *inspector
}

func (w *made) Write(p []byte) (int, error) {
	if w.in != nil {
		if _, err := w.in.Write(p); err != nil {
			return 0, err
		}
	}
	n, err := w.hashed.Write(p)
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}

// Close ends the file and records it in the draft.
func (w *made) Close() error {
	var err error
	if w.d.s.options.Always {
		err = w.out.Sync()
	}
	if err = errors.Join(err, w.out.Close()); err != nil {
		return &diskError{err}
	}
	if w.in != nil && w.in.wrong == nil {
		if err := w.in.end(); err != nil {
			return err
		}
		w.d.tensors[w.name] = w.in.header.Entries
	}
	w.d.files = append(w.d.files, w.file(w.name))
	return nil
}

// keepDelta puts the delta that a version came as beside it, for those who have its base.
func (d *Draft) keepDelta(manifest []byte) error {
	if d.delta == nil {
		return nil
	}
	d.delta.Source = sumText(manifest)
	parent := filepath.Join(d.dir, derivedName)
	dir := filepath.Join(parent, d.delta.Name)
	for _, make := range []string{parent, dir} {
		if err := d.s.disk.Mkdir(make); err != nil {
			return err
		}
	}
	if err := d.s.disk.Rename(filepath.Join(d.dir, DeltaName), filepath.Join(dir, DeltaName)); err != nil {
		return err
	}
	if err := d.s.sealDerived(dir, d.delta); err != nil {
		return err
	}
	return d.s.syncDir(parent)
}

// deltaFiles are the files that a version came in as a delta.
func (s *Store) deltaFiles(m *Manifest, base loop.Version, encoding Encoding) ([]File, error) {
	d, err := s.Derived(m.Version, DeltaArtefact(base, encoding))
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("weights: publish version %d as a delta from version %d: %s has it otherwise: %w; publish under the next version",
			m.Version, base, s.dir, ErrConflict)
	}
	if err != nil {
		return nil, err
	}
	files := slices.Clone(d.Files)
	for _, f := range m.Files {
		if isOptimizer(f.Name) {
			files = append(files, f)
		}
	}
	return files, nil
}
