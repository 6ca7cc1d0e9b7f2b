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

// Newest is the newest published version that has weights, loop.NoVersion if there is
// none, or none that can be read.
func (s *Store) Newest() loop.Version {
	m, err := s.newestBelow(maxVersion)
	if m == nil || err != nil {
		return loop.NoVersion
	}
	return m.Version
}

// maxVersion is above all versions.
const maxVersion = loop.Version(1<<63 - 1)

// newestBelow returns the manifest of the newest version with weights that is below the
// given one, nil if there is none.
func (s *Store) newestBelow(version loop.Version) (*Manifest, error) {
	versions, err := s.Versions()
	if err != nil {
		return nil, err
	}
	for _, v := range slices.Backward(versions) {
		if v >= version {
			continue
		}
		m, err := s.Manifest(v)
		if errors.Is(err, ErrNotFound) {
			continue // pruned meanwhile
		}
		if err != nil {
			return nil, err
		}
		if m.Kind == KindFull {
			return &m, nil
		}
	}
	return nil, nil
}

// ManifestText is the manifest's file of a version, verified. A version that is not
// there is ErrNotFound.
func (s *Store) ManifestText(ctx context.Context, version loop.Version) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, path, err := s.manifestText(version)
	if err != nil {
		return nil, err
	}
	if _, err := parseManifest(text, version, path); err != nil {
		return nil, err
	}
	return text, nil
}

// OpenFile opens a file of a version at an offset; size is the whole file's. A version or
// file that is not there is ErrNotFound. The content is not verified: its reader has the
// hash of the manifest.
func (s *Store) OpenFile(ctx context.Context, version loop.Version, name string, offset int64) (content io.ReadCloser, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m, err := s.Manifest(version)
	if err != nil {
		return nil, 0, err
	}
	f, ok := m.file(name)
	if !ok {
		return nil, 0, fmt.Errorf("weights: version %d has %s, and no file %q: %w", version, nameList(m.Files), name, ErrNotFound)
	}
	return s.openAt(version, filepath.Join(s.directory(version), name), f, offset)
}

// openAt opens a file that a manifest knows.
func (s *Store) openAt(version loop.Version, path string, want File, offset int64) (content io.ReadCloser, size int64, err error) {
	if offset < 0 || offset > want.Size {
		return nil, 0, fmt.Errorf("weights: %s from byte %d, want from 0 to its %d", path, offset, want.Size)
	}
	file, err := s.disk.Open(path)
	if isAbsent(err) {
		if _, err := s.Manifest(version); err != nil {
			return nil, 0, err // pruned meanwhile
		}
		return nil, 0, &CorruptError{Path: path, Expected: fmt.Sprintf("a file of %d bytes", want.Size), Found: "none"}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("weights: open: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Size() != want.Size {
		err = &CorruptError{Path: path, Expected: fmt.Sprintf("%d bytes", want.Size), Found: fmt.Sprintf("%d", info.Size())}
	}
	if err == nil && offset > 0 {
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, want.Size, nil
}
