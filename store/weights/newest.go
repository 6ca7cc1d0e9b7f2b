package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

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

// Published is when a version was put in its place, as its manifest's file has it.
func (s *Store) Published(version loop.Version) (time.Time, error) {
	f, err := s.disk.Open(filepath.Join(s.directory(version), ManifestName))
	if isAbsent(err) {
		return time.Time{}, fmt.Errorf("weights: version %d in %s: %w", version, s.dir, ErrNotFound)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	return info.ModTime(), nil
}

// Keep says the effect that Prune would have if the newest so many versions with weights were kept.
// It returns the version to prune below, and the versions that would go. A version that cannot be
// read counts for none, and goes with its neighbours.
func (s *Store) Keep(newest int) (keepFrom loop.Version, gone []loop.Version, err error) {
	versions, err := s.Versions()
	if err != nil || len(versions) == 0 {
		return 0, nil, err
	}
	for _, v := range slices.Backward(versions) {
		m, err := s.Manifest(v)
		if err == nil && m.Kind == KindFull {
			if newest--; newest <= 0 {
				keepFrom = v
				break
			}
		}
	}
	for _, v := range versions[:len(versions)-1] {
		if v < keepFrom {
			gone = append(gone, v)
		}
	}
	return keepFrom, gone, nil
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
	m, err := parseManifest(text, version, path)
	if err != nil {
		return nil, err
	}
	if s.foreign(&m) {
		return nil, s.notFound(version)
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
