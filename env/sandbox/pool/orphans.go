package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// removeOrphans ends what an earlier process of the owner left behind: what the driver knows of it and
// what the file names. A box of the file that is gone by itself is lost to its holder all the same.
func removeOrphans(ctx context.Context, o Options) ([]Orphan, error) {
	open, err := readJournal(o.File, o.Logf)
	if err != nil {
		return nil, err
	}
	there, err := o.Driver.List(ctx, o.Owner)
	if err != nil {
		return nil, fmt.Errorf("sandbox pool: asking %s which boxes of %s an earlier process left: %w", o.Driver.Name(), o.Owner, err)
	}
	for _, id := range there {
		if _, ok := open[id]; !ok {
			open[id] = ""
		}
	}
	orphans := make([]Orphan, 0, len(open))
	for id, holder := range open {
		if !id.OwnedBy(o.Owner) && !(o.Earlier != "" && id.OwnedBy(o.Earlier)) {
			return nil, fmt.Errorf("sandbox pool: %s names the box %s, which is not of %s: expected names that begin with %s. (is the file another run's?)", o.File, id, o.Owner, o.Owner)
		}
		orphans = append(orphans, Orphan{id, holder})
	}
	slices.SortFunc(orphans, func(a, b Orphan) int { return strings.Compare(string(a.Box), string(b.Box)) })
	return orphans, destroyAll(ctx, o, orphans)
}

// destroyAll ends boxes by their names, some at once, and names all that it could not.
func destroyAll(ctx context.Context, o Options, orphans []Orphan) error {
	var wait sync.WaitGroup
	failed, room := make([]error, len(orphans)), make(chan struct{}, o.Starting)
	for i, orphan := range orphans {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			if err := o.Driver.Destroy(ctx, orphan.Box); err != nil {
				failed[i] = fmt.Errorf("sandbox pool: the box %s that an earlier process left does not end: %w", orphan.Box, err)
			}
		})
	}
	wait.Wait()
	return errors.Join(failed...)
}
