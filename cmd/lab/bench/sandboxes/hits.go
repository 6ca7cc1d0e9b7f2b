//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
)

// poolHits leases boxes that stand ready: new ones, and such as were used before.
func (t technology) poolHits(ctx context.Context, driver sandbox.Driver) error {
	for _, reuse := range []pool.Reuse{pool.Never, pool.Reset} {
		p, err := pool.Open(ctx, pool.Options{Driver: driver, Spec: spec, Owner: owner, WarmMin: 4, WarmMax: 8, Reuse: reuse, Max: 16})
		if err != nil {
			return err
		}
		times, err := t.hits(ctx, p)
		s := p.Status()
		if closing := p.Close(ctx); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
		row(fmt.Sprintf("lease of a box that stands ready, reuse %s", reuse), times, fmt.Sprintf("%d of %d leases hit, %d reused", s.Hits, s.Created+s.Reused, s.Reused))
	}
	return nil
}

// hits times leases, each asked for once a box stands ready, up to its first byte read.
func (t technology) hits(ctx context.Context, p *pool.Pool) (times []time.Duration, err error) {
	for i := range 5 * t.alone {
		if err := standing(ctx, p); err != nil {
			return nil, err
		}
		l, err := p.Lease(ctx, fmt.Sprint(i))
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := l.Ready(ctx); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		if err := l.Write(ctx, sandbox.Work+"/mine", []byte(l.Holder()), 0o644); err != nil {
			return nil, err
		}
		if err := l.Close(ctx); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// standing waits until all is quiet: boxes stand ready, none starts or ends.
func standing(ctx context.Context, p *pool.Pool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for {
		s := p.Status()
		if s.Warm >= max(s.WarmWanted, 1) && s.Starting == 0 && s.Ending == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no box stands ready after a minute: %+v", s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
