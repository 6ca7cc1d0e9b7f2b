package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/loop"
)

// Delivery is a way for versions to come to a receiver. They come from other nodes over TCP ([Store]), on
// a disk that all share ([Shared]), or through an object store.
type Delivery interface {
	// Fetch brings a version here, whole or not at all; its offer and parents are of use to [Store] alone.
	Fetch(ctx context.Context, load Load) (Phases, error)
	// Path is the directory of a version that has been fetched.
	Path(version loop.Version) string
	// Served says which version is served from now on, which is not to be removed.
	Served(version loop.Version)
	// Discard removes what is here of a version, for a full reload.
	Discard(version loop.Version) error
	// Clean removes what earlier processes left half done.
	Clean() error
}

var (
	_ Delivery = (*Store)(nil)
	_ Delivery = Shared{}
)

// Discard implements Delivery.
func (s *Store) Discard(version loop.Version) error {
	if s.Source != nil {
		s.Source.Remove(version)
	}
	s.proven.Delete(version)
	return Remove(s.Path(version))
}

// Remove deletes the directory of a version so that it is at no moment there in part. A process that
// is killed meanwhile leaves a directory that Clean removes.
func Remove(dir string) error {
	aside := filepath.Join(filepath.Dir(dir), fmt.Sprintf(".gone-%s-%d", filepath.Base(dir), time.Now().UnixNano()))
	if err := os.Rename(dir, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("transfer: removing a version: %w", err)
	}
	return os.RemoveAll(aside)
}

// Shared copies nothing. Versions lie on a disk that the control plane and the engines
// share, and are read where they were published.
type Shared struct {
	// Dir is the control plane's directory of versions, as this node sees it.
	Dir string
	// Patience is how long a version may take to show up here after it was published there: a
	// network's file system may lag. 0 does not wait.
	Patience time.Duration
}

// lookAgain is the pause between two looks at a shared disk.
const lookAgain = 20 * time.Millisecond

// Fetch implements Delivery: it waits until the version's manifest, which is there last, can be seen.
// Then it reads all files once, so that an engine finds them in this node's memory.
func (s Shared) Fetch(ctx context.Context, load Load) (p Phases, err error) {
	began, version := time.Now(), load.Version
	for {
		_, err = os.Stat(filepath.Join(s.Path(version), manifestName))
		if !errors.Is(err, fs.ErrNotExist) || time.Since(began) >= s.Patience {
			break
		}
		if pause.For(ctx, lookAgain) != nil {
			return p, ctx.Err()
		}
	}
	if err != nil {
		return p, fmt.Errorf("transfer: version %d is not on the shared disk: %w; is %s the control plane's directory of versions?", version, err, s.Dir)
	}
	p.FirstS = time.Since(began).Seconds()
	err = fs.WalkDir(os.DirFS(s.Path(version)), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == manifestName {
			return errors.Join(err, ctx.Err())
		}
		f, err := os.Open(filepath.Join(s.Path(version), name))
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := io.Copy(io.Discard, f)
		p.Bytes += n
		return err
	})
	p.TransferS = time.Since(began).Seconds()
	if err != nil {
		return p, fmt.Errorf("transfer: version %d on the shared disk: %w", version, err)
	}
	return p, nil
}

// Path implements Delivery.
func (s Shared) Path(version loop.Version) string {
	return filepath.Join(s.Dir, fmt.Sprintf("v%06d", version))
}

// Served implements Delivery.
func (s Shared) Served(loop.Version) {}

// Discard implements Delivery: the files there are the control plane's.
func (s Shared) Discard(loop.Version) error { return nil }

// Clean implements Delivery.
func (s Shared) Clean() error { return nil }
