package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// orphanPrefix begins the names of directories that were versions of nobody's batch:
// orphan-vN-TEXT. Prune deletes them with the versions of their time.
const orphanPrefix = "orphan-"

// foreign reports whether a version is of another writer, who put it there after this one
// had taken over: the run does not know of it.
func (s *Store) foreign(m *Manifest) bool {
	return int64(m.Version) > s.settled.Load() && m.Epoch != s.options.Epoch
}

// settle says that a version was put in its place here.
func (s *Store) settle(version loop.Version) {
	for {
		before := s.settled.Load()
		if before >= int64(version) || s.settled.CompareAndSwap(before, int64(version)) {
			return
		}
	}
}

// unsettle says that a version is not there any more: should its writer publish it once
// more, that is not one either.
func (s *Store) unsettle(version loop.Version) {
	for {
		before := s.settled.Load()
		if before < int64(version) || s.settled.CompareAndSwap(before, int64(version)-1) {
			return
		}
	}
}

// SetAside takes a version out of the run. It was published by a writer that had been deposed, of a
// batch that the run has given to another trainer since. It stays in the directory orphan-vN-… until
// the versions of its time are pruned.
func (s *Store) SetAside(version loop.Version) error {
	if s.options.ReadOnly {
		return fmt.Errorf("weights: set version %d aside in %s: %w", version, s.dir, ErrReadOnly)
	}
	m, err := s.anyManifest(version)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%s-epoch%d-lease%d-%s%d", orphanPrefix, versionName(version), m.Epoch, m.Lease, s.nonce, s.temporaries.Add(1))
	err = s.disk.Rename(s.directory(version), filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another was faster
	}
	if err != nil {
		return fmt.Errorf("weights: set version %d aside: %w", version, err)
	}
	if s.options.Epoch != 0 {
		s.unsettle(version)
	}
	s.options.Logf("weights: version %d of lease %d, published by a writer that was deposed (epoch %d), is set aside as %s: the run gave that batch to another lease",
		version, m.Lease, m.Epoch, name)
	return s.syncDir(s.dir)
}

// pruneOrphans deletes what was set aside of versions below keepFrom.
func (s *Store) pruneOrphans(keepFrom loop.Version) error {
	names, err := s.disk.Names(s.dir)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, orphanPrefix+"v"); ok {
			digits, _, _ := strings.Cut(rest, "-")
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && loop.Version(n) < keepFrom {
				failures = append(failures, s.disk.RemoveAll(filepath.Join(s.dir, name)))
			}
		}
	}
	return errors.Join(failures...)
}
