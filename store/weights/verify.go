package weights

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headway-rl/headway/loop"
)

// Verify reads everything of a version and returns what is wrong with it: a CorruptError
// where it is damaged, ErrNotFound where it is not there. It needs little memory.
func (s *Store) Verify(ctx context.Context, version loop.Version) error {
	m, err := s.Manifest(version)
	if err != nil {
		return err
	}
	for _, f := range m.Files {
		path := filepath.Join(s.directory(version), f.Name)
		err := s.verifyFile(ctx, path, f, m.tensors(f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			err = s.lost(version, path, f)
		}
		if err != nil {
			return err
		}
	}
	names, err := s.DerivedNames(version)
	if err != nil {
		return fmt.Errorf("weights: views derived from version %d: %w", version, err)
	}
	for _, name := range names {
		if err := s.verifyDerived(ctx, version, name); err != nil {
			return err
		}
	}
	return nil
}

// verifyDerived reads everything of what was derived from a version.
func (s *Store) verifyDerived(ctx context.Context, version loop.Version, name string) error {
	d, err := s.Derived(version, name)
	if err != nil {
		return err
	}
	for _, f := range d.Files {
		path := filepath.Join(s.derivedDir(version, name), f.Name)
		var tensors []TensorInfo
		for _, t := range d.Tensors {
			if t.File == f.Name {
				tensors = append(tensors, t)
			}
		}
		check := f
		if d.Kind == KindDelta {
			check.Name = strings.TrimSuffix(f.Name, safetensorsSuffix) // its tensors are payloads
		}
		if err := s.verifyFile(ctx, path, check, tensors); errors.Is(err, fs.ErrNotExist) {
			return s.lost(version, path, f)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// verifyFile compares a file with what its manifest says of it.
func (s *Store) verifyFile(ctx context.Context, path string, want File, tensors []TensorInfo) error {
	file, err := s.disk.Open(path)
	if err != nil {
		return fmt.Errorf("weights: verify: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("weights: verify: %w", err)
	}
	if info.Size() != want.Size {
		return &CorruptError{Path: path, Expected: fmt.Sprintf("%d bytes", want.Size), Found: fmt.Sprintf("%d", info.Size())}
	}
	sum, in := sha256.New(), &inspector{size: want.Size}
	into := io.Writer(sum)
	if isTensors(want.Name) {
		into = io.MultiWriter(sum, in)
	}
	if err := copyAll(ctx, into, file); in.wrong != nil {
		return &CorruptError{Path: path, Expected: "a safetensors file as its manifest says", Found: err.Error()}
	} else if err != nil {
		return fmt.Errorf("weights: verify %s: %w", path, err)
	}
	if found := hashText(sum.Sum(nil)); found != want.Hash {
		return &CorruptError{Path: path, Expected: want.Hash, Found: found}
	}
	if !isTensors(want.Name) {
		return nil
	}
	if err := agree(in.header.Entries, tensors); err != nil {
		return &CorruptError{Path: path, Expected: "a safetensors file as its manifest says", Found: err.Error()}
	}
	return nil
}

// buffers are lent for copying.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, copyBytes)
	return &b
}}

// copyAll copies until the end or the end of the context.
func copyAll(ctx context.Context, to io.Writer, from io.Reader) error {
	lent := buffers.Get().(*[]byte)
	defer buffers.Put(lent)
	buffer := *lent
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.Read(buffer)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
