package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/lock"
)

// Old selects the runs that may go: those last written longer than the given age ago, and not among the newest keep.
// A run that goes on, or may, is never among them, and counts among the newest. List has the order.
func Old(all []Run, older time.Duration, keep int) (old []Run) {
	for i, r := range all {
		if i >= keep && r.State != Running && r.State != Unknown && r.AgeS >= older.Seconds() {
			old = append(old, r)
		}
	}
	return old
}

// Remove removes a run directory with all that is in it. It refuses what is no run directory, and a run that a process
// writes or may write. It holds the run's locks meanwhile, so that the run cannot begin again. The files by which it is
// known go last: a removal that was interrupted leaves a run directory, which can be removed again.
func Remove(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if _, is := madeBy(dir); !is || !info.IsDir() {
		return failure.Usage("delete it by other means, if it is to go", "%s is no run directory", dir)
	}
	if run, _ := read(dir, time.Time{}); run.State == Unknown {
		return failure.Run("see that no process writes it, and delete it by other means", "the log of %s is in a NATS cluster, and has no end", dir)
	}
	release, err := Lock(dir)
	if err != nil {
		return failure.Run("stop the run first", "%w", err)
	}
	defer release()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name == parts.ConfigFile || name == origin.AddressFile || name == "state" || trace.Is(name) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("removing %s: %w", dir, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

// Lock takes all locks of a run directory, or of one of versions, so that no process writes it until release.
// The error names the process that does.
func Lock(dir string) (release func(), err error) {
	var held []*lock.Lock
	release = func() {
		for _, l := range held {
			l.Release()
		}
	}
	paths, err := locks(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		l, err := lock.Take(path, dir)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, l)
	}
	return release, nil
}

// escaped is a path as a pattern that matches it alone.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
