package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/loop"
)

// KindCast marks what was derived from a version by a cast.
const KindCast = "cast"

// Derived says what was made from a version: a delta that leads to it, or its tensors in
// another type. It lies in derived/NAME of the version's directory, with this as its
// manifest, and goes when the version goes.
type Derived struct {
	// Name of its directory.
	Name string `json:"name"`
	// Version it was made from, and the hash of that version's manifest.
	Version loop.Version `json:"version"`
	Source  string       `json:"source"`
	// Kind is KindDelta or KindCast.
	Kind string `json:"kind"`
	// BaseVersion and Encoding are a delta's; loop.NoVersion and "" otherwise.
	BaseVersion loop.Version `json:"base_version"`
	Encoding    Encoding     `json:"encoding,omitempty"`
	// Cast is what a cast was made to; nil otherwise.
	Cast *Cast `json:"cast,omitempty"`
	// Files are its files, the manifest apart, and Tensors a cast's tensors.
	Files   []File       `json:"files"`
	Tensors []TensorInfo `json:"tensors,omitempty"`
}

// creator writes a file of a derived artefact and records its size and hash.
type creator func(name string, fill func(io.Writer) error) error

// text is the file of its manifest, which ends in its own hash.
func (d *Derived) text() ([]byte, error) {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	return sealManifest(text[:len(text)-len("\n}")], 0), nil
}

// parseDerived reads and verifies the manifest of what was derived from a version.
func parseDerived(text []byte, version loop.Version, name, path string) (Derived, error) {
	refuse := func(expected, found string) (Derived, error) {
		return Derived{}, &CorruptError{Path: path, Expected: expected, Found: found}
	}
	if err := checkSeal(text, path); err != nil {
		return Derived{}, err
	}
	var d Derived
	if err := json.Unmarshal(text, &d); err != nil {
		return refuse("a JSON manifest", err.Error())
	}
	if d.Version != version || d.Name != name {
		return refuse(fmt.Sprintf("%s of version %d, after its directory", name, version), fmt.Sprintf("%s of version %d", d.Name, d.Version))
	}
	if d.Kind != KindDelta && d.Kind != KindCast || len(d.Files) == 0 {
		return refuse("files of kind "+KindDelta+" or "+KindCast, strconv.Quote(d.Kind)+" with "+nameList(d.Files))
	}
	for _, f := range d.Files {
		if err := checkName(f.Name); err != nil {
			return refuse("plain names of files", err.Error())
		}
	}
	return d, nil
}

// derivedDir is where an artefact of a version lies.
func (s *Store) derivedDir(version loop.Version, name string) string {
	return filepath.Join(s.directory(version), derivedName, name)
}

// Derived returns what was derived from a version under a name. A file that is not there is
// ErrNotFound; one that was made from something else, or is damaged, a CorruptError.
func (s *Store) Derived(version loop.Version, name string) (Derived, error) {
	if err := checkName(name); err != nil {
		return Derived{}, fmt.Errorf("weights: version %d: %w", version, err)
	}
	source, _, err := s.manifestText(version)
	if err != nil {
		return Derived{}, err
	}
	path := filepath.Join(s.derivedDir(version, name), ManifestName)
	f, err := s.disk.Open(path)
	if isAbsent(err) {
		return Derived{}, fmt.Errorf("weights: %s of version %d: %w", name, version, ErrNotFound)
	}
	if err != nil {
		return Derived{}, fmt.Errorf("weights: %s of version %d: %w", name, version, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, HeaderBytesMax))
	if err != nil {
		return Derived{}, fmt.Errorf("weights: %s of version %d: %w", name, version, err)
	}
	d, err := parseDerived(text, version, name, path)
	if err != nil {
		return Derived{}, err
	}
	if found := sumText(source); d.Source != found {
		return Derived{}, &CorruptError{Path: path, Expected: "what was made from the manifest with " + found, Found: d.Source}
	}
	return d, nil
}

// DerivedNames lists what was derived from a version.
func (s *Store) DerivedNames(version loop.Version) ([]string, error) {
	names, err := s.disk.Names(filepath.Join(s.directory(version), derivedName))
	if isAbsent(err) {
		return nil, nil
	}
	return slices.DeleteFunc(names, func(n string) bool { return checkName(n) != nil }), err
}

// OpenDerived opens a file of what was derived; otherwise as OpenFile.
func (s *Store) OpenDerived(ctx context.Context, d Derived, name string, offset int64) (content io.ReadCloser, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	i := slices.IndexFunc(d.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return nil, 0, fmt.Errorf("weights: %s of version %d has %s, and no file %q: %w", d.Name, d.Version, nameList(d.Files), name, ErrNotFound)
	}
	return s.openAt(d.Version, filepath.Join(s.derivedDir(d.Version, d.Name), name), d.Files[i], offset)
}

// derive finds what was derived from a version, or has it made: aside, its manifest last,
// and renamed into place.
func (s *Store) derive(ctx context.Context, version loop.Version, name string, fill func(*Manifest, *Derived, creator) error) (Derived, error) {
	if d, err := s.Derived(version, name); !errors.Is(err, ErrNotFound) {
		return d, err
	}
	text, path, err := s.manifestText(version)
	if err != nil {
		return Derived{}, err
	}
	m, err := parseManifest(text, version, path)
	if err != nil {
		return Derived{}, err
	}
	if s.options.ReadOnly {
		return Derived{}, fmt.Errorf("weights: make %s of version %d in %s: %w", name, version, s.dir, ErrReadOnly)
	}
	d := Derived{Name: name, Version: version, Source: sumText(text), BaseVersion: loop.NoVersion}
	temporary := s.temporary(version)
	err = s.writeDerived(ctx, temporary, &m, &d, fill)
	if err == nil {
		err = s.placeDerived(temporary, &d)
	}
	if err != nil {
		err = s.full(fmt.Errorf("weights: make %s of version %d: %w", name, version, err), m.bytes())
		// What cannot be removed now is removed by the next Open.
		_ = s.disk.RemoveAll(temporary)
		if errors.Is(err, fs.ErrExist) {
			return s.Derived(version, name) // somebody else made it meanwhile
		}
		return Derived{}, s.unlessGone(version, err)
	}
	return d, nil
}

// bytes is the size of all files.
func (m *Manifest) bytes() (sum int64) {
	for _, f := range m.Files {
		sum += f.Size
	}
	return sum
}

func (s *Store) writeDerived(ctx context.Context, dir string, m *Manifest, d *Derived, fill func(*Manifest, *Derived, creator) error) error {
	if err := s.disk.Mkdir(dir); err != nil {
		return err
	}
	err := fill(m, d, func(name string, fill func(io.Writer) error) error {
		f, err := s.createHashed(filepath.Join(dir, name), fill)
		if err != nil {
			return err
		}
		f.Name = name
		d.Files = append(d.Files, f)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return s.sealDerived(dir, d)
}

// sealDerived writes the manifest.
func (s *Store) sealDerived(dir string, d *Derived) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	err = s.create(filepath.Join(dir, ManifestName), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return s.syncDir(dir)
}

// placeDerived renames an artefact into its version.
func (s *Store) placeDerived(temporary string, d *Derived) error {
	parent := filepath.Join(s.directory(d.Version), derivedName)
	if err := s.disk.Mkdir(parent); err == nil {
		if err := s.syncDir(s.directory(d.Version)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.disk.Rename(temporary, s.derivedDir(d.Version, d.Name)); err != nil {
		return err
	}
	return s.syncDir(parent)
}

// createHashed creates a file, and says what it has become.
func (s *Store) createHashed(path string, fill func(io.Writer) error) (File, error) {
	out := &hashed{}
	err := s.create(path, func(w io.Writer) error {
		out.begin(w)
		return fill(out)
	})
	return out.file(filepath.Base(path)), err
}

// checkSeal verifies that a manifest ends in its own hash.
func checkSeal(text []byte, path string) error {
	if len(text) < hashTail {
		return &CorruptError{Path: path, Expected: "a manifest that ends in its own hash", Found: fmt.Sprintf("%d bytes", len(text))}
	}
	body, tail := text[:len(text)-hashTail], text[len(text)-hashTail:]
	if want := hashPrefix + sumText(body) + hashSuffix; string(tail) != want {
		return &CorruptError{Path: path, Expected: "the end " + strconv.Quote(want), Found: strconv.Quote(string(tail))}
	}
	return nil
}
