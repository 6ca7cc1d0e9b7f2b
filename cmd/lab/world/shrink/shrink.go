// Package shrink makes a plan that fails smaller: fewer hosts, faults and steps, shorter faults. The failure needs
// all that is left.
package shrink

import (
	"context"
	"sync"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// Search looks for a smaller plan.
type Search struct {
	// Fails runs a plan, and reports whether it fails as the first one does. It is called by several goroutines.
	Fails func(context.Context, plan.Plan) (bool, error)
	// Jobs is how many plans are run side by side.
	Jobs int
	// Tries is how many seeds a smaller plan is tried with. The order of everything changes with the plan, so that the
	// same seed need not fail again.
	Tries int
	// Adopted is called with each smaller plan that fails, and with the change that made it; nil for never.
	Adopted func(p plan.Plan, change string)
}

// Smallest returns a plan that fails, of which no smaller one fails that the search knows to make. It starts from a
// plan that fails. When the context ends, it returns the smallest one so far with the context's error.
func (s Search) Smallest(ctx context.Context, p plan.Plan) (plan.Plan, error) {
	for {
		changed := false
		for _, pass := range passes {
			for {
				next, err := s.first(ctx, pass(p))
				if err != nil {
					return p, err
				}
				if next == nil {
					break
				}
				p, changed = next.plan, true
				if s.Adopted != nil {
					s.Adopted(p, next.change)
				}
			}
		}
		if !changed {
			return p, nil
		}
	}
}

// candidate is a smaller plan.
type candidate struct {
	plan   plan.Plan
	change string
}

// first returns the first of the candidates that fails, with the seed by which it does; nil for none. The answer does
// not depend on the number of jobs.
func (s Search) first(ctx context.Context, candidates []candidate) (*candidate, error) {
	for len(candidates) > 0 {
		batch := candidates[:min(max(s.Jobs, 1), len(candidates))]
		candidates = candidates[len(batch):]
		found, errs := make([]*candidate, len(batch)), make([]error, len(batch))
		var wait sync.WaitGroup
		for i, c := range batch {
			wait.Go(func() { found[i], errs[i] = s.try(ctx, c) })
		}
		wait.Wait()
		for i, c := range found {
			if errs[i] != nil || c != nil {
				return c, errs[i]
			}
		}
	}
	return nil, nil
}

// try runs a candidate with several seeds, the first of them its own. One of which no world could be made fails with none.
func (s Search) try(ctx context.Context, c candidate) (*candidate, error) {
	if c.plan.Check() != nil {
		return nil, nil
	}
	for range max(s.Tries, 1) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fails, err := s.Fails(ctx, c.plan)
		if err != nil {
			return nil, err
		}
		if fails {
			return &c, nil
		}
		c.plan.Seed++
	}
	return nil, nil
}
