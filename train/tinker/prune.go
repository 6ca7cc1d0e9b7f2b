package tinker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
)

// deletePatience is how long one deletion at the service may take.
const deletePatience = time.Minute

// Prune implements port.Weights. Versions below keepFrom are not there any more when it returns. The service's copies
// of them are deleted beside, so that a slow service holds up no call, and a version's file last. A copy that could not
// be deleted is tried again by the next Prune, of this process or a later one.
func (v *Versions) Prune(keepFrom loop.Version) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keepFrom = max(v.keepFrom, keepFrom)
	v.again = true
	if !v.pruning && v.ctx.Err() == nil {
		v.pruning = true
		v.deletions.Go(v.prune)
	}
	return nil
}

// prune deletes as long as Prune has been called since it began.
func (v *Versions) prune() {
	for {
		v.mu.Lock()
		keepFrom := v.keepFrom
		if !v.again || v.ctx.Err() != nil {
			v.pruning = false
			v.mu.Unlock()
			return
		}
		v.again = false
		v.mu.Unlock()
		names, err := v.names()
		if err != nil {
			v.options.Logf("pruning versions below %d: %v", keepFrom, err)
		}
		for _, name := range names {
			if version, ok := versionOf(strings.TrimPrefix(name, orphanOf(name))); ok && version < keepFrom && v.ctx.Err() == nil {
				v.deleteVersion(name)
			}
		}
	}
}

// orphanOf is what stands before the version in the name of one that was set aside, else "".
func orphanOf(name string) string {
	rest, ok := strings.CutPrefix(name, orphanPrefix)
	number, _, found := strings.Cut(rest, "-")
	if !ok || !found {
		return ""
	}
	return orphanPrefix + number + "-"
}

// deleteVersion deletes what the service has of a version, and then its file.
func (v *Versions) deleteVersion(name string) {
	r, err := v.readFile(name)
	for _, path := range append([]string{r.Sampler, r.State}, r.Former...) {
		if err == nil {
			err = v.deletePath(path)
		}
	}
	if err == nil {
		err = os.Remove(v.path(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && v.ctx.Err() == nil {
		v.options.Logf("pruning %s: %v; it is tried again at the next version", name, err)
	}
}

// deletePath deletes at the service, if it can.
func (v *Versions) deletePath(path string) error {
	if v.options.Delete == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, deletePatience)
	defer cancel()
	err := v.options.Delete(ctx, path)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.unsupported {
		v.unsupported = true
		v.options.Logf("the service deletes nothing that was saved (%v): versions pile up there", err)
	}
	return nil
}
