package tinker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// VersionsOptions of [OpenVersions].
type VersionsOptions struct {
	// Delete deletes what the service has saved under a path; nil keeps everything there. An error that wraps
	// errors.ErrUnsupported says that the service deletes nothing.
	Delete func(ctx context.Context, path string) error
	// ReadOnly makes and deletes nothing in the directory, which is another process's.
	ReadOnly bool
	// Logf is told of copies that could not be deleted; nil tells no one.
	Logf func(format string, args ...any)
	// Fence, if not nil, is asked right before a version is put in its place; its error keeps it out.
	Fence func() error
}

// Errors that those of Versions wrap.
var (
	// ErrNotFound: the version is not there.
	ErrNotFound = errors.New("there is no such version")
	// ErrConflict: the version is there, as another.
	ErrConflict = errors.New("the version is there already, as another")
	// ErrElsewhere: the weights themselves lie with the service.
	ErrElsewhere = errors.New("the weights lie with the service, which saves and loads them itself")
)

// Versions keeps which versions a service has saved, and under which paths: one small file each, whole and synced
// or not there at all. It implements port.Weights and port.Asider as far as weights that lie elsewhere allow, and
// is safe for concurrent use.
type Versions struct {
	dir     string
	options VersionsOptions
	// writing: one file is put in its place at a time.
	writing sync.Mutex

	mu sync.Mutex
	// keepFrom hides older versions, whose deletion is under way.
	keepFrom loop.Version
	// pruning says that somebody deletes, again that he shall look again, unsupported that it was said.
	pruning, again, unsupported bool
	deletions                   sync.WaitGroup
	ctx                         context.Context
	cancel                      context.CancelFunc
}

var (
	_ port.Weights = (*Versions)(nil)
	_ port.Asider  = (*Versions)(nil)
)

// OpenVersions opens the versions in a directory, making it if it is not there, and deletes what a killed process
// has left half-written.
func OpenVersions(dir string, o VersionsOptions) (*Versions, error) {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	v := &Versions{dir: dir, options: o}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if o.ReadOnly {
		return v, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("versions: open: %w", err)
	}
	names, err := v.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if isTemporary(name) {
			if err := os.Remove(v.path(name)); err != nil {
				return nil, fmt.Errorf("versions: open: %w", err)
			}
		}
	}
	return v, nil
}

// Close ends deletions that are under way: the rest is deleted by a later Prune.
func (v *Versions) Close() error {
	v.cancel()
	v.deletions.Wait()
	return nil
}

// SamplerPath is where the service has saved what a version is sampled from. An error wraps ErrNotFound where the
// version is not there.
func (v *Versions) SamplerPath(version loop.Version) (string, error) {
	r, err := v.read(version)
	return r.Sampler, err
}

// statePath is where the service has saved a version's weights and optimizer.
func (v *Versions) statePath(version loop.Version) (string, error) {
	r, err := v.read(version)
	return r.State, err
}

// Newest is the newest version that can be read, loop.NoVersion if there is none.
func (v *Versions) Newest() loop.Version {
	all, err := v.all()
	if err != nil {
		return loop.NoVersion
	}
	for _, version := range slices.Backward(all) {
		if _, err := v.read(version); err == nil {
			return version
		}
	}
	return loop.NoVersion
}

// Versions implements port.Lister.
func (v *Versions) Versions() ([]loop.Version, error) { return v.all() }

// Committed implements port.Weights.
func (v *Versions) Committed(version loop.Version) (lease loop.LeaseID, ok bool, err error) {
	r, err := v.read(version)
	if errors.Is(err, ErrNotFound) {
		return 0, false, nil
	}
	return r.Lease, err == nil, err
}

// record says that the service has saved a version, durably. Saying the same again is fine; anything else of a
// version that is there is an error that wraps ErrConflict.
func (v *Versions) record(version loop.Version, lease loop.LeaseID, sampler, state string) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	made := record{Format: recordFormat, Version: version, Lease: lease, Sampler: sampler, State: state}
	switch there, err := v.readFile(fileName(version)); {
	case err == nil && there.is(&made):
		return replace.Directory(v.dir) // the first time may have failed there, with the file in place
	case err == nil:
		return fmt.Errorf("versions: version %d of lease %d (%s): %s has it of lease %d (%s): %w; delete the directory to begin another run",
			version, lease, sampler, v.dir, there.Lease, there.Sampler, ErrConflict)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := v.write(made); err != nil {
		return fmt.Errorf("versions: version %d: %w", version, err)
	}
	return nil
}

// sampleFrom says that what a version is sampled from has been saved once more, durably.
func (v *Versions) sampleFrom(version loop.Version, sampler string) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	r, err := v.read(version)
	if err != nil {
		return err
	}
	r.Former, r.Sampler = append(r.Former, r.Sampler), sampler
	if err := v.write(r); err != nil {
		return fmt.Errorf("versions: version %d: %w", version, err)
	}
	return nil
}

// SetAside implements port.Asider. The states that the service has saved are deleted with the versions of that time.
func (v *Versions) SetAside(version loop.Version) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	for n := 0; ; n++ {
		aside := fmt.Sprintf("%s%d-%s", orphanPrefix, n, fileName(version))
		if _, err := os.Lstat(v.path(aside)); !errors.Is(err, fs.ErrNotExist) {
			continue // of an earlier time
		}
		err := os.Rename(v.path(fileName(version)), v.path(aside))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = replace.Directory(v.dir)
		}
		if err != nil {
			return fmt.Errorf("versions: set version %d aside: %w", version, err)
		}
		return nil
	}
}

// Publish implements port.Weights: it always fails, and the error wraps ErrElsewhere.
func (v *Versions) Publish(_ context.Context, p port.Publication) error {
	return fmt.Errorf("versions: publish version %d: %w", p.Version, ErrElsewhere)
}

// Model implements port.Weights like Publish.
func (v *Versions) Model(_ context.Context, version loop.Version) ([]port.Tensor, error) {
	return nil, fmt.Errorf("versions: read version %d: %w", version, ErrElsewhere)
}

// Optimizer implements port.Weights like Publish.
func (v *Versions) Optimizer(_ context.Context, version loop.Version) ([]port.Tensor, error) {
	return nil, fmt.Errorf("versions: read the optimizer of version %d: %w", version, ErrElsewhere)
}
