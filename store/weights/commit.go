package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Commit publishes a draft, whole or not at all. existing says that the same was there
// already. Other content under a version that exists is ErrConflict, a draft that is not
// complete or does not fit the version before it a RefusedError. After an error of the
// disk the version may be there or not; publishing it again settles it.
func (d *Draft) Commit(ctx context.Context) (existing bool, err error) {
	if d.done {
		return false, fmt.Errorf("weights: version %d: the draft was committed or dropped already", d.d.Version)
	}
	defer func() { err = errors.Join(err, d.Abort()) }()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	for _, f := range d.d.Files {
		if !slices.ContainsFunc(d.files, func(g File) bool { return g.Name == f.Name }) {
			return false, refused(d.d.Version, "the file %q was declared and did not come", f.Name)
		}
	}
	if d.existing != nil {
		return true, d.compare(d.existing)
	}
	if d.d.Kind == KindDelta {
		if err := d.apply(ctx); err != nil {
			return false, d.s.full(err, d.d.bytes())
		}
	}
	m, err := d.manifest()
	if err != nil {
		return false, err
	}
	if err := d.fits(m); err != nil {
		return false, err
	}
	d.s.publishing.Lock()
	defer d.s.publishing.Unlock()
	there, err := d.s.Manifest(d.d.Version)
	if err == nil {
		if err := d.compareHead(&there); err != nil {
			return false, err
		}
		return true, d.compare(&there)
	}
	if !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if err := d.place(ctx, m); err != nil {
		return false, d.s.full(fmt.Errorf("weights: publish version %d: %w", d.d.Version, err), d.d.bytes())
	}
	return false, nil
}

// place writes the manifest and renames the draft to its version.
func (d *Draft) place(ctx context.Context, m *Manifest) error {
	text := m.append(nil)
	if err := d.keepDelta(text); err != nil {
		return err
	}
	err := d.s.create(filepath.Join(d.dir, ManifestName), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.s.syncDir(d.dir); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.d.Fence != nil {
		if err := d.d.Fence(); err != nil {
			return err
		}
	}
	if err := d.s.place(d.dir, d.d.Version); err != nil {
		return err
	}
	d.done = true
	return d.s.syncDir(d.s.dir)
}

// manifest says what the draft is.
func (d *Draft) manifest() (*Manifest, error) {
	m := &Manifest{Version: d.d.Version, BaseVersion: loop.NoVersion, Kind: d.d.Kind, Lease: d.d.Lease, RestoredFrom: d.d.RestoredFrom, Epoch: d.s.options.Epoch}
	if m.Kind == KindDelta {
		m.Kind = KindFull // apply has made it whole
	}
	m.Files = slices.SortedFunc(slices.Values(d.files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	owner := map[string]string{}
	for _, f := range m.Files {
		for _, e := range d.tensors[f.Name] {
			if isModel(f.Name) {
				if other, twice := owner[e.Name]; twice {
					return nil, refused(d.d.Version, "the tensor %q is in %s and in %s, want each once", e.Name, other, f.Name)
				}
				owner[e.Name] = f.Name
			}
			m.Tensors = append(m.Tensors, TensorInfo{Name: e.Name, DType: e.DType, Shape: e.Shape, File: f.Name})
		}
	}
	if m.Kind == KindFull && len(owner) == 0 {
		return nil, refused(d.d.Version, "no model tensors in %s, want at least one in a file NAME%s that is not %s*", nameList(m.Files), safetensorsSuffix, optimizerPrefix)
	}
	return m, nil
}

// nameList lists files for an error.
func nameList(files []File) string {
	if len(files) == 0 {
		return "no files"
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return strings.Join(names, " ")
}

// differencesMax is how many differences an error lists.
const differencesMax = 10

// fits compares the model's tensors with those of the version before: engines load them
// in place, so another set of tensors is another model.
func (d *Draft) fits(m *Manifest) error {
	if m.Kind != KindFull {
		return nil
	}
	before, err := d.s.newestBelow(m.Version)
	if before == nil || err != nil {
		return err
	}
	var differences []string
	wanted := map[string]*TensorInfo{}
	for i := range before.Tensors {
		if t := &before.Tensors[i]; isModel(t.File) {
			wanted[t.Name] = t
		}
	}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if !isModel(t.File) {
			continue
		}
		want, ok := wanted[t.Name]
		delete(wanted, t.Name)
		switch {
		case !ok:
			differences = append(differences, fmt.Sprintf("tensor %q %s %v is new", t.Name, t.DType, t.Shape))
		case want.DType != t.DType || !slices.Equal(want.Shape, t.Shape):
			differences = append(differences, fmt.Sprintf("tensor %q is %s %v, want %s %v", t.Name, t.DType, t.Shape, want.DType, want.Shape))
		}
	}
	for _, t := range wanted {
		differences = append(differences, fmt.Sprintf("tensor %q %s %v is missing", t.Name, t.DType, t.Shape))
	}
	if len(differences) == 0 {
		return nil
	}
	slices.Sort(differences)
	if n := len(differences); n > differencesMax {
		differences = append(differences[:differencesMax], fmt.Sprintf("and %d more", n-differencesMax))
	}
	return refused(m.Version, "its tensors are not those of version %d: %s", before.Version, strings.Join(differences, "; "))
}

// compareHead refuses a draft of a version that exists as something else.
func (d *Draft) compareHead(existing *Manifest) error {
	kind := d.d.Kind
	if kind == KindDelta {
		kind = KindFull
	}
	if d.d.Lease != existing.Lease {
		return fmt.Errorf("weights: publish version %d of lease %d: %s has it of lease %d: %w; publish under the next version",
			d.d.Version, d.d.Lease, d.s.dir, existing.Lease, ErrConflict)
	}
	if kind != existing.Kind {
		return fmt.Errorf("weights: publish version %d of kind %s: %s has it of kind %s: %w; publish under the next version",
			d.d.Version, d.d.Kind, d.s.dir, existing.Kind, ErrConflict)
	}
	return nil
}

// compare accepts a second publish of the same files.
func (d *Draft) compare(existing *Manifest) error {
	files := existing.Files
	if d.d.Kind == KindDelta {
		var err error
		if files, err = d.s.deltaFiles(existing, d.d.BaseVersion, d.d.Encoding); err != nil {
			return err
		}
	}
	conflict := func(format string, arguments ...any) error {
		return fmt.Errorf("weights: publish version %d of lease %d: %s: %w; publish under the next version",
			d.d.Version, d.d.Lease, fmt.Sprintf(format, arguments...), ErrConflict)
	}
	for _, f := range d.files {
		i := slices.IndexFunc(files, func(g File) bool { return g.Name == f.Name })
		if i < 0 {
			return conflict("it comes with %s, which %s has not", f.Name, d.s.dir)
		}
		if files[i] != f {
			return conflict("its %s has %s, %s has %s", f.Name, f.Hash, d.s.dir, files[i].Hash)
		}
	}
	if len(files) != len(d.files) {
		return conflict("it comes with %s, %s has %s", nameList(d.files), d.s.dir, nameList(files))
	}
	// The first publish may have failed here, with the version in place.
	return d.s.syncDir(d.s.dir)
}
