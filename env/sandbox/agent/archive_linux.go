package agent

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A snapshot is a tar archive of Work: plain files, directories and links, with their modes.

// serveSnapshot sends the archive as it is made, for there may be no memory for it whole.
func (a *agent) serveSnapshot(r request, ans answer) error {
	a.endAll()
	size, bad := a.archiveSize()
	if bad == nil && size > r.Limit {
		bad = faulty(faultTooLarge, "a snapshot of %d bytes is more than %d", size, r.Limit)
	}
	if bad != nil {
		ans.Fault = bad
		return a.wire.send(ans)
	}
	if err := a.wire.writeHeader(ans); err != nil {
		return err
	}
	if err := a.archive(a.wire); err != nil {
		return err // nothing runs that could have changed the files: the box is broken
	}
	return a.wire.end()
}

// archiveSize is how long the archive gets.
func (a *agent) archiveSize() (int64, *fault) {
	var size counter
	if err := a.archive(&size); err != nil {
		return 0, faultOf(a.setup.Places.Work, err)
	}
	return int64(size), nil
}

// counter counts what is written to it. A hole of a file is read as what it is: zeros.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (a *agent) archive(w io.Writer) error {
	root, err := os.OpenRoot(a.setup.Places.Work)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == "." {
			return nil
		}
		return archiveEntry(t, root, path, entry)
	})
	return errors.Join(err, t.Close())
}

func archiveEntry(t *tar.Writer, root *os.Root, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if link, err = root.Readlink(path); err != nil {
			return err
		}
	default:
		return nil // a pipe or a socket is of a process, and none is kept
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Uname, header.Gname = path, "", ""
	header.Format = tar.FormatPAX
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := root.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyN(t, file, info.Size())
	return err
}

// chunks makes a reader of a message's data.
type chunks struct {
	next func() ([]byte, error)
	rest []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		data, err := c.next()
		if err != nil {
			return 0, err
		}
		if data == nil {
			return 0, io.EOF
		}
		c.rest = data
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// restore makes the box's files those of a snapshot. No entry leads out of Work, through whatever
// links the archive has: the root refuses to follow them.
func (a *agent) restore(next func() ([]byte, error)) *fault {
	content := &chunks{next: next}
	if _, err := content.Read(nil); err != nil {
		return faulty(faultRefused, "the snapshot is empty: even one without a file is an archive")
	}
	if bad := a.reset(); bad != nil {
		return bad
	}
	root, err := os.OpenRoot(a.setup.Places.Work)
	if err != nil {
		return faultOf(a.setup.Places.Work, err)
	}
	defer root.Close()
	t := tar.NewReader(content)
	modes := map[string]fs.FileMode{}
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return faulty(faultRefused, "the snapshot is none: %v", err)
		}
		if err := restoreEntry(root, t, header, modes); err != nil {
			return faultOf(header.Name, err)
		}
	}
	// Last, and what is within first: a directory may forbid what was to be put in it.
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(modes))) {
		if err := root.Chmod(path, modes[path]); err != nil {
			return faultOf(path, err)
		}
	}
	return nil
}

func restoreEntry(root *os.Root, content io.Reader, header *tar.Header, modes map[string]fs.FileMode) error {
	path := filepath.Clean(header.Name)
	mode := header.FileInfo().Mode()
	switch header.Typeflag {
	case tar.TypeDir:
		modes[path] = mode.Perm()
		return root.MkdirAll(path, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, path)
	case tar.TypeReg:
		file, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := io.Copy(file, content); err != nil {
			return err
		}
		return file.Chmod(mode.Perm())
	}
	return fs.ErrInvalid
}
