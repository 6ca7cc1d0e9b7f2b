package weights

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Options of a Store. The zero value writes, and its published versions survive kill -9.
type Options struct {
	// Always waits for the disk on every publish, so that a version survives a loss of
	// power too. It is slower by the disk's latency, several times a publish.
	Always bool
	// ReadOnly changes nothing in the directory, not even what a killed publish left:
	// for looking at the versions of a run that is going on.
	ReadOnly bool
	// Beside is of a process beside the one that publishes. The directory is there, and unfinished versions in it
	// stay. Views are made as usual.
	Beside bool
	// AcceptNonFinite publishes model tensors from files without looking for NaN and
	// infinity in them.
	AcceptNonFinite bool
	// Directories are those below which AddDirectory takes files, by an absolute path or from the working directory of Open;
	// none if empty.
	Directories []string
	// Epoch is that of this writer, higher than those of all before; 0: there is one writer
	// for good. With it, a version that another writer puts there after Open is not one. It is not
	// seen, and set aside when it is published here. A writer may have been deposed at any moment
	// without knowing it, the one right before it publishes included.
	Epoch uint64
	// Fence, if not nil, is asked right before any version is put in its place; its error
	// keeps it out.
	Fence func() error
	// Logf is told of events beside the calls, by the goroutine that makes them; nil tells no one.
	Logf func(format string, args ...any)
	// Link lets AddDirectory give a file a second name instead of copying it, where the file system
	// can. That is faster, but then the file's writer must never write into it again.
	Link bool
}

// Store keeps versions in a directory. Its methods are safe for concurrent use.
type Store struct {
	dir     string
	options Options
	disk    disk

	// temporaries numbers temporary directories, and nonce is in their names, so that no
	// two have one name, not even of two processes.
	temporaries atomic.Int64
	nonce       string
	// settled is the newest version that was there at Open, or has been published here.
	settled atomic.Int64

	// weighted is the newest version that this Store published with weights, plus 1.
	weighted atomic.Int64

	publishing sync.Mutex // one publish at a time
	encoder    encoder    // its buffers, kept from publish to publish
}

var _ port.Weights = (*Store)(nil)

// temporaryPrefix begins the names of directories that are no versions: being
// written, being deleted, or left behind.
const temporaryPrefix = ".temporary-"

// Open opens the versions in a directory, making it if it is not there, and
// deletes what a killed publish or prune left. It verifies no version: that is
// Model, Optimizer and Verify.
func Open(dir string, options Options) (*Store, error) {
	return open(dir, options, system{})
}

func open(dir string, options Options, d disk) (*Store, error) {
	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}
	options.Directories = slices.Clone(options.Directories)
	for i, base := range options.Directories { // a trainer names its own by an absolute path
		var err error
		if options.Directories[i], err = filepath.Abs(base); err != nil {
			return nil, fmt.Errorf("weights: open: %w", err)
		}
	}
	s := &Store{dir: dir, options: options, disk: d, nonce: rand.Text()[:8]}
	s.settled.Store(int64(maxVersion))
	if options.ReadOnly || options.Beside {
		if _, err := d.Names(dir); err != nil {
			return nil, fmt.Errorf("weights: open: %w", err)
		}
		return s, nil
	}
	if err := d.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("weights: open: %w", err)
	}
	if options.Always {
		if err := d.SyncDir(filepath.Dir(dir)); err != nil {
			return nil, fmt.Errorf("weights: open: %w", err)
		}
	}
	if err := s.clean(); err != nil {
		return nil, fmt.Errorf("weights: open: %w", err)
	}
	if options.Epoch != 0 {
		versions, err := s.Versions()
		if err != nil {
			return nil, err
		}
		s.settled.Store(int64(loop.NoVersion))
		if n := len(versions); n > 0 {
			s.settled.Store(int64(versions[n-1]))
		}
	}
	return s, nil
}

// clean deletes temporary directories.
func (s *Store) clean() error {
	names, err := s.disk.Names(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, temporaryPrefix) {
			if err := s.disk.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// directory returns the path of a version.
func (s *Store) directory(version loop.Version) string {
	return filepath.Join(s.dir, versionName(version))
}

// temporary returns a fresh path for what is not a version, or not any more.
func (s *Store) temporary(version loop.Version) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s%s-%d-%s", temporaryPrefix, s.nonce, s.temporaries.Add(1), versionName(version)))
}

func versionName(version loop.Version) string { return fmt.Sprintf("v%06d", version) }

// parseVersion reads a directory's name; only what versionName writes is one.
func parseVersion(name string) (loop.Version, bool) {
	digits, ok := strings.CutPrefix(name, "v")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || versionName(loop.Version(n)) != name {
		return 0, false
	}
	return loop.Version(n), true
}

// listings bounds how often Versions looks again at a directory that changes.
const listings = 100

// Versions lists the published versions, ascending.
func (s *Store) Versions() ([]loop.Version, error) {
	var versions, missing []loop.Version
	for range listings {
		before := missing
		var err error
		if versions, missing, err = s.list(); err != nil {
			return nil, fmt.Errorf("weights: list: %w", err)
		}
		// What lacks a manifest was never whole, or is being pruned. Then the names are
		// from before newer versions, and all of them may be gone: look again.
		if slices.Equal(missing, before) {
			break
		}
	}
	return versions, nil
}

// list reads the directory once; missing are the directories without a manifest.
func (s *Store) list() (versions, missing []loop.Version, err error) {
	names, err := s.disk.Names(s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		version, ok := parseVersion(name)
		if !ok {
			continue
		}
		f, err := s.disk.Open(filepath.Join(s.dir, name, ManifestName))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, version)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		_ = f.Close() // it was only read
		if int64(version) > s.settled.Load() {
			if m, err := s.anyManifest(version); err != nil || s.foreign(&m) {
				continue
			}
		}
		versions = append(versions, version)
	}
	slices.Sort(versions) // names of seven digits sort before those of six
	return versions, missing, nil
}

// Manifest reads the manifest of a version and verifies its own hash, and no
// other file's. A version that is not there is ErrNotFound.
func (s *Store) Manifest(version loop.Version) (Manifest, error) {
	m, err := s.anyManifest(version)
	if err == nil && s.foreign(&m) {
		return Manifest{}, s.notFound(version)
	}
	return m, err
}

// anyManifest is Manifest of a foreign version too.
func (s *Store) anyManifest(version loop.Version) (Manifest, error) {
	text, path, err := s.manifestText(version)
	if err != nil {
		return Manifest{}, err
	}
	return parseManifest(text, version, path)
}

func (s *Store) notFound(version loop.Version) error {
	return fmt.Errorf("weights: version %d in %s: %w", version, s.dir, ErrNotFound)
}

// manifestText reads a manifest's file; path is for errors.
func (s *Store) manifestText(version loop.Version) (text []byte, path string, err error) {
	path = filepath.Join(s.directory(version), ManifestName)
	f, err := s.disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, s.notFound(version)
	}
	if err != nil {
		return nil, path, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if text, err = io.ReadAll(io.LimitReader(f, HeaderBytesMax)); err != nil {
		return nil, path, fmt.Errorf("weights: manifest of version %d: %w", version, err)
	}
	return text, path, nil
}

// Committed returns the lease that produced a published version, and whether it is there.
func (s *Store) Committed(version loop.Version) (lease loop.LeaseID, ok bool, err error) {
	m, err := s.Manifest(version)
	if errors.Is(err, ErrNotFound) {
		return 0, false, nil
	}
	return m.Lease, err == nil, err
}

// Prune deletes the versions below keepFrom, but never the newest one, nor the newest
// one that has weights. A reader of one that goes either finishes or gets ErrNotFound.
// After an error the rest has been tried all the same.
func (s *Store) Prune(keepFrom loop.Version) error {
	if s.options.ReadOnly {
		return fmt.Errorf("weights: prune %s: %w", s.dir, ErrReadOnly)
	}
	versions, err := s.Versions()
	if err != nil || len(versions) == 0 {
		return err
	}
	newest, err := s.weightiest(versions)
	if err != nil {
		return err
	}
	var failures []error
	for _, version := range versions[:len(versions)-1] {
		if version >= keepFrom {
			break
		}
		if version == newest {
			continue
		}
		if err := s.remove(version); err != nil {
			failures = append(failures, fmt.Errorf("weights: prune version %d: %w", version, err))
		}
	}
	if s.options.Epoch != 0 {
		failures = append(failures, s.pruneOrphans(keepFrom))
	}
	return errors.Join(failures...)
}

// weightiest is the newest of the versions that has weights, loop.NoVersion if none has.
func (s *Store) weightiest(versions []loop.Version) (loop.Version, error) {
	if last := versions[len(versions)-1]; loop.Version(s.weighted.Load()-1) == last {
		return last, nil // as after every publish: no manifest needs to be read
	}
	m, err := s.newestBelow(maxVersion)
	if m == nil || err != nil {
		return loop.NoVersion, err
	}
	return m.Version, nil
}

// remove takes a directory out of the versions at once, then deletes it.
func (s *Store) remove(version loop.Version) error {
	aside := s.temporary(version)
	err := s.disk.Rename(s.directory(version), aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another prune was faster
	}
	if err != nil {
		return err
	}
	// What somebody was just renaming into the version may still land where it was moved, and no more
	// can begin to.
	for range removals {
		if err = s.disk.RemoveAll(aside); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	return err
}

// removals bounds how often a directory is emptied that others still finish with.
const removals = 100

// unlessGone is err, or ErrNotFound where the version is not there: one that was pruned meanwhile is
// neither damaged nor a failure of the disk.
func (s *Store) unlessGone(version loop.Version, err error) error {
	if err == nil {
		return nil
	}
	if _, gone := s.Manifest(version); errors.Is(gone, ErrNotFound) {
		return gone
	}
	return err
}
