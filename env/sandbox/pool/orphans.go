package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/env/sandbox"
)

// removeOrphans ends what an earlier process of the owner left behind: what the driver knows of it and
// what the file names. A box of the file that is gone by itself is lost to its holder all the same. Late are those that did not
// end because a backend does not answer.
func removeOrphans(ctx context.Context, o Options) (orphans []Orphan, late []sandbox.ID, err error) {
	open, err := readJournal(o.File, o.Logf)
	if err != nil {
		return nil, nil, err
	}
	there, err := o.Driver.List(ctx, o.Owner)
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox pool: asking %s which boxes of %s an earlier process left: %w", o.Driver.Name(), o.Owner, err)
	}
	for _, id := range there {
		if _, ok := open[id]; !ok {
			open[id] = ""
		}
	}
	orphans = make([]Orphan, 0, len(open))
	for id, holder := range open {
		if !id.OwnedBy(o.Owner) && !(o.Earlier != "" && id.OwnedBy(o.Earlier)) {
			return nil, nil, fmt.Errorf("sandbox pool: %s names the box %s, which is not of %s: expected names that begin with %s. (is the file another run's?)", o.File, id, o.Owner, o.Owner)
		}
		orphans = append(orphans, Orphan{id, holder})
	}
	slices.SortFunc(orphans, func(a, b Orphan) int { return strings.Compare(string(a.Box), string(b.Box)) })
	late, err = destroyAll(ctx, o, orphans)
	return orphans, late, err
}

// destroyAll ends boxes by their names, some at once. The error names those that it could not end, but for those whose backend
// does not answer, which are late.
func destroyAll(ctx context.Context, o Options, orphans []Orphan) (late []sandbox.ID, err error) {
	var wait sync.WaitGroup
	failed, silent, room := make([]error, len(orphans)), make([]bool, len(orphans)), make(chan struct{}, o.Starting)
	for i, orphan := range orphans {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			err := o.Driver.Destroy(ctx, orphan.Box)
			if sandbox.ClassOf(err) == sandbox.BackendDown && ctx.Err() == nil {
				silent[i] = true
			} else if err != nil {
				failed[i] = fmt.Errorf("sandbox pool: the box %s that an earlier process left does not end: %w", orphan.Box, err)
			}
		})
	}
	wait.Wait()
	for i, orphan := range orphans {
		if silent[i] {
			late = append(late, orphan.Box)
		}
	}
	return late, errors.Join(failed...)
}
