package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/headway-rl/headway/loop"
)

// AddDirectory takes the declared files from a directory on a disk that publisher and
// store share; all its files where none are declared. The directory must lie below one of
// Options.Directories, also after its symbolic links are followed. The files are copied,
// or linked where Options.Link allows it, and checked as by Add.
func (d *Draft) AddDirectory(ctx context.Context, dir string) error {
	root, inside, err := d.s.allowed(dir)
	if err != nil {
		return refused(d.d.Version, "%v", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	names, err := d.names(root, inside)
	if err != nil {
		return refused(d.d.Version, "directory %s: %v", dir, err)
	}
	for _, name := range names {
		want, err := d.declared(name)
		if err != nil {
			return err
		}
		file, err := openRegular(root, filepath.Join(inside, name))
		if err != nil {
			return refused(d.d.Version, "directory %s: %v", dir, err)
		}
		if err := d.addFile(ctx, want, file, filepath.Join(root.Name(), inside, name), d.s.options.Link); err != nil {
			return err
		}
	}
	return nil
}

// allowed opens the allowed directory that dir lies below, and says where in it dir is.
func (s *Store) allowed(dir string) (*os.Root, string, error) {
	if len(s.options.Directories) == 0 {
		return nil, "", fmt.Errorf("directory %s: no directories are allowed; send the files, or allow one in the server's settings", dir)
	}
	for _, base := range s.options.Directories {
		inside, err := filepath.Rel(base, dir)
		if err != nil || !filepath.IsLocal(inside) {
			continue
		}
		root, err := os.OpenRoot(base)
		return root, inside, err
	}
	return nil, "", fmt.Errorf("directory %s is not below an allowed one: %s", dir, strings.Join(s.options.Directories, ", "))
}

// names are the files to take from a directory.
func (d *Draft) names(root *os.Root, inside string) ([]string, error) {
	var names []string
	for _, f := range d.d.Files {
		names = append(names, f.Name)
	}
	if len(names) > 0 {
		return names, nil
	}
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(inside))
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if err == nil && len(names) == 0 {
		err = errors.New("it has no files")
	}
	return names, err
}

// openRegular opens a file of a directory, and nothing that is something else. It looks at what it has opened: the
// name may be another's by then. Opening does not wait, as for the writer of a pipe.
func openRegular(root *os.Root, path string) (*os.File, error) {
	file, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %v, want a file", path, info.Mode())
	}
	if err != nil {
		_ = file.Close() // it was only read
		return nil, err
	}
	return file, nil
}

// addFile takes an open file, by a link if that is allowed and possible, and closes it.
func (d *Draft) addFile(ctx context.Context, want File, file input, path string, link bool) error {
	defer func() { _ = file.Close() }() // it was only read
	if !link || d.dir == "" || d.s.disk.Link(path, filepath.Join(d.dir, want.Name)) != nil {
		if d.dir == "" {
			return d.take(ctx, want, file, io.Discard)
		}
		return d.s.full(d.s.create(filepath.Join(d.dir, want.Name), func(w io.Writer) error {
			return d.take(ctx, want, file, w)
		}), max(d.d.bytes(), want.Size))
	}
	// What was linked is what is read, whatever has the path now.
	linked, err := d.s.disk.Open(filepath.Join(d.dir, want.Name))
	if err != nil {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	defer func() { _ = linked.Close() }()
	before, err := file.Stat()
	after, err2 := linked.Stat()
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("weights: publish version %d: %w", d.d.Version, err)
	}
	if !os.SameFile(before, after) {
		return refused(d.d.Version, "%s was replaced while it was taken", path)
	}
	return d.take(ctx, want, linked, io.Discard)
}

// AddVersion takes all files of a stored version: a state that a trainer went back to, as
// a version of its own. The files are linked where the disk can, and verified.
func (d *Draft) AddVersion(ctx context.Context, from loop.Version) error {
	m, err := d.s.Manifest(from)
	if err != nil {
		return err
	}
	if m.Kind != KindFull {
		return fmt.Errorf("weights: version %d from version %d: %w; name a version with weights", d.d.Version, from, ErrNoWeights)
	}
	for _, f := range m.Files {
		if len(d.d.Files) > 0 && !slices.ContainsFunc(d.d.Files, func(g File) bool { return g.Name == f.Name }) {
			continue
		}
		path := filepath.Join(d.s.directory(from), f.Name)
		if _, err := d.declared(f.Name); err != nil {
			return err
		}
		content, _, err := d.s.openAt(from, path, f, 0)
		if err != nil {
			return err
		}
		if err := d.addFile(ctx, File{Name: f.Name, Size: f.Size}, content.(input), path, true); err != nil {
			return err
		}
		if got := d.files[len(d.files)-1]; got != f {
			return &CorruptError{Path: path, Expected: f.Hash, Found: got.Hash}
		}
	}
	return nil
}
