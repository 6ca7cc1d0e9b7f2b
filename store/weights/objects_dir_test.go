package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
)

// dirObjects is an object store in a directory: nothing but Remote can go wrong in it.
type dirObjects struct {
	root *os.Root
	// temporaries numbers the files that are being written.
	temporaries atomic.Int64
}

var _ Objects = (*dirObjects)(nil)

// openDirectory opens a directory as an object store, making it if it is not there.
func openDirectory(dir string) (*dirObjects, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("weights: object store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("weights: object store: %w", err)
	}
	return &dirObjects{root: root}, nil
}

// Close frees the directory.
func (d *dirObjects) Close() error { return d.root.Close() }

// Put writes an object aside, waits for the disk, and renames it into place.
func (d *dirObjects) Put(ctx context.Context, name string, src io.Reader) (n int64, err error) {
	if !fs.ValidPath(name) || strings.HasPrefix(path.Base(name), temporaryPrefix) {
		return 0, fmt.Errorf("weights: object %q, want a path without dots", name)
	}
	if err := d.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return 0, fmt.Errorf("weights: object %s: %w", name, err)
	}
	aside := path.Join(path.Dir(name), fmt.Sprintf("%s%d-%d-%s", temporaryPrefix, os.Getpid(), d.temporaries.Add(1), path.Base(name)))
	f, err := d.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, fmt.Errorf("weights: object %s: %w", name, err)
	}
	counted := &counted{to: f}
	if err = copyAll(ctx, counted, src); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.root.Rename(aside, name)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("weights: object %s: %w", name, err), d.root.Remove(aside))
	}
	return counted.n, nil
}

// counted counts what it passes on.
type counted struct {
	to io.Writer
	n  int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// Open opens an object.
func (d *dirObjects) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("weights: object %s: %w", name, err)
	}
	return f, nil
}

// List walks the directory.
func (d *dirObjects) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if e.Type().IsRegular() && strings.HasPrefix(name, prefix) && !strings.HasPrefix(e.Name(), temporaryPrefix) {
			names = append(names, name)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("weights: objects %s*: %w", prefix, err)
	}
	return names, nil
}

// Delete deletes an object, and its directory where it was the last in it.
func (d *dirObjects) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weights: object %s: %w", name, err)
	}
	_ = d.root.Remove(path.Dir(name)) // fails where something else is in it
	return nil
}
